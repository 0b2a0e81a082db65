//! `GET /stats`: sums over days, providers and sites.

use citetap::{citation::Record, store::Entry};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{answering, ask, proxy, put, streamed};
use crate::net::{Proxy, tencent};
use citetap::replay::Script;

/// 2026-01-13T00:00:00Z in milliseconds.
const DAY: i64 = 1_768_262_400_000;

/// Message `id`, `hours` after [`DAY`], with one source per host. Those with a `!` are cited.
fn entry(like: &Record, provider: &str, id: &str, hours: i64, hosts: &[&str]) -> Entry {
    let mut record = like.clone();
    record.message_id = id.to_owned();
    record.provider = provider.to_owned();
    let source = record.citations[0].clone();
    let cite = |host: &&str| {
        let mut source = source.clone();
        source.cited = host.starts_with('!');
        source.hostname = Some(host.trim_start_matches('!').to_owned());
        source
    };
    record.citations = hosts.iter().map(cite).collect();
    record.stats.dedup_count = 2;
    record.stats.dangling_markers = vec![9];
    Entry { tenant: "default".to_owned(), created_ms: DAY + hours * 3_600_000, record }
}

async fn some() -> (citetap::replay::Upstream, Proxy) {
    let (upstream, proxy) = answering(&["like"]).await;
    let like = streamed(&proxy, "like").await;
    proxy.app.store.delete("default", "like", None).await.unwrap();
    let entries = [
        entry(&like, "doubao", "m-1", 0, &["!www.example.com", "example.com", "!a.example.org"]),
        entry(&like, "doubao", "m-2", 23, &["m.example.com"]),
        entry(&like, "doubao", "m-3", 24, &["!a.example.org", "example.net"]),
        entry(&like, "tencent", "m-4", 25, &[]),
    ];
    put(&proxy, &entries).await;
    (upstream, proxy)
}

const PERIOD: &str = "since=2026-01-13&until=2026-01-15";

fn sites(of: &Value) -> Vec<(&str, i64, i64, i64)> {
    let number = |one: &Value, key: &str| one[key].as_i64().unwrap();
    let site = |one| (str_of(one), number(one, "messages"), number(one, "citations"), number(one, "cited"));
    of["domains"].as_array().unwrap().iter().map(site).collect()
}

fn str_of(one: &Value) -> &str {
    one["domain"].as_str().unwrap()
}

#[tokio::test]
async fn days_providers_and_domains_add_up() {
    let (_upstream, proxy) = some().await;
    let response = proxy.get(&format!("/stats?{PERIOD}")).await;
    assert_eq!((response.status, response.header("cache-control")), (StatusCode::OK, Some("no-store")));
    let stats = response.json().await;
    assert_eq!((&stats["since"], &stats["until"]), (&json!("2026-01-13"), &json!("2026-01-15")));
    assert_eq!(
        stats["totals"],
        json!({"messages": 4, "withSources": 3, "withoutSources": 1, "citations": 6, "cited": 3, "citedShare": 0.5,
            "supplemental": 0, "filtered": 0, "failed": 0, "duplicates": 8, "danglingMarkers": 4})
    );
    assert_eq!(sites(&stats), [("example.com", 2, 3, 1), ("example.org", 2, 2, 2), ("example.net", 1, 1, 0)]);
    assert_eq!(stats["domains"][0]["citedShare"], 0.3333);
    let of_provider: Vec<_> =
        stats["providers"].as_array().unwrap().iter().map(|one| (&one["provider"], &one["messages"])).collect();
    assert_eq!(of_provider, [(&json!("doubao"), &json!(3)), (&json!("tencent"), &json!(1))]);

    let days = stats["days"].as_array().unwrap();
    let rows: Vec<_> = days.iter().map(|one| (&one["day"], &one["provider"], &one["messages"])).collect();
    assert_eq!(
        rows,
        [
            (&json!("2026-01-13"), &json!("doubao"), &json!(2)),
            (&json!("2026-01-14"), &json!("doubao"), &json!(1)),
            (&json!("2026-01-14"), &json!("tencent"), &json!(1)),
        ]
    );
    assert_eq!(sites(&days[0]), [("example.com", 2, 3, 1), ("example.org", 1, 1, 1)]);
    assert_eq!(sites(&days[1]), [("example.net", 1, 1, 0), ("example.org", 1, 1, 1)]);
    assert_eq!((sites(&days[2]).len(), &days[2]["citedShare"]), (0, &Value::Null), "no share without citations");
}

#[tokio::test]
async fn parameters_filter_the_stats() {
    let (_upstream, proxy) = some().await;
    let get = async |query: &str| proxy.get(&format!("/stats?{query}")).await.json().await;
    assert_eq!(get("").await["totals"]["messages"], 0, "the last 30 days");
    let one = get(&format!("{PERIOD}&top=1")).await;
    assert_eq!(sites(&one), [("example.com", 2, 3, 1)]);
    assert_eq!(sites(&one["days"][1]).len(), 0, "the days have the period's sites");
    for domain in ["example.org", "a.example.org", "Example.ORG"] {
        let stats = get(&format!("{PERIOD}&domain={domain}")).await;
        assert_eq!(sites(&stats), [("example.org", 2, 2, 2)], "{domain}");
        assert_eq!(stats["totals"]["messages"], 4, "of how many");
    }
    let tencent = get(&format!("{PERIOD}&provider=tencent")).await;
    assert_eq!((&tencent["totals"]["messages"], sites(&tencent).len()), (&json!(1), 0));
    let part = get("since=2026-01-14T23:59:59Z&until=2026-01-14T23:59:59.5Z").await;
    assert_eq!((&part["since"], &part["totals"]["messages"]), (&json!("2026-01-14"), &json!(2)), "whole days");

    for (query, why) in [
        ("top=0", "top is a number from 1 to 100"),
        ("top=101", "top is a number from 1 to 100"),
        ("format=csv&top=10001", "top is a number from 1 to 10000"),
        ("format=xml", "format is one of json, csv"),
        ("since=never", "since is a time"),
        ("since=0", "366 days at most"),
        ("since=2026-01-15&until=2026-01-13", "later than since"),
        ("tenant=other", "unknown field"),
    ] {
        let problem = proxy.get(&format!("/stats?{query}")).await.is_problem(400, "bad-request").await;
        assert!(problem["detail"].as_str().unwrap().contains(why), "{problem}");
    }
    assert_eq!(proxy.get("/stats?top=100").await.status, 200);
    ask(&proxy, Method::POST, "/stats", &[]).await.is_problem(405, "method-not-allowed").await;
    ask(&proxy, Method::GET, "/stats/", &[]).await.is_problem(404, "no-route").await;
}

#[tokio::test]
async fn domains_are_exported_as_csv() {
    let (_upstream, proxy) = some().await;
    let like = proxy.app.store.get("default", "m-1", None).await.unwrap().unwrap().record;
    put(&proxy, &[entry(&like, "doubao", "m-5", 1, &["=cmd"])]).await;
    let response = proxy.get(&format!("/stats?{PERIOD}&format=csv")).await;
    assert_eq!(response.header("content-type"), Some("text/csv; charset=utf-8; header=present"));
    assert_eq!(response.header("content-disposition"), Some("inline; filename=\"sites-2026-01-13-2026-01-15.csv\""));
    assert_eq!(
        response.whole().await.text(),
        "\"domain\",\"messages\",\"citations\",\"cited\",\"cited_share\"\r\n\
         \"example.com\",\"2\",\"3\",\"1\",\"0.3333\"\r\n\
         \"example.org\",\"2\",\"2\",\"2\",\"1\"\r\n\
         \"'=cmd\",\"1\",\"1\",\"0\",\"0\"\r\n\
         \"example.net\",\"1\",\"1\",\"0\",\"0\"\r\n"
    );
}

#[tokio::test]
async fn relayed_message_counts_until_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("store = \"sqlite:{}\"\n", folder.path().join("s.db").display());
    let scripts = vec![("/m-1", Script::sse(tencent::answer("m-1"))), ("/m-2", Script::sse(tencent::answer("m-2")))];
    let (_upstream, proxy) = proxy(scripts, &store).await;
    let record = streamed(&proxy, "m-1").await;
    streamed(&proxy, "m-2").await;
    // The same message again replaces the first.
    streamed(&proxy, "m-1").await;
    let sums = async || proxy.get("/stats").await.json().await["totals"].clone();
    let sources = record.citations.len();
    let both = sums().await;
    assert_eq!((&both["messages"], &both["citations"]), (&json!(2), &json!(2 * sources)));
    assert_eq!(ask(&proxy, Method::DELETE, "/citations/m-2", &[]).await.status, 204);
    let one = sums().await;
    assert_eq!((&one["messages"], &one["citations"]), (&json!(1), &json!(sources)));
    proxy.app.store.sweep(i64::MAX).await.unwrap();
    assert_eq!(sums().await["messages"], 0);
}
