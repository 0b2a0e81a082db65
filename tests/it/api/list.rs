//! `GET /citations`: filters and pages.

use citetap::{citation::Record, store::Entry};
use serde_json::Value;

use super::{answering, put, streamed};
use crate::net::Proxy;

/// 2026-01-13T00:00:00Z in milliseconds.
const DAY: i64 = 1_768_262_400_000;

/// A record of message `id`, `ms` after [`DAY`]. Its first source is at `host`.
fn entry(like: &Record, id: &str, ms: i64, host: &str) -> Entry {
    let mut record = like.clone();
    record.message_id = id.to_owned();
    record.citations[0].hostname = Some(host.to_owned());
    record.citations[0].url = Some(format!("https://{host}/"));
    record.conversation_id = Some(if ms < 3000 { "early" } else { "late" }.to_owned());
    Entry { tenant: "default".to_owned(), created_ms: DAY + ms, record }
}

/// Five records, one second apart: m-0 to m-4.
async fn five() -> (citetap::replay::Upstream, Proxy) {
    let (upstream, proxy) = answering(&["like"]).await;
    let like = streamed(&proxy, "like").await;
    proxy.app.store.delete("default", "like", None).await.unwrap();
    let hosts = ["www.example.org", "example.org", "news.example.net", "www.example.org.evil.test", "a.b.example.org"];
    let mut entries: Vec<Entry> =
        hosts.iter().zip(0..).map(|(host, n)| entry(&like, &format!("m-{n}"), n * 1000, host)).collect();
    entries[1].record.provider = "doubao".to_owned();
    entries[2].record.citations[0].title = Some("Über 100% 龙井".to_owned());
    entries[3].record.queries = vec!["How to Brew".to_owned()];
    entries[4].record.summary = Some("参考 2 篇资料".to_owned());
    put(&proxy, &entries).await;
    (upstream, proxy)
}

fn ids(page: &Value) -> Vec<&str> {
    page["items"].as_array().unwrap().iter().map(|item| item["messageId"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn filters_apply_alone_and_combined() {
    let (_upstream, proxy) = five().await;
    for (query, expected) in [
        ("", &["m-4", "m-3", "m-2", "m-1", "m-0"][..]),
        ("conversation=early", &["m-2", "m-1", "m-0"]),
        ("conversation=ear", &[]),
        ("provider=doubao", &["m-1"]),
        ("domain=example.org", &["m-4", "m-1", "m-0"]),
        ("domain=www.example.org", &["m-0"]),
        ("domain=WWW.Example.ORG", &["m-0"]),
        ("domain=ample.org", &[]),
        ("domain=%25", &[]),
        ("q=%E9%BE%99%E4%BA%95", &["m-2"]),
        ("q=100%25", &["m-2"]),
        ("q=%C3%BCBER", &["m-2"]),
        ("q=brew", &["m-3"]),
        ("q=%E5%8F%82%E8%80%83", &["m-4"]),
        ("q='%20OR%201=1%20--", &[]),
        ("q=_", &[]),
        ("since=2026-01-13T00:00:03Z", &["m-4", "m-3"]),
        ("until=2026-01-13T00:00:03Z", &["m-2", "m-1", "m-0"]),
        ("since=1768262401000&until=1768262403000", &["m-2", "m-1"]),
        ("since=2026-01-13T08:00:04%2B08:00", &["m-4"]),
        ("since=2026-01-14", &[]),
        ("until=2026-01-13", &[]),
        ("since=2026-01-13&until=2026-01-14&limit=2", &["m-4", "m-3"]),
        ("conversation=early&domain=example.org&provider=tencent", &["m-0"]),
    ] {
        let response = proxy.get(&format!("/citations?{query}")).await;
        assert_eq!(response.status, 200, "{query}");
        assert_eq!(response.header("content-type"), Some("application/json"));
        assert_eq!(response.header("cache-control"), Some("no-store"));
        assert_eq!(ids(&response.json().await), expected, "{query}");
    }
}

#[tokio::test]
async fn pages_contain_each_record_once() {
    let (_upstream, proxy) = five().await;
    for limit in 1..=6 {
        let (mut seen, mut pages, mut path) = (Vec::new(), 0, format!("/citations?limit={limit}"));
        loop {
            let page = proxy.get(&path).await.json().await;
            assert!(ids(&page).len() <= limit);
            seen.extend(ids(&page).into_iter().map(str::to_owned));
            pages += 1;
            let Some(next) = page["next"].as_str() else { break };
            path = format!("/citations?limit={limit}&cursor={next}");
        }
        assert_eq!(seen, ["m-4", "m-3", "m-2", "m-1", "m-0"], "limit {limit}");
        assert_eq!(pages, 5_usize.div_ceil(limit), "limit {limit}: no empty last page");
    }
    // A page continues after its cursor, even if records were added meanwhile.
    let page = proxy.get("/citations?limit=2").await.json().await;
    proxy.app.store.delete("default", "m-3", None).await.unwrap();
    streamed(&proxy, "like").await;
    let next = proxy.get(&format!("/citations?limit=2&cursor={}", page["next"].as_str().unwrap())).await.json().await;
    assert_eq!(ids(&next), ["m-2", "m-1"]);
}

#[tokio::test]
async fn invalid_parameters_are_refused() {
    let (_upstream, proxy) = five().await;
    for query in [
        "limit=0",
        "limit=1001",
        "limit=-1",
        "limit=ten",
        "limit=99999999999999999999",
        "limit=",
        "cursor=",
        "cursor=x",
        "cursor=1.61.6g",
        "cursor=%27%20OR%201=1",
        "since=yesterday",
        "until=2026-13-01",
        "since=",
        "page=2",
        "tenant=other",
        "limit=1&limit=2",
    ] {
        let problem = proxy.get(&format!("/citations?{query}")).await.is_problem(400, "bad-request").await;
        assert!(!problem["detail"].as_str().unwrap().is_empty());
    }
    for limit in ["1", "1000"] {
        assert_eq!(proxy.get(&format!("/citations?limit={limit}")).await.status, 200);
    }
}
