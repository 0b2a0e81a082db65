//! P6: an abort stays an abort, a disconnected client cancels its upstream, and the record so far is stored.

use std::time::{Duration, Instant};

use citetap::replay::{Outcome, Script, Step, Upstream};
use http::{HeaderValue, header};

use crate::net::{Client, LIMIT, Proxy, chat, post, tencent};

pub fn cut_in_mid_frame() -> Script {
    Script::sse_steps([
        Step::Send((tencent::references("m", &[1, 2]) + &tencent::text("m", "一")).into()),
        Step::Send("data:{\"completion_id\":\"m\",\"delta_content\":\"half".into()),
        Step::Pause(Duration::from_millis(50)),
        Step::Abort,
    ])
}

/// F20
#[tokio::test]
async fn cut_upstream_has_citations_before_the_partial_frame() {
    let (upstream, proxy) = chat(cut_in_mid_frame(), "").await;
    for mut client in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
        let whole = client.send(post("/chat", "{}")).await.whole().await;
        assert!(whole.error.is_some(), "no clean end");
        let text = whole.text();
        let (before, after) = text.split_once("event: citations\n").expect("no event before the abort");
        assert_eq!(before, tencent::references("m", &[1, 2]) + &tencent::text("m", "一"));
        let (ours, partial) = after.split_once("\n\n").unwrap();
        assert!(ours.contains("\"complete\":false") && ours.contains("\"stored\":true"), "{ours}");
        assert_eq!(partial, "data:{\"completion_id\":\"m\",\"delta_content\":\"half");
    }
    let record = proxy.stored("m").await;
    assert!(!record.complete);
    assert_eq!(record.citations.len(), 2);
    assert_eq!(upstream.requests()[0].outcome, Outcome::Aborted);
}

#[tokio::test]
async fn cut_without_references_is_only_an_abort() {
    let script = Script::sse(tencent::text("m", "一二三")).cut_after(30);
    let (_upstream, proxy) = chat(script, "").await;
    for mut client in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
        let whole = client.send(post("/chat", "{}")).await.whole().await;
        assert!(whole.error.is_some());
        assert_eq!(whole.bytes(), &tencent::text("m", "一二三").as_bytes()[..30]);
    }
}

#[tokio::test]
async fn cut_after_the_finish_is_an_abort_with_one_event() {
    let script = Script::sse_steps([
        Step::Send(tencent::answer("m").into()),
        Step::Pause(Duration::from_millis(50)),
        Step::Abort,
    ]);
    let (_upstream, proxy) = chat(script, "").await;
    let whole = proxy.post("/chat", "{}").await.whole().await;
    assert!(whole.error.is_some());
    let (theirs, ours) = whole.split();
    assert_eq!(theirs, tencent::answer("m").into_bytes());
    assert_eq!(ours.len(), 1);
    assert!(ours[0].complete);
}

/// H34: a body shorter than its declared length is an abort, also if it is not tapped.
#[tokio::test]
async fn body_shorter_than_its_length_is_an_abort() {
    for kind in ["text/event-stream", "application/json", "text/plain"] {
        let script = Script::new([
            Step::Send(tencent::text("m", "一").into()),
            Step::Pause(Duration::from_millis(50)),
            Step::Abort,
        ])
        .header(header::CONTENT_TYPE, HeaderValue::from_static(kind))
        .header(header::CONTENT_LENGTH, HeaderValue::from_static("1000"));
        let (_upstream, proxy) = chat(script, "").await;
        let whole = proxy.post("/chat", "{}").await.whole().await;
        assert!(whole.error.is_some(), "{kind}");
        assert_eq!(whole.text(), tencent::text("m", "一"), "{kind}");
    }
}

/// F16, F20: a clean end without a finish.
#[tokio::test]
async fn clean_end_without_finish_stays_clean_with_citations() {
    let (_upstream, proxy) = chat(Script::sse(tencent::references("m", &[1, 2])), "").await;
    let whole = proxy.post("/chat", "{}").await.whole().await;
    assert_eq!(whole.error, None);
    let (theirs, ours) = whole.split();
    assert_eq!(theirs, tencent::references("m", &[1, 2]).into_bytes());
    assert_eq!((ours.len(), ours[0].complete, ours[0].stored), (1, false, true));
}

pub async fn cancelled_within_a_second(upstream: &Upstream, left: Instant) {
    assert!(upstream.until(LIMIT, |upstream| upstream.cancelled() == 1).await, "cancelled");
    // Twice the promised second, for a machine that runs other tests.
    assert!(left.elapsed() < Duration::from_secs(2), "{:?}", left.elapsed());
}

/// L52
#[tokio::test]
async fn client_disconnect_before_first_byte_cancels_upstream() {
    for h2 in [false, true] {
        let (upstream, proxy) = chat(Script::hang(), "").await;
        let mut client = if h2 { Client::h2(proxy.addr).await } else { Client::h1(proxy.addr).await };
        let asking =
            tokio::spawn(async move { client.try_send(post("/chat", "{}")).await.map(|response| response.status) });
        assert!(upstream.until(LIMIT, |upstream| upstream.request_count() == 1).await);
        asking.abort();
        cancelled_within_a_second(&upstream, Instant::now()).await;
    }
}

#[tokio::test]
async fn client_disconnect_in_mid_stream_cancels_and_stores() {
    for h2 in [false, true] {
        let script = Script::sse_steps([
            Step::Send(tencent::references("m", &[1, 2]).into()),
            Step::Send("data:{\"half".into()),
            Step::Pause(Duration::from_secs(60)),
        ]);
        let (upstream, proxy) = chat(script, "").await;
        let mut client = if h2 { Client::h2(proxy.addr).await } else { Client::h1(proxy.addr).await };
        let mut response = client.send(post("/chat", "{}")).await;
        response.until("reference_chunks").await;
        drop((response, client));
        cancelled_within_a_second(&upstream, Instant::now()).await;
        let record = proxy.stored("m").await;
        assert!(!record.complete);
        assert_eq!(record.citations.len(), 2);
    }
}

/// One stream of an h2 connection is reset; the others continue.
#[tokio::test]
async fn h2_stream_reset_cancels_only_its_upstream() {
    let script = Script::sse_steps([
        Step::Send(tencent::references("m", &[1, 2]).into()),
        Step::Pause(Duration::from_millis(700)),
        Step::Send(tencent::finish("m").into()),
    ]);
    let (upstream, proxy) = chat(script, "").await;
    let mut client = Client::h2(proxy.addr).await;
    let (mut leaves, stays) = (client.send(post("/chat", "{}")).await, client.send(post("/chat", "{}")).await);
    leaves.until("reference_chunks").await;
    drop(leaves);
    let whole = stays.whole().await;
    assert_eq!(whole.error, None);
    assert!(whole.split().1[0].complete);
    assert!(upstream.until(LIMIT, |upstream| upstream.cancelled() == 1).await);
    assert_eq!(upstream.requests()[1].outcome, Outcome::Ended);
}

#[tokio::test]
async fn client_disconnect_after_the_finish_cancels_upstream() {
    let script = Script::sse_steps([Step::Send(tencent::answer("m").into()), Step::Pause(Duration::from_secs(60))]);
    let (upstream, proxy) = chat(script, "").await;
    let mut response = proxy.post("/chat", "{}").await;
    response.until("event:finish").await;
    drop(response);
    cancelled_within_a_second(&upstream, Instant::now()).await;
    let record = proxy.stored("m").await;
    assert!(record.complete && record.stored);
}

/// A client that disconnects before any citation leaves no record.
#[tokio::test]
async fn client_disconnect_without_citations_stores_nothing() {
    let script = Script::sse_steps([Step::Send(": hello\n\n".into()), Step::Pause(Duration::from_secs(60))]);
    let (upstream, proxy) = chat(script, "").await;
    let mut response = proxy.post("/chat", "{}").await;
    response.until("hello").await;
    drop(response);
    cancelled_within_a_second(&upstream, Instant::now()).await;
    assert_eq!(proxy.get("/citations").await.json().await["items"].as_array().unwrap().len(), 0);
}

/// The upstream accepts and closes: there is no response to relay.
#[tokio::test]
async fn upstream_that_closes_at_once_is_502() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let accepting = tokio::spawn(async move {
        loop {
            drop(listener.accept().await);
        }
    });
    let proxy = Proxy::start(&crate::net::route("chat", &format!("http://{addr}"))).await;
    proxy.post("/chat", "{}").await.is_problem(502, "upstream-unreachable").await;
    accepting.abort();
}
