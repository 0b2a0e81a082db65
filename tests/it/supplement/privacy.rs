//! P8: the API key and the user's text go only to the search service.

use citetap::replay::{Script, Scripted, Upstream};
use http::StatusCode;
use serde_json::json;

use super::{answer, finds, ms};
use crate::{
    net::{Client, eventually, get, post, route},
    process::{Running, citetap, run},
};

const KEY: &str = "test-key-canary-4711";
const WORDS: &str = "canary words 金丝雀";

/// The real binary at its most verbose log level, with a service that echoes the request.
#[tokio::test]
async fn key_and_query_are_in_no_log_metric_or_record() {
    let echo = json!({"detail": {"error": format!("{KEY} {WORDS}")}, "query": WORDS}).to_string();
    let refused = |status| Script::json(echo.clone()).status(StatusCode::from_u16(status).unwrap());
    for (service, shown) in [(finds(), "joined"), (refused(401), "failed"), (refused(400), "failed")] {
        let chat = Upstream::bind(vec![Scripted::new("/", answer(&[], ms(600)))]).await.unwrap();
        let tavily = Upstream::bind(vec![Scripted::new("/", service)]).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let toml = format!(
            "store = \"memory:\"\n[search]\nbase_url = \"{}\"\n[log]\nlevel = \"trace\"\n{}provider = \"tencent\"\nsupplement = \"always\"\nmax_wait_ms = 5000\n",
            tavily.url(),
            route("chat", &chat.url()),
        );
        std::fs::write(dir.path().join("citetap.toml"), toml).unwrap();
        let mut command = citetap(dir.path(), &["serve", "--listen", "127.0.0.1:0"]);
        command.env("TAVILY_API_KEY", KEY);
        let running = Running::start(command).await;
        let body = json!({"messages": [{"role": "user", "content": WORDS}]}).to_string();
        let relayed = Client::h1(running.addr).await.send(post("/chat", body)).await.whole().await.text();
        let request = tavily.requests().remove(0);
        assert_eq!(request.headers["authorization"], format!("Bearer {KEY}"));
        assert!(String::from_utf8_lossy(&request.body).contains(WORDS));

        let mut client = Client::h1(running.addr).await;
        let record = client.send(get("/citations/m")).await.whole().await.text();
        assert!(record.contains(&format!("\"supplement\":\"{shown}\"")), "{record}");
        let list = client.send(get("/citations")).await.whole().await.text();
        let bundle = client.send(get("/citations/m?format=bundle")).await.whole().await.text();
        let metrics = client.send(get("/metrics")).await.whole().await.text();
        assert!(metrics.contains(&format!("outcome=\"{shown}\"")), "{metrics}");
        // The log line of a stream's end follows the end.
        let logged = eventually(async || {
            let logged = running.out().join("\n") + &running.err().join("\n");
            logged.contains("stream ended").then_some(logged)
        });
        let logged = logged.await.unwrap();
        for text in [&relayed, &record, &list, &bundle, &metrics, &logged] {
            assert!(!text.contains(KEY) && !text.contains("canary") && !text.contains("金丝雀"), "{text}");
        }
    }
}

#[test]
fn check_refuses_supplement_without_key_with_advice() {
    let dir = tempfile::tempdir().unwrap();
    let check = |key: Option<&str>| {
        let mut command = citetap(dir.path(), &["check", "--upstream", "https://a.example.com"]);
        command.env("CITETAP_SUPPLEMENT", "when-empty");
        if let Some(key) = key {
            command.env("TAVILY_API_KEY", key);
        }
        run(command, "")
    };
    let ran = check(None);
    assert_ne!(ran.code, 0);
    assert!(
        ran.err.contains("env CITETAP_SUPPLEMENT: routes.supplement = \"when-empty\": no search service"),
        "{ran:?}"
    );
    assert!(ran.err.contains("set TAVILY_API_KEY"), "{ran:?}");
    let ran = check(Some(KEY));
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("when-empty") && !ran.out.contains(KEY), "{ran:?}");
}
