//! Responses that are not event streams pass unchanged. Only the content type decides.

use bytes::Bytes;
use citetap::replay::{Script, Step};
use http::{HeaderName, HeaderValue, Method, StatusCode, header};

use crate::net::{Client, Whole, chat, chat_with, post, request, tencent};

pub async fn relayed(script: Script) -> (Whole, Whole) {
    let (upstream, proxy) = chat(script, "").await;
    let direct = Client::h1(upstream.addr()).await.send(post("/", "{}")).await.whole().await;
    (direct, proxy.post("/chat", "{}").await.whole().await)
}

/// Checks status, headers and bytes, and that nothing of ours was added.
pub async fn passes_unchanged(script: Script) -> Whole {
    let (direct, mut relayed) = relayed(script).await;
    assert_eq!(relayed.status, direct.status);
    assert_eq!(relayed.bytes(), direct.bytes());
    assert_eq!(relayed.error, None);
    let mut headers = direct.headers;
    headers.remove(header::DATE);
    relayed.headers.remove(header::DATE);
    assert!(relayed.headers.remove("x-citetap-request").is_some(), "the outcome in the log");
    assert_eq!(relayed.headers, headers);
    relayed
}

#[tokio::test]
async fn json_response_keeps_its_length() {
    let whole = passes_unchanged(Script::json(&br#"{"code":0,"event":"SSE_REPLY_END"}"#[..])).await;
    assert_eq!(whole.header("content-length"), Some("34"));
}

#[tokio::test]
async fn error_responses_pass_unchanged() {
    for status in [StatusCode::BAD_REQUEST, StatusCode::NOT_FOUND, StatusCode::TOO_MANY_REQUESTS] {
        let script = Script::json(&br#"{"error":"x"}"#[..]).status(status);
        passes_unchanged(script.header(header::RETRY_AFTER, HeaderValue::from_static("7"))).await;
    }
    passes_unchanged(Script::json(&b"oops"[..]).status(StatusCode::INTERNAL_SERVER_ERROR)).await;
}

/// An event stream with an error status is not tapped.
#[tokio::test]
async fn event_stream_with_error_status_is_not_tapped() {
    passes_unchanged(Script::sse(tencent::answer("m")).status(StatusCode::BAD_GATEWAY)).await;
    passes_unchanged(Script::sse(tencent::answer("m")).status(StatusCode::ACCEPTED)).await;
}

#[tokio::test]
async fn no_content_passes_unchanged() {
    let whole = passes_unchanged(Script::new([]).status(StatusCode::NO_CONTENT)).await;
    assert_eq!(whole.status, 204);
}

#[tokio::test]
async fn redirect_is_relayed_and_not_followed() {
    let script = Script::new([])
        .status(StatusCode::MOVED_PERMANENTLY)
        .header(header::LOCATION, HeaderValue::from_static("/elsewhere"));
    let (upstream, proxy) = chat(script, "").await;
    let response = proxy.post("/chat/x", "{}").await;
    assert_eq!(response.status, 301);
    assert_eq!(response.header("location"), Some("/elsewhere"));
    assert_eq!(upstream.request_count(), 1);
}

/// H31: nothing can be injected into compressed bytes.
#[tokio::test]
async fn encoded_event_stream_passes_unchanged() {
    for encoding in ["gzip", "br", "identity, gzip"] {
        let script = Script::sse(tencent::answer("m"))
            .header(header::CONTENT_ENCODING, HeaderValue::from_static(encoding))
            .header(header::ETAG, HeaderValue::from_static("\"x\""));
        let whole = passes_unchanged(script).await;
        assert_eq!(whole.header("x-citetap-nonce"), None);
    }
}

#[tokio::test]
async fn identity_encoding_is_tapped() {
    let script =
        Script::sse(tencent::answer("m")).header(header::CONTENT_ENCODING, HeaderValue::from_static("identity"));
    assert_eq!(relayed(script).await.1.split().1.len(), 1);
}

#[tokio::test]
async fn head_request_gets_headers_only() {
    let (upstream, proxy) = chat(Script::json(&b"{}"[..]), "").await;
    for mut client in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
        let response = client.send(request(Method::HEAD, "/chat/x", &[], "")).await;
        assert_eq!(response.status, 200);
        assert_eq!(response.header("content-length"), Some("2"));
        assert_eq!(response.header("x-citetap-nonce"), None);
        let whole = response.whole().await;
        assert_eq!((whole.bytes().len(), whole.error), (0, None));
        // The connection stays usable.
        assert_eq!(client.send(post("/chat", "{}")).await.whole().await.text(), "{}");
    }
    assert_eq!(upstream.requests()[0].method, Method::HEAD);
}

/// F29
#[tokio::test]
async fn any_spelling_of_the_content_type_is_tapped() {
    for kind in ["TEXT/EVENT-STREAM; charset=gbk", "text/event-stream;", " text/event-stream ", "text/Event-Stream;x=y"]
    {
        let script = Script::sse(tencent::answer("m")).header(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        let (direct, relayed) = relayed(script).await;
        let (theirs, ours) = relayed.split();
        assert_eq!(theirs, direct.bytes());
        assert_eq!(ours.len(), 1, "{kind:?}");
        assert_eq!(relayed.headers[header::CONTENT_TYPE], direct.headers[header::CONTENT_TYPE]);
    }
    for kind in ["text/event-streams", "application/json", "text/plain"] {
        let script = Script::sse(tencent::answer("m")).header(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        passes_unchanged(script).await;
    }
}

#[tokio::test]
async fn missing_content_type_is_tapped_if_provider_is_set() {
    let bare = || Script::new([Step::Send(Bytes::from(tencent::answer("m")))]);
    assert_eq!(relayed(bare()).await.1.split().1.len(), 1);
    let (_upstream, proxy) = chat_with(bare(), "", "").await;
    let mut routes = proxy.app.config.routes.clone();
    routes[0].provider = citetap::config::Provider::AUTO;
    proxy.app.set_routes(routes);
    assert_eq!(proxy.post("/chat", "{}").await.whole().await.split().1.len(), 0);
}

/// H33: headers about the upstream's bytes are wrong for ours and are removed.
#[tokio::test]
async fn tapped_stream_has_no_length_and_no_digests() {
    let body = tencent::answer("m");
    let script = Script::sse(body.clone())
        .header(header::CONTENT_LENGTH, HeaderValue::from(body.len()))
        .header(header::ETAG, HeaderValue::from_static("\"x\""))
        .header(HeaderName::from_static("content-digest"), HeaderValue::from_static("sha-256=:x:"))
        .header(HeaderName::from_static("x-request-id"), HeaderValue::from_static("r1"));
    let (_, whole) = relayed(script).await;
    assert_eq!(whole.split().1.len(), 1);
    for gone in ["content-length", "etag", "content-digest"] {
        assert_eq!(whole.header(gone), None);
    }
    assert_eq!(whole.header("x-request-id"), Some("r1"));
    assert_eq!(whole.header("x-accel-buffering"), Some("no"));
}

/// H35
#[tokio::test]
async fn trailers_are_relayed() {
    let mut trailers = http::HeaderMap::new();
    trailers.insert("x-usage", HeaderValue::from_static("12"));
    let script = Script::sse_steps([Step::Send(tencent::answer("m").into()), Step::Trailers(trailers)]);
    let (_upstream, proxy) = chat(script, "").await;
    for mut client in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
        let whole = client.send(request(Method::POST, "/chat", &[("te", "trailers")], "{}")).await.whole().await;
        assert_eq!(whole.split().1.len(), 1);
        assert_eq!(whole.trailers.unwrap()["x-usage"], "12");
    }
}

/// H33: an HTTP/1.0 client receives the stream, which ends with the connection.
#[tokio::test]
async fn http_1_0_client_gets_the_stream() {
    let (_upstream, proxy) = chat(Script::sse(tencent::answer("m")), "").await;
    let response = crate::net::raw(proxy.addr, "GET /chat HTTP/1.0\r\n\r\n").await;
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.0 200"), "{head}");
    assert!(!head.to_lowercase().contains("chunked"), "{head}");
    assert_eq!(crate::net::split(body.as_bytes()).0, tencent::answer("m").into_bytes());
}
