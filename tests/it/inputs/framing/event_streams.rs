//! Which responses are event streams, and forged citation events.

use bytes::Bytes;
use citetap::replay::{Script, Step};
use http::{HeaderName, HeaderValue, Method, StatusCode, header};

use super::super::metric;
use crate::{
    net::{Client, chat, chat_with, frames, request, tencent},
    relay::responses::{passes_unchanged, relayed},
};

/// A forged citation event in the upstream's stream.
fn forged(nonce: &str) -> String {
    let record = serde_json::json!({"type": "citations", "version": 1, "messageId": "m", "nonce": nonce, "complete": true,
        "stored": true, "citations": [{"number": 1, "url": "https://evil.example.com/", "title": "forged"}]});
    format!("event: citations\ndata: {}\n\n", serde_json::json!({"completion_id": "m", "citations": record}))
}

/// In the native profile every byte is relayed, so the event name proves nothing. The nonce does, because the upstream
/// cannot know it. In other profiles all frames are written by citetap.
#[tokio::test]
async fn f26_forged_citation_event_lacks_the_nonce() {
    let nonce = HeaderName::from_static("x-citetap-nonce");
    let theirs = "00112233445566778899aabbccddeeff";
    let stream = forged(theirs) + &tencent::references("m", &[1]) + &forged(theirs) + &tencent::finish("m");
    let script = || Script::sse(stream.clone()).header(nonce.clone(), HeaderValue::from_static(theirs));
    let (_upstream, proxy) = chat(script(), "[timeouts]\ncommit = \"10s\"").await;
    let whole = proxy.post("/chat", "{}").await.whole().await;
    let our_nonce = whole.header("x-citetap-nonce").unwrap().to_owned();
    assert_ne!(our_nonce, theirs);
    assert_eq!(whole.headers.get_all("x-citetap-nonce").iter().count(), 1);
    let bytes = whole.bytes();
    let (ours, rest): (Vec<&[u8]>, Vec<&[u8]>) = frames(&bytes).into_iter().partition(|frame| {
        frame.starts_with(b"event: citations") && String::from_utf8_lossy(frame).contains(&our_nonce)
    });
    assert_eq!(ours.len(), 1);
    assert_eq!(String::from_utf8(rest.concat()).unwrap(), stream);
    let kept = proxy.stored("m").await;
    assert_eq!((kept.citations.len(), kept.nonce), (1, our_nonce), "a forged event is no source");
    assert_eq!(kept.citations[0].url.as_deref(), Some("https://s1.example.com/"));

    for profile in ["openai", "ai-sdk", "open-webui"] {
        let request = request(Method::POST, "/chat", &[("x-citetap-profile", profile)], "{}");
        let whole = Client::h1(proxy.addr).await.send(request).await.whole().await;
        assert!(!whole.text().contains("evil.example.com") && !whole.text().contains(theirs), "{profile}");
    }

    // An untapped response must not set a nonce either, because its own events would then look like ours.
    for (name, value) in [(header::CONTENT_ENCODING, "gzip"), (header::CONTENT_TYPE, "text/plain")] {
        let script = script().header(name, HeaderValue::from_static(value));
        let (_upstream, proxy) = chat(script, "").await;
        let whole = proxy.post("/chat", "{}").await.whole().await;
        assert_eq!(whole.text(), stream);
        assert_eq!(whole.header("x-citetap-nonce"), None, "{value}");
    }
}

#[tokio::test]
async fn f29_content_type_in_any_spelling_is_an_event_stream() {
    for kind in [
        "text/event-stream;",
        "text/event-stream; charset=gbk",
        "TEXT/EVENT-STREAM",
        "text/event-stream ;charset=\"utf-8\"; x=y",
    ] {
        let script = Script::sse(tencent::answer("m")).header(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        let (direct, relayed) = relayed(script).await;
        let (theirs, ours) = relayed.split();
        assert_eq!((theirs, ours.len()), (direct.bytes(), 1), "{kind:?}");
        assert_eq!(relayed.headers[header::CONTENT_TYPE], direct.headers[header::CONTENT_TYPE]);
    }
    // A response without a content type is a stream if the route names its provider.
    let bare = Script::new([Step::Send(Bytes::from(tencent::answer("m")))]);
    assert_eq!(relayed(bare).await.1.split().1.len(), 1);
    let error = r#"{"code":401001,"message":"bad token"}"#;
    let whole = passes_unchanged(Script::json(error)).await;
    assert_eq!(whole.text(), error);
}

#[tokio::test]
async fn f30_other_statuses_are_relayed_unchanged() {
    let statuses = [
        (204, ""),
        (301, ""),
        (307, "moved"),
        (400, "no"),
        (401, "no"),
        (404, "no"),
        (429, "later"),
        (500, "oops"),
        (503, "oops"),
    ];
    for (status, body) in statuses {
        let status = StatusCode::from_u16(status).unwrap();
        let script = || {
            let script = if body.is_empty() { Script::new([]) } else { Script::json(body) };
            script.status(status).header(header::LOCATION, HeaderValue::from_static("/elsewhere"))
        };
        let whole = passes_unchanged(script()).await;
        assert_eq!(whole.header("location"), Some("/elsewhere"));
        let (upstream, proxy) = chat_with(script(), "", "").await;
        proxy.post("/chat", "{}").await.whole().await;
        assert_eq!(upstream.request_count(), 1, "{status} is not followed");
        assert!(metric(&proxy, "citetap_tap_skipped_total", &["reason=\"status\""]).await > 0.5);
    }
    passes_unchanged(Script::sse(tencent::answer("m")).status(StatusCode::BAD_GATEWAY)).await;
}
