//! Upstream requests built by the facade.

use citetap::replay::{RecordedRequest, Script, Upstream};
use serde_json::{Value, json};

use super::{LEXIANG, asking, chat, chat_with, facade};
use crate::net::tencent;

fn last(upstream: &Upstream) -> (RecordedRequest, Value) {
    let seen = upstream.requests().pop().unwrap();
    let body = serde_json::from_slice(&seen.body).unwrap();
    (seen, body)
}

fn header<'s>(seen: &'s RecordedRequest, name: &str) -> Option<&'s str> {
    seen.headers.get(name).map(|value| value.to_str().unwrap())
}

#[tokio::test]
async fn lexiang_request_is_mapped_and_always_streams() {
    let (upstream, proxy) = facade(vec![(LEXIANG, Script::sse(tencent::answer("m")))], "").await;
    for stream in [true, false] {
        let headers = [
            ("authorization", "Bearer lexiang-token"),
            ("x-staff-id", "system-bot"),
            ("x-citetap-inject", "final"),
            ("accept", "application/json"),
            ("content-md5", "of another body"),
        ];
        chat_with(&proxy, &headers, asking("lexiang", stream)).await.whole().await;
        let (seen, body) = last(&upstream);
        assert_eq!((seen.method.as_str(), seen.path.as_str()), ("POST", LEXIANG));
        assert_eq!(body, json!({"query": "何为热泵？", "stream": true, "new_session": true}));
        assert_eq!(header(&seen, "content-type"), Some("application/json"));
        assert_eq!(header(&seen, "content-length"), Some(seen.body_len.to_string().as_str()));
        assert_eq!(header(&seen, "accept"), Some("text/event-stream, application/json"));
        assert_eq!(header(&seen, "authorization"), Some("Bearer lexiang-token"));
        assert_eq!(header(&seen, "x-staff-id"), Some("system-bot"));
        assert_eq!((header(&seen, "x-citetap-inject"), header(&seen, "content-md5")), (None, None));
    }
    let session = [("x-citetap-session", "5806b515a2d62186b59a066f3fdbc93c00f95d0c")];
    chat_with(&proxy, &session, asking("lexiang", true)).await.whole().await;
    let (seen, body) = last(&upstream);
    assert_eq!(body["session_id"], session[0].1);
    assert_eq!((body.get("new_session"), header(&seen, "x-citetap-session")), (None, None));
}

#[tokio::test]
async fn openai_request_is_relayed_unchanged() {
    let (upstream, proxy) = facade(vec![("/", Script::json(&b"{}"[..]))], "").await;
    let body = "{ \"temperature\": 0.70, \"model\": \"plain\", \"messages\": [{\"role\":\"user\",\"content\":\"\\u4f60\"}],\
                \"tools\":[], \"stream\":true, \"stream_options\":{\"include_usage\":true} }";
    chat_with(&proxy, &[("authorization", "Bearer sk-upstream"), ("accept", "application/json")], body).await;
    let (seen, _) = last(&upstream);
    assert_eq!(seen.path, "/v1/chat/completions");
    assert_eq!(seen.body, body.as_bytes());
    assert_eq!(header(&seen, "authorization"), Some("Bearer sk-upstream"));
    assert_eq!(header(&seen, "accept"), Some("application/json"));

    chat(&proxy, body.replace("plain", "named")).await;
    let (seen, _) = last(&upstream);
    assert_eq!(seen.path, "/api/v3/bots?v=2");
    assert_eq!(seen.body, body.replace("plain", "ep-1").as_bytes());
}

#[tokio::test]
async fn query_string_is_relayed_unless_the_path_has_one() {
    let (upstream, proxy) = facade(vec![("/", Script::sse(tencent::answer("m")))], "").await;
    for (model, path) in [
        ("plain", "/v1/chat/completions?api-version=1"),
        ("named", "/api/v3/bots?v=2"),
        ("lexiang", LEXIANG),
        ("filled", "/ask"),
    ] {
        proxy.post("/v1/chat/completions?api-version=1", asking(model, true)).await.whole().await;
        assert_eq!(last(&upstream).0.path, path, "{model}");
    }
}

#[tokio::test]
async fn template_placeholders_are_filled() {
    let (upstream, proxy) = facade(vec![("/ask", Script::sse(tencent::answer("m")))], "").await;
    chat(&proxy, asking("org/filled:2", false)).await.whole().await;
    let mapped = |body: &Value| json!({"q": body["q"], "as": body["as"], "stream": body["stream"]});
    assert_eq!(last(&upstream).1, json!({"q": "何为热泵？", "as": "org/filled:2", "stream": true}));
    let hostile = "\"},{\"as\":\"\\\n\u{2028}{{user}}";
    let body = json!({"model": "filled", "user": hostile, "metadata": {"session_id": "s-1"}, "messages": [
        {"role": "user", "content": hostile}]});
    chat(&proxy, body.to_string()).await.whole().await;
    let (_, sent) = last(&upstream);
    assert_eq!(mapped(&sent), json!({"q": hostile, "as": "filled", "stream": true}));
    assert_eq!((&sent["to"], &sent["who"]), (&json!("s-1"), &json!(hostile)));
}

#[tokio::test]
async fn header_rules_apply_after_the_mapping() {
    let upstream =
        Upstream::bind(vec![citetap::replay::Scripted::new("/", Script::sse(tencent::answer("m")))]).await.unwrap();
    let rules = "[routes.request_headers]\nremove = [\"x-stainless-os\"]\nset = { authorization = \"Bearer of-the-route\", accept = \"text/event-stream\" }";
    let toml = format!(
        "{}[routes.openai]\nmodels = [\"m\"]\nrequest = \"lexiang\"\n{rules}\n",
        crate::net::route("kb", &format!("{}/base", upstream.url()))
    );
    let proxy = crate::net::Proxy::start(&toml).await;
    let headers = [("authorization", "Bearer sk-anything"), ("x-stainless-os", "Linux")];
    chat_with(&proxy, &headers, asking("m", false)).await.whole().await;
    let (seen, _) = last(&upstream);
    assert_eq!(seen.path, "/base/cgi-bin/v1/ai/qa");
    assert_eq!(header(&seen, "authorization"), Some("Bearer of-the-route"));
    assert_eq!((header(&seen, "accept"), header(&seen, "x-stainless-os")), (Some("text/event-stream"), None));
}

#[tokio::test]
async fn long_history_arrives_complete() {
    let (upstream, proxy) = facade(vec![("/", Script::json(&b"{}"[..]))], "").await;
    let long = "长".repeat(300_000);
    let body = json!({"model": "plain", "messages": [{"role": "user", "content": long}]}).to_string();
    chat(&proxy, body.clone()).await.whole().await;
    let (seen, _) = last(&upstream);
    assert_eq!((seen.body_len, &seen.body[..]), (body.len() as u64, body.as_bytes()));
    let named = body.replace("\"plain\"", "\"named\"");
    chat(&proxy, named.clone()).await.whole().await;
    assert_eq!(last(&upstream).0.body, named.replace("\"named\"", "\"ep-1\"").as_bytes());
}
