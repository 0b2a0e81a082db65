//! Body framing: request bodies of unknown length, and responses with ambiguous framing.

use std::time::Duration;

use citetap::replay::Script;
use http::Method;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::tls;
use crate::{
    inputs::raw_upstream,
    net::{Client, chat, eventually, get, post, raw, request},
};

const METHODS: [&str; 6] = ["GET", "HEAD", "DELETE", "OPTIONS", "POST", "QUERY"];

/// Waits for request `count` at the upstream. Returns its method and body.
async fn received(upstream: &citetap::replay::Upstream, count: usize) -> (Method, String) {
    let seen = eventually(|| async {
        let seen = upstream.requests();
        (seen.len() == count && !seen[count - 1].body.is_empty()).then_some(seen)
    });
    let seen = seen.await.unwrap_or_else(|| upstream.requests()).pop().unwrap();
    (seen.method.clone(), String::from_utf8_lossy(&seen.body).into_owned())
}

/// hyper alone would drop a body of unknown length from a `GET` or `HEAD` request.
#[tokio::test]
async fn chunked_body_of_any_method_reaches_the_upstream() {
    let (plain, proxy) = chat(Script::echo(), "").await;
    for (n, method) in METHODS.iter().enumerate() {
        let head = format!(
            "{method} /chat HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
        );
        let response = raw(proxy.addr, head + "5\r\nhello\r\n0\r\n\r\n").await;
        assert!(response.starts_with("HTTP/1.1 200 "), "{method}: {response}");
        let (seen, body) = received(&plain, n + 1).await;
        assert_eq!((seen.as_str(), body.as_str()), (*method, "hello"));
    }
    let (plain, proxy) = chat(Script::echo(), "").await;
    over_h2(proxy.addr, &plain).await;

    let upstream = tls::upstream().await;
    let (port, trust) = tls::terminator(upstream.addr(), &[b"h2"], &["localhost"]).await;
    let proxy = tls::proxy(port, trust).await;
    over_h2(proxy.addr, &upstream).await;
}

async fn over_h2(addr: std::net::SocketAddr, upstream: &citetap::replay::Upstream) {
    for (n, method) in METHODS.iter().enumerate() {
        let (mut client, connection) = h2::client::handshake(TcpStream::connect(addr).await.unwrap()).await.unwrap();
        tokio::spawn(connection);
        let request = http::Request::builder().method(*method).uri("http://localhost/chat").body(()).unwrap();
        let (response, mut body) = client.send_request(request, false).unwrap();
        body.send_data("hello".into(), true).unwrap();
        assert_eq!(response.await.unwrap().status(), 200, "{method}");
        let (seen, body) = received(upstream, n + 1).await;
        assert_eq!((seen.as_str(), body.as_str()), (*method, "hello"));
    }
}

/// HTTP/1.0 has no chunks, so hyper drops the body once it knows the upstream's version. The client must get an error.
#[tokio::test]
async fn chunked_body_for_http_1_0_upstream_arrives_or_is_502() {
    let (tx, mut rx) = tokio::sync::mpsc::channel(64);
    let upstream = raw_upstream::serve(move |mut stream| {
        let tx = tx.clone();
        async move {
            let mut piece = [0; 4096];
            while let Ok(n @ 1..) = stream.read(&mut piece).await {
                let text = String::from_utf8_lossy(&piece[..n]).into_owned();
                let response = "HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nok";
                if text.contains(" HTTP/1.") {
                    stream.write_all(response.as_bytes()).await.unwrap();
                }
                tx.send(text).await.unwrap();
            }
        }
    })
    .await;
    let proxy = raw_upstream::proxy(upstream, "workers = 1").await;
    for method in ["POST", "GET", "POST"] {
        // A body with a length is sent over the pooled connection.
        assert_eq!(proxy.post("/chat", "known").await.whole().await.text(), "ok");
        tokio::time::sleep(Duration::from_millis(50)).await;
        let head = format!(
            "{method} /chat HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
        );
        let response = raw(proxy.addr, head + "5\r\nhello\r\n0\r\n\r\n").await;
        let mut all = String::new();
        while let Ok(text) = rx.try_recv() {
            all += &text;
        }
        assert!(all.contains("known"), "{all}");
        assert!(response.starts_with("HTTP/1.1 502 ") || all.contains("hello"), "{method}: {response}\n{all}");
    }
}

#[tokio::test]
async fn request_without_a_body_is_sent_without_one() {
    let (upstream, proxy) = chat(Script::echo(), "").await;
    for method in [Method::GET, Method::HEAD, Method::DELETE] {
        for mut client in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
            client.send(request(method.clone(), "/chat", &[], "")).await.whole().await;
            let headers = upstream.requests().pop().unwrap().headers;
            assert!(!headers.contains_key("transfer-encoding"), "{method}: {headers:?}");
        }
    }
}

/// RFC 9110 8.6: a list of equal lengths is relayed as one length.
#[tokio::test]
async fn response_with_equal_lengths_gets_one_length() {
    for lengths in
        ["content-length: 2, 2", "content-length: 2\r\ncontent-length: 2", "content-length: 2 ,2\r\ncontent-length: 2"]
    {
        let proxy = raw_upstream::proxy(
            raw_upstream::says(format!("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n{lengths}\r\n\r\nok")).await,
            "",
        )
        .await;
        for method in [Method::GET, Method::HEAD] {
            for mut client in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
                let whole = client.send(request(method.clone(), "/chat", &[], "")).await.whole().await;
                assert_eq!((whole.status.as_u16(), whole.error.as_deref()), (200, None), "{method} {lengths:?}");
                let values: Vec<_> = whole.headers.get_all("content-length").iter().collect();
                assert_eq!(values, ["2"], "{method} {lengths:?}");
                assert_eq!(whole.text(), if method == Method::GET { "ok" } else { "" });
            }
        }
    }
}

/// For every status and method: even without a body, a cache could trust the header.
#[tokio::test]
async fn response_with_conflicting_lengths_is_502() {
    for status in ["200 OK", "304 Not Modified", "404 Not Found"] {
        for lengths in
            ["2, 3", "2\r\ncontent-length: 3", "3,2", "+2", "2,", ",2", "", "0x2", "2 2", "99999999999999999999999"]
        {
            let response = format!("HTTP/1.1 {status}\r\ncontent-length: {lengths}\r\n\r\n");
            let body = if status.starts_with("304") { "" } else { "abc" };
            let proxy = raw_upstream::proxy(raw_upstream::says(response + body).await, "").await;
            for method in [Method::GET, Method::HEAD] {
                let mut client = Client::h1(proxy.addr).await;
                let response = client.send(request(method.clone(), "/chat", &[], "")).await;
                assert_eq!(response.status, 502, "{method} {status} {lengths:?}");
                assert_eq!(client.send(get("/healthz")).await.status, 200);
            }
        }
    }
}

/// Transfer-Encoding is a hop-by-hop header, so the client would not learn of a coding other than `chunked`.
#[tokio::test]
async fn response_with_another_transfer_coding_is_502() {
    for codings in [
        "gzip, chunked",
        "gzip",
        "chunked, chunked",
        "chunked, gzip",
        "gzip\r\ntransfer-encoding: chunked",
        "chunked\r\ntransfer-encoding: chunked",
        "identity",
        "xchunked",
        "\"chunked\"",
    ] {
        let response =
            format!("HTTP/1.1 200 OK\r\ntransfer-encoding: {codings}\r\n\r\n{}0\r\n\r\n", raw_upstream::chunk("ok"));
        let proxy = raw_upstream::proxy(raw_upstream::says(response).await, "").await;
        for mut client in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
            let response = client.send(post("/chat", "{}")).await;
            assert_eq!(response.status, 502, "{codings:?}");
            response.is_problem(502, "upstream-unreachable").await;
        }
    }
    for coding in ["chunked", "Chunked"] {
        let response =
            format!("HTTP/1.1 200 OK\r\ntransfer-encoding: {coding}\r\n\r\n{}0\r\n\r\n", raw_upstream::chunk("ok"));
        let proxy = raw_upstream::proxy(raw_upstream::says(response).await, "").await;
        assert_eq!(proxy.post("/chat", "{}").await.whole().await.text(), "ok");
    }
}

/// citetap refuses upgrade requests, so no upstream was asked to switch.
#[tokio::test]
async fn unrequested_101_response_is_502() {
    for headers in ["", "connection: upgrade\r\nupgrade: websocket\r\n", "upgrade: h2c\r\nconnection: upgrade\r\n"] {
        let response =
            format!("HTTP/1.1 101 Switching Protocols\r\n{headers}\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        let proxy = raw_upstream::proxy(raw_upstream::says(response).await, "").await;
        for mut client in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
            let response = client.send(post("/chat", "{}")).await;
            assert_eq!(response.status, 502, "{headers:?}");
            response.is_problem(502, "upstream-unreachable").await;
            assert_eq!(
                tokio::time::timeout(Duration::from_secs(5), client.send(get("/healthz"))).await.unwrap().status,
                200
            );
        }
    }
}
