//! `/citations/{id}`: reading and deleting one record.

use citetap::{citation::bundle::SearchResultBundle, replay::Script, store::Entry};
use http::Method;

use super::{answering, ask, proxy, put, record, streamed};
use crate::{
    net::{eventually, raw, tencent},
    support::fixtures,
};

#[tokio::test]
async fn record_equals_its_event() {
    let (_upstream, proxy) = answering(&["m-1"]).await;
    let event = streamed(&proxy, "m-1").await;
    let response = proxy.get("/citations/m-1").await;
    assert_eq!(response.status, 200);
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_eq!(response.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(response.header("cache-control"), Some("private, no-cache"));
    assert_eq!(record(response).await, event);

    let head = ask(&proxy, Method::HEAD, "/citations/m-1", &[]).await;
    assert_eq!((head.status.as_u16(), head.whole().await.bytes().len()), (200, 0));
}

#[tokio::test]
async fn record_as_bundles() {
    let (_upstream, proxy) = answering(&["m-1"]).await;
    let event = streamed(&proxy, "m-1").await;
    let response = proxy.get("/citations/m-1?format=bundle").await;
    assert_eq!((response.status.as_u16(), response.header("content-type")), (200, Some("application/json")));
    let tag = response.header("etag").unwrap().to_owned();
    let json = response.json().await;
    let bundles: Vec<SearchResultBundle> = serde_json::from_value(json["bundles"].clone()).unwrap();
    let items: Vec<&str> = bundles.iter().flat_map(|b| &b.results).map(|item| item.source_id.as_str()).collect();
    assert_eq!(items, event.citations.iter().map(|citation| citation.source_id.as_str()).collect::<Vec<_>>());
    assert_eq!(bundles[0].task_id, event.conversation_id.unwrap_or(event.message_id));
    assert_eq!((bundles[0].query_id.as_str(), bundles[0].stats.total_returned), ("q1", event.stats.total_returned));

    let again = ask(&proxy, Method::GET, "/citations/m-1?format=bundle", &[("if-none-match", &tag)]).await;
    assert_eq!(again.status, 304);
    assert_eq!(proxy.get("/citations/m-1?format=json").await.status, 200);
    let unknown = proxy.get("/citations/m-1?format=xml").await;
    assert_eq!(unknown.status, 400);
    assert!(unknown.json().await["detail"].as_str().unwrap().starts_with("format is one of json, bundle, "));
}

/// Filtered citations are stored but not in the event. If there are no others, there is no event.
#[tokio::test]
async fn filtered_sources_are_in_the_record_only() {
    let script = || Script::sse(tencent::answer("m-1"));
    let (_upstream, open) = proxy(vec![("/m-1", script())], "").await;
    let sources = streamed(&open, "m-1").await.citations;
    let (_upstream, strict) = proxy(vec![("/m-1", script())], "[scores]\nminimum = 1").await;
    let relayed = strict.post("/chat/m-1", "{}").await.whole().await;
    assert!(!String::from_utf8_lossy(&relayed.bytes()).contains("event: citations"));
    let kept = eventually(async || {
        let response = strict.get("/citations/m-1").await;
        if response.status == 200 { Some(record(response).await) } else { None }
    });
    let kept = kept.await.unwrap();
    assert_eq!((kept.citations.len(), kept.stats.filtered_count as usize), (sources.len(), sources.len()));
    assert_eq!((kept.stats.kept_after_filter, kept.corroboration), (0, None));
}

#[tokio::test]
async fn etag_gives_304_on_the_second_read() {
    let (_upstream, proxy) = answering(&["m-1"]).await;
    streamed(&proxy, "m-1").await;
    let first = proxy.get("/citations/m-1").await.header("etag").unwrap().to_owned();
    assert!(first.len() > 10 && first.starts_with('"') && first.ends_with('"'), "{first}");
    for known in [first.clone(), format!("\"other\", {first}"), format!("W/{first}"), "*".to_owned()] {
        let again = ask(&proxy, Method::GET, "/citations/m-1", &[("if-none-match", &known)]).await;
        assert_eq!(again.status, 304, "{known}");
        assert_eq!(again.header("etag"), Some(first.as_str()));
        assert_eq!(again.whole().await.bytes(), b"");
    }
    // The same message again is a new record.
    streamed(&proxy, "m-1").await;
    let changed = ask(&proxy, Method::GET, "/citations/m-1", &[("if-none-match", &first)]).await;
    assert_eq!(changed.status, 200);
    assert_ne!(changed.header("etag"), Some(first.as_str()));
}

/// S83 to S85: only exact matches of valid ids.
#[tokio::test]
async fn invalid_ids_are_404() {
    let (_upstream, proxy) = answering(&["m-1"]).await;
    streamed(&proxy, "m-1").await;
    let status = async |line: &str| {
        let response =
            raw(proxy.addr, format!("{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")).await;
        let status: u16 =
            response.split_whitespace().nth(1).unwrap_or_else(|| panic!("{line}: {response}")).parse().unwrap();
        (status, response)
    };
    let long = "a".repeat(129);
    for id in [
        "",
        "%2e%2e%2f",
        "%2e%2e%2fetc%2fpasswd",
        "%252e%252e",
        "*",
        "m-%2a",
        "%",
        "[a-z]",
        "{m-1,m-2}",
        "'",
        "\"",
        "m-1'%20OR%20'1'='1",
        "%22m-1%22",
        "$ne",
        "m-1%00",
        "%ff%fe",
        "m-1%0d%0aFLUSHALL",
        "m%201",
        "m-1%2f",
        "%E8%B1%86%E5%8C%85",
        &long,
    ] {
        for line in [format!("GET /citations/{id}"), format!("DELETE /citations/{id}")] {
            let (status, response) = status(&line).await;
            assert_eq!(status, 400, "{line}: {response}");
            assert!(response.contains("application/problem+json"), "{line}: {response}");
        }
    }
    // Valid ids of no record, or other paths.
    for path in ["..", ".", "../etc/passwd", "..;/", "M-1", "m-1/", "m-1/x", &"a".repeat(128)] {
        for method in ["GET", "DELETE"] {
            let (status, response) = status(&format!("{method} /citations/{path}")).await;
            assert!(matches!(status, 400 | 404), "{path}: {response}");
            assert!(response.contains("application/problem+json"), "{path}: {response}");
        }
    }
    let (status, _) = status(&format!("GET /citations/{}", "a".repeat(1 << 20))).await;
    assert!(matches!(status, 400 | 414 | 431), "{status}");
    assert_eq!(proxy.get("/citations/m-1").await.status, 200, "still there");
}

#[tokio::test]
async fn unknown_ids_and_parameters_are_problem_documents() {
    let (_upstream, proxy) = answering(&["m-1"]).await;
    streamed(&proxy, "m-1").await;
    proxy.get("/citations/nobody").await.is_problem(404, "unknown-message").await;
    proxy.get("/citations/nobody/events").await.is_problem(404, "unknown-message").await;
    proxy.get("/citations/m-1?formt=json").await.is_problem(400, "bad-request").await;
    proxy.get("/citations/m-1/events?wait=1").await.is_problem(400, "bad-request").await;
    for wait in ["", "x", "-1", "nan", "1e300"] {
        proxy.get(&format!("/citations/m-1?wait={wait}")).await.is_problem(400, "bad-request").await;
    }
    for (method, path, allowed) in [
        (Method::POST, "/citations", "GET"),
        (Method::DELETE, "/citations", "GET"),
        (Method::PUT, "/citations/m-1", "DELETE"),
        (Method::POST, "/citations/m-1", "GET"),
        (Method::DELETE, "/citations/m-1/events", "GET"),
        (Method::POST, "/healthz", "GET"),
        (Method::DELETE, "/metrics", "GET"),
    ] {
        let response = ask(&proxy, method.clone(), path, &[]).await;
        // RFC 9110 15.5.6: a 405 response must list the allowed methods.
        assert!(response.header("allow").is_some_and(|allow| allow.contains(allowed)), "{method} {path}");
        response.is_problem(405, "method-not-allowed").await;
    }
}

#[tokio::test]
async fn same_id_of_two_providers_returns_the_newest_or_named() {
    let (_upstream, proxy) = answering(&["m-1"]).await;
    let tencent = streamed(&proxy, "m-1").await;
    let mut doubao = tencent.clone();
    doubao.provider = "doubao".to_owned();
    let now = jiff::Timestamp::now().as_millisecond();
    put(&proxy, &[Entry { tenant: "default".into(), created_ms: now + 1000, record: doubao.clone() }]).await;

    assert_eq!(record(proxy.get("/citations/m-1").await).await, doubao, "the newest");
    assert_eq!(record(proxy.get("/citations/m-1?provider=tencent").await).await, tencent);
    assert_eq!(record(proxy.get("/citations/m-1?provider=doubao").await).await, doubao);
    proxy.get("/citations/m-1?provider=nobody").await.is_problem(404, "unknown-message").await;

    let gone = ask(&proxy, Method::DELETE, "/citations/m-1?provider=doubao", &[]).await;
    assert_eq!(gone.status, 204);
    assert_eq!(record(proxy.get("/citations/m-1").await).await, tencent);
}

#[tokio::test]
async fn deleted_record_is_404() {
    let (_upstream, proxy) = answering(&["m-1", "m-2"]).await;
    streamed(&proxy, "m-1").await;
    streamed(&proxy, "m-2").await;
    let gone = ask(&proxy, Method::DELETE, "/citations/m-1", &[]).await;
    assert_eq!((gone.status.as_u16(), gone.whole().await.bytes().len()), (204, 0));
    proxy.get("/citations/m-1").await.is_problem(404, "unknown-message").await;
    ask(&proxy, Method::DELETE, "/citations/m-1", &[]).await.is_problem(404, "unknown-message").await;
    assert_eq!(proxy.get("/citations/m-2").await.status, 200);
    let listed = proxy.get("/citations").await.json().await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    streamed(&proxy, "m-1").await;
    assert_eq!(proxy.get("/citations/m-1").await.status, 200, "the repeated message is stored again");
}

#[tokio::test]
async fn message_without_sources_has_an_empty_record() {
    let input = std::fs::read(fixtures().join("tencent/no-refs.sse")).unwrap();
    let (_upstream, proxy) = proxy(vec![("/", Script::sse(input.clone()))], "").await;
    let whole = proxy.post("/chat/x", "{}").await.whole().await;
    assert_eq!(whole.bytes(), input, "no event without sources");
    let listed = eventually(|| async {
        let listed = proxy.get("/citations").await.json().await;
        (!listed["items"].as_array().unwrap().is_empty()).then_some(listed)
    });
    let listed = listed.await.expect("it is kept");
    let item = &listed["items"][0];
    assert_eq!(
        (&item["citations"], &item["stored"], &item["complete"]),
        (&serde_json::json!([]), &true.into(), &true.into())
    );
    let id = item["messageId"].as_str().unwrap();
    assert_eq!(proxy.get(&format!("/citations/{id}")).await.json().await, *item);
}
