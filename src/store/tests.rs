//! Conformance suite: the cases that every engine must pass, run over each of them.

mod lists;
mod minimal;
pub(crate) mod server;
mod shifted;
mod stats;
mod tasks;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use serde_json::{Map, json};

use self::{
    lists::{hostile_text_is_stored_as_text, list_filters_select, list_page_is_bounded, list_pages_to_the_end},
    stats::{stats_count_each_kind_of_citation, stats_days_are_utc_and_bounded},
    tasks::{
        closed_store_refuses_task_calls, cursor_concurrent_commits_furthest_wins, cursor_moves_forward_only,
        cursors_and_sources_are_bounded, cursors_are_deleted_with_their_task, cursors_are_separate_per_tenant_and_task,
        task_lists_its_records_oldest_first,
    },
};
use super::*;
use crate::{
    citation::record::{Citation, CitationOrigin, CitationStatus, CitationType, RecordStats, RecordType},
    config::EngineUrl,
};

pub(crate) fn entry(tenant: &str, provider: &str, id: &str, created_ms: i64) -> Entry {
    let citation = Citation {
        number: 1,
        aliases: vec![5],
        url: Some("https://www.example.com/a".to_owned()),
        title: Some("A Title".to_owned()),
        content: Some("an excerpt".to_owned()),
        hostname: Some("www.example.com".to_owned()),
        kind: CitationType::Websearch,
        show_favicon: true,
        site_name: None,
        icon_url: None,
        published_at: None,
        source_id: "00".repeat(16),
        rank: 1,
        origin: CitationOrigin::Upstream,
        cited: true,
        status: CitationStatus::Ok,
        scores: None,
        snippets: Vec::new(),
        metadata: Map::new(),
    };
    let record = Record {
        kind: RecordType::Citations,
        version: 1,
        message_id: id.to_owned(),
        conversation_id: None,
        task_id: None,
        provider: provider.to_owned(),
        route: "r".to_owned(),
        source: "default".to_owned(),
        model: None,
        complete: true,
        stored: true,
        truncated: false,
        late: false,
        nonce: "n".to_owned(),
        created_at: "2026-01-01T00:00:00.000Z".to_owned(),
        summary: None,
        queries: Vec::new(),
        citations: vec![citation],
        stats: RecordStats::default(),
        corroboration: None,
        rounds: Vec::new(),
        metadata: Map::new(),
    };
    Entry { tenant: tenant.to_owned(), created_ms, record }
}

/// A store with its own key prefix on the shared test server.
pub(crate) async fn redis_store(ttl: Option<Duration>) -> RedisStore {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let server =
        std::env::var("CITETAP_TEST_REDIS").expect("no Redis server to test with: run this through tests/engines");
    let mut url = url::Url::parse(&server).unwrap();
    let number = COUNT.fetch_add(1, Relaxed);
    let prefix = format!("test:{}:{number}:{}", std::process::id(), jiff::Timestamp::now().as_nanosecond());
    url.query_pairs_mut().append_pair("prefix", &prefix).append_pair("durable", "memory");
    RedisStore::open(&EngineUrl::new(url), ttl).await.unwrap()
}

/// The smallest possible engine, to test what [`RecordStore`]'s defaults and [`WithProgress`] provide.
fn minimal_store() -> WithProgress<minimal::MinimalStore> {
    WithProgress::new(minimal::MinimalStore::new())
}

/// Generates one test per engine and case. A new engine adds a line here.
macro_rules! conformance {
    ($($case:ident),+ $(,)?) => {
        mod memory { $(#[tokio::test] async fn $case() { super::$case(std::sync::Arc::new(super::MemoryStore::new())).await; })+ }
        mod minimal_engine { $(#[tokio::test] async fn $case() { super::$case(std::sync::Arc::new(super::minimal_store())).await; })+ }
        mod sqlite { $(#[tokio::test] async fn $case() {
            let folder = tempfile::tempdir().unwrap();
            let store = super::SqliteStore::open(&folder.path().join("s.db")).await.unwrap();
            let store: std::sync::Arc<dyn super::Store> = std::sync::Arc::new(store);
            super::$case(std::sync::Arc::clone(&store)).await;
            store.close().await;
        })+ }
        mod postgres_days { $(#[tokio::test] async fn $case() {
            let store: std::sync::Arc<dyn super::Store> = std::sync::Arc::new(super::shifted::ShiftedStore::new().await);
            super::$case(std::sync::Arc::clone(&store)).await;
            store.close().await;
        })+ }
        mod postgres { $(#[tokio::test] async fn $case() {
            let store: std::sync::Arc<dyn super::Store> = std::sync::Arc::new(super::server::postgres().await);
            super::$case(std::sync::Arc::clone(&store)).await;
            store.close().await;
        })+ }
        // With a TTL, so that every key expires, but after any time used in the cases.
        mod redis { $(#[tokio::test] async fn $case() {
            let ttl = std::time::Duration::from_secs(100 * 366 * 24 * 60 * 60);
            let store: std::sync::Arc<dyn super::Store> = std::sync::Arc::new(super::redis_store(Some(ttl)).await);
            super::$case(std::sync::Arc::clone(&store)).await;
            store.close().await;
        })+ }
    };
}

conformance!(
    get_returns_what_was_put,
    tenants_and_providers_are_separate,
    put_last_write_replaces_the_whole_record,
    list_filters_select,
    list_pages_to_the_end,
    list_page_is_bounded,
    hostile_text_is_stored_as_text,
    stats_count_each_kind_of_citation,
    stats_days_are_utc_and_bounded,
    delete_removes_by_id_and_provider,
    sweep_removes_records_before_a_time,
    concurrent_puts_do_not_mix,
    large_records_end_a_page_early,
    closed_store_returns_closed,
    task_lists_its_records_oldest_first,
    cursor_moves_forward_only,
    cursors_are_separate_per_tenant_and_task,
    cursors_are_deleted_with_their_task,
    cursor_concurrent_commits_furthest_wins,
    cursors_and_sources_are_bounded,
    closed_store_refuses_task_calls,
);

async fn get_returns_what_was_put(store: Arc<dyn Store>) {
    store.ping().await.unwrap();
    store.put(&[]).await.unwrap();
    let mut full = entry("t", "doubao", "35730705466983426", -5);
    full.record.citations[0].metadata =
        json!({"docId": "1", "round": 1, "deep": [{"a": null}]}).as_object().unwrap().clone();
    full.record.late = true;
    full.record.stats.dangling_markers = vec![11];
    store.put(std::slice::from_ref(&full)).await.unwrap();
    assert_eq!(store.get("t", "35730705466983426", Some("doubao")).await.unwrap(), Some(full.clone()));
    assert_eq!(store.get("t", "35730705466983426", None).await.unwrap(), Some(full));
    for (tenant, id, provider) in
        [("t", "3573070546698342", None), ("u", "35730705466983426", None), ("t", "35730705466983426", Some("lke"))]
    {
        assert_eq!(store.get(tenant, id, provider).await.unwrap(), None);
    }
}

async fn tenants_and_providers_are_separate(store: Arc<dyn Store>) {
    let all = [
        entry("a", "p", "1", 10),
        entry("b", "p", "1", 20),
        entry("a", "q", "1", 30),
        entry("a", "p", "1x", 40),
        entry("A", "p", "1", 50),
        entry("a", "P", "1", 5),
    ];
    store.put(&all).await.unwrap();
    for one in &all {
        let record = &one.record;
        assert_eq!(
            store.get(&one.tenant, &record.message_id, Some(&record.provider)).await.unwrap().as_ref(),
            Some(one)
        );
    }
    let newest = store.get("a", "1", None).await.unwrap().unwrap();
    assert_eq!(newest.record.provider, "q");
    assert_eq!(ids(&store, "b", Filter::default()).await, ["1"]);
    assert_eq!(store.delete("b", "1", None).await.unwrap(), 1);
    assert_eq!(ids(&store, "a", Filter::default()).await, ["1x", "1", "1", "1"]);
}

async fn put_last_write_replaces_the_whole_record(store: Arc<dyn Store>) {
    let mut first = entry("t", "p", "1", 10);
    first.record.conversation_id = Some("old".to_owned());
    first.record.summary = Some("before".to_owned());
    let mut second = entry("t", "p", "1", 20);
    second.record.citations[0].hostname = Some("other.test".to_owned());
    // Within one batch, and across batches.
    store.put(&[second.clone(), first.clone()]).await.unwrap();
    assert_eq!(store.get("t", "1", None).await.unwrap(), Some(first.clone()));
    store.put(std::slice::from_ref(&second)).await.unwrap();
    assert_eq!(store.get("t", "1", None).await.unwrap(), Some(second));
    let none: [&str; 0] = [];
    assert_eq!(ids(&store, "t", Filter { conversation: Some("old".to_owned()), ..Filter::default() }).await, none);
    assert_eq!(ids(&store, "t", Filter { domain: Some("example.com".to_owned()), ..Filter::default() }).await, none);
    assert_eq!(ids(&store, "t", Filter { q: Some("before".to_owned()), ..Filter::default() }).await, none);
    assert_eq!(ids(&store, "t", Filter { until_ms: Some(20), ..Filter::default() }).await, none);
    assert_eq!(ids(&store, "t", Filter { domain: Some("other.test".to_owned()), ..Filter::default() }).await, ["1"]);
}

async fn delete_removes_by_id_and_provider(store: Arc<dyn Store>) {
    store
        .put(&[entry("t", "p", "1", 1), entry("t", "q", "1", 2), entry("t", "r", "1", 3), entry("u", "p", "1", 4)])
        .await
        .unwrap();
    assert_eq!(store.delete("t", "1", Some("p")).await.unwrap(), 1);
    assert_eq!(store.delete("t", "1", Some("p")).await.unwrap(), 0);
    assert_eq!(store.delete("t", "1", None).await.unwrap(), 2);
    assert_eq!(store.get("t", "1", None).await.unwrap(), None);
    assert!(ids(&store, "t", Filter { domain: Some("example.com".to_owned()), ..Filter::default() }).await.is_empty());
    assert!(store.get("u", "1", None).await.unwrap().is_some());
}

async fn sweep_removes_records_before_a_time(store: Arc<dyn Store>) {
    let entries: Vec<_> = (0..1203).map(|n| entry(["t", "u"][n as usize % 2], "p", &n.to_string(), n)).collect();
    store.put(&entries).await.unwrap();
    assert_eq!(store.sweep(0).await.unwrap(), 0);
    assert_eq!(store.sweep(1201).await.unwrap(), 1201);
    assert_eq!(
        ids(&store, "u", Filter { domain: Some("example.com".to_owned()), ..Filter::default() }).await,
        ["1201"]
    );
    assert_eq!(ids(&store, "t", Filter::default()).await, ["1202"]);
    assert_eq!(store.sweep(i64::MAX).await.unwrap(), 2);
}

async fn concurrent_puts_do_not_mix(store: Arc<dyn Store>) {
    let tasks: Vec<_> = (0..16)
        .map(|task| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for n in 0..8 {
                    let mut contested = entry("t", "p", "same", n);
                    contested.record.summary = Some(format!("by {task}"));
                    contested.record.queries = vec![format!("by {task}")];
                    store.put(&[contested, entry("t", "p", &format!("{task}-{n}"), n)]).await.unwrap();
                    store.list("t", &Filter::default()).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let whole = store.get("t", "same", None).await.unwrap().unwrap().record;
    assert_eq!(whole.summary.as_ref(), whole.queries.first(), "never a mix of two writes");
    let page = store.list("t", &Filter { limit: PAGE_MAX, ..Filter::default() }).await.unwrap();
    assert_eq!(page.entries.len(), 16 * 8 + 1);
}

async fn large_records_end_a_page_early(store: Arc<dyn Store>) {
    let large: Vec<_> = (0..20)
        .map(|n| {
            let mut large = entry("t", "p", &n.to_string(), n);
            large.record.citations[0].content = Some("汉".repeat(350_000));
            let citation = large.record.citations[0].clone();
            large.record.citations.extend((0..999).map(|n| Citation {
                hostname: Some(format!("h{n}.big.test")),
                content: None,
                ..citation.clone()
            }));
            large
        })
        .collect();
    store.put(&large).await.unwrap();
    assert_eq!(store.get("t", "7", None).await.unwrap().as_ref(), large.get(7));
    assert_eq!(
        ids(&store, "t", Filter { domain: Some("h998.big.test".to_owned()), ..Filter::default() }).await.len(),
        20
    );
    let page = store.list("t", &Filter { limit: 20, ..Filter::default() }).await.unwrap();
    assert!(page.entries.len() < 20 && page.next.is_some(), "a page ends at its weight");
}

/// Not for Redis, whose keys expire: there an old record does not exist.
#[tokio::test]
async fn store_clock_step_keeps_the_last_write() {
    a_clock_that_steps(Arc::new(MemoryStore::new())).await;
    a_clock_that_steps(Arc::new(minimal_store())).await;
    let folder = tempfile::tempdir().unwrap();
    a_clock_that_steps(Arc::new(SqliteStore::open(&folder.path().join("s.db")).await.unwrap())).await;
    a_clock_that_steps(Arc::new(server::postgres().await)).await;
    a_clock_that_steps(Arc::new(shifted::ShiftedStore::new().await)).await;
}

/// The last write wins whatever its timestamp, and leaves exactly one record.
async fn a_clock_that_steps(store: Arc<dyn Store>) {
    const DAY: i64 = 86_400_000;
    let times = [5, 5 * DAY, 0, i64::MAX, -1, 4 * DAY, i64::MIN, 2 * DAY, 2 * DAY - 1, 40 * DAY, 3 * DAY];
    for (step, ms) in times.into_iter().enumerate() {
        let mut one = entry("t", "p", "same", ms);
        one.record.summary = Some(format!("step {step}"));
        store.put(&[entry("t", "p", &step.to_string(), ms), one]).await.unwrap();
        let summary = store.get("t", "same", None).await.unwrap().unwrap().record.summary;
        assert_eq!(summary, Some(format!("step {step}")));
    }
    let same = ids(&store, "t", Filter::default()).await;
    assert_eq!(same.iter().filter(|id| *id == "same").count(), 1);
    let mut others: Vec<_> = (0..times.len()).collect();
    others.sort_by_key(|at| std::cmp::Reverse(times[*at]));
    let others: Vec<_> = others.into_iter().map(|at| at.to_string()).collect();
    assert_eq!(same.into_iter().filter(|id| id != "same").collect::<Vec<_>>(), others, "newest first, whenever");
    // A sweep with a clock that is ahead removes everything; later writes are kept.
    assert_eq!(store.sweep(i64::MAX).await.unwrap(), times.len() as u64, "all but the one that has no later");
    store.put(&[entry("t", "p", "after", DAY)]).await.unwrap();
    assert_eq!(store.get("t", "after", None).await.unwrap().unwrap().created_ms, DAY);
}

async fn closed_store_returns_closed(store: Arc<dyn Store>) {
    store.put(&[entry("t", "p", "1", 1)]).await.unwrap();
    store.close().await;
    store.close().await;
    assert_eq!(store.put(&[entry("t", "p", "2", 1)]).await, Err(StoreError::Closed));
    assert_eq!(store.get("t", "1", None).await, Err(StoreError::Closed));
    assert_eq!(store.delete("t", "1", None).await, Err(StoreError::Closed));
    assert_eq!(store.sweep(9).await, Err(StoreError::Closed));
    assert_eq!(store.ping().await, Err(StoreError::Closed));
    assert!(matches!(store.list("t", &Filter::default()).await, Err(StoreError::Closed)));
    assert_eq!(store.stats("t", &StatsFilter::default()).await, Err(StoreError::Closed));
}

/// Ids of the whole list, over all pages.
async fn ids(store: &Arc<dyn Store>, tenant: &str, mut filter: Filter) -> Vec<String> {
    let mut ids = Vec::new();
    loop {
        let page = store.list(tenant, &filter).await.unwrap();
        ids.extend(page.entries.into_iter().map(|entry| entry.record.message_id));
        let Some(next) = page.next else { return ids };
        filter.cursor = Some(next);
    }
}
