use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use tokio::{
    sync::Semaphore,
    time::{Instant, sleep},
};

use super::*;
use crate::store::{
    Filter, Fut, MemoryStore, Page, RecordStore, StoreFut,
    task::{Position, Progress},
    tests::entry,
};

/// Fails on demand, refuses entries with the id `bad`, and blocks puts while `gate` has no permits.
struct FaultyStore {
    inner: MemoryStore,
    down: AtomicBool,
    /// Only the next put fails.
    fail_next_put: AtomicBool,
    /// Puts return [`StoreError::Volatile`].
    volatile: AtomicBool,
    puts: AtomicUsize,
    gate: Semaphore,
}

impl FaultyStore {
    fn new() -> Arc<Self> {
        let gate = Semaphore::new(Semaphore::MAX_PERMITS);
        Arc::new(Self {
            inner: MemoryStore::new(),
            down: AtomicBool::new(false),
            fail_next_put: AtomicBool::new(false),
            volatile: AtomicBool::new(false),
            puts: AtomicUsize::new(0),
            gate,
        })
    }

    fn gated() -> Arc<Self> {
        let store = Self::new();
        store.gate.forget_permits(usize::MAX);
        store
    }

    fn check(&self) -> Result<(), StoreError> {
        if self.down.load(SeqCst) { Err(StoreError::Engine("down".to_owned())) } else { Ok(()) }
    }

    async fn has(&self, id: &str) -> bool {
        self.inner.get("t", id, None).await.unwrap().is_some()
    }
}

impl RecordStore for FaultyStore {
    fn name(&self) -> &'static str {
        "faulty"
    }

    fn put<'a>(&'a self, entries: &'a [Entry]) -> StoreFut<'a, ()> {
        Box::pin(async move {
            self.puts.fetch_add(1, SeqCst);
            let _open = self.gate.acquire().await.unwrap();
            self.check()?;
            if self.fail_next_put.swap(false, SeqCst) {
                return Err(StoreError::Engine("hiccup".to_owned()));
            }
            if entries.iter().any(|entry| entry.record.message_id == "bad") {
                return Err(StoreError::Engine("bad entry".to_owned()));
            }
            self.inner.put(entries).await?;
            if self.volatile.load(SeqCst) { Err(StoreError::Volatile) } else { Ok(()) }
        })
    }

    fn get<'a>(&'a self, tenant: &'a str, id: &'a str, provider: Option<&'a str>) -> StoreFut<'a, Option<Entry>> {
        self.inner.get(tenant, id, provider)
    }

    fn list<'a>(&'a self, tenant: &'a str, filter: &'a Filter) -> StoreFut<'a, Page> {
        self.inner.list(tenant, filter)
    }

    fn delete<'a>(&'a self, tenant: &'a str, id: &'a str, provider: Option<&'a str>) -> StoreFut<'a, u64> {
        Box::pin(async move {
            self.check()?;
            self.inner.delete(tenant, id, provider).await
        })
    }

    fn sweep(&self, before_ms: i64) -> StoreFut<'_, u64> {
        self.inner.sweep(before_ms)
    }

    fn ping(&self) -> StoreFut<'_, ()> {
        Box::pin(async move { self.check() })
    }

    /// Keeps the memory open, so that tests can inspect it afterwards.
    fn close(&self) -> Fut<'_, ()> {
        Box::pin(async {})
    }
}

impl Store for FaultyStore {
    fn progress<'a>(&'a self, tenant: &'a str, task: &'a str, consumer: &'a str) -> StoreFut<'a, Option<Progress>> {
        self.inner.progress(tenant, task, consumer)
    }

    fn advance<'a>(&'a self, advance: &'a Advance) -> StoreFut<'a, AdvanceOutcome> {
        Box::pin(async move {
            let _open = self.gate.acquire().await.unwrap();
            self.check()?;
            self.inner.advance(advance).await
        })
    }
}

fn one(id: &str) -> Entry {
    entry("t", "p", id, 1)
}

async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let start = Instant::now();
    while !condition().await {
        assert!(start.elapsed() < Duration::from_secs(10), "never: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn writer_commits_queued_entries_together() {
    let store = FaultyStore::gated();
    let writer = Writer::spawn(store.clone(), 1000);
    let mut replies = vec![writer.put(one("first")).unwrap()];
    until("the first put", async || store.puts.load(SeqCst) == 1).await;
    replies.extend((0..300).map(|n| writer.put(one(&n.to_string())).unwrap()));
    assert_eq!(writer.queue_depth(), 300);
    store.gate.add_permits(1);
    for reply in replies {
        assert_eq!(reply.await.unwrap(), Ok(()));
    }
    assert_eq!(store.puts.load(SeqCst), 3, "1, then 256, then 44");
    assert_eq!((writer.stats().committed.load(Relaxed), writer.stats().commits.load(Relaxed)), (301, 3));
    assert_eq!(writer.queue_depth(), 0);
}

#[tokio::test]
async fn writer_full_queue_refuses_at_once() {
    let store = FaultyStore::gated();
    let writer = Writer::spawn(store.clone(), 3);
    let mut replies = vec![writer.put(one("first")).unwrap()];
    until("the first put", async || store.puts.load(SeqCst) == 1).await;
    replies.extend((0..3).map(|n| writer.put(one(&n.to_string())).unwrap()));
    assert_eq!(writer.put(one("over")).err(), Some(StoreError::Full));
    assert_eq!((writer.queue_depth(), writer.stats().refused.load(Relaxed)), (3, 1));
    store.gate.add_permits(1);
    for reply in replies {
        assert_eq!(reply.await.unwrap(), Ok(()));
    }
    assert!(!store.has("over").await);
}

#[tokio::test]
async fn writer_bad_entry_does_not_fail_the_batch() {
    let store = FaultyStore::gated();
    let writer = Writer::spawn(store.clone(), 100);
    let _first = writer.put(one("first")).unwrap();
    until("the first put", async || store.puts.load(SeqCst) == 1).await;
    let replies = ["a", "bad", "b"].map(|id| writer.put(one(id)).unwrap());
    store.gate.add_permits(1);
    let [a, bad, b] = replies;
    assert_eq!((a.await.unwrap(), b.await.unwrap()), (Ok(()), Ok(())));
    assert_eq!(bad.await.unwrap(), Err(StoreError::Engine("bad entry".to_owned())));
    assert!(writer.is_healthy(), "the engine took the others");
    assert_eq!(writer.stats().waiting.load(Relaxed), 1);
    // first, the batch, its three entries one by one; then the bad one alone, twice.
    until("the bad one was tried again", async || store.puts.load(SeqCst) >= 7).await;
    assert!(writer.is_healthy(), "nor does it make the engine look ill later");
}

#[tokio::test]
async fn writer_single_failed_commit_is_retried_unseen() {
    let store = FaultyStore::new();
    let writer = Writer::spawn(store.clone(), 10);
    store.fail_next_put.store(true, SeqCst);
    assert_eq!(writer.put(one("1")).unwrap().await.unwrap(), Ok(()));
    assert!(writer.is_healthy() && store.has("1").await);
    assert_eq!(writer.stats().failed.load(Relaxed), 0);
}

#[tokio::test]
async fn writer_outage_fails_at_once_and_is_retried() {
    let store = FaultyStore::new();
    let writer = Writer::spawn(store.clone(), 2000);
    store.down.store(true, SeqCst);
    let replies: Vec<_> = (0..600).map(|n| writer.put(one(&n.to_string())).unwrap()).collect();
    for reply in replies {
        assert!(reply.await.unwrap().is_err());
    }
    assert!(!writer.is_healthy());
    assert_eq!(store.puts.load(SeqCst), 3, "while the engine is down, entries are not tried one by one");

    store.down.store(false, SeqCst);
    until("healthy", async || writer.is_healthy()).await;
    until("all stored", async || writer.stats().waiting.load(Relaxed) == 0).await;
    assert!(store.has("0").await && store.has("599").await);
    let stats = writer.stats();
    let counts = [&stats.committed, &stats.failed, &stats.retried, &stats.dropped].map(|counter| counter.load(Relaxed));
    assert_eq!(counts, [600, 600, 600, 0]);
}

/// Reported before the engine call itself times out.
#[tokio::test]
async fn writer_slow_write_is_reported_until_it_ends() {
    let store = FaultyStore::gated();
    let writer = Writer::spawn(store.clone(), 10);
    let reply = writer.put(one("1")).unwrap();
    sleep(SLOW_WRITE / 4).await;
    assert_eq!(writer.unhealthy_reason(), None, "a slow one is none");
    until("trouble", async || writer.unhealthy_reason().is_some()).await;
    store.gate.add_permits(1);
    assert_eq!(reply.await.unwrap(), Ok(()));
    until("healthy", async || writer.is_healthy()).await;
}

#[tokio::test]
async fn writer_unhealthy_reason_is_the_engine_error() {
    let store = FaultyStore::new();
    let writer = Writer::spawn(store.clone(), 10);
    store.down.store(true, SeqCst);
    assert!(writer.put(one("1")).unwrap().await.unwrap().is_err());
    assert_eq!(writer.unhealthy_reason(), Some(StoreError::Engine("down".to_owned())));
}

#[tokio::test]
async fn writer_retry_keeps_a_newer_version() {
    let store = FaultyStore::new();
    let writer = Writer::spawn(store.clone(), 10);
    store.down.store(true, SeqCst);
    assert!(writer.put(entry("t", "p", "1", 1)).unwrap().await.unwrap().is_err());
    store.down.store(false, SeqCst);
    assert_eq!(writer.put(entry("t", "p", "1", 2)).unwrap().await.unwrap(), Ok(()));
    assert_eq!(writer.stats().waiting.load(Relaxed), 0);
    sleep(Duration::from_millis(1200)).await;
    assert_eq!(store.inner.get("t", "1", None).await.unwrap().unwrap().created_ms, 2);
}

#[tokio::test]
async fn writer_retry_does_not_restore_deleted() {
    let store = FaultyStore::new();
    let writer = Writer::spawn(store.clone(), 10);
    assert_eq!(writer.put(one("stored")).unwrap().await.unwrap(), Ok(()));
    store.down.store(true, SeqCst);
    assert!(writer.put(one("waiting")).unwrap().await.unwrap().is_err());
    assert!(writer.delete("t", "waiting", None).await.is_err(), "an older version may still be stored");
    store.down.store(false, SeqCst);
    assert_eq!(writer.delete("t", "stored", Some("p")).await, Ok(1));
    assert_eq!(writer.delete("t", "unknown", None).await, Ok(0));
    // Recovery is detected without traffic.
    until("healthy", async || writer.is_healthy()).await;
    assert!(!store.has("waiting").await && !store.has("stored").await);
}

/// A pending retry must not restore a record that another replica deleted.
#[tokio::test]
async fn writer_retry_skips_deletes_of_other_replicas() {
    let store = FaultyStore::new();
    let writer = Writer::spawn(store.clone(), 10);
    store.down.store(true, SeqCst);
    for id in ["forgotten", "kept"] {
        assert!(writer.put(one(id)).unwrap().await.unwrap().is_err());
    }
    writer.cancel_retry("t".to_owned(), "forgotten".to_owned(), None);
    store.down.store(false, SeqCst);
    until("the other is stored", async || store.has("kept").await).await;
    until("nothing waits", async || writer.stats().waiting.load(Relaxed) == 0).await;
    assert!(!store.has("forgotten").await);
}

#[tokio::test]
async fn writer_put_outlives_its_request() {
    let store = FaultyStore::gated();
    let writer = Writer::spawn(store.clone(), 10);
    drop(writer.put(one("1")).unwrap());
    drop(writer.put(one("2")).unwrap());
    drop(writer);
    store.gate.add_permits(1);
    until("both stored", async || store.has("1").await && store.has("2").await).await;
}

#[tokio::test]
async fn writer_shutdown_flushes_and_closes() {
    let store = FaultyStore::gated();
    let writer = Writer::spawn(store.clone(), 5);
    let other = writer.clone();
    let first = writer.put(one("first")).unwrap();
    until("the first put", async || store.puts.load(SeqCst) == 1).await;
    let last: Vec<_> = (0..5).map(|n| writer.put(one(&n.to_string())).unwrap()).collect();
    let stopping = tokio::spawn(writer.shutdown());
    store.gate.add_permits(1);
    assert_eq!(stopping.await.unwrap(), 0);
    for reply in last.into_iter().chain([first]) {
        assert_eq!(reply.await.unwrap(), Ok(()));
    }
    assert_eq!(other.put(one("late")).err(), Some(StoreError::Closed));
    assert_eq!(other.delete("t", "first", None).await, Err(StoreError::Closed));
    assert!(!other.is_healthy());
    assert_eq!(other.shutdown().await, 0);
}

#[tokio::test]
async fn writer_shutdown_reports_lost_entries() {
    let store = FaultyStore::new();
    let writer = Writer::spawn(store.clone(), 10);
    let stats = Arc::clone(writer.stats());
    store.down.store(true, SeqCst);
    let reply = writer.put(one("1")).unwrap();
    assert_eq!(writer.shutdown().await, 1);
    assert!(reply.await.unwrap().is_err());
    assert_eq!(stats.dropped.load(Relaxed), 1);
}

#[tokio::test]
async fn writer_shutdown_retries_failed_entries() {
    let store = FaultyStore::new();
    let writer = Writer::spawn(store.clone(), 10);
    store.down.store(true, SeqCst);
    assert!(writer.put(one("1")).unwrap().await.unwrap().is_err());
    store.down.store(false, SeqCst);
    assert_eq!(writer.shutdown().await, 0);
    assert!(store.has("1").await);
}

#[tokio::test]
async fn writer_amend_replaces_only_its_own_record() {
    let store = FaultyStore::new();
    let writer = Writer::spawn(store.clone(), 10);
    let version = |ms, nonce: &str| {
        let mut entry = entry("t", "p", "1", ms);
        entry.record.nonce = nonce.to_owned();
        entry
    };
    let stored = async || store.inner.get("t", "1", None).await.unwrap().map(|entry| entry.created_ms);
    assert_eq!(writer.amend(version(1, "a")).unwrap().await.unwrap(), Err(StoreError::Gone), "there is none");
    writer.put(version(1, "a")).unwrap().await.unwrap().unwrap();
    assert_eq!(writer.amend(version(2, "a")).unwrap().await.unwrap(), Ok(()));
    assert_eq!(stored().await, Some(2));
    assert_eq!(writer.amend(version(3, "b")).unwrap().await.unwrap(), Err(StoreError::Gone), "another stream's");
    assert_eq!(stored().await, Some(2));
    // Queued behind a delete, the update comes too late.
    let (deleted, amended) = (writer.delete("t", "1", None), async { writer.amend(version(4, "a")).unwrap().await });
    let (deleted, amended) = tokio::join!(deleted, amended);
    assert_eq!((deleted, amended.unwrap()), (Ok(1), Err(StoreError::Gone)));
    assert_eq!(stored().await, None);
    // A record that waits for a retry can be updated.
    store.down.store(true, SeqCst);
    assert!(writer.put(version(5, "c")).unwrap().await.unwrap().is_err());
    store.down.store(false, SeqCst);
    assert_eq!(writer.amend(version(6, "c")).unwrap().await.unwrap(), Ok(()));
    assert_eq!((stored().await, writer.stats().waiting.load(Relaxed)), (Some(6), 0));
}

#[tokio::test]
async fn writer_advance_outlives_request_and_follows_puts() {
    let store = FaultyStore::gated();
    let writer = Writer::spawn(store.clone(), 10);
    let advance = Advance {
        tenant: "t".to_owned(),
        task: "m".to_owned(),
        consumer: "c".to_owned(),
        last: Some(("q1".to_owned(), "s".to_owned())),
        sources: vec!["s".to_owned()],
        now_ms: 1,
    };
    drop(writer.put(one("m")).unwrap());
    let call = tokio::time::timeout(Duration::from_millis(50), writer.advance(advance.clone())).await;
    assert!(call.is_err(), "the asker left");
    store.gate.add_permits(1);
    until("committed", async || store.progress("t", "m", "c").await.unwrap().is_some()).await;
    let at = Position { query: "q1".to_owned(), source: "s".to_owned(), count: 1, updated_ms: 1 };
    assert_eq!(writer.advance(advance.clone()).await, Ok(AdvanceOutcome::Unchanged(at)));
    store.down.store(true, SeqCst);
    assert!(matches!(writer.advance(advance.clone()).await, Err(StoreError::Engine(_))));
    writer.clone().shutdown().await;
    assert_eq!(writer.advance(advance).await, Err(StoreError::Closed));
}

#[tokio::test]
async fn writer_volatile_put_is_neither_stored_nor_failed() {
    let store = FaultyStore::new();
    store.volatile.store(true, SeqCst);
    let writer = Writer::spawn(Arc::clone(&store) as Arc<dyn Store>, 8);
    let reply = writer.put(entry("t", "p", "1", 1)).unwrap();
    assert_eq!(reply.await.unwrap(), Err(StoreError::Volatile));
    // A retry that ends volatile counts as stored and is not repeated.
    store.down.store(true, SeqCst);
    assert!(writer.put(entry("t", "p", "2", 1)).unwrap().await.unwrap().is_err());
    store.down.store(false, SeqCst);
    while writer.stats().waiting.load(Relaxed) > 0 {
        sleep(Duration::from_millis(20)).await;
    }
    assert!(store.has("1").await && store.has("2").await && writer.is_healthy());
    let stats = Arc::clone(writer.stats());
    assert_eq!(writer.shutdown().await, 0);
    let count = |counter: &AtomicU64| counter.load(Relaxed);
    assert_eq!((count(&stats.committed), count(&stats.failed), count(&stats.retried)), (2, 1, 1));
}
