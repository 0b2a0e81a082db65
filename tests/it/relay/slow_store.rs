//! P5: a slow store gives `stored: false`, never a hung chat.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use citetap::{
    replay::{Script, Scripted, Step, Upstream},
    server::App,
    store::{
        Entry, Filter, Fut, MemoryStore, Page, RecordStore, Store, StoreError, StoreFut,
        task::{Advance, AdvanceOutcome, Progress},
    },
    transport::client,
};

use crate::net::{LIMIT, Proxy, config, eventually, route, tencent};

const SLOW: Duration = Duration::from_secs(2);

/// A memory store with a delay or a failure.
struct Behind {
    inner: MemoryStore,
    wait: Duration,
    refuse: bool,
}

impl RecordStore for Behind {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn put<'a>(&'a self, entries: &'a [Entry]) -> StoreFut<'a, ()> {
        Box::pin(async move {
            tokio::time::sleep(self.wait).await;
            if self.refuse {
                return Err(StoreError::Engine("refused".to_owned()));
            }
            self.inner.put(entries).await
        })
    }

    fn get<'a>(&'a self, tenant: &'a str, id: &'a str, provider: Option<&'a str>) -> StoreFut<'a, Option<Entry>> {
        self.inner.get(tenant, id, provider)
    }

    fn list<'a>(&'a self, tenant: &'a str, filter: &'a Filter) -> StoreFut<'a, Page> {
        self.inner.list(tenant, filter)
    }

    fn delete<'a>(&'a self, tenant: &'a str, id: &'a str, provider: Option<&'a str>) -> StoreFut<'a, u64> {
        self.inner.delete(tenant, id, provider)
    }

    fn sweep(&self, before_ms: i64) -> StoreFut<'_, u64> {
        self.inner.sweep(before_ms)
    }

    fn ping(&self) -> StoreFut<'_, ()> {
        self.inner.ping()
    }

    fn close(&self) -> Fut<'_, ()> {
        self.inner.close()
    }
}

impl Store for Behind {
    fn progress<'a>(&'a self, tenant: &'a str, task: &'a str, consumer: &'a str) -> StoreFut<'a, Option<Progress>> {
        self.inner.progress(tenant, task, consumer)
    }

    fn advance<'a>(&'a self, advance: &'a Advance) -> StoreFut<'a, AdvanceOutcome> {
        self.inner.advance(advance)
    }
}

async fn proxy_on(store: Behind, upstream: &Upstream) -> Proxy {
    let config = config(&(route("chat", &upstream.url()) + "provider = \"tencent\"\n"));
    let client = client::Client::new(config.timeouts.connect);
    Proxy::serve(App::new(config, Arc::new(store), client)).await
}

async fn upstream() -> Upstream {
    let steps = [
        Step::Send((tencent::references("m", &[1, 2]) + &tencent::text("m", "一")).into()),
        Step::Send(tencent::finish("m").into()),
    ];
    let script = Scripted::new("/", Script::sse_steps(steps));
    Upstream::bind(vec![script]).await.unwrap()
}

#[tokio::test]
async fn slow_store_delays_the_finish_by_the_commit_wait_at_most() {
    let upstream = upstream().await;
    let proxy = proxy_on(Behind { inner: MemoryStore::new(), wait: SLOW, refuse: false }, &upstream).await;
    let began = Instant::now();
    let whole = proxy.post("/chat", "{}").await.whole().await;
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(250), "it waits for the store: {took:?}");
    assert!(took < SLOW, "and not until it is done: {took:?}");
    let (_, ours) = whole.split();
    assert!(ours[0].complete && !ours[0].stored);
    let ahead = took - whole.pieces[0].0;
    assert!(ahead > Duration::from_millis(125), "a frame before the finish was delayed: {ahead:?}");
    assert!(proxy.app.store.get("default", "m", None).await.unwrap().is_none());
    let record = proxy.stored("m").await;
    assert!(record.stored && record.complete, "later it is there");
    assert!(began.elapsed() >= SLOW);
}

/// S90
#[tokio::test]
async fn failing_store_does_not_affect_the_stream() {
    let upstream = upstream().await;
    let proxy = proxy_on(Behind { inner: MemoryStore::new(), wait: Duration::ZERO, refuse: true }, &upstream).await;
    assert_eq!(proxy.get("/readyz").await.status, 200);
    let whole = proxy.post("/chat", "{}").await.whole().await;
    assert_eq!(whole.error, None);
    let (theirs, ours) = whole.split();
    assert_eq!(theirs.len(), upstream.requests()[0].bytes_out as usize);
    assert!(!ours[0].stored);
    let unready = eventually(|| async { (proxy.get("/readyz").await.status == 503).then_some(()) }).await;
    assert!(unready.is_some(), "readiness tells, within {LIMIT:?}");
    assert_eq!(proxy.post("/chat", "{}").await.status, 200, "and chats go on");
}
