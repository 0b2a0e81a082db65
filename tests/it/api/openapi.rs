//! The OpenAPI document. `tests/api/run` tests the running binary against it.

use std::collections::BTreeSet;

use http::Method;
use serde_json::Value;

use super::{answering, ask};
use crate::process::{citetap, run};

fn operations(document: &Value) -> Vec<(Method, String, Value)> {
    let paths = document["paths"].as_object().unwrap().iter();
    let operations = paths.flat_map(|(path, item)| {
        item.as_object().unwrap().iter().map(move |(method, operation)| (method, path.clone(), operation.clone()))
    });
    operations.map(|(method, path, it)| (method.to_uppercase().parse().unwrap(), path, it)).collect()
}

#[tokio::test]
async fn document_is_public_and_equals_the_cli_output() {
    let hash = "0".repeat(64);
    let keys = format!("[[tenants]]\nname = \"a\"\nkey_sha256 = \"{hash}\"\n");
    let (_upstream, proxy) = super::proxy(vec![], &keys).await;
    let response = proxy.get("/openapi.json").await;
    assert_eq!((response.status.as_u16(), response.header("content-type")), (200, Some("application/json")));
    let tag = response.header("etag").unwrap().to_owned();
    let document = response.whole().await.text();
    let known = ask(&proxy, Method::GET, "/openapi.json", &[("if-none-match", &tag)]).await;
    assert_eq!(known.status, 304);
    let refused = ask(&proxy, Method::POST, "/openapi.json", &[]).await;
    assert_eq!(refused.header("allow"), Some("GET,HEAD"));
    refused.is_problem(405, "method-not-allowed").await;

    let dir = tempfile::tempdir().unwrap();
    assert_eq!(run(citetap(dir.path(), &["openapi"]), "").out, document);
}

/// Both directions: every documented path is answered, and every answered path is documented.
#[tokio::test]
async fn document_lists_exactly_our_paths() {
    let (_upstream, proxy) = answering(&[]).await;
    let document = proxy.get("/openapi.json").await.json().await;
    let operations = operations(&document);
    for (method, path, it) in &operations {
        let real = path.replace("{messageId}", "m").replace("{taskId}", "t").replace("{consumer}", "c");
        let response = ask(&proxy, method.clone(), &real, &[]).await;
        let status = response.status.as_u16();
        assert!(it["responses"].get(status.to_string()).is_some(), "{method} {path}: {status}");
        let text = response.whole().await.text();
        assert!(
            status != 405 && !text.contains("no-such-endpoint") && !text.contains("no-route"),
            "{method} {path}: {text}"
        );
        // Undocumented methods are rejected with the documented ones in `Allow`.
        let refused = ask(&proxy, Method::PATCH, &real, &[]).await;
        let allowed: BTreeSet<&str> = refused.header("allow").unwrap_or_default().split(',').collect();
        let named = operations.iter().filter(|(_, other, _)| other == path).map(|(method, ..)| method.as_str());
        assert_eq!(
            allowed.into_iter().filter(|method| *method != "HEAD").collect::<BTreeSet<_>>(),
            named.collect(),
            "{path}"
        );
        assert_eq!(refused.status, 405, "{path}");
    }
    // The prefixes that routes may not have are those of our endpoints.
    let named: BTreeSet<&str> = operations.iter().filter_map(|(_, path, _)| path.split('/').nth(1)).collect();
    let ours: BTreeSet<&str> = citetap::config::RESERVED.iter().copied().filter(|first| *first != "v1").collect();
    assert_eq!(named.into_iter().filter(|first| !first.is_empty()).collect::<BTreeSet<_>>(), ours);
}

#[tokio::test]
async fn protected_paths_declare_their_security() {
    let (_upstream, proxy) = answering(&[]).await;
    let document = proxy.get("/openapi.json").await.json().await;
    let schemes = &document["components"]["securitySchemes"];
    assert_eq!((&schemes["key"]["name"], &schemes["bearer"]["scheme"]), (&"x-citetap-key".into(), &"bearer".into()));
    for (method, path, it) in operations(&document) {
        let asks = !["/healthz", "/readyz", "/metrics", "/version", "/openapi.json", "/", "/component.js"]
            .contains(&path.as_str());
        assert_eq!(it["security"].as_array().is_some_and(|ways| ways.len() == 2), asks, "{method} {path}");
        assert_eq!(it["responses"].get("401").is_some(), asks, "{method} {path}");
    }
}

/// Found by schemathesis: TRACE was 501 on all paths, as if every path were an upstream's.
#[tokio::test]
async fn unrelayable_methods_are_405_on_our_paths() {
    let (_upstream, proxy) = answering(&[]).await;
    for path in
        ["/citations", "/citations/m", "/tasks/t/results", "/stats", "/healthz", "/openapi.json", "/component.js"]
    {
        ask(&proxy, Method::TRACE, path, &[]).await.is_problem(405, "method-not-allowed").await;
    }
    ask(&proxy, Method::TRACE, "/chat/x", &[]).await.is_problem(501, "not-relayed").await;
}

/// Found by schemathesis: source numbers go up to 2^32 - 1, but the document said 2^31 - 1.
#[tokio::test]
async fn number_ranges_match_the_implementation() {
    let (_upstream, proxy) = answering(&[]).await;
    let document = proxy.get("/openapi.json").await.json().await;
    let number = &document["components"]["schemas"]["RenderSource"]["properties"]["number"];
    assert_eq!((&number["format"], &number["minimum"]), (&"uint32".into(), &0.into()));
    let body = format!(
        r#"{{"text":"[{0}]","style":"link","record":{{"citations":[{{"number":{0},"url":"https://a.example/"}}]}}}}"#,
        u32::MAX
    );
    let response = proxy.post("/render", body).await;
    assert_eq!(response.status, 200);
}
