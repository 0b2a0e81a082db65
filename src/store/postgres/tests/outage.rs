//! A server that goes away and comes back, as a network between us and it shows it.

use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    time::Instant,
};

use super::*;
use crate::store::{Writer, tests::server};

/// Forwards to the server, or does not.
struct Network {
    url: Url,
    state: Arc<AtomicU8>,
}

const UP: u8 = 0;
/// Connections are ended, and no new one is served.
const DOWN: u8 = 1;
/// Nothing comes through, and nobody is told.
const SILENT: u8 = 2;

impl Network {
    async fn new(state: u8) -> Self {
        let server = server::postgres_url().await;
        let to = (server.host_str().unwrap().to_owned(), server.port().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut url = server;
        url.set_port(Some(listener.local_addr().unwrap().port())).unwrap();
        let state = Arc::new(AtomicU8::new(state));
        let seen = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (seen, to) = (Arc::clone(&seen), to.clone());
                tokio::spawn(async move {
                    if seen.load(SeqCst) == DOWN {
                        return;
                    }
                    let mut server = TcpStream::connect(to).await.unwrap();
                    loop {
                        let moved = tokio::time::timeout(Duration::from_millis(20), async {
                            if seen.load(SeqCst) == UP {
                                return copy_bidirectional(&mut client, &mut server).await.is_ok();
                            }
                            std::future::pending().await
                        });
                        // Bytes that were read and not written are lost with the loop; only states that end things follow.
                        if moved.await.is_ok() || seen.load(SeqCst) == DOWN {
                            return;
                        }
                    }
                });
            }
        });
        Self { url, state }
    }

    fn is(&self, state: u8) {
        self.state.store(state, SeqCst);
    }
}

async fn eventually(what: impl AsyncFn() -> bool) {
    let began = Instant::now();
    while !what().await {
        assert!(began.elapsed() < Duration::from_secs(20), "never");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_at_the_start_is_used_when_it_comes() {
    let network = Network::new(DOWN).await;
    let store: Arc<dyn Store> = Arc::new(open(&network.url).await);
    let writer = Writer::spawn(Arc::clone(&store), 8);
    eventually(async || writer.trouble().is_some()).await;
    assert!(store.get("t", "1", None).await.is_err());
    let waiting = writer.put(entry("t", "p", "1", now_ms())).unwrap();
    assert!(waiting.await.unwrap().is_err());
    network.is(UP);
    eventually(async || writer.healthy()).await;
    eventually(async || store.get("t", "1", None).await.is_ok_and(|found| found.is_some())).await;
    assert_eq!(writer.shutdown().await, 0);
}

#[tokio::test]
async fn a_server_that_was_restarted_is_used_again_without_an_error() {
    let url = server::postgres_url().await;
    let store = open(&url).await;
    store.put(&[entry("t", "p", "1", now_ms())]).await.unwrap();
    assert!(store.get("t", "1", None).await.unwrap().is_some());
    // As a restart does it: every connection is ended, those that are idle as well.
    let schema: String =
        sqlx::query_scalar("SELECT current_schema()::text").fetch_one(&mut connect(&url).await).await.unwrap();
    let ours = "SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a WHERE a.application_name = 'citetap'
                AND a.pid = ANY($1)";
    let pids = {
        let mut writing = store.writing(&[]).await.unwrap();
        let mut reading = store.link.reading().await.unwrap();
        let pid = "SELECT pg_backend_pid()";
        let pids = [
            sqlx::query_scalar::<_, i32>(pid).fetch_one(&mut writing.conn).await.unwrap(),
            sqlx::query_scalar::<_, i32>(pid).fetch_one(&mut reading.conn).await.unwrap(),
        ];
        reading.done();
        writing.commit(()).await.unwrap();
        pids
    };
    tokio::time::sleep(Duration::from_millis(1100)).await;
    sqlx::query(ours).bind(pids.to_vec()).execute(&mut connect(&url).await).await.unwrap();
    store.put(&[entry("t", "p", "2", now_ms())]).await.unwrap();
    assert!(store.get("t", "2", None).await.unwrap().is_some());
    store.ping().await.unwrap();
    assert!(!schema.is_empty());
}

#[tokio::test]
async fn a_server_that_falls_silent_ends_a_read_in_time() {
    let network = Network::new(UP).await;
    let store = open(&network.url).await;
    store.put(&[entry("t", "p", "1", now_ms())]).await.unwrap();
    assert!(store.get("t", "1", None).await.unwrap().is_some());
    network.is(SILENT);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let began = Instant::now();
    let Err(StoreError::Engine(message)) = store.get("t", "1", None).await else { panic!("answered") };
    assert!(began.elapsed() < Duration::from_secs(6) && message.contains("no answer within 5 s"), "{message}");
    network.is(DOWN);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(store.put(&[entry("t", "p", "2", now_ms())]).await.is_err());
    network.is(UP);
    store.put(&[entry("t", "p", "2", now_ms())]).await.unwrap();
    assert!(store.get("t", "2", None).await.unwrap().is_some());
}
