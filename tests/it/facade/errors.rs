//! Errors in OpenAI's format.

use citetap::replay::{Script, Step};
use http::{HeaderValue, Method, StatusCode, header};
use serde_json::json;

use super::{LEXIANG, asking, chat, chat_with, facade, failed, padded};
use crate::net::{Client, Proxy, request, route, tencent};

#[tokio::test]
async fn invalid_request_is_refused_before_the_upstream() {
    let (upstream, proxy) = facade(vec![("/", Script::echo())], "").await;
    let turns = r#"[{"role":"user","content":"x"}]"#;
    for (body, param, message) in [
        (String::new(), None, "no JSON object"),
        ("{\"model\":".to_owned(), None, "no JSON object"),
        (format!("{{\"messages\":{turns}}}"), Some("model"), "GET /v1/models"),
        ("{\"model\":\"lexiang\"}".to_owned(), Some("messages"), "missing"),
        ("{\"model\":\"plain\",\"messages\":[]}".to_owned(), Some("messages"), "empty"),
        (format!("{{\"model\":\"plain\",\"messages\":{turns},\"stream\":1}}"), Some("stream"), "true or false"),
        (
            "{\"model\":\"lexiang\",\"messages\":[{\"role\":\"system\",\"content\":\"x\"}]}".to_owned(),
            Some("messages"),
            "no text",
        ),
    ] {
        let error = failed(chat(&proxy, body.clone()).await, 400, "bad_request").await;
        assert_eq!((&error["type"], &error["param"]), (&json!("invalid_request_error"), &json!(param)), "{body}");
        assert!(error["message"].as_str().unwrap().contains(message), "{error}");
    }
    failed(chat_with(&proxy, &[("x-citetap-inject", "never")], asking("lexiang", true)).await, 400, "bad_request")
        .await;
    failed(chat_with(&proxy, &[("content-encoding", "gzip")], asking("plain", true)).await, 415, "encoded_body").await;
    assert_eq!(upstream.request_count(), 0);
}

#[tokio::test]
async fn unknown_model_error_lists_the_models() {
    let (upstream, proxy) = facade(vec![], "").await;
    let error = failed(chat(&proxy, asking("gpt-\"9", true)).await, 404, "model_not_found").await;
    assert_eq!((&error["type"], &error["param"]), (&json!("invalid_request_error"), &json!("model")));
    let message = error["message"].as_str().unwrap();
    let (before, known) = message.split_once("; models: ").unwrap();
    assert_eq!(before, "there is no model \"gpt-\\\"9\"");
    assert_eq!(known, "filled, lexiang, named, org/filled:2, plain");
    failed(proxy.get("/v1/models/gpt-9").await, 404, "model_not_found").await;
    assert_eq!(upstream.request_count(), 0);
}

#[tokio::test]
async fn models_are_listed() {
    let (_upstream, proxy) = facade(vec![], "").await;
    let list = proxy.get("/v1/models").await.json().await;
    assert_eq!(list["object"], "list");
    let models: Vec<(&str, &str)> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| (m["id"].as_str().unwrap(), m["owned_by"].as_str().unwrap()))
        .collect();
    assert_eq!(
        models,
        [("filled", "tmpl"), ("lexiang", "kb"), ("named", "bot"), ("org/filled:2", "tmpl"), ("plain", "oai")]
    );
    for path in ["/v1/models/org/filled:2", "/v1/models/org%2Ffilled%3A2"] {
        let one = proxy.get(path).await.json().await;
        assert_eq!((&one["id"], &one["object"]), (&json!("org/filled:2"), &json!("model")));
        assert!(one["created"].is_i64());
    }
    let head = Client::h1(proxy.addr).await.send(request(Method::HEAD, "/v1/models", &[], "")).await;
    assert_eq!(head.status, 200);
}

#[tokio::test]
async fn other_methods_are_refused() {
    let (_upstream, proxy) = facade(vec![], "").await;
    for (method, path, allow) in [
        (Method::GET, "/v1/chat/completions", "POST"),
        (Method::PUT, "/v1/chat/completions", "POST"),
        (Method::POST, "/v1/models", "GET,HEAD"),
        (Method::DELETE, "/v1/models/plain", "GET,HEAD"),
    ] {
        let response = Client::h1(proxy.addr).await.send(request(method, path, &[], "")).await;
        assert_eq!(response.header("allow"), Some(allow), "{path}");
        failed(response, 405, "method_not_allowed").await;
    }
}

#[tokio::test]
async fn body_at_the_limit_passes_and_over_it_is_413() {
    let (upstream, proxy) = facade(vec![("/", Script::json(&b"{}"[..]))], "[limits]\nrequest_body = \"4KiB\"").await;
    for mut client in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
        let at = client.send(crate::net::post("/v1/chat/completions", padded("plain", 4096))).await.whole().await;
        assert_eq!(at.status, 200);
        failed(
            client.send(crate::net::post("/v1/chat/completions", padded("plain", 4097))).await,
            413,
            "body_too_large",
        )
        .await;
    }
    assert_eq!(upstream.request_count(), 2);
}

#[tokio::test]
async fn memory_of_all_request_bodies_is_bounded() {
    let limits = "[limits]\nframe = \"16KiB\"\nheld_total = \"16KiB\"";
    let (upstream, proxy) = facade(vec![("/", Script::json(&b"{}"[..]))], limits).await;
    assert_eq!(chat(&proxy, padded("plain", 16 * 1024)).await.status, 200);
    let refused = chat(&proxy, padded("plain", 16 * 1024 + 1)).await;
    assert_eq!(refused.header("retry-after"), Some("1"));
    let error = failed(refused, 503, "busy").await;
    assert_eq!(error["type"], "server_error");
    // While it is mapped, the body is in memory twice.
    failed(chat(&proxy, padded("named", 16 * 1024)).await, 503, "busy").await;
    assert_eq!(chat(&proxy, padded("plain", 16 * 1024)).await.status, 200, "given back");
    assert_eq!(upstream.request_count(), 2);
}

#[tokio::test]
async fn over_the_stream_cap_is_503_with_retry_after() {
    let steps = [Step::Send(tencent::references("m", &[1]).into()), Step::Pause(crate::net::LIMIT)];
    let (upstream, proxy) = facade(vec![(LEXIANG, Script::sse_steps(steps))], "[limits]\nstreams = 1").await;
    let _open = chat(&proxy, asking("lexiang", true)).await;
    let refused = chat(&proxy, asking("lexiang", true)).await;
    assert_eq!(refused.header("retry-after"), Some("1"));
    let error = failed(refused, 503, "overloaded").await;
    assert_eq!(error["type"], "server_error");
    assert_eq!(proxy.get("/v1/models").await.status, 200);
    assert_eq!(upstream.request_count(), 1);
}

#[tokio::test]
async fn upstream_error_keeps_status_and_message() {
    let limited = Script::json(&br#"{"code":710022004,"msg":"rate limited"}"#[..])
        .status(StatusCode::TOO_MANY_REQUESTS)
        .header(header::RETRY_AFTER, HeaderValue::from_static("7"));
    let (_upstream, proxy) = facade(vec![(LEXIANG, limited)], "").await;
    for stream in [true, false] {
        let response = chat(&proxy, asking("lexiang", stream)).await;
        assert_eq!(response.header("retry-after"), Some("7"));
        let error = failed(response, 429, "710022004").await;
        assert_eq!((&error["message"], &error["type"]), (&json!("rate limited"), &json!("upstream_error")));
        failed(chat(&proxy, asking("filled", stream)).await, 404, "404").await;
    }
}

/// Lexiang sends errors with status 200.
#[tokio::test]
async fn error_with_status_200_is_502() {
    let wrong = Script::json(&br#"{"code":40001,"message":"query is too long","request_id":"r"}"#[..]);
    let (_upstream, proxy) = facade(vec![(LEXIANG, wrong)], "").await;
    for stream in [true, false] {
        let response = chat(&proxy, asking("lexiang", stream)).await;
        assert!(response.header("x-citetap-request").is_some());
        let error = failed(response, 502, "40001").await;
        assert_eq!((&error["message"], &error["type"]), (&json!("query is too long"), &json!("upstream_error")));
    }
}

#[tokio::test]
async fn response_that_is_no_answer_is_502() {
    let html = || {
        Script::new([Step::Send("<html>sign in".into())])
            .header(header::CONTENT_TYPE, HeaderValue::from_static("text/html"))
    };
    let moved = || {
        Script::new([])
            .status(StatusCode::FOUND)
            .header(header::LOCATION, HeaderValue::from_static("https://b.example.com/"))
    };
    let gzip = || Script::sse("x").header(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    let scripts = vec![(LEXIANG, html().then(moved().then(gzip()))), ("/v1", moved())];
    let (_upstream, proxy) = facade(scripts, "").await;
    for _ in 0..3 {
        let error = failed(chat(&proxy, asking("lexiang", true)).await, 502, "upstream_answer").await;
        assert_eq!(error["type"], "upstream_error");
        assert!(!error["message"].as_str().unwrap().contains("b.example.com"), "{error}");
    }
    let error = failed(chat(&proxy, asking("plain", true)).await, 502, "upstream_answer").await;
    assert!(error["message"].as_str().unwrap().contains("302"), "{error}");
}

#[tokio::test]
async fn json_that_is_no_answer_is_502() {
    let stray = Script::json(&br#"{"who":"knows"}"#[..]);
    let (_upstream, proxy) = facade(vec![(LEXIANG, stray)], "").await;
    for stream in [false, true] {
        let response = chat(&proxy, asking("lexiang", stream)).await;
        assert_eq!((response.status.as_u16(), response.header("content-type")), (502, Some("application/json")));
        let error = response.json().await["error"].take();
        assert_eq!(error["type"], "upstream_error", "{error}");
        assert!(!error.to_string().contains("knows"), "{error}");
    }
}

#[tokio::test]
async fn unreachable_or_silent_upstream_is_502_or_504() {
    let upstream = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let toml = format!(
        "[timeouts]\nfirst_byte = \"200ms\"\n{}[routes.openai]\nmodels = [\"silent\"]\n{}[routes.openai]\nmodels = [\"gone\"]\n",
        route("a", &format!("http://{}", upstream.local_addr().unwrap())),
        route("b", "http://127.0.0.1:1")
    );
    let proxy = Proxy::start(&toml).await;
    let error = failed(chat(&proxy, asking("silent", true)).await, 504, "upstream_timeout").await;
    assert_eq!(error["type"], "upstream_error");
    failed(chat(&proxy, asking("gone", false)).await, 502, "upstream_unreachable").await;
}
