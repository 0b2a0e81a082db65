//! Requests that are not relayed, and their errors.

use citetap::replay::Script;
use http::Method;

use crate::net::{Client, chat, get, raw, request};

#[tokio::test]
async fn path_without_route_is_404_and_lists_the_routes() {
    // With the console, "/" would be its page.
    let (upstream, proxy) = chat(Script::echo(), "console = false").await;
    for path in ["/", "/other", "/chatter", "/CHAT"] {
        let problem = proxy.get(path).await.is_problem(404, "no-route").await;
        assert!(problem["detail"].as_str().unwrap().ends_with("routes: /chat"));
    }
    assert_eq!(upstream.request_count(), 0);
}

#[tokio::test]
async fn dot_segments_in_any_encoding_are_400() {
    let (upstream, proxy) = chat(Script::echo(), "").await;
    for path in [
        "/chat/../admin",
        "/chat/..",
        "/chat/%2e%2e/x",
        "/chat/%2E./x",
        "/chat/a/..;/x",
        "/chat/..%2fadmin",
        "/chat/..%5Cx",
        "/chat/a/.%2e",
    ] {
        proxy.get(path).await.is_problem(400, "bad-request").await;
        Client::h2(proxy.addr).await.send(get(path)).await.is_problem(400, "bad-request").await;
    }
    assert_eq!(upstream.request_count(), 0);
    for path in ["/chat/...", "/chat/a..b", "/chat/.hidden", "/chat/x?y=../z"] {
        assert_eq!(proxy.get(path).await.status, 200, "{path}");
    }
}

/// H41
#[tokio::test]
async fn connect_trace_and_upgrades_are_refused() {
    let (upstream, proxy) = chat(Script::echo(), "").await;
    let connect = "CONNECT other.example.com:443 HTTP/1.1\r\nhost: other.example.com\r\nconnection: close\r\n\r\n";
    let connect = raw(proxy.addr, connect).await;
    assert!(connect.starts_with("HTTP/1.1 501"), "{connect}");
    Client::h1(proxy.addr)
        .await
        .send(request(Method::TRACE, "/chat", &[], ""))
        .await
        .is_problem(501, "not-relayed")
        .await;
    for to in ["websocket", "h2c, websocket", "TLS/1.0"] {
        let headers = [("connection", "upgrade"), ("upgrade", to)];
        let response = Client::h1(proxy.addr).await.send(request(Method::GET, "/chat", &headers, "")).await;
        response.is_problem(501, "not-relayed").await;
    }
    assert_eq!(upstream.request_count(), 0);
}

/// An offer of h2c may be ignored. It is not relayed.
#[tokio::test]
async fn h2c_upgrade_offer_is_served_over_h1() {
    let (upstream, proxy) = chat(Script::echo(), "").await;
    let headers =
        [("connection", "upgrade, http2-settings"), ("upgrade", "h2c"), ("http2-settings", "AAMAAABkAAQAAP__")];
    assert_eq!(Client::h1(proxy.addr).await.send(request(Method::GET, "/chat", &headers, "")).await.status, 200);
    let seen = &upstream.requests()[0].headers;
    assert!(!seen.contains_key("upgrade") && !seen.contains_key("http2-settings") && !seen.contains_key("connection"));
}

/// H37, H38, H42: requests that two servers could frame differently.
#[tokio::test]
async fn ambiguous_requests_are_400_and_never_reach_the_upstream() {
    let (upstream, proxy) = chat(Script::echo(), "[timeouts]\nrequest_headers = \"2s\"").await;
    for request in [
        "GET /chat HTTP/1.1\r\nhost: localhost\r\nhost: 127.0.0.1\r\n\r\n",
        "GET /chat HTTP/1.1\r\n\r\n",
        "POST /chat HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
        "POST /chat HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
        "POST /chat HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
        "POST /chat HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
        "POST /chat HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding : chunked\r\n\r\n0\r\n\r\n",
        "POST /chat HTTP/1.0\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET /chat HTTP/1.1\r\nhost: localhost\r\nx: a\0b\r\n\r\n",
        "GET /chat HTTP/1.1\r\nhost: localhost\r\nx: a\r\n b\r\n\r\n",
    ] {
        let response = raw(proxy.addr, request.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n")).await;
        assert!(
            response.starts_with("HTTP/1.1 400") || response.starts_with("HTTP/1.0 400"),
            "{request:?}: {response:?}"
        );
    }
    assert_eq!(upstream.request_count(), 0);
}

/// H36
#[tokio::test]
async fn broken_chunks_are_never_a_complete_body() {
    let (_upstream, proxy) = chat(Script::echo(), "").await;
    for chunk in ["FFFFFFFFFFFFFFFFF\r\nx", "-1\r\nx", "zz\r\nx"] {
        let response = raw(
            proxy.addr,
            format!("POST /chat HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n{chunk}"),
        )
        .await;
        assert!(!response.contains("HTTP/1.1 200"), "{chunk:?}: {response}");
    }
    assert_eq!(proxy.post("/chat", "{}").await.status, 200);
}
