//! Responses of the OpenAI facade.

use citetap::{citation::Record, replay::Script};
use serde_json::{Value, json};

use super::{LEXIANG, asking, chat, chat_with, chunks, facade, text};
use crate::net::{Proxy, tencent};

async fn record(proxy: &Proxy, id: &str) -> Record {
    let response = proxy.get(&format!("/citations/{id}")).await;
    assert_eq!(response.status, 200, "{id}");
    serde_json::from_value(response.json().await).unwrap()
}

#[tokio::test]
async fn stream_is_chunks_with_sources_before_the_finish() {
    let (_upstream, proxy) = facade(vec![(LEXIANG, Script::sse(tencent::answer("m-1")))], "").await;
    let whole = chat(&proxy, asking("lexiang", true)).await.whole().await;
    let chunks = chunks(&whole);
    assert_eq!(text(&chunks), "第一句[1]。");
    for chunk in &chunks {
        assert_eq!(
            (&chunk["id"], &chunk["object"], &chunk["model"]),
            (&json!("m-1"), &json!("chat.completion.chunk"), &json!("lexiang"))
        );
    }
    let cited = chunks.iter().position(|chunk| chunk.get("citetap").is_some()).unwrap();
    let finish = chunks.iter().position(|chunk| !chunk["choices"][0]["finish_reason"].is_null()).unwrap();
    assert_eq!((cited + 1, finish + 1), (finish, chunks.len()), "right before the finish");
    assert_eq!(chunks[finish]["choices"][0]["finish_reason"], "stop");
    let annotations = chunks[cited]["choices"][0]["delta"]["annotations"].as_array().unwrap();
    assert_eq!(annotations.len(), 2);
    assert_eq!(annotations[0]["url_citation"]["url"], "https://s1.example.com/");

    let event: Record = serde_json::from_value(chunks[cited]["citetap"].clone()).unwrap();
    assert!(event.stored && event.complete);
    assert_eq!(Some(event.nonce.as_str()), whole.header("x-citetap-nonce"));
    assert!(whole.header("x-citetap-request").is_some());
    assert_eq!((whole.header("x-accel-buffering"), whole.header("content-length")), (Some("no"), None));
    assert_eq!(record(&proxy, "m-1").await, event, "the id of the chunks finds the record");
    assert_eq!((event.route.as_str(), event.model.as_deref()), ("kb", Some("lexiang")));
}

#[tokio::test]
async fn streaming_upstream_is_collected_into_a_document() {
    let (_upstream, proxy) = facade(vec![(LEXIANG, Script::sse(tencent::answer("m-2")))], "").await;
    for body in [asking("lexiang", false), asking("lexiang", false).replace("\"stream\":false,", "")] {
        let whole = chat(&proxy, body).await.whole().await;
        assert_eq!((whole.status.as_u16(), whole.header("content-type")), (200, Some("application/json")));
        let document: Value = serde_json::from_slice(&whole.bytes()).unwrap();
        assert_eq!(
            (&document["id"], &document["object"], &document["model"]),
            (&json!("m-2"), &json!("chat.completion"), &json!("lexiang"))
        );
        assert!(document["created"].as_i64().is_some_and(|created| created > 1_700_000_000), "{document}");
        let choice = &document["choices"][0];
        assert_eq!((&choice["finish_reason"], &choice["message"]["role"]), (&json!("stop"), &json!("assistant")));
        assert_eq!(choice["message"]["content"], "第一句[1]。");
        assert_eq!(choice["message"]["annotations"][1]["url_citation"]["title"], "资料 2");
        assert_eq!(document["citations"], json!(["https://s1.example.com/", "https://s2.example.com/"]));
        assert_eq!(document["search_results"][0]["snippet"], "摘录 1");
        let event: Record = serde_json::from_value(document["citetap"].clone()).unwrap();
        assert!(event.stored && event.complete);
        assert_eq!(Some(event.nonce.as_str()), whole.header("x-citetap-nonce"));
        assert_eq!(record(&proxy, "m-2").await, event);
    }
}

/// P10: streamed, collected, or sent whole by the upstream.
#[tokio::test]
async fn streamed_and_collected_answers_have_the_same_sources() {
    let sse = std::fs::read(crate::support::fixtures().join("tencent/full.sse")).unwrap();
    let (_upstream, proxy) = facade(vec![(LEXIANG, Script::sse(sse))], "").await;
    let streamed = chunks(&chat(&proxy, asking("lexiang", true)).await.whole().await);
    let cited = streamed.iter().find(|chunk| chunk.get("citetap").is_some()).unwrap();
    let collected = chat(&proxy, asking("lexiang", false)).await.json().await;
    let message = &collected["choices"][0]["message"];
    assert_eq!(message["annotations"], cited["choices"][0]["delta"]["annotations"]);
    assert_eq!(message["content"], text(&streamed));
    let thinking = |chunk: &Value| chunk["choices"][0]["delta"]["reasoning_content"].as_str().map(str::to_owned);
    assert_eq!(message["reasoning_content"], streamed.iter().filter_map(thinking).collect::<String>());
    assert_eq!(collected["id"], cited["id"]);
}

#[tokio::test]
async fn upstream_document_becomes_a_stream_or_a_document() {
    let json = std::fs::read(crate::support::fixtures().join("tencent/whole.json")).unwrap();
    let id = "c3f7bdf537c46724392c4428e47e04c1";
    let (_upstream, proxy) = facade(vec![(LEXIANG, Script::json(json))], "").await;
    let response = chat(&proxy, asking("lexiang", false)).await;
    let nonce = response.header("x-citetap-nonce").map(str::to_owned);
    let document = response.json().await;
    assert_eq!(document["citetap"]["nonce"].as_str(), nonce.as_deref());
    assert_eq!(
        (&document["id"], document["choices"][0]["message"]["annotations"].as_array().unwrap().len()),
        (&json!(id), 2)
    );
    let streamed = chunks(&chat(&proxy, asking("lexiang", true)).await.whole().await);
    assert_eq!(text(&streamed), document["choices"][0]["message"]["content"]);
    let annotations = |chunk: &Value| chunk["choices"][0]["delta"]["annotations"].as_array().map(Vec::len);
    assert_eq!(streamed.iter().find_map(annotations), Some(2));
    assert_eq!(record(&proxy, id).await.citations.len(), 2);
}

/// Tools, log probabilities and unknown fields pass unchanged.
#[tokio::test]
async fn openai_upstream_fields_pass_unchanged() {
    let stream = "data: {\"id\":\"c-1\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"f\"}}]},\"logprobs\":{\"x\":1.50}}]}\n\n\
                  data: {\"id\":\"c-1\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n\
                  data: [DONE]\n\n";
    let document = "{ \"id\":\"c-2\", \"object\":\"chat.completion\", \"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":null,\
                    \"tool_calls\":[{\"id\":\"t\"}]},\"finish_reason\":\"tool_calls\"}],\"usage\":{\"total_tokens\":7}}\n";
    let (_upstream, proxy) = facade(vec![("/v1", Script::sse(stream).then(Script::json(document)))], "").await;
    let streamed = chat(&proxy, asking("plain", true)).await.whole().await;
    assert_eq!((streamed.status.as_u16(), streamed.text().as_str()), (200, stream));
    assert!(streamed.header("x-citetap-nonce").is_some());
    let whole = chat(&proxy, asking("plain", false)).await.whole().await;
    assert_eq!((whole.status.as_u16(), whole.text().as_str()), (200, document));
    assert_eq!(whole.header("content-type"), Some("application/json"));
}

#[tokio::test]
async fn headers_select_profile_and_markers() {
    let (_upstream, proxy) = facade(vec![(LEXIANG, Script::sse(tencent::answer("m-3")))], "").await;
    let bare = chat_with(&proxy, &[("x-citetap-markers", "strip")], asking("lexiang", true)).await.whole().await;
    assert_eq!(text(&chunks(&bare)), "第一句。");
    let off = chat_with(&proxy, &[("x-citetap-inject", "off")], asking("lexiang", false)).await.json().await;
    assert_eq!(off["choices"][0]["message"].get("annotations"), None);
    assert_eq!(off.get("citetap"), None);
    assert_eq!(proxy.stored("m-3").await.citations.len(), 2, "not stored");
}

/// For clients that read the upstream's dialect but send OpenAI requests, which are the same for all upstreams.
#[tokio::test]
async fn native_profile_relays_the_stream_byte_for_byte() {
    let answer = tencent::answer("m-9");
    let (_upstream, proxy) = facade(vec![(LEXIANG, Script::sse(answer.clone()))], "").await;
    let native = [("x-citetap-profile", "native")];
    let whole = chat_with(&proxy, &native, asking("lexiang", true)).await.whole().await;
    assert_eq!((whole.status.as_u16(), &whole.error), (200, &None));
    let (theirs, ours) = whole.split();
    assert_eq!(String::from_utf8(theirs).unwrap(), answer);
    assert_eq!((ours.len(), ours[0].stored, ours[0].model.as_deref()), (1, true, Some("lexiang")));
    assert_eq!(Some(ours[0].nonce.as_str()), whole.header("x-citetap-nonce"));

    let document = chat_with(&proxy, &native, asking("lexiang", false)).await.json().await;
    assert_eq!(document["object"], "chat.completion", "a document is in OpenAI's format");
    let defaulted = chat(&proxy, asking("lexiang", true)).await.whole().await;
    assert_eq!(text(&chunks(&defaulted)), "第一句[1]。", "a route's `native` does not apply to the facade");
}

#[tokio::test]
async fn native_profile_relays_documents_and_errors() {
    let document = std::fs::read_to_string(crate::support::fixtures().join("tencent/whole.json")).unwrap();
    let failed = Script::json(r#"{"code":7,"msg":"no"}"#).status(http::StatusCode::BAD_REQUEST);
    let (_upstream, proxy) = facade(vec![(LEXIANG, Script::json(document.clone()).then(failed))], "").await;
    let native = [("x-citetap-profile", "native")];
    let whole = chat_with(&proxy, &native, asking("lexiang", true)).await.whole().await;
    assert_eq!((whole.status.as_u16(), whole.text()), (200, document));
    let failed = chat_with(&proxy, &native, asking("lexiang", true)).await.whole().await;
    assert_eq!((failed.status.as_u16(), failed.text().as_str()), (400, r#"{"code":7,"msg":"no"}"#));
}

#[tokio::test]
async fn answer_without_sources_has_no_annotations() {
    let bare = tencent::text("m-4", "不知道。") + &tencent::finish("m-4");
    let (_upstream, proxy) = facade(vec![(LEXIANG, Script::sse(bare))], "").await;
    let chunks = chunks(&chat(&proxy, asking("lexiang", true)).await.whole().await);
    assert!(chunks.iter().all(|chunk| chunk.get("citetap").is_none()));
    let document = chat(&proxy, asking("lexiang", false)).await.json().await;
    assert_eq!(document["choices"][0]["message"], json!({"role": "assistant", "content": "不知道。"}));
    assert!(record(&proxy, "m-4").await.citations.is_empty());
}

#[tokio::test]
async fn message_without_id_is_stored_under_the_clients_id() {
    let anonymous = "data:{\"completion_id\":\"\",\"processes\":{},\"delta_content\":\"一[1]\",\"additional_content\":{\"reference_docs\":[{\"title\":\"T\",\"url\":\"https://a.example.com/\",\"target_id\":\"t\"}]}}\n\n\
                     event:finish\ndata:{\"is_stop\":true}\n\n";
    let (_upstream, proxy) = facade(vec![(LEXIANG, Script::sse(anonymous))], "").await;
    for stream in [true, false] {
        let whole = chat(&proxy, asking("lexiang", stream)).await.whole().await;
        let id = if stream {
            chunks(&whole)[0]["id"].clone()
        } else {
            serde_json::from_slice::<Value>(&whole.bytes()).unwrap()["id"].clone()
        };
        assert_eq!(id.as_str(), whole.header("x-citetap-request"));
        assert_eq!(record(&proxy, id.as_str().unwrap()).await.citations.len(), 1);
    }
}
