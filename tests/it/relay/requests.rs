//! A request reaches its upstream unchanged, except for hop-by-hop headers and our own.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use citetap::replay::{Script, Scripted, Upstream};
use http::{Method, Request};
use http_body::Frame;
use http_body_util::StreamBody;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::net::{Client, Proxy, chat, chat_with, get, post, raw, request, route};

#[tokio::test]
async fn method_path_query_and_body_are_unchanged() {
    let upstream = Upstream::bind(vec![Scripted::new("/", Script::echo())]).await.unwrap();
    let proxy = Proxy::start(&route("api", &format!("{}/base/v3/", upstream.url()))).await;
    for (method, path, seen) in [
        (
            Method::POST,
            "/api/chat/completions?a=1&b=%20+%E4%BD%A0&&c",
            "/base/v3/chat/completions?a=1&b=%20+%E4%BD%A0&&c",
        ),
        (Method::PUT, "/api", "/base/v3/"),
        (Method::PATCH, "/api/?", "/base/v3/?"),
        (Method::DELETE, "/api//x/./y;z=%2F", "/base/v3//x/./y;z=%2F"),
        (Method::from_bytes(b"QUERY").unwrap(), "/api/%e4%bd%a0", "/base/v3/%e4%bd%a0"),
        (Method::OPTIONS, "/api/x?y=http://other.example.com/", "/base/v3/x?y=http://other.example.com/"),
    ] {
        let headers = [("content-type", "text/plain; charset=utf-8")];
        for mut client in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
            let echo = client.send(request(method.clone(), path, &headers, "你好")).await.json().await;
            assert_eq!(echo["method"], method.as_str());
            assert_eq!(echo["path"], seen, "{method}");
            assert_eq!(echo["body"], "你好");
            assert_eq!(echo["headers"]["content-type"], json!(["text/plain; charset=utf-8"]));
        }
    }
}

#[tokio::test]
async fn prefix_matches_whole_segments_and_the_longest_wins() {
    let upstream = Upstream::bind(vec![Scripted::new("/", Script::echo())]).await.unwrap();
    let toml = route("a", &format!("{}/one", upstream.url()))
        + &route("long", &format!("{}/two", upstream.url())).replace("\"/long\"", "\"/a/b\"");
    let proxy = Proxy::start(&toml).await;
    for (path, seen) in [("/a/x", "/one/x"), ("/a/b/x", "/two/x"), ("/a/bc", "/one/bc"), ("/a/b", "/two/")] {
        assert_eq!(proxy.get(path).await.json().await["path"], seen);
    }
    proxy.get("/ab").await.is_problem(404, "no-route").await;
}

#[tokio::test]
async fn body_of_five_mebibytes_is_streamed() {
    let (upstream, proxy) = chat(Script::echo(), "").await;
    let piece = Bytes::from(vec![b'x'; 64 * 1024]);
    let pieces = (0..80).map(move |_| Ok::<_, Infallible>(Frame::data(piece.clone())));
    // Unknown length: the request is chunked.
    let body = StreamBody::new(futures_util::stream::iter(pieces));
    let echo = Client::h1(proxy.addr).await.send(Request::post("/chat/up").body(body).unwrap()).await.json().await;
    assert_eq!(echo["bodyLength"], 5 * 1024 * 1024);
    // Known length: it is preserved.
    let echo = proxy.post("/chat/up", vec![b'y'; 5 * 1024 * 1024]).await.json().await;
    assert_eq!(echo["bodyLength"], 5 * 1024 * 1024);
    let seen = upstream.requests();
    assert_eq!(seen[1].headers["content-length"], "5242880");
    assert!(seen[1].body.iter().all(|byte| *byte == b'y'));
}

const SENT: [(&str, &str); 18] = [
    ("authorization", "Bearer the-upstreams"),
    ("cookie", "a=1; b=2"),
    ("accept", "text/event-stream"),
    ("accept-language", "zh-CN"),
    ("user-agent", "test/1"),
    ("x-custom", "one"),
    ("x-custom", "two"),
    ("accept-encoding", "gzip, br, zstd"),
    ("x-citetap-key", "ours"),
    ("x-citetap-inject", "off"),
    ("x-citetap-anything", "1"),
    ("x-forwarded-for", "203.0.113.9"),
    ("x-forwarded-proto", "https"),
    ("x-real-ip", "203.0.113.9"),
    ("forwarded", "for=203.0.113.9"),
    ("proxy-authorization", "Basic eDp5"),
    ("keep-alive", "timeout=5"),
    ("x-hop", "named by connection"),
];

fn relayed_headers() -> Value {
    json!({
        "authorization": ["Bearer the-upstreams"], "cookie": ["a=1; b=2"], "accept": ["text/event-stream"],
        "accept-language": ["zh-CN"], "user-agent": ["test/1"], "x-custom": ["one", "two"],
        "accept-encoding": ["identity"], "content-length": ["2"],
    })
}

#[tokio::test]
async fn only_end_to_end_headers_are_relayed() {
    let (upstream, proxy) = chat(Script::echo(), "").await;
    let mut headers = SENT.to_vec();
    headers.push(("connection", "keep-alive, x-hop, authorization"));
    headers.push(("te", "gzip"));
    let echo = Client::h1(proxy.addr).await.send(request(Method::POST, "/chat", &headers, "{}")).await.json().await;
    let mut want = relayed_headers();
    want["host"] = json!([upstream.addr().to_string()]);
    assert_eq!(echo["headers"], want);
}

#[tokio::test]
async fn forwarded_headers_of_a_trusted_peer_pass() {
    let (upstream, proxy) = chat(Script::echo(), "trusted_proxies = [\"127.0.0.0/8\"]").await;
    let mut headers = SENT.to_vec();
    headers.push(("connection", "x-hop"));
    let echo = Client::h1(proxy.addr).await.send(request(Method::POST, "/chat", &headers, "{}")).await.json().await;
    let mut want = relayed_headers();
    want["host"] = json!([upstream.addr().to_string()]);
    for (name, value) in &SENT[11..15] {
        want[name] = json!([value]);
    }
    assert_eq!(echo["headers"], want);
}

#[tokio::test]
async fn h2_authority_is_not_the_upstreams_host() {
    let (upstream, proxy) = chat(Script::echo(), "").await;
    let echo = Client::h2(proxy.addr).await.send(post("/chat", "{}")).await.json().await;
    assert_eq!(echo["headers"]["host"], json!([upstream.addr().to_string()]));
    assert_eq!(echo["version"], "HTTP/1.1", "the upstream's protocol does not depend on the client's");
}

#[tokio::test]
async fn header_rules_apply_to_requests_and_responses() {
    let rules = "[routes.request_headers]\nremove = [\"cookie\"]\nset = { authorization = \"Bearer fixed\", x-team = \"search\" }\n\
                 [routes.response_headers]\nremove = [\"set-cookie\"]\nset = { x-served-by = \"citetap\" }";
    let script = Script::echo()
        .header(http::header::SET_COOKIE, "sid=1".parse().unwrap())
        .header(http::header::SERVER, "theirs".parse().unwrap());
    let (_upstream, proxy) = chat_with(script, "", rules).await;
    let headers = [("cookie", "a=1"), ("authorization", "Bearer clients")];
    let response = Client::h1(proxy.addr).await.send(request(Method::POST, "/chat", &headers, "{}")).await;
    assert_eq!(response.header("set-cookie"), None);
    assert_eq!(response.header("x-served-by"), Some("citetap"));
    assert_eq!(response.header("server"), Some("theirs"));
    let echo = response.json().await;
    assert_eq!(echo["headers"]["authorization"], json!(["Bearer fixed"]));
    assert_eq!(echo["headers"]["x-team"], json!(["search"]));
    assert_eq!(echo["headers"].get("cookie"), None);
}

/// H42: the authority of an absolute-form target names citetap, never an upstream.
#[tokio::test]
async fn absolute_uri_does_not_select_the_upstream() {
    let (upstream, proxy) = chat(Script::echo(), "allowed_hosts = [\"*\"]").await;
    let response = raw(
        proxy.addr,
        "GET http://other.example.com/chat/x HTTP/1.1\r\nhost: third.example.com\r\nconnection: close\r\n\r\n",
    )
    .await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    assert!(response.contains(&format!("\"host\":[\"{}\"]", upstream.addr())), "{response}");
}

#[tokio::test]
async fn client_and_upstream_connections_are_reused() {
    let (upstream, proxy) = chat(Script::echo(), "").await;
    let mut client = Client::h1(proxy.addr).await;
    for n in 0..5 {
        assert_eq!(client.send(get(&format!("/chat/{n}"))).await.json().await["path"], format!("/{n}"));
    }
    assert_eq!(upstream.request_count(), 5);
    assert_eq!(upstream.connections_accepted(), 1);
}

/// The upstream closes idle connections, as servers do. The next request uses another one and does not fail.
#[tokio::test]
async fn idle_connection_closed_by_upstream_is_not_reused() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = listener.local_addr().unwrap();
    let closed = std::sync::Arc::new(tokio::sync::Notify::new());
    let close = std::sync::Arc::clone(&closed);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            assert!(stream.read(&mut request).await.unwrap() > 0);
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
            drop(stream);
            close.notify_one();
        }
    });
    let proxy = Proxy::start(&format!("workers = 1\n{}", route("chat", &format!("http://{upstream}")))).await;
    for _ in 0..4 {
        let response = proxy.get("/chat").await.whole().await;
        assert_eq!((response.status.as_u16(), response.text().as_str()), (200, "ok"));
        closed.notified().await;
    }
}

/// An upstream that responds before it has the whole request. Further bytes on that connection would be read as its
/// rest.
#[tokio::test]
async fn connection_with_a_partial_request_is_not_reused() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = listener.local_addr().unwrap();
    let (tx, mut rx) = tokio::sync::mpsc::channel(8);
    tokio::spawn(async move {
        for connection in 0.. {
            let (mut stream, _) = listener.accept().await.unwrap();
            let tx = tx.clone();
            tokio::spawn(async move {
                let mut request = [0; 4096];
                // Open until the other side closes.
                while let Ok(1..) = stream.read(&mut request).await {
                    if request.starts_with(b"GET") || request.starts_with(b"POST") {
                        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
                        tx.send((connection, request[0])).await.unwrap();
                    }
                }
            });
        }
    });
    let proxy = Proxy::start(&format!("workers = 1\n{}", route("chat", &format!("http://{upstream}")))).await;
    let half = raw(proxy.addr, "POST /chat HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\nhalf").await;
    assert!(half.starts_with("HTTP/1.1 200") && half.ends_with("ok"), "{half}");
    assert_eq!(rx.recv().await, Some((0, b'P')));
    // A complete one is reused, so the assertion above is meaningful.
    for _ in 0..2 {
        assert_eq!(proxy.get("/chat").await.whole().await.text(), "ok");
        assert_eq!(rx.recv().await, Some((1, b'G')));
    }
}

/// H40
#[tokio::test]
async fn expect_continue_is_answered_and_not_relayed() {
    let (_upstream, proxy) = chat(Script::echo(), "").await;
    let mut client = Client::h1(proxy.addr).await;
    let echo =
        client.send(request(Method::POST, "/chat", &[("expect", "100-continue")], "{\"a\":1}")).await.json().await;
    assert_eq!(echo["body"], "{\"a\":1}");
    assert_eq!(echo["headers"].get("expect"), None);
}
