//! Limits, each at and over. Rejected requests affect nobody else.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use citetap::replay::{Script, Step};
use http::Request;
use http_body::Frame;
use http_body_util::{Full, StreamBody};

use crate::net::{Client, chat, get, post, raw, tencent};

/// A body of unknown length.
fn chunked(len: usize) -> Request<impl http_body::Body<Data = Bytes, Error = Infallible> + Send + Sync + 'static> {
    let all = Bytes::from(vec![b'x'; len]);
    let pieces = (0..len).step_by(512).map(move |at| Ok(Frame::data(all.slice(at..(at + 512).min(len)))));
    Request::post("/chat").body(StreamBody::new(futures_util::stream::iter(pieces))).unwrap()
}

#[tokio::test]
async fn body_over_the_limit_is_413_by_length_and_by_bytes() {
    let (upstream, proxy) = chat(Script::echo(), "[limits]\nrequest_body = \"4KiB\"").await;
    for mut client in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
        assert_eq!(client.send(post("/chat", vec![b'x'; 4096])).await.json().await["bodyLength"], 4096);
        assert_eq!(client.send(chunked(4096)).await.json().await["bodyLength"], 4096);
    }
    let admitted = upstream.request_count();
    for mut client in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
        client.send(post("/chat", vec![b'x'; 4097])).await.is_problem(413, "body-too-large").await;
    }
    assert_eq!(upstream.request_count(), admitted, "its length is enough to refuse it");
    for mut client in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
        let problem = client.send(chunked(4097)).await.is_problem(413, "body-too-large").await;
        assert!(problem["detail"].as_str().unwrap().contains("limits.request_body"));
    }
    assert_eq!(proxy.post("/chat", "{}").await.status, 200);
}

/// A client that is still sending receives the response too.
#[tokio::test]
async fn body_far_over_the_limit_is_413() {
    let (_upstream, proxy) = chat(Script::echo(), "[limits]\nrequest_body = \"64KiB\"").await;
    for mut client in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
        client.send(chunked(8 << 20)).await.is_problem(413, "body-too-large").await;
    }
    for mut client in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
        client.send(post("/chat", vec![b'x'; 8 << 20])).await.is_problem(413, "body-too-large").await;
    }
}

fn with_headers(count: usize, size: usize) -> Request<Full<Bytes>> {
    let mut request = Request::get("/chat");
    for n in 0..count {
        request = request.header(format!("x-h{n}"), "v".repeat(size));
    }
    request.body(Full::default()).unwrap()
}

/// H43
#[tokio::test]
async fn too_many_or_too_large_headers_are_431() {
    let (upstream, proxy) =
        chat(Script::echo(), "[limits]\nrequest_headers = 20\nrequest_header_bytes = \"8KiB\"").await;
    // The client adds its Host header.
    assert_eq!(Client::h1(proxy.addr).await.send(with_headers(19, 10)).await.status, 200);
    assert_eq!(Client::h1(proxy.addr).await.send(with_headers(1, 7000)).await.status, 200);
    assert_eq!(Client::h1(proxy.addr).await.send(with_headers(20, 10)).await.status, 431);
    assert_eq!(Client::h1(proxy.addr).await.send(with_headers(1, 9000)).await.status, 431);
    let long = raw(proxy.addr, format!("GET /chat/{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "a".repeat(9000))).await;
    assert!(long.starts_with("HTTP/1.1 431") || long.starts_with("HTTP/1.1 414"), "{long}");
    assert_eq!(upstream.request_count(), 2);
}

#[tokio::test]
async fn too_large_h2_headers_are_431_and_connection_stays_open() {
    let (upstream, proxy) = chat(Script::echo(), "[limits]\nrequest_header_bytes = \"8KiB\"").await;
    let mut client = Client::h2(proxy.addr).await;
    assert_eq!(client.send(with_headers(1, 7000)).await.status, 200);
    // Either the client respects the server's SETTINGS, or the server rejects the request.
    match client.try_send(with_headers(1, 9000)).await {
        Ok(response) => assert_eq!(response.status, 431),
        Err(error) => assert!(error.is_user(), "{error:?}"),
    }
    assert_eq!(client.send(get("/chat")).await.status, 200);
    assert_eq!(upstream.request_count(), 2);
}

/// L53
#[tokio::test]
async fn over_the_stream_cap_is_503_and_admitted_streams_continue() {
    let steps = [
        Step::Send(tencent::references("m", &[1]).into()),
        Step::Pause(Duration::from_millis(700)),
        Step::Send(tencent::finish("m").into()),
    ];
    let (upstream, proxy) = chat(Script::sse_steps(steps), "[limits]\nstreams = 2").await;
    let (mut first, second) = (proxy.post("/chat", "{}").await, proxy.post("/chat", "{}").await);
    first.until("reference_chunks").await;
    for mut client in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
        let refused = client.send(post("/chat", "{}")).await;
        assert_eq!(refused.header("retry-after"), Some("1"));
        refused.is_problem(503, "overloaded").await;
        assert_eq!(client.send(get("/healthz")).await.status, 200);
        assert_eq!(client.send(get("/citations")).await.status, 200);
    }
    assert_eq!(upstream.request_count(), 2);
    let rest = first.whole().await;
    assert_eq!((rest.split().1.len(), rest.error), (1, None));
    let (theirs, ours) = second.whole().await.split();
    assert_eq!(theirs, (tencent::references("m", &[1]) + &tencent::finish("m")).into_bytes());
    assert_eq!(ours.len(), 1);
    // Their permits are free again.
    assert_eq!(proxy.post("/chat", "{}").await.status, 200);
    assert_eq!(proxy.post("/chat", "{}").await.status, 200);
}

/// The permit is released however a request ends.
#[tokio::test]
async fn stream_permit_does_not_leak() {
    let (upstream, proxy) = chat(Script::hang(), "[limits]\nstreams = 1\n[timeouts]\nfirst_byte = \"10s\"").await;
    for n in 1..=3 {
        let mut client = Client::h1(proxy.addr).await;
        let hanging =
            tokio::spawn(async move { client.try_send(post("/chat", "{}")).await.map(|response| response.status) });
        assert!(upstream.until(crate::net::LIMIT, |upstream| upstream.request_count() == n).await);
        proxy.post("/chat", "{}").await.is_problem(503, "overloaded").await;
        hanging.abort();
        let freed = crate::net::eventually(|| async {
            let text = proxy.get("/metrics").await.whole().await.text();
            text.lines().any(|line| line.starts_with("citetap_streams") && line.ends_with(" 0")).then_some(())
        });
        assert!(freed.await.is_some());
    }
}
