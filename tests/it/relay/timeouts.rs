//! Every wait has a timeout, and an end by timeout never looks like the upstream's.

use std::time::{Duration, Instant};

use citetap::replay::{Outcome, Script, Step};
use http::Method;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::net::{Client, LIMIT, Proxy, Whole, chat, post, request, route, tencent, within};

#[tokio::test]
async fn silent_upstream_is_504() {
    let (upstream, proxy) = chat(Script::hang(), "[timeouts]\nfirst_byte = \"200ms\"").await;
    let began = Instant::now();
    let problem = proxy.post("/chat", "{}").await.is_problem(504, "upstream-timeout").await;
    assert!(began.elapsed() >= Duration::from_millis(200));
    assert!(problem["detail"].as_str().unwrap().contains("timeouts.first_byte"));
    assert!(upstream.until(LIMIT, |upstream| upstream.cancelled() == 1).await);
}

#[tokio::test]
async fn unreachable_upstream_is_502() {
    let dead = crate::process::dead_port();
    let proxy = Proxy::start(&route("chat", &format!("http://127.0.0.1:{dead}"))).await;
    for mut client in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
        let problem = client.send(post("/chat", "{}")).await.is_problem(502, "upstream-unreachable").await;
        assert!(problem["detail"].as_str().unwrap().contains("could not connect"), "{problem}");
    }
    assert_eq!(proxy.get("/healthz").await.status, 200);
}

pub fn ends_with_citations_and_an_abort(whole: &Whole, theirs: &str) {
    assert!(whole.error.is_some(), "an abort: {}", whole.text());
    let (bytes, ours) = whole.split();
    assert_eq!(String::from_utf8(bytes).unwrap(), theirs);
    assert_eq!(ours.len(), 1, "{}", whole.text());
    assert!(!ours[0].complete && ours[0].stored);
    assert_eq!(ours[0].citations.len(), 2);
}

pub fn begins_and_hangs() -> Script {
    Script::sse_steps([
        Step::Send(tencent::references("m", &[1, 2]).into()),
        Step::Send(tencent::text("m", "一").into()),
        Step::Pause(Duration::from_secs(60)),
    ])
}

#[tokio::test]
async fn idle_upstream_ends_with_citations_and_an_abort() {
    let (upstream, proxy) = chat(begins_and_hangs(), "[timeouts]\nupstream_idle = \"300ms\"").await;
    let theirs = tencent::references("m", &[1, 2]) + &tencent::text("m", "一");
    for mut client in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
        let whole = client.send(post("/chat", "{}")).await.whole().await;
        ends_with_citations_and_an_abort(&whole, &theirs);
    }
    assert!(!proxy.stored("m").await.complete);
    assert!(upstream.until(LIMIT, |upstream| upstream.cancelled() == 2).await);
}

/// F11: any byte resets the idle timer.
#[tokio::test]
async fn upstream_comments_reset_the_idle_timeout() {
    let mut steps = vec![Step::Send(tencent::references("m", &[1, 2]).into())];
    for _ in 0..8 {
        steps.extend([Step::Pause(Duration::from_millis(250)), Step::Send(": ping\n\n".into())]);
    }
    steps.push(Step::Send(tencent::finish("m").into()));
    let (_upstream, proxy) = chat(Script::sse_steps(steps), "[timeouts]\nupstream_idle = \"1500ms\"").await;
    let whole = proxy.post("/chat", "{}").await.whole().await;
    assert_eq!(whole.error, None);
    assert!(whole.split().1[0].complete);
}

#[tokio::test]
async fn total_timeout_ends_an_active_stream() {
    let tick: bytes::Bytes = tencent::text("m", "又").into();
    let script = Script::sse_steps([
        Step::Send(tencent::references("m", &[1, 2]).into()),
        Step::Forever(tick, Duration::from_millis(20)),
    ]);
    let (upstream, proxy) = chat(script, "[timeouts]\ntotal = \"400ms\"").await;
    let whole = proxy.post("/chat", "{}").await.whole().await;
    let theirs = String::from_utf8(whole.split().0).unwrap();
    ends_with_citations_and_an_abort(&whole, &theirs);
    let took = whole.pieces.last().unwrap().0;
    assert!(took >= Duration::from_millis(350) && took < Duration::from_secs(5), "{took:?}");
    assert!(upstream.until(LIMIT, |upstream| upstream.cancelled() == 1).await);
}

/// The same if the upstream is never silent.
#[tokio::test]
async fn total_timeout_ends_a_flood() {
    let script = Script::sse_steps([Step::Bulk { len: 1 << 40, chunk: 64 * 1024 }]);
    let (upstream, proxy) = chat(script, "[timeouts]\ntotal = \"400ms\"").await;
    let mut response = proxy.post("/chat", "{}").await;
    let began = Instant::now();
    let end = loop {
        match response.piece().await {
            Some(Ok(_)) => assert!(began.elapsed() < Duration::from_secs(8), "the stream continues"),
            end => break end,
        }
    };
    assert!(end.is_some_and(|end| end.is_err()), "an abort");
    assert!(upstream.until(LIMIT, |upstream| upstream.cancelled() == 1).await);
}

pub async fn is_closed(mut stream: TcpStream) -> Vec<u8> {
    let mut received = Vec::new();
    // Closed or reset: both are an end.
    let _ = within("the server to close", stream.read_to_end(&mut received)).await;
    received
}

/// L50
#[tokio::test]
async fn client_without_complete_headers_is_closed() {
    let (upstream, proxy) = chat(Script::echo(), "[timeouts]\nrequest_headers = \"300ms\"").await;
    let silent = TcpStream::connect(proxy.addr).await.unwrap();
    assert_eq!(is_closed(silent).await, b"");

    let mut slow = TcpStream::connect(proxy.addr).await.unwrap();
    slow.write_all(b"GET /chat HTTP/1.1\r\nhost: localhost\r\nx-slow: ").await.unwrap();
    let received = String::from_utf8(is_closed(slow).await).unwrap();
    assert!(received.is_empty() || received.starts_with("HTTP/1.1 408"), "{received}");

    let mut preface = TcpStream::connect(proxy.addr).await.unwrap();
    preface.write_all(b"PRI * HTT").await.unwrap();
    is_closed(preface).await;
    assert_eq!(upstream.request_count(), 0);
}

/// Slowloris: a byte now and then does not count as progress.
#[tokio::test]
async fn slowly_sent_headers_are_closed() {
    let (_upstream, proxy) = chat(Script::echo(), "[timeouts]\nrequest_headers = \"500ms\"").await;
    let (mut read, mut write) = TcpStream::connect(proxy.addr).await.unwrap().into_split();
    let drip = tokio::spawn(async move {
        write.write_all(b"GET /chat HTTP/1.1\r\nhost: localhost\r\nx: ").await.unwrap();
        while write.write_all(b"y").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let mut received = Vec::new();
    let _ = within("the server to close", read.read_to_end(&mut received)).await;
    drip.abort();
}

/// A body that never arrives: the timeout of the upstream's response ends it.
#[tokio::test]
async fn endless_request_body_is_504() {
    let (_upstream, proxy) = chat(Script::echo(), "[timeouts]\nfirst_byte = \"300ms\"").await;
    let mut stream = TcpStream::connect(proxy.addr).await.unwrap();
    stream.write_all(b"POST /chat HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\nabc").await.unwrap();
    let received = String::from_utf8(is_closed(stream).await).unwrap();
    assert!(received.starts_with("HTTP/1.1 504"), "{received}");
}

/// L51
#[tokio::test]
async fn stalled_client_is_closed_and_its_upstream_cancelled() {
    let script = Script::sse_steps([
        Step::Send(tencent::references("m", &[1, 2]).into()),
        Step::Bulk { len: 1 << 40, chunk: 64 * 1024 },
    ]);
    let (upstream, proxy) = chat(script, "[timeouts]\nclient_stall = \"500ms\"").await;
    let mut response = proxy.post("/chat", "{}").await;
    response.until("reference_chunks").await;
    assert!(upstream.until(LIMIT, |upstream| upstream.cancelled() == 1).await);
    assert_eq!(upstream.requests()[0].outcome, Outcome::Cancelled);
    assert!(!proxy.stored("m").await.complete);
    // It reads the bytes in flight, and then no clean end.
    assert!(response.whole().await.error.is_some());
}

/// The connection is alive and answers pings, but the stream's window stays closed.
#[tokio::test]
async fn h2_client_with_closed_window_is_reset() {
    let script = Script::sse_steps([
        Step::Send(tencent::references("m", &[1, 2]).into()),
        Step::Bulk { len: 1 << 40, chunk: 64 * 1024 },
    ]);
    let (upstream, proxy) = chat(script, "[timeouts]\nclient_stall = \"500ms\"").await;
    let mut client = Client::h2(proxy.addr).await;
    let mut response = client.send(post("/chat", "{}")).await;
    response.until("reference_chunks").await;
    assert!(upstream.until(LIMIT, |upstream| upstream.cancelled() == 1).await);
    assert!(!proxy.stored("m").await.complete);
    let metrics = proxy.get("/metrics").await.whole().await.text();
    assert!(metrics.contains("citetap_streams_in_flight 0"), "its permit is released: {metrics}");
    assert!(response.whole().await.error.is_some());
}

/// A client that reads slowly but steadily is not stalled.
#[tokio::test]
async fn slow_client_is_served() {
    let script = Script::sse_steps([
        Step::Send(tencent::references("m", &[1, 2]).into()),
        Step::Bulk { len: 1 << 40, chunk: 64 * 1024 },
    ]);
    let (upstream, proxy) = chat(script, "[timeouts]\nclient_stall = \"1500ms\"").await;
    let mut response = proxy.post("/chat", "{}").await;
    // Large reads, so that the sockets' buffers move.
    for _ in 0..20 {
        let mut taken = 0;
        while taken < 1 << 19 {
            taken += response.piece().await.expect("no end").expect("no abort").len();
        }
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    assert_eq!(upstream.cancelled(), 0);
}

/// A timeout affects one stream. Others on the connection continue.
#[tokio::test]
async fn timeout_of_one_h2_stream_does_not_affect_others() {
    let (_upstream, proxy) = chat(begins_and_hangs(), "[timeouts]\nupstream_idle = \"300ms\"").await;
    let mut client = Client::h2(proxy.addr).await;
    let cut = client.send(post("/chat", "{}")).await;
    assert!(cut.whole().await.error.is_some());
    let again = client.send(request(Method::POST, "/chat", &[], "{}")).await;
    assert_eq!(again.status, 200);
}
