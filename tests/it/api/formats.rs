//! Export formats of `/citations/{id}`.

use citetap::store::Entry;
use http::Method;

use super::{FOR_EVER, answering, ask, proxy, put, record, steps, streamed};
use crate::net::{Proxy, tencent};

/// Format, media type, content type.
const ALL: [(&str, &str, &str); 7] = [
    ("markdown", "text/markdown", "text/markdown; charset=utf-8"),
    ("html", "text/html", "text/html; charset=utf-8"),
    ("csv", "text/csv", "text/csv; charset=utf-8; header=present"),
    ("bibtex", "application/x-bibtex", "application/x-bibtex; charset=utf-8"),
    ("ris", "application/x-research-info-systems", "application/x-research-info-systems; charset=utf-8"),
    ("csl", "application/vnd.citationstyles.csl+json", "application/vnd.citationstyles.csl+json"),
    ("prompt", "text/plain", "text/plain; charset=utf-8"),
];

#[tokio::test]
async fn format_is_selected_by_name_and_by_accept() {
    let (_upstream, proxy) = answering(&["m-1"]).await;
    streamed(&proxy, "m-1").await;
    let mut tags = vec![proxy.get("/citations/m-1").await.header("etag").unwrap().to_owned()];
    for (format, accept, content_type) in ALL {
        let named = proxy.get(&format!("/citations/m-1?format={format}")).await;
        let negotiated = ask(&proxy, Method::GET, "/citations/m-1", &[("accept", accept)]).await;
        for response in [&named, &negotiated] {
            assert_eq!(response.status, 200, "{format}");
            assert_eq!(response.header("content-type"), Some(content_type));
            assert_eq!(response.header("x-content-type-options"), Some("nosniff"));
            assert_eq!(response.header("cache-control"), Some("private, no-cache"));
            assert_eq!(response.header("vary"), Some("accept"));
            let policy = response.header("content-security-policy");
            assert_eq!(policy.is_some_and(|policy| policy.starts_with("default-src 'none'; ")), format == "html");
        }
        let tag = named.header("etag").unwrap().to_owned();
        assert_eq!(negotiated.header("etag"), Some(tag.as_str()));
        let known = [("accept", accept), ("if-none-match", &tag)];
        let again = ask(&proxy, Method::GET, "/citations/m-1", &known).await;
        assert_eq!((again.status.as_u16(), again.header("vary")), (304, Some("accept")));
        tags.push(tag);
        assert_eq!(named.whole().await.text(), negotiated.whole().await.text());
    }
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), ALL.len() + 1, "one tag per representation");
    let notes = proxy.get("/citations/m-1?format=footnotes").await;
    assert_eq!(notes.header("content-type"), Some("text/markdown; charset=utf-8"));
    assert_eq!(notes.header("content-disposition"), Some("inline; filename=\"m-1.md\""));
    assert!(notes.whole().await.text().starts_with("[^1]: "));
}

#[tokio::test]
async fn json_is_the_default_and_a_name_overrides_accept() {
    let (_upstream, proxy) = answering(&["m-1"]).await;
    let event = streamed(&proxy, "m-1").await;
    for accept in ["*/*", "application/json", "application/json, text/plain, */*", "image/png", "text/event-stream"] {
        let response = ask(&proxy, Method::GET, "/citations/m-1", &[("accept", accept)]).await;
        assert_eq!((response.status.as_u16(), response.header("vary")), (200, Some("accept")), "{accept}");
        assert_eq!(record(response).await, event);
    }
    let named = ask(&proxy, Method::GET, "/citations/m-1?format=json", &[("accept", "text/html")]).await;
    assert_eq!(record(named).await, event);
    let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    let page = ask(&proxy, Method::GET, "/citations/m-1", &[("accept", browser)]).await.whole().await;
    assert!(page.text().starts_with("<!doctype html>"));
    let head = ask(&proxy, Method::HEAD, "/citations/m-1?format=csv", &[]).await;
    assert_eq!((head.status.as_u16(), head.whole().await.bytes().len()), (200, 0));
}

#[tokio::test]
async fn unknown_format_error_lists_the_formats() {
    let (_upstream, proxy) = answering(&["m-1"]).await;
    streamed(&proxy, "m-1").await;
    for (query, message) in [
        ("format=yaml", "format is one of json, bundle, markdown, footnotes, html, csv, bibtex, ris, csl, prompt"),
        ("format=", "format is one of json, "),
        ("format=Bibtex", "format is one of json, "),
        ("format=prompt&lang=fr", "lang is zh or en"),
        ("format=markdown&cited=maybe", ""),
        ("cited=true", "cited=true is for exports"),
        ("format=json&cited=true", "cited=true is for exports"),
    ] {
        let problem = proxy.get(&format!("/citations/m-1?{query}")).await.is_problem(400, "bad-request").await;
        assert!(problem["detail"].as_str().unwrap().contains(message), "{query}: {problem}");
    }
    proxy.get("/citations/nobody?format=html").await.is_problem(404, "unknown-message").await;
}

async fn text(proxy: &Proxy, path: &str) -> String {
    proxy.get(path).await.whole().await.text()
}

#[tokio::test]
async fn cited_filters_sources_and_lang_selects_labels() {
    let (_upstream, proxy) = answering(&["m-1"]).await;
    let mut record = streamed(&proxy, "m-1").await;
    let mut second = record.citations[0].clone();
    (second.number, second.title, second.cited) = (2, Some("</title><script>".to_owned()), true);
    record.citations[0].cited = false;
    record.citations.truncate(1);
    record.citations.push(second);
    record.message_id = "m-2".to_owned();
    put(&proxy, &[Entry { tenant: "default".into(), created_ms: 1, record }]).await;

    assert_eq!(text(&proxy, "/citations/m-2?format=markdown").await.lines().count(), 2);
    let cited = text(&proxy, "/citations/m-2?format=markdown&cited=true").await;
    assert!(cited.starts_with("2. ") && cited.lines().count() == 1, "{cited}");
    assert_eq!(text(&proxy, "/citations/m-2?format=markdown&cited=false").await.lines().count(), 2);
    assert!(text(&proxy, "/citations/m-2?format=prompt&lang=zh").await.starts_with("搜索完成，找到 2 个结果："));
    assert!(text(&proxy, "/citations/m-2?format=prompt&lang=en").await.starts_with("Search finished, 2 results"));
    let page = text(&proxy, "/citations/m-2?format=html").await;
    assert!(page.contains("&lt;/title&gt;&lt;script&gt;") && !page.contains("<script"), "{page}");
}

#[tokio::test]
async fn message_in_flight_is_exported_so_far() {
    let pieces = [tencent::references("m-1", &[1, 2]), tencent::finish("m-1")];
    let script = steps(&pieces, FOR_EVER);
    let (_upstream, proxy) = proxy(vec![("/m-1", script)], "").await;
    let _open = proxy.post("/chat/m-1", "{}").await;
    let found = crate::net::eventually(|| async {
        let response = proxy.get("/citations/m-1?format=markdown").await;
        (response.status == 202).then_some(response)
    });
    let response = found.await.expect("it is in flight");
    assert_eq!(response.header("retry-after"), Some("1"));
    assert_eq!(response.header("content-type"), Some("text/markdown; charset=utf-8"));
    assert_eq!(response.header("etag"), None);
    assert_eq!(response.whole().await.text().lines().count(), 2);
}
