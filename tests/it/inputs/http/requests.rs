//! Ambiguous requests, and requests for features that citetap does not offer.

use std::time::{Duration, Instant};

use citetap::replay::Script;
use http::{Method, Request};
use http_body_util::Full;
use tokio::{io::AsyncWriteExt, net::TcpStream};

use crate::{
    api::tenants::{ALPHA, keys},
    net::{Client, chat, get, raw, request},
    relay::timeouts::is_closed,
};

fn is_400(response: &str, request: &str) {
    let refused = response.starts_with("HTTP/1.1 400") || response.starts_with("HTTP/1.0 400");
    assert!(refused, "{request:?}: {response:?}");
    assert_eq!(response.matches("HTTP/1.").count(), 1, "{request:?}: closed after it: {response:?}");
}

/// To a server that frames the first request differently, the following bytes would be a second request.
const SECOND: &str = "GET /chat/second HTTP/1.1\r\nhost: localhost\r\n\r\n";

#[tokio::test]
async fn h37_ambiguous_requests_never_reach_the_upstream() {
    let (upstream, proxy) = chat(Script::echo(), "[timeouts]\nrequest_headers = \"2s\"").await;
    for request in [
        "POST /chat HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /chat HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        "POST /chat HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "POST /chat HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: identity\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /chat HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding : chunked\r\n\r\n0\r\n\r\n",
        "POST /chat HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
        "POST /chat HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
        "POST /chat HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
        "POST /chat HTTP/1.1\r\nhost: localhost\r\ncontent-length: +3\r\n\r\nabc",
        "GET /chat HTTP/1.1\r\nhost: localhost\r\nx: a\r\n b\r\n\r\n",
        "GET /chat HTTP/1.1\r\nhost: localhost\r\nx: a\0b\r\n\r\n",
        "GET /chat HTTP/1.1\r\nhost: localhost\r\nx: a\rb\r\n\r\n",
        "GET /chat HTTP/1.1\r\nhost: localhost\r\n: b\r\n\r\n",
    ] {
        is_400(&raw(proxy.addr, request.to_owned() + SECOND).await, request);
    }
    assert_eq!(upstream.request_count(), 0);

    // With both a length and chunks, hyper uses the chunks alone (RFC 9112 6.3 allows that if the server closes
    // afterwards). There is one reading, the upstream gets a newly framed request, and the rest is not a request.
    for request in [
        "POST /chat/te HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        "POST /chat/te HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n1\r\nx\r\n0\r\n\r\n",
    ] {
        let before = upstream.request_count();
        let response = raw(proxy.addr, request.to_owned() + SECOND).await;
        assert_eq!(response.matches("HTTP/1.").count(), 2, "one response, whose body contains its version: {response}");
        assert!(
            response.contains("\"body\":\"x\"") && response.contains("/te") && !response.contains("/second"),
            "{response}"
        );
        let seen = &upstream.requests()[before..];
        assert_eq!((seen.len(), seen[0].headers.contains_key("content-length")), (1, false));
    }
    // A bare LF ends a header line too (RFC 9112 2.2 allows it). The upstream never receives it.
    let response = raw(proxy.addr, "GET /chat/lf HTTP/1.1\nhost: localhost\nx-y: 1\nconnection: close\n\n").await;
    let lone = response.starts_with("HTTP/1.1 400") || response.contains("\"x-y\":[\"1\"]");
    assert!(lone, "{response}");
}

#[tokio::test]
async fn h38_transfer_encoding_in_http_1_0_is_refused() {
    let (upstream, proxy) = chat(Script::echo(), "").await;
    for coding in ["chunked", "identity", "gzip"] {
        let request = format!("POST /chat HTTP/1.0\r\nhost: localhost\r\ntransfer-encoding: {coding}\r\n\r\n0\r\n\r\n");
        is_400(&raw(proxy.addr, request.clone() + SECOND).await, &request);
    }
    assert_eq!(upstream.request_count(), 0);
}

/// The key is checked before any header is removed, and headers with meaning for citetap are never removed.
#[tokio::test]
async fn h39_connection_header_cannot_remove_the_key() {
    let (upstream, proxy) = chat(Script::echo(), &keys()).await;
    let named = "keep-alive, authorization, x-citetap-key, cookie, content-type, x-hop";
    for (own, left) in [(ALPHA, Some("Bearer upstreams")), (&[("authorization", "Bearer alpha-key")][..], None)] {
        let mut headers = own.to_vec();
        if left.is_some() {
            headers.push(("authorization", "Bearer upstreams"));
        }
        headers.extend([("connection", named), ("cookie", "a=1"), ("content-type", "a/b"), ("x-hop", "1")]);
        let request = request(Method::POST, "/chat", &headers, "{}");
        assert_eq!(Client::h1(proxy.addr).await.send(request).await.status, 200);
        let seen = upstream.requests().pop().unwrap().headers;
        assert_eq!(seen.get("authorization").map(|value| value.to_str().unwrap()), left);
        assert_eq!((&seen["cookie"], &seen["content-type"]), (&"a=1".parse().unwrap(), &"a/b".parse().unwrap()));
        assert!(!seen.contains_key("x-hop") && !seen.contains_key("x-citetap-key"));
        assert!(!format!("{seen:?}").contains("alpha-key"));
    }
    let request = request(Method::POST, "/chat", &[("connection", "x-citetap-key")], "{}");
    assert_eq!(Client::h1(proxy.addr).await.send(request).await.status, 401);
}

#[tokio::test]
async fn h40_missing_request_body_times_out() {
    let toml = "[timeouts]\nfirst_byte = \"400ms\"\nrequest_headers = \"400ms\"\nclient_stall = \"400ms\"";
    let (_upstream, proxy) = chat(Script::echo(), toml).await;
    for path in ["/chat", "/normalize", "/render"] {
        let mut stream = TcpStream::connect(proxy.addr).await.unwrap();
        let head =
            format!("POST {path} HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 10\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let began = Instant::now();
        let response = String::from_utf8(is_closed(stream).await).unwrap();
        assert!(response.starts_with("HTTP/1.1 100"), "{response}");
        assert!(
            response.contains("\r\n\r\nHTTP/1.1 504") || response.contains("\r\n\r\nHTTP/1.1 4"),
            "{path}: {response}"
        );
        assert!(began.elapsed() < Duration::from_secs(5), "{path}: {:?}", began.elapsed());
    }
    // In headers with another meaning.
    let mut stream = TcpStream::connect(proxy.addr).await.unwrap();
    stream.write_all(b"POST /chat HTTP/1.1\r\nexpect: 100-continue\r\n").await.unwrap();
    is_closed(stream).await;
}

#[tokio::test]
async fn h41_upgrades_connect_and_trace_are_refused() {
    let (upstream, proxy) = chat(Script::echo(), "").await;
    let connect = "CONNECT other.example.com:443 HTTP/1.1\r\nhost: other.example.com\r\nconnection: close\r\n\r\n";
    assert!(raw(proxy.addr, connect).await.starts_with("HTTP/1.1 501"));
    for mut client in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
        client.send(request(Method::TRACE, "/chat", &[], "")).await.is_problem(501, "not-relayed").await;
    }
    for to in ["websocket", "h2c, websocket", "TLS/1.0"] {
        let headers = [("connection", "upgrade"), ("upgrade", to)];
        let response = Client::h1(proxy.addr).await.send(request(Method::GET, "/chat", &headers, "")).await;
        response.is_problem(501, "not-relayed").await;
    }
    assert_eq!(upstream.request_count(), 0);
    // An offer of h2c may be ignored (RFC 9110 7.8). The request is served over HTTP/1.1, and the offer is not relayed.
    let headers = [("connection", "upgrade, http2-settings"), ("upgrade", "h2c"), ("http2-settings", "AAMAAABk")];
    let response = Client::h1(proxy.addr).await.send(request(Method::GET, "/chat", &headers, "")).await;
    assert_eq!((response.status.as_u16(), response.header("upgrade")), (200, None));
    let seen = &upstream.requests()[0].headers;
    assert!(!seen.contains_key("upgrade") && !seen.contains_key("http2-settings"));
}

#[tokio::test]
async fn h42_request_has_one_host_and_absolute_form_wins() {
    let (upstream, proxy) = chat(Script::echo(), "").await;
    for path in ["/chat", "/citations", "/citations/m", "/stats"] {
        for head in [
            format!("GET {path} HTTP/1.1\r\nconnection: close\r\n\r\n"),
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\nconnection: close\r\n\r\n"),
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"),
        ] {
            is_400(&raw(proxy.addr, &head).await, &head);
        }
    }
    assert_eq!(upstream.request_count(), 0);
    // Neither selects the upstream.
    let (upstream, proxy) = chat(Script::echo(), "allowed_hosts = [\"*\"]\n").await;
    let absolute =
        "GET http://other.example.com/chat/x HTTP/1.1\r\nhost: third.example.com\r\nconnection: close\r\n\r\n";
    let response = raw(proxy.addr, absolute).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    assert!(response.contains(&format!("\"host\":[\"{}\"]", upstream.addr())), "{response}");
}

#[tokio::test]
async fn h43_headers_and_urls_beyond_the_limits_are_refused() {
    let (upstream, proxy) = chat(Script::echo(), "").await;
    let many: String = (0..10_000).map(|n| format!("x-{n}: 1\r\n")).collect();
    let large = format!("x: {}\r\n", "v".repeat(1 << 20));
    for headers in [many, large] {
        let request = format!("GET /chat HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
        let response = sent(proxy.addr, request).await;
        assert!(response.is_empty() || response.starts_with("HTTP/1.1 431"), "{response}");
    }
    let response =
        sent(proxy.addr, format!("GET /chat/{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "a".repeat(1 << 20))).await;
    let refused = response.starts_with("HTTP/1.1 414") || response.starts_with("HTTP/1.1 431");
    assert!(response.is_empty() || refused, "{response}");
    // One above the limit: the client has finished sending, so it can read the response.
    let response =
        sent(proxy.addr, format!("GET /chat HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "x: 1\r\n".repeat(64))).await;
    assert!(response.starts_with("HTTP/1.1 431"), "{response}");
    let response =
        sent(proxy.addr, format!("GET /chat/{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "a".repeat(20_000))).await;
    assert!(response.starts_with("HTTP/1.1 414") || response.starts_with("HTTP/1.1 431"), "{response}");

    let mut client = Client::h2(proxy.addr).await;
    let large = Request::get("/chat").header("x", "v".repeat(20_000)).body(Full::default()).unwrap();
    match client.try_send(large).await {
        Ok(response) => assert_eq!(response.status, 431),
        Err(error) => assert!(error.is_user(), "{error:?}"),
    }
    assert_eq!(upstream.request_count(), 0);
    assert_eq!(client.send(get("/chat")).await.status, 200, "and the connection lives");
}

/// Sends until the server stops reading, and reads until the end.
async fn sent(addr: std::net::SocketAddr, request: String) -> String {
    let (mut read, mut write) = TcpStream::connect(addr).await.unwrap().into_split();
    let sending = tokio::spawn(async move {
        let _ = write.write_all(request.as_bytes()).await;
        let _ = write.shutdown().await;
    });
    let mut response = Vec::new();
    let reading = tokio::io::AsyncReadExt::read_to_end(&mut read, &mut response);
    let _ = crate::net::within("the connection's end", reading).await;
    sending.abort();
    String::from_utf8_lossy(&response).into_owned()
}

#[tokio::test]
async fn h44_forwarded_headers_are_trusted_from_configured_peers() {
    let hops = (0..500).map(|n| format!("198.51.100.{}", n % 256)).collect::<Vec<_>>().join(", ");
    let forged = [
        ("x-forwarded-for", hops.as_str()),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-host", "evil.example.com"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-anything", "1"),
        ("x-real-ip", "127.0.0.1"),
        ("forwarded", "for=127.0.0.1;host=evil.example.com"),
    ];
    for (toml, passes) in [("", false), ("trusted_proxies = [\"127.0.0.1\"]", true)] {
        let (upstream, proxy) = chat(Script::echo(), toml).await;
        for mut client in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
            assert_eq!(client.send(request(Method::GET, "/chat", &forged, "")).await.status, 200);
            let seen = upstream.requests().pop().unwrap().headers;
            for (name, _) in forged {
                assert_eq!(seen.contains_key(name), passes, "{name}");
            }
            assert_eq!(seen["host"], upstream.addr().to_string());
        }
    }
}
