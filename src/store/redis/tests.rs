//! Redis-specific tests, with a private server where it is stopped, paused or configured.

mod durable;
mod expiry;
mod faults;

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use redis::{Client, aio::MultiplexedConnection, cmd};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use url::Url;

use super::*;
use crate::store::tests::{entry, redis_store};

/// A Redis server process that ends with the test.
struct TestServer {
    child: Child,
    folder: TempDir,
}

impl TestServer {
    async fn start(args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let child = spawn(folder.path(), args);
        let server = Self { child, folder };
        server.wait_until_up().await;
        server
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("s")
    }

    /// URL of the server's socket, with these parameters.
    fn url(&self, parameters: &str) -> EngineUrl {
        let url = format!("redis+unix://{}?{parameters}", self.socket().display());
        EngineUrl::new(Url::parse(&url).unwrap())
    }

    async fn store(&self, parameters: &str) -> RedisStore {
        RedisStore::open(&self.url(parameters), None).await.unwrap()
    }

    async fn conn(&self) -> MultiplexedConnection {
        let client = Client::open(self.url("").reveal().as_str()).unwrap();
        client.get_multiplexed_async_connection().await.unwrap()
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts the server again over the same files.
    async fn restart(&mut self, args: &[&str]) {
        self.child = spawn(self.folder.path(), args);
        self.wait_until_up().await;
    }

    async fn wait_until_up(&self) {
        let client = Client::open(self.url("").reveal().as_str()).unwrap();
        for _ in 0..500 {
            if let Ok(mut conn) = client.get_multiplexed_async_connection().await {
                match cmd("PING").query_async::<()>(&mut conn).await {
                    // Any reply other than LOADING counts as up, also a demand for a password.
                    Err(error) if error.code() == Some("LOADING") => {}
                    _ => return,
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the Redis server does not start");
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(folder: &Path, args: &[&str]) -> Child {
    let program = std::env::var("CITETAP_TEST_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
    let mut command = Command::new(&program);
    command.args(["--port", "0", "--save", "", "--unixsocket", "s", "--dir"]).arg(folder).args(args);
    command.stdout(Stdio::null()).spawn().unwrap_or_else(|_| panic!("no {program}: install the package redis-server"))
}

/// All keys made by a store.
async fn keys_of(store: &RedisStore) -> Vec<String> {
    let pattern = format!("{}:*", store.address.prefix);
    let found = store.reads.call(READ_TIMEOUT, async |conn, _| Ok(cmd("KEYS").arg(&pattern).query_async(conn).await?));
    found.await.unwrap()
}

/// Sends one command, as an operator could.
async fn run<T: redis::FromRedisValue>(store: &RedisStore, words: &[&str]) -> T {
    let (name, args) = words.split_first().unwrap();
    store.writes.call(READ_TIMEOUT, async |conn, _| Ok(cmd(name).arg(args).query_async(conn).await?)).await.unwrap()
}

fn commit(task: &str) -> Advance {
    Advance {
        tenant: "t".to_owned(),
        task: task.to_owned(),
        consumer: "c".to_owned(),
        last: Some(("q1".to_owned(), "a".to_owned())),
        sources: vec!["a".to_owned()],
        now_ms: 1,
    }
}

/// A value names its owner, so that a record copied to another key is not served.
#[tokio::test]
async fn value_under_another_key_is_not_served() {
    let store = redis_store(None).await;
    let mut conversation = entry("t", "p", "1", 1);
    conversation.record.conversation_id = Some("talk".to_owned());
    store
        .put(&[conversation, entry("t", "p", "2", 1), entry("u", "p", "1", 1), entry("t", "q", "1", 9)])
        .await
        .unwrap();
    let (ours, theirs) = (store.keys("t"), store.keys("u"));
    let all = Filter::default();
    for (from, to) in [
        (theirs.record("p", "1"), ours.record("p", "1")),
        (ours.record("p", "2"), ours.record("p", "1")),
        (ours.record("q", "1"), ours.record("p", "1")),
    ] {
        run::<()>(&store, &["COPY", &from, &to, "REPLACE"]).await;
        assert_eq!(store.get("t", "1", Some("p")).await, Err(StoreError::Mismatch), "{from}");
        assert_eq!(store.list("t", &all).await.unwrap_err(), StoreError::Mismatch, "{from}");
        assert_eq!(store.task("t", "talk", None, 9).await.unwrap_err(), StoreError::Mismatch, "{from}");
        assert!(store.get("t", "2", None).await.unwrap().is_some());
    }
    // The same record under another member.
    run::<()>(&store, &["ZADD", &ours.of("i:", "2"), "0", &(keys::descending(7) + &keys::join_name("p", "2"))]).await;
    assert_eq!(store.get("t", "2", None).await, Err(StoreError::Mismatch));
    run::<()>(&store, &["HSET", &ours.record("p", "2"), "b", "{}"]).await;
    let error = store.get("t", "2", Some("p")).await.unwrap_err();
    assert_eq!(error.to_string(), "store: redis: a stored value is not readable");
}

/// A cluster node refuses scripts over several slots; the slot depends on the hash tag only.
#[tokio::test]
async fn tenant_keys_share_one_cluster_slot() {
    let server = TestServer::start(&["--cluster-enabled", "yes"]).await;
    cmd("CLUSTER").arg(&["ADDSLOTSRANGE", "0", "16383"]).query_async::<()>(&mut server.conn().await).await.unwrap();
    let store = RedisStore::open(&server.url("durable=memory"), Some(Duration::from_secs(60))).await.unwrap();
    let mut put = Err(StoreError::Closed);
    for _ in 0..100 {
        let mut one = entry("t", "p", "1", now());
        one.record.conversation_id = Some("{u}".to_owned());
        one.record.task_id = Some("{u}".to_owned());
        put = store.put(&[one, entry("{u}", "p", "1", now()), entry("", "p", "1", now())]).await;
        match &put {
            // The cluster state takes a moment to settle.
            Err(StoreError::Engine(what)) if what.contains("cluster is down") => {}
            _ => break,
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    put.unwrap();
    assert!(matches!(store.advance(&commit("{u}")).await, Ok(AdvanceOutcome::Moved(_))));
    let mut kinds = std::collections::BTreeSet::new();
    for tenant in ["t", "{u}", ""] {
        assert_eq!(store.list(tenant, &Filter::default()).await.unwrap().entries.len(), 1);
        let base = store.keys(tenant).base;
        let expected: u64 = run(&store, &["CLUSTER", "KEYSLOT", &base]).await;
        for key in keys_of(&store).await.iter().filter(|key| key.starts_with(&base)) {
            let slot: u64 = run(&store, &["CLUSTER", "KEYSLOT", key]).await;
            assert_eq!(slot, expected, "{key}");
            kinds.insert(key[base.len()..].chars().next().unwrap());
        }
    }
    assert_eq!(kinds.iter().collect::<String>(), "cdinqrstvx", "every kind of key was there");
    assert_eq!(store.sweep(i64::MAX).await.unwrap(), 3);
    let left = keys_of(&store).await;
    assert_eq!(left, ["citetap:tenants"], "nothing is left of records that were swept");
}

#[tokio::test]
async fn bus_delivers_until_the_connection_is_lost() {
    let server = TestServer::start(&[]).await;
    let (one, other) = (server.store("").await, server.store("").await);
    let elsewhere = server.store("prefix=other").await;
    let [one, other, elsewhere] = [one, other, elsewhere].map(|store| store.bus().unwrap());
    let (mut subscription, mut second) = (one.subscribe().await.unwrap(), other.subscribe().await.unwrap());
    elsewhere.publish("nobody hears it").await.unwrap();
    // Dropping a waiting `recv` loses nothing.
    assert!(tokio::time::timeout(Duration::from_millis(50), subscription.recv()).await.is_err());
    let long = format!("{{\"long\":\"{}\"}}", "汉".repeat(400_000));
    one.publish("{\"n\":1}").await.unwrap();
    other.publish(&long).await.unwrap();
    for subscription in [&mut subscription, &mut second] {
        assert_eq!(subscription.recv().await.unwrap(), "{\"n\":1}");
        assert!(subscription.recv().await.unwrap() == long);
    }
    cmd("CLIENT").arg(&["KILL", "TYPE", "pubsub"]).query_async::<()>(&mut server.conn().await).await.unwrap();
    for subscription in [&mut subscription, &mut second] {
        let error = subscription.recv().await.unwrap_err();
        assert_eq!(error.to_string(), "store: redis: the connection was lost");
        assert!(subscription.recv().await.is_err());
    }
    let mut again = one.subscribe().await.unwrap();
    other.publish("{}").await.unwrap();
    assert_eq!(again.recv().await.unwrap(), "{}");
    // A subscriber that does not read is disconnected, so that payloads cannot pile up.
    let payload = "x".repeat(1 << 20);
    for _ in 0..60 {
        other.publish(&payload).await.unwrap();
    }
    let mut received = 0;
    while again.recv().await.is_ok() {
        received += 1;
    }
    assert!(received < 60, "all of them waited");
}

#[test]
fn batch_over_script_limits_is_split() {
    let entry = entry("t", "p", "1", 1);
    let value = |work, bytes| EncodedValue {
        entry: &entry,
        name: String::new(),
        meta: String::new(),
        body: "x".repeat(bytes),
        work,
    };
    let (small, wide, heavy) = (|| value(9, 9), || value(SCRIPT_WORK_MAX / 2, 9), || value(9, SCRIPT_BYTES_MAX));
    let values = [small(), wide(), wide(), small(), heavy(), heavy(), small()];
    let lens: Vec<_> = script_batches(&values).map(<[_]>::len).collect();
    assert_eq!(lens, [2, 2, 1, 1, 1]);
    assert_eq!(script_batches(&[]).count(), 0);
}
