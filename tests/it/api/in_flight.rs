//! Messages in flight: read, wait for and watch them.

use std::time::{Duration, Instant};

use citetap::{citation::Record, replay::Script, sse::Event};
use sqlx::Connection as _;

use super::{FOR_EVER, proxy, record, steps, streamed};
use crate::net::{ClientResponse, Proxy, eventually, frames, tencent};

/// References at once, the finish after `pause`.
fn pieces(id: &str) -> Vec<String> {
    vec![tencent::references(id, &[1, 2]), tencent::text(id, "第一句[1]。") + &tencent::finish(id)]
}

/// Opens a stream of `/chat/ID` and waits until the API knows its message.
async fn begun(proxy: &Proxy, id: &str) -> ClientResponse {
    let mut response = proxy.post(&format!("/chat/{id}"), "{}").await;
    response.until("reference_chunks").await;
    let path = format!("/citations/{id}");
    let known = eventually(|| async { (proxy.get(&path).await.status == 202).then_some(()) });
    known.await.expect("in flight");
    response
}

/// The records of an `/events` response.
fn events(stream: &[u8]) -> Vec<Record> {
    let read = |frame: &&[u8]| {
        let event = Event::read(frame);
        assert!(event.name.is_empty() || event.name == "citations", "{}", event.name);
        event.data.map(|data| serde_json::from_str(&data).unwrap())
    };
    frames(stream).iter().filter_map(read).collect()
}

#[tokio::test]
async fn message_in_flight_returns_the_record_so_far() {
    let (_upstream, proxy) = proxy(vec![("/m-1", steps(&pieces("m-1"), FOR_EVER))], "").await;
    let _open = begun(&proxy, "m-1").await;
    let response = proxy.get("/citations/m-1").await;
    assert_eq!(response.status, 202);
    assert_eq!(response.header("retry-after"), Some("1"));
    assert_eq!(response.header("cache-control"), Some("no-store"));
    assert_eq!(response.header("etag"), None);
    let so_far = record(response).await;
    assert_eq!(so_far.citations.len(), 2);
    assert!(!so_far.complete && !so_far.stored);
    assert_eq!(proxy.get("/citations/m-1?provider=tencent").await.status, 202);
    proxy.get("/citations/m-1?provider=doubao").await.is_problem(404, "unknown-message").await;
    proxy.get("/citations/m-1/events?provider=doubao").await.is_problem(404, "unknown-message").await;
    assert_eq!(proxy.get("/citations").await.json().await["items"].as_array().unwrap().len(), 0);
}

/// After an error frame the upstream continues. The record stays as it was and is not in flight again.
#[tokio::test]
async fn message_is_not_in_flight_after_an_error_frame() {
    let failed = tencent::references("m-1", &[1, 2]) + "data:{\"code\":500,\"message\":\"x\"}\n\n";
    let pieces = [failed, tencent::text("m-1", "还有"), tencent::text("m-1", "后话")];
    let (_upstream, proxy) = proxy(vec![("/m-1", steps(&pieces, Duration::from_millis(900)))], "").await;
    let mut open = proxy.post("/chat/m-1", "{}").await;
    open.until("还有").await;
    let response = proxy.get("/citations/m-1").await;
    assert_eq!(response.status, 200);
    let stored = record(response).await;
    assert!(stored.stored && !stored.complete && stored.citations.len() == 2);
}

#[tokio::test]
async fn wait_returns_the_stored_record() {
    let (_upstream, proxy) = proxy(vec![("/m-1", steps(&pieces("m-1"), Duration::from_millis(700)))], "").await;
    let open = begun(&proxy, "m-1").await;
    let (waited, whole) = tokio::join!(proxy.get("/citations/m-1?wait=15"), open.whole());
    assert_eq!(waited.status, 200);
    assert!(waited.header("etag").is_some());
    let waited = record(waited).await;
    assert!(waited.complete && waited.stored);
    assert_eq!(vec![waited.clone()], whole.split().1);
    let (again, began) = (record(proxy.get("/citations/m-1?wait=15").await).await, Instant::now());
    assert_eq!(again, waited);
    assert!(began.elapsed() < Duration::from_secs(5), "no wait without a message in flight");
}

#[tokio::test]
async fn wait_ends_after_its_timeout() {
    let (_upstream, proxy) = proxy(vec![("/m-1", steps(&pieces("m-1"), FOR_EVER))], "").await;
    let _open = begun(&proxy, "m-1").await;
    let began = Instant::now();
    assert_eq!(proxy.get("/citations/m-1?wait=0.3").await.status, 202);
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert_eq!(proxy.get("/citations/nobody?wait=15").await.status, 404, "not in flight: not waited for");
}

/// A client that disconnects ends the wait of others. The record so far is stored.
#[tokio::test]
async fn wait_ends_when_the_chat_client_disconnects() {
    let (_upstream, proxy) = proxy(vec![("/m-1", steps(&pieces("m-1"), FOR_EVER))], "").await;
    let open = begun(&proxy, "m-1").await;
    let waiting = proxy.get("/citations/m-1?wait=15");
    let leave = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        drop(open);
    };
    let (waited, ()) = tokio::join!(waiting, leave);
    assert_eq!(waited.status, 200);
    let waited = record(waited).await;
    assert_eq!((waited.citations.len(), waited.complete), (2, false));
    assert_eq!(proxy.stored("m-1").await.citations, waited.citations);
}

#[tokio::test]
async fn new_stream_hides_the_old_record() {
    let (_upstream, proxy) =
        proxy(vec![("/m-1", Script::sse(tencent::answer("m-1"))), ("/again", steps(&pieces("m-1"), FOR_EVER))], "")
            .await;
    let old = streamed(&proxy, "m-1").await;
    let mut open = proxy.post("/chat/again", "{}").await;
    open.until("reference_chunks").await;
    let new = eventually(|| async {
        let response = proxy.get("/citations/m-1").await;
        if response.status == 202 { Some(record(response).await) } else { None }
    });
    assert_ne!(new.await.unwrap().nonce, old.nonce);
}

/// A lock on the file delays the new record. The old record of the same id is not returned instead.
#[tokio::test]
async fn wait_never_returns_the_record_of_an_earlier_stream() {
    let dir = tempfile::tempdir().unwrap();
    let file = format!("sqlite:{}", dir.path().join("x.db").display());
    let whole = Script::sse(tencent::answer("m-1"));
    let scripts = vec![("/m-1", whole), ("/again", steps(&pieces("m-1"), Duration::from_millis(700)))];
    let (_upstream, proxy) = proxy(scripts, &format!("store = \"{file}\"\n[timeouts]\ncommit = \"250ms\"\n")).await;
    proxy.post("/chat/m-1", "{}").await.whole().await;
    let old = proxy.stored("m-1").await;
    let mut open = proxy.post("/chat/again", "{}").await;
    open.until("reference_chunks").await;
    let known = eventually(|| async { (proxy.get("/citations/m-1").await.status == 202).then_some(()) });
    known.await.expect("in flight");

    let mut lock = sqlx::SqliteConnection::connect(&file).await.unwrap();
    sqlx::query("BEGIN IMMEDIATE").execute(&mut lock).await.unwrap();
    let (waited, whole) = tokio::join!(proxy.get("/citations/m-1?wait=15"), open.whole());
    let waited = record(waited).await;
    assert_ne!(waited.nonce, old.nonce);
    assert!(waited.complete && !waited.stored, "{waited:?}");
    assert_eq!(vec![waited.clone()], whole.split().1);

    sqlx::query("ROLLBACK").execute(&mut lock).await.unwrap();
    let later = eventually(|| async { Some(proxy.stored("m-1").await).filter(|kept| kept.nonce == waited.nonce) });
    assert!(later.await.expect("stored in the end").stored);
}

#[tokio::test]
async fn events_show_the_growing_list_and_end_with_the_final() {
    let lists = [&[1][..], &[1, 2], &[1, 2, 3]];
    let mut pieces: Vec<String> = lists.iter().map(|list| tencent::references("m-1", list)).collect();
    pieces.push(tencent::finish("m-1"));
    let (_upstream, proxy) = proxy(vec![("/m-1", steps(&pieces, Duration::from_millis(300)))], "").await;
    let open = begun(&proxy, "m-1").await;
    let watched = proxy.get("/citations/m-1/events").await;
    assert_eq!(watched.status, 200);
    assert_eq!(watched.header("content-type"), Some("text/event-stream"));
    let (watched, whole) = tokio::join!(watched.whole(), open.whole());
    assert_eq!(watched.error, None, "a clean end after the final");
    let seen = events(&watched.bytes());
    let lens: Vec<usize> = seen.iter().map(|record| record.citations.len()).collect();
    assert!(lens.is_sorted() && lens.len() >= 3 && lens[0] < 3, "{lens:?}");
    let (last, before) = seen.split_last().unwrap();
    assert!(before.iter().all(|record| !record.complete && !record.stored));
    assert!(last.complete && last.stored);
    assert_eq!(vec![last.clone()], whole.split().1);

    let stored = proxy.get("/citations/m-1/events").await.whole().await;
    assert_eq!(stored.error, None);
    assert_eq!(events(&stored.bytes()), vec![last.clone()], "a stored record is one event");
}

/// P5 for watchers: they receive `stored: true` only after the commit, even if no event waits for it.
#[tokio::test]
async fn events_say_stored_only_after_the_commit() {
    let dir = tempfile::tempdir().unwrap();
    let toml = format!("store = \"sqlite:{}\"\n", dir.path().join("x.db").display());
    let pieces = [tencent::text("m-1", "没有"), tencent::text("m-1", "资料。") + &tencent::finish("m-1")];
    let (_upstream, proxy) = proxy(vec![("/m-1", steps(&pieces, Duration::from_millis(500)))], &toml).await;
    let mut open = proxy.post("/chat/m-1", "{}").await;
    open.until("delta_content").await;
    let known = eventually(|| async { (proxy.get("/citations/m-1").await.status == 202).then_some(()) });
    known.await.expect("in flight");
    let mut watched = proxy.get("/citations/m-1/events").await;
    let reading = async {
        let text = watched.until("\"stored\":true").await;
        assert!(proxy.app.store.get("default", "m-1", None).await.unwrap().is_some(), "{text}");
    };
    let (_, ()) = tokio::join!(open.whole(), reading);
}
