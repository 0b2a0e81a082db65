//! `POST /normalize`: captures and JSON bodies of every provider, as a record that nobody keeps.

use std::fs;

use http::Method;
use serde_json::{Value, json};

use super::{answering, ask, tenants};
use crate::{
    net::{Answer, Client, Proxy, post, request},
    support::fixtures,
};

async fn normalize(proxy: &Proxy, query: &str, body: impl Into<bytes::Bytes>) -> Answer {
    Client::h1(proxy.addr).await.send(post(&format!("/normalize{query}"), body)).await
}

/// The record, with what differs on every call checked and taken out.
async fn record(answer: Answer) -> Value {
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert!(answer.header("access-control-allow-origin").is_none());
    let record = answer.json().await;
    assert_eq!((&record["stored"], &record["route"]), (&json!(false), &json!("normalize")));
    record
}

fn fixture(name: &str) -> Vec<u8> {
    fs::read(fixtures().join(name)).unwrap()
}

fn golden(name: &str) -> Value {
    serde_json::from_slice(&fixture(name)).unwrap()
}

/// Freshness goes by the clock, the golden's stands still.
fn without_scores(mut record: Value) -> Value {
    for citation in record["citations"].as_array_mut().unwrap() {
        assert!(citation.as_object_mut().unwrap().remove("scores").is_some());
    }
    record
}

#[tokio::test]
async fn a_capture_of_any_kind_gives_the_record_of_its_stream() {
    let (_upstream, proxy) = answering(&[]).await;
    let sse = fixture("doubao/seed.sse");
    let expected = without_scores(golden("doubao/seed.citations.json"));
    let curl = [&b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"[..], &sse].concat();
    let har = json!({"log": {"entries": [{"request": {"url": "https://x.example/"}, "response": {"status": 200,
        "content": {"mimeType": "text/event-stream", "text": String::from_utf8(sse.clone()).unwrap()}}}]}});
    for (body, query) in [
        (sse.clone(), ""),
        (sse, "?provider=doubao"),
        (curl, "?provider=auto"),
        (serde_json::to_vec_pretty(&har).unwrap(), ""),
    ] {
        let record = without_scores(record(normalize(&proxy, query, body).await).await);
        for key in ["messageId", "provider", "complete", "citations", "stats", "queries"] {
            assert_eq!(record[key], expected[key], "{key}");
        }
    }
    let list = proxy.get("/citations").await.json().await;
    assert_eq!(list["items"], json!([]), "nothing is kept");
}

#[tokio::test]
async fn one_json_body_of_each_provider_is_told_by_its_shape() {
    let (_upstream, proxy) = answering(&[]).await;
    let card = |n: u32| json!({"text_card": {"index": n, "title": format!("资料 {n}"), "url": format!("https://s{n}.example.com/")}});
    let block = json!({"block_type": 10025, "block_id": "b",
        "content": {"search_query_result_block": {"queries": ["词"], "results": [card(1), card(2)]}}});
    let lexiang = json!({"completion_id": "c-1", "additional_content": {"reference_chunks":
        [{"target_id": "t", "title": "文档", "content": "摘录"}]}});
    for (body, provider, id, sources) in [
        (
            json!({"message_id": "m1", "patch_op": [{"patch_object": 1, "patch_value": {"content_block": [block]}}]}),
            "doubao",
            Some("m1"),
            2,
        ),
        (json!({"message_id": "m2", "content_block": [block]}), "doubao", Some("m2"), 2),
        (
            json!({"message": {"message_id": "m3", "user_type": 2, "content_block": json!([block]).to_string()}}),
            "doubao",
            Some("m3"),
            2,
        ),
        (lexiang, "tencent", Some("c-1"), 1),
        (golden("tencent/whole.json"), "tencent", Some("c3f7bdf537c46724392c4428e47e04c1"), 2),
        (golden("openai/perplexity-full.json"), "openai", Some("7d2a41c0-8b4f-4f0e-9b7a-2f6f0a7c9d11"), 4),
        (golden("openai/minimax.json"), "openai", Some("0483bf14ba55225a66de2342a21b4003"), 5),
        (golden("tavily/general.json"), "tavily", None, 4),
        (golden("tavily/empty.json"), "tavily", None, 0),
        (golden("mcp/web-search-result.json"), "mcp", None, 2),
        (golden("mcp/tool-block.json"), "mcp", Some("msg_9f2c"), 2),
    ] {
        for text in [body.to_string(), format!("\u{feff}\n{body:#}\n")] {
            for query in [String::new(), format!("?provider={provider}")] {
                let record = record(normalize(&proxy, &query, text.clone()).await).await;
                assert_eq!((&record["provider"], &record["complete"]), (&json!(provider), &json!(true)), "{text}");
                assert_eq!(record["citations"].as_array().unwrap().len(), sources, "{text}");
                if let Some(id) = id {
                    assert_eq!(record["messageId"], id);
                }
            }
        }
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_named_with_what_can() {
    let (_upstream, proxy) = answering(&[]).await;
    for (body, query, seen) in [
        (&b""[..], "", "seen: nothing"),
        (b"hello", "", "text that starts with `hello`"),
        (b"\x89PNG\r\n\x1a\n\0\0", "", "bytes that are not text"),
        (br#"{"hello":1,"you":{}}"#, "", "one JSON document with the keys hello, you"),
        (b"[1,2]", "", "one JSON document without keys"),
        (br#"{"results":"none","query":"x"}"#, "?provider=tavily", "and nothing of tavily in it"),
        (br#"{"query":"x","results":[]}"#, "?provider=doubao", "and nothing of doubao in it"),
        (br#"{"query":"x","results":[]}"#, "?provider=tencent", "and nothing of tencent in it"),
        (br#"{"query":"x","resul"#, "", "JSON that breaks off"),
        (b"data: {\"x\":1}\n\ndata: [DONE]\n\n", "", "a capture of 2 frames, and no message of a known provider in it"),
    ] {
        let problem = normalize(&proxy, query, body).await.is_problem(422, "unreadable").await;
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(seen) && detail.contains("accepted are a capture"), "{detail}");
    }
    let deep = "[".repeat(100_000);
    normalize(&proxy, "", deep).await.is_problem(422, "unreadable").await;
    let problem = normalize(&proxy, "?provider=nobody", "{}").await.is_problem(400, "bad-request").await;
    assert_eq!(problem["detail"], "provider is one of doubao, tencent, openai, tavily, mcp, auto");
    normalize(&proxy, "?providr=auto", "{}").await.is_problem(400, "bad-request").await;
    ask(&proxy, Method::GET, "/normalize", &[]).await.is_problem(405, "method-not-allowed").await;
}

#[tokio::test]
async fn the_limit_of_bodies_holds_at_it_and_over_it() {
    let (_upstream, proxy) = super::proxy(vec![], "[limits]\nrequest_body = 100\n").await;
    let of = |len: usize| format!("{{\"query\":\"x\",\"results\":[]}}{}", " ".repeat(len - 26));
    record(normalize(&proxy, "", of(100)).await).await;
    normalize(&proxy, "", of(101)).await.is_problem(413, "body-too-large").await;
}

#[tokio::test]
async fn a_tenants_key_is_needed_where_there_are_tenants() {
    let (_upstream, proxy) = super::proxy(vec![], &tenants::keys()).await;
    let body = r#"{"query":"x","results":[]}"#;
    let send =
        async |headers| Client::h1(proxy.addr).await.send(request(Method::POST, "/normalize", headers, body)).await;
    send(&[]).await.is_problem(401, "unauthorized").await;
    assert_eq!(send(tenants::ALPHA).await.status, 200);
}
