//! Errors in a transcoded dialect, and responses that are not streams.

use std::time::Duration;

use citetap::{
    profile::Profile,
    replay::{Outcome, Script, Scripted, Step, Upstream},
};
use http::{HeaderValue, StatusCode, header};
use serde_json::Value;

use super::dialects::{ask, ask_with};
use crate::{
    client::client,
    net::{Client, Proxy, chat, chat_with, post, request, route, tencent},
    support::fixtures,
    transcoded::PROFILES,
};

const ID: &str = "c3f7bdf537c46724392c4428e47e04c1";

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(fixtures().join(name)).unwrap()
}

/// P6: no finish, no `[DONE]`, no clean end.
#[tokio::test]
async fn cut_upstream_aborts_the_transcoded_stream() {
    let script = || {
        Script::sse_steps([
            Step::Send((tencent::references("m", &[1, 2]) + &tencent::text("m", "一[")).into()),
            Step::Send("data:{\"completion_id\":\"m\",\"delta_content\":\"half".into()),
            Step::Pause(Duration::from_millis(50)),
            Step::Abort,
        ])
    };
    let (upstream, proxy) = chat(script(), "").await;
    for profile in PROFILES {
        for mut asking in [Client::h1(proxy.addr).await, Client::h2(proxy.addr).await] {
            let headers = [("x-citetap-profile", profile.as_str())];
            let whole = asking.send(request(http::Method::POST, "/chat", &headers, "{}")).await.whole().await;
            assert!(whole.error.is_some(), "no clean end");
            let got = client(profile, &whole.bytes());
            assert_eq!((got.text.as_str(), got.finishes, got.error, got.done), ("一[", 0, None, false), "{profile:?}");
            assert!(got.record.is_some_and(|record| !record.complete && record.stored), "{profile:?}");
        }
    }
    assert!(!proxy.stored("m").await.complete);
    assert_eq!(upstream.requests()[0].outcome, Outcome::Aborted);
}

/// A cut after the finish: the answer is complete, but the stream did not end.
#[tokio::test]
async fn cut_after_the_finish_sends_no_done() {
    let script = Script::sse_steps([
        Step::Send(tencent::answer("m").into()),
        Step::Pause(Duration::from_millis(50)),
        Step::Abort,
    ]);
    let (_upstream, proxy) = chat(script, "").await;
    for profile in PROFILES {
        let whole = ask(&proxy, profile).await.whole().await;
        let got = client(profile, &whole.bytes());
        assert_eq!((whole.error.is_some(), got.finishes, got.done), (true, 1, false), "{profile:?}");
    }
}

/// An end without a finish is clean in HTTP, but an error for a client that waits for the finish.
#[tokio::test]
async fn end_without_finish_is_an_error_of_the_dialect() {
    let (_upstream, proxy) = chat(Script::sse(tencent::references("m", &[1]) + &tencent::text("m", "一")), "").await;
    for profile in PROFILES {
        let whole = ask(&proxy, profile).await.whole().await;
        let got = client(profile, &whole.bytes());
        assert_eq!((whole.error, got.text.as_str(), got.finishes, got.done), (None, "一", 0, true), "{profile:?}");
        assert!(got.error.unwrap().contains("before it had finished"), "{profile:?}");
        assert!(got.record.is_some_and(|record| !record.complete), "{profile:?}");
    }
}

#[tokio::test]
async fn error_frame_becomes_an_error_of_the_dialect() {
    let upstream =
        Upstream::bind(vec![Scripted::new("/", Script::sse(fixture("doubao/stream-error.sse")))]).await.unwrap();
    let proxy = Proxy::start(&(route("chat", &upstream.url()) + "provider = \"doubao\"\n")).await;
    for profile in PROFILES {
        let whole = ask(&proxy, profile).await.whole().await;
        let got = client(profile, &whole.bytes());
        assert_eq!((whole.status.as_u16(), whole.error, got.finishes, got.done), (200, None, 0, true), "{profile:?}");
        assert!(got.error.unwrap().starts_with("rate limited"), "{profile:?}");
        assert!(!got.text.is_empty() && got.record.is_some_and(|record| !record.complete), "{profile:?}");
    }
}

#[tokio::test]
async fn error_status_is_kept_and_its_body_transcoded() {
    for (status, body, kind, code, message) in [
        (401, r#"{"code":401001,"message":"bad token"}"#, "application/json", "401001", "bad token"),
        (429, r#"{"code":710022004,"msg":"rate limited"}"#, "text/plain", "710022004", "rate limited"),
        (500, "<h1>oops</h1>", "text/html", "500", "the upstream answered with an error"),
        (404, "", "text/html", "404", "the upstream answered with an error"),
    ] {
        let script = Script::json(body)
            .status(StatusCode::from_u16(status).unwrap())
            .header(header::CONTENT_TYPE, HeaderValue::from_static(kind))
            .header(header::RETRY_AFTER, HeaderValue::from_static("7"))
            .header(header::ETAG, HeaderValue::from_static("\"x\""))
            .header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        let (_upstream, proxy) = chat(script, "").await;
        for profile in PROFILES {
            let whole = ask(&proxy, profile).await.whole().await;
            assert_eq!(whole.status, status);
            assert_eq!(whole.header("content-type"), Some("application/json"));
            assert_eq!(whole.header("retry-after"), Some("7"));
            assert_eq!(whole.header("www-authenticate"), Some("Bearer"));
            assert_eq!(whole.header("etag"), None);
            assert!(whole.header("x-citetap-request").is_some());
            let json: Value = serde_json::from_slice(&whole.bytes()).unwrap();
            assert_eq!(json["error"]["message"], message);
            assert_eq!(json["error"]["code"], code);
            assert_eq!(json["error"]["type"], "upstream_error");
        }
        let native = ask(&proxy, Profile::Native).await.whole().await;
        assert_eq!(native.text(), body, "a native client receives the upstream's own error");
        let metrics = proxy.get("/metrics").await.whole().await.text();
        assert!(metrics.contains("outcome=\"complete\"") && !metrics.contains("client_gone"), "{metrics}");
    }
}

/// An error in OpenAI's format is relayed. One that is cut or too long gets no message.
#[tokio::test]
async fn error_bodies_are_read_within_limits() {
    let own = r#"{"error":{"message":"no","type":"invalid_request_error","param":null,"code":null}}"#;
    let (_upstream, proxy) = chat(Script::json(own).status(StatusCode::BAD_REQUEST), "").await;
    assert_eq!(ask(&proxy, Profile::OpenAi).await.whole().await.text(), own);

    let cut = Script::json(vec![b' '; 100]).status(StatusCode::BAD_GATEWAY).cut_after(20);
    let (_upstream, proxy) = chat(cut, "").await;
    let whole = ask(&proxy, Profile::OpenAi).await.whole().await;
    assert_eq!((whole.status.as_u16(), whole.error.as_deref()), (502, None));
    assert!(whole.text().contains("the upstream answered with an error"));

    for (blanks, words) in [(64 * 1024 - 16, "said"), (64 * 1024, "the upstream answered with an error")] {
        let body = format!("{}{{\"msg\":\"said\"}}", " ".repeat(blanks));
        let (_upstream, proxy) = chat(Script::json(body).status(StatusCode::BAD_GATEWAY), "").await;
        let json = ask(&proxy, Profile::OpenAi).await.json().await;
        assert_eq!(json["error"]["message"], words);
    }
}

#[tokio::test]
async fn unstreamed_answer_becomes_a_document_and_is_stored() {
    let json = fixture("tencent/whole.json");
    for profile in [Profile::OpenAi, Profile::OpenWebUi] {
        for h2 in [false, true] {
            let (_upstream, proxy) = chat(Script::json(json.clone()), "").await;
            let mut asking = if h2 { Client::h2(proxy.addr).await } else { Client::h1(proxy.addr).await };
            let headers = [("x-citetap-profile", profile.as_str())];
            let whole = asking.send(request(http::Method::POST, "/chat", &headers, "{}")).await.whole().await;
            assert_eq!((whole.status.as_u16(), whole.error.as_deref()), (200, None));
            assert_eq!(whole.header("content-type"), Some("application/json"));
            assert_ne!(whole.header("content-length"), Some(json.len().to_string().as_str()));
            let response: Value = serde_json::from_slice(&whole.bytes()).unwrap();
            assert_eq!(response["object"], "chat.completion");
            assert_eq!(response["choices"][0]["finish_reason"], "stop");
            assert!(!response["choices"][0]["message"]["content"].as_str().unwrap().is_empty());
            assert_eq!(response["citetap"]["nonce"].as_str(), whole.header("x-citetap-nonce"));
            assert_eq!(response["citetap"]["stored"], true);
            assert_eq!(response["sources"].as_array().map(Vec::len), (profile == Profile::OpenWebUi).then_some(2));
            assert_eq!(proxy.stored(ID).await.citations.len(), 2);
            let metrics = proxy.get("/metrics").await.whole().await.text();
            assert!(metrics.contains("outcome=\"complete\"") && !metrics.contains("client_gone"), "h2: {h2}");
        }
    }
}

/// The AI SDK supports only streams.
#[tokio::test]
async fn unstreamed_answer_becomes_a_stream_for_ai_sdk() {
    let json = fixture("tencent/whole.json");
    let script = Script::json(json).delay(Duration::ZERO);
    let (_upstream, proxy) = chat(script, "").await;
    let whole = ask(&proxy, Profile::AiSdk).await.whole().await;
    assert_eq!(whole.header("content-type"), Some("text/event-stream; charset=utf-8"));
    assert_eq!(whole.header("x-vercel-ai-ui-message-stream"), Some("v1"));
    assert_eq!(whole.header("x-accel-buffering"), Some("no"));
    assert_eq!(whole.header("content-length"), None);
    let got = client(Profile::AiSdk, &whole.bytes());
    assert!(!got.text.is_empty() && got.finishes == 1 && got.done);
    assert_eq!(got.record.map(|record| record.nonce).as_deref(), whole.header("x-citetap-nonce"));
    assert_eq!(proxy.stored(ID).await.citations.len(), 2);
}

/// An error with status 200 gets an error status, because clients check the status.
#[tokio::test]
async fn error_with_status_200_gets_an_error_status() {
    let upstream =
        Upstream::bind(vec![Scripted::new("/", Script::json(fixture("doubao/json-error.json")))]).await.unwrap();
    let proxy = Proxy::start(&(route("chat", &upstream.url()) + "provider = \"doubao\"\n")).await;
    for profile in [Profile::OpenAi, Profile::OpenWebUi] {
        let response = ask(&proxy, profile).await;
        assert_eq!(response.status, 502);
        let json = response.json().await;
        assert_eq!((&json["error"]["message"], &json["error"]["code"]), (&"rate limited".into(), &"710022004".into()));
    }
    let whole = ask(&proxy, Profile::AiSdk).await.whole().await;
    assert_eq!(whole.status, 200, "a stream reports errors in the stream");
    assert_eq!(client(Profile::AiSdk, &whole.bytes()).error.as_deref(), Some("rate limited (710022004)"));
}

#[tokio::test]
async fn cut_document_is_502() {
    let json = fixture("tencent/whole.json");
    let (_upstream, proxy) = chat(Script::json(json.clone()).cut_after(100), "").await;
    let response = ask(&proxy, Profile::OpenAi).await;
    assert_eq!(response.status, 502);
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_eq!(response.json().await["error"]["message"], "the upstream's answer broke off");
    let whole = ask(&proxy, Profile::AiSdk).await.whole().await;
    let got = client(Profile::AiSdk, &whole.bytes());
    assert_eq!((whole.error.is_some(), got.finishes, got.done), (true, 0, false));
    let metrics = proxy.get("/metrics").await.whole().await.text();
    assert!(metrics.contains("outcome=\"upstream_cut\"") && !metrics.contains("client_gone"), "{metrics}");
}

/// The upstream's other endpoints are behind the same route.
#[tokio::test]
async fn response_that_is_no_answer_passes_unchanged() {
    let large = format!("{{\"list\":\"{}\"}}", "x".repeat(70_000));
    for (kind, body) in [
        ("application/json", r#"{"models":[{"id":"a"}]}"#),
        ("application/json", large.as_str()),
        ("application/json", ""),
        ("text/html", "<p>hello</p>"),
    ] {
        let script = Script::json(body.to_owned()).header(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        let (_upstream, proxy) = chat(script, "[limits]\nframe = \"64KiB\"").await;
        for profile in [Profile::OpenAi, Profile::OpenWebUi] {
            let whole = ask(&proxy, profile).await.whole().await;
            assert_eq!((whole.status.as_u16(), whole.error.as_deref()), (200, None));
            assert_eq!(whole.text(), body);
            assert_eq!(whole.header("content-type"), Some(kind));
        }
    }
}

/// A client that disconnects while it waits for a document.
#[tokio::test]
async fn client_disconnect_before_the_document_cancels_upstream() {
    let script = Script::new([Step::Send("{\"code\":0,".into()), Step::Pause(Duration::from_secs(60))])
        .header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let (upstream, proxy) = chat_with(script, "", "profile = \"openai\"").await;
    let mut asking = Client::h1(proxy.addr).await;
    let asking =
        tokio::spawn(async move { asking.try_send(post("/chat", "{}")).await.map(|response| response.status) });
    assert!(upstream.until(crate::net::LIMIT, |upstream| upstream.request_count() == 1).await);
    tokio::time::sleep(Duration::from_millis(200)).await;
    asking.abort();
    assert!(upstream.until(crate::net::LIMIT, |upstream| upstream.cancelled() == 1).await);
}

/// citetap's own errors are problem documents in every dialect.
#[tokio::test]
async fn own_errors_are_problem_documents() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dead = listener.local_addr().unwrap();
    drop(listener);
    let proxy = Proxy::start(&route("chat", &format!("http://{dead}"))).await;
    for profile in PROFILES {
        let response = ask_with(&proxy, &[("x-citetap-profile", profile.as_str())]).await;
        response.is_problem(502, "upstream-unreachable").await;
    }
}
