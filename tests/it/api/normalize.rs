//! `POST /normalize`: captures and JSON bodies of every provider become a record that is not stored.

use std::fs;

use http::Method;
use serde_json::{Value, json};

use super::{answering, ask, tenants};
use crate::{
    net::{Client, ClientResponse, Proxy, post, request},
    support::fixtures,
};

async fn normalize(proxy: &Proxy, query: &str, body: impl Into<bytes::Bytes>) -> ClientResponse {
    Client::h1(proxy.addr).await.send(post(&format!("/normalize{query}"), body)).await
}

/// The record without the fields that differ on every call, which are checked.
async fn record(response: ClientResponse) -> Value {
    assert_eq!(response.status, 200);
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert!(response.header("access-control-allow-origin").is_none());
    let record = response.json().await;
    assert_eq!((&record["stored"], &record["route"]), (&json!(false), &json!("normalize")));
    record
}

fn fixture(name: &str) -> Vec<u8> {
    fs::read(fixtures().join(name)).unwrap()
}

fn golden(name: &str) -> Value {
    serde_json::from_slice(&fixture(name)).unwrap()
}

/// Freshness depends on the clock, but the golden file does not.
fn without_scores(mut record: Value) -> Value {
    for citation in record["citations"].as_array_mut().unwrap() {
        assert!(citation.as_object_mut().unwrap().remove("scores").is_some());
    }
    record
}

#[tokio::test]
async fn every_kind_of_capture_gives_the_record_of_its_stream() {
    let (_upstream, proxy) = answering(&[]).await;
    let sse = fixture("doubao/seed.sse");
    let expected = without_scores(golden("doubao/seed.citations.json"));
    let curl = [&b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"[..], &sse].concat();
    let har = har(&[&sse]);
    for (body, query) in [
        (sse.clone(), ""),
        (sse.clone(), "?entry=1"),
        (sse, "?provider=doubao"),
        (curl, "?provider=auto"),
        (serde_json::to_vec_pretty(&har).unwrap(), "?entry=1"),
    ] {
        let record = without_scores(record(normalize(&proxy, query, body).await).await);
        for key in ["messageId", "provider", "complete", "citations", "stats", "queries"] {
            assert_eq!(record[key], expected[key], "{key}");
        }
    }
    let list = proxy.get("/citations").await.json().await;
    assert_eq!(list["items"], json!([]), "nothing is stored");
}

/// A HAR file with these streams and other traffic.
fn har(streams: &[&[u8]]) -> Value {
    let entry = |mime: &str, text: &str| {
        json!({"request": {"url": "https://x.example/"}, "response": {"status": 200,
        "content": {"mimeType": mime, "text": text}}})
    };
    let mut entries = vec![entry("text/html", "<p>")];
    entries.extend(streams.iter().map(|sse| entry("text/event-stream", std::str::from_utf8(sse).unwrap())));
    json!({"log": {"version": "1.2", "entries": entries}})
}

#[tokio::test]
async fn har_file_gives_the_records_of_all_its_streams() {
    let (_upstream, proxy) = answering(&[]).await;
    let (doubao, tencent) = (fixture("doubao/seed.sse"), fixture("tencent/full.sse"));
    let other = &b"data: {\"tick\":1}\n\n"[..];
    let several = har(&[&doubao, other, &tencent, &doubao]).to_string();
    let response = normalize(&proxy, "", several.clone()).await.json().await;
    let of = |key: &str| {
        response["records"].as_array().unwrap().iter().map(|record| record[key].clone()).collect::<Vec<_>>()
    };
    assert_eq!(of("provider"), ["doubao", "tencent", "doubao"]);
    assert_eq!(of("messageId")[0], "35730705466983426");
    assert_eq!(of("stored"), [false, false, false]);
    let nonces: std::collections::BTreeSet<String> = of("nonce").iter().map(Value::to_string).collect();
    assert_eq!((nonces.len(), &response["skipped"]), (3, &json!(1)));
    // A HAR file with one stream gives a list too: the shape depends on the input's kind.
    let one = normalize(&proxy, "", har(&[&tencent]).to_string()).await.json().await;
    assert_eq!((one["records"].as_array().unwrap().len(), &one["skipped"]), (1, &json!(0)));

    let third = record(normalize(&proxy, "?entry=3", several.clone()).await).await;
    assert_eq!(third["provider"], "tencent");
    normalize(&proxy, "?entry=2", several.clone()).await.is_problem(422, "unreadable").await;
    for entry in ["0", "5"] {
        let problem = normalize(&proxy, &format!("?entry={entry}"), several.clone()).await;
        let problem = problem.is_problem(400, "bad-request").await;
        assert_eq!(problem["detail"], "entry is a number from 1 to 4: so many streams are in the capture");
    }
    let problem = normalize(&proxy, "", har(&[other]).to_string()).await.is_problem(422, "unreadable").await;
    assert!(problem["detail"].as_str().unwrap().contains("no message of a known provider"), "{problem}");
}

#[tokio::test]
async fn relative_links_resolve_against_link_base() {
    let (_upstream, proxy) = answering(&[]).await;
    let urls = async |query: &str, name: &str| {
        let record = record(normalize(&proxy, query, fixture(name)).await).await;
        let urls = record["citations"].as_array().unwrap().iter().map(|one| one["url"].clone());
        urls.collect::<Vec<Value>>()
    };
    for name in ["tencent/full.sse", "tencent/whole.json"] {
        let bare = urls("", name).await;
        let based = urls("?link_base=https://lexiangla.example/a/", name).await;
        assert!(bare.contains(&Value::Null), "{name} has relative links: {bare:?}");
        for (bare, based) in bare.iter().zip(&based) {
            let based = based.as_str().unwrap_or_default();
            assert!(bare == based || based.starts_with("https://lexiangla.example/"), "{bare} {based}");
        }
    }
    for base in ["ftp://a.example", "a.example", "javascript:alert(1)", "https://u:p@a.example", ""] {
        let refused = normalize(&proxy, &format!("?link_base={base}"), "{}").await.is_problem(400, "bad-request").await;
        assert!(refused["detail"].as_str().unwrap().starts_with("link_base: "), "{refused}");
    }
}

#[tokio::test]
async fn json_body_provider_is_detected_by_shape() {
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
async fn unreadable_input_error_lists_supported_kinds() {
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
    assert_eq!(
        problem["detail"],
        "provider is one of doubao, tencent, openai, openai-responses, anthropic, gemini, tavily, mcp, auto"
    );
    normalize(&proxy, "?providr=auto", "{}").await.is_problem(400, "bad-request").await;
    ask(&proxy, Method::GET, "/normalize", &[]).await.is_problem(405, "method-not-allowed").await;
}

#[tokio::test]
async fn body_at_the_limit_passes_and_over_it_is_refused() {
    let (_upstream, proxy) = super::proxy(vec![], "[limits]\nrequest_body = 100\n").await;
    let of = |len: usize| format!("{{\"query\":\"x\",\"results\":[]}}{}", " ".repeat(len - 26));
    record(normalize(&proxy, "", of(100)).await).await;
    normalize(&proxy, "", of(101)).await.is_problem(413, "body-too-large").await;
}

#[tokio::test]
async fn key_is_required_with_tenants() {
    let (_upstream, proxy) = super::proxy(vec![], &tenants::keys()).await;
    let body = r#"{"query":"x","results":[]}"#;
    let send =
        async |headers| Client::h1(proxy.addr).await.send(request(Method::POST, "/normalize", headers, body)).await;
    send(&[]).await.is_problem(401, "unauthorized").await;
    assert_eq!(send(tenants::ALPHA).await.status, 200);
}
