//! OpenAI-compatible upstreams: their chunks pass unchanged and our sources are added.

use citetap::{citation::Record, replay::Script};
use http::{HeaderName, HeaderValue};
use serde_json::{Value, json};

use super::{asking, chat, chat_with, facade};
use crate::net::tencent;

/// A response of an Ark bot: sources in its own field, and unknown fields.
const STREAM: &str = "data: {\"id\":\"c-1\",\"object\":\"chat.completion.chunk\",\"created\":7,\"model\":\"bot\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"热泵[1]\"},\"logprobs\":{\"x\":1.50}}],\"references\":[{\"title\":\"T\",\"url\":\"https://a.example.com/\"}]}\n\n\
                      data: {\"id\":\"c-1\",\"object\":\"chat.completion.chunk\",\"created\":7,\"model\":\"bot\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4,\"total_tokens\":7}}\n\n\
                      data: [DONE]\n\n";

fn document() -> Value {
    json!({"id": "c-2", "object": "chat.completion", "created": 7, "model": "bot", "service_tier": null,
           "references": [{"title": "T", "url": "https://a.example.com/"}],
           "choices": [{"index": 0, "finish_reason": "stop", "logprobs": {"x": 1.5},
                        "message": {"role": "assistant", "content": "热泵[1]", "refusal": null}}],
           "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}})
}

#[tokio::test]
async fn stream_passes_with_sources_before_the_finish() {
    let (_upstream, proxy) = facade(vec![("/v1", Script::sse(STREAM))], "").await;
    let whole = chat(&proxy, asking("plain", true)).await.whole().await;
    let (theirs, ours) = whole.split();
    assert_eq!(String::from_utf8(theirs).unwrap(), STREAM);
    assert!(ours.len() == 1 && ours[0].stored && ours[0].complete, "{ours:?}");
    let text = whole.text();
    assert!(text.find("\"url_citation\"") < text.find("\"finish_reason\":\"stop\""), "{text}");
    let kept: Record = serde_json::from_value(proxy.get("/citations/c-1").await.json().await).unwrap();
    assert_eq!(kept, ours[0]);
    assert_eq!((kept.model.as_deref(), kept.provider.as_str()), (Some("bot"), "openai"));
}

#[tokio::test]
async fn document_passes_with_sources_added() {
    let (_upstream, proxy) = facade(vec![("/v1", Script::json(document().to_string()))], "").await;
    for stream in [false, true] {
        let response = chat(&proxy, asking("plain", stream)).await;
        let nonce = response.header("x-citetap-nonce").map(str::to_owned);
        let mut body = response.json().await;
        let annotations = body["choices"][0]["message"].as_object_mut().unwrap().remove("annotations").unwrap();
        assert_eq!(
            annotations,
            json!([{"type": "url_citation", "url_citation": {"url": "https://a.example.com/", "title": "T", "start_index": 2, "end_index": 5}}])
        );
        let mut ours = |key: &str| body.as_object_mut().unwrap().remove(key).unwrap();
        assert_eq!(ours("citations"), json!(["https://a.example.com/"]));
        assert_eq!(ours("search_results")[0]["title"], "T");
        let sent: Record = serde_json::from_value(ours("citetap")).unwrap();
        assert!(sent.stored && sent.complete && Some(&sent.nonce) == nonce.as_ref());
        assert_eq!(body, document(), "the rest is the upstream's");
        let kept: Record = serde_json::from_value(proxy.get("/citations/c-2").await.json().await).unwrap();
        assert_eq!(kept, sent);
    }
}

#[tokio::test]
async fn unrequested_stream_is_collected() {
    let (_upstream, proxy) = facade(vec![("/v1", Script::sse(STREAM))], "").await;
    let body = chat(&proxy, asking("plain", false)).await.json().await;
    assert_eq!(
        (&body["id"], &body["object"], &body["model"]),
        (&json!("c-1"), &json!("chat.completion"), &json!("bot"))
    );
    assert_eq!(body["choices"][0]["message"]["content"], "热泵[1]");
    assert_eq!(body["choices"][0]["message"]["annotations"][0]["url_citation"]["url"], "https://a.example.com/");
    assert_eq!(body["usage"], json!({"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}));
}

/// An unreadable response passes unchanged, because the client requested the upstream's own dialect.
#[tokio::test]
async fn untappable_response_passes_unchanged() {
    let gzip = (HeaderName::from_static("content-encoding"), HeaderValue::from_static("gzip"));
    let scripts = vec![("/v1", Script::sse("\u{1f}\u{8b}").header(gzip.0, gzip.1))];
    let (_upstream, proxy) = facade(scripts, "").await;
    let whole = chat(&proxy, asking("plain", true)).await.whole().await;
    assert_eq!((whole.status.as_u16(), whole.text().as_str()), (200, "\u{1f}\u{8b}"));
    assert_eq!(whole.header("content-encoding"), Some("gzip"));
}

#[tokio::test]
async fn task_header_is_recorded_and_not_relayed() {
    let scripts = vec![("/v1", Script::sse(STREAM)), (super::LEXIANG, Script::sse(tencent::answer("m")))];
    let (upstream, proxy) = facade(scripts, "").await;
    for (model, id) in [("plain", "c-1"), ("lexiang", "m")] {
        chat_with(&proxy, &[("x-task-id", "task-7")], asking(model, true)).await.whole().await;
        assert_eq!(proxy.stored(id).await.task_id.as_deref(), Some("task-7"));
        assert_eq!(upstream.requests().pop().unwrap().headers.get("x-task-id"), None);
    }
}
