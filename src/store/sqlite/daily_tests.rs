//! Daily aggregates in SQLite: backfill of old files, top sites, query plans.

use std::collections::BTreeMap;

use sqlx::{ConnectOptions as _, Row as _};

use super::*;
use crate::{
    citation::record::{Citation, RecordStats},
    store::{Counts, DayStats, tests::entry},
};

const DAY: i64 = 86_400_000;

fn all() -> StatsFilter {
    StatsFilter { days: 0..100, top: 10, by_day: true, ..StatsFilter::default() }
}

/// A deterministic pseudo-random generator.
struct SeededRng(u64);

impl SeededRng {
    fn next_f64(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number below `of`, low ones far more often, like the sites of real answers.
    fn skewed_below(&mut self, of: f64) -> u32 {
        of.powf(self.next_f64()) as u32 - 1
    }
}

/// Message `n` of a day: four sources, every third message by another provider.
fn message(rng: &mut SeededRng, n: usize, day: i64, sites: f64) -> Entry {
    let mut one =
        entry("t", if n.is_multiple_of(3) { "tencent" } else { "doubao" }, &n.to_string(), day * DAY + n as i64 % DAY);
    let like = one.record.citations.remove(0);
    one.record.citations.extend((1..=4).map(|number| {
        let site = rng.skewed_below(sites);
        Citation {
            number,
            hostname: Some(format!("www.site-{site}.com")),
            url: Some(format!("https://www.site-{site}.com/article/{n}")),
            cited: rng.next_f64() < 0.5,
            aliases: Vec::new(),
            ..like.clone()
        }
    }));
    one.record.stats = RecordStats { dedup_count: (n % 2) as u32, ..RecordStats::default() };
    one
}

async fn rows(store: &SqliteStore, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(&store.readers()).await.unwrap()
}

#[tokio::test]
async fn migration_backfills_aggregates_once() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (folder.path().join("old.db"), folder.path().join("new.db"));
    let mut rng = SeededRng(1);
    let entries: Vec<_> = (0..1203).map(|n| message(&mut rng, n, n as i64 / 300, 50.0)).collect();
    let fresh = SqliteStore::open(&new).await.unwrap();
    fresh.put(&entries).await.unwrap();

    // A file as schema version 1 left it.
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&old).create_if_missing(true);
    let mut conn = options.connect().await.unwrap();
    sqlx::raw_sql(include_str!("../migrations/sqlite/0001_records.sql")).execute(&mut conn).await.unwrap();
    sqlx::raw_sql("PRAGMA application_id = 0x63697470; PRAGMA user_version = 1").execute(&mut conn).await.unwrap();
    for one in &entries {
        let body = serde_json::json!({"tenant": "t", "record": one.record}).to_string();
        sqlx::query("INSERT INTO record (tenant, provider, id, created_ms, body, search) VALUES ('t', ?, ?, ?, ?, '')")
            .bind(&one.record.provider)
            .bind(&one.record.message_id)
            .bind(one.created_ms)
            .bind(body)
            .execute(&mut conn)
            .await
            .unwrap();
    }
    let damaged =
        "INSERT INTO record (tenant, provider, id, created_ms, body, search) VALUES ('t', 'x', 'x', 1, '{', '')";
    sqlx::raw_sql(damaged).execute(&mut conn).await.unwrap();
    conn.close().await.unwrap();

    let mut store = SqliteStore::open(&old).await.unwrap();
    let expected = fresh.stats("t", &all()).await.unwrap();
    let mut found = store.stats("t", &all()).await.unwrap();
    let counts = Counts { messages: 1, ..Counts::default() };
    let unread = DayStats { day: 0, provider: "x".to_owned(), counts, sites: Vec::new() };
    assert_eq!(found.days.remove(2), unread, "one that cannot be read is a message");
    assert_eq!(found, expected);
    store.close().await;
    store = SqliteStore::open(&old).await.unwrap();
    assert_eq!(store.stats("t", &all()).await.unwrap().days.remove(2), unread, "once");

    // Replace, delete and sweep subtract from the days that stay.
    let mut changed = entries[7].clone();
    changed.record.citations.truncate(1);
    for store in [&fresh, &store] {
        store.put(&[changed.clone(), entry("t", "doubao", "8", 50 * DAY)]).await.unwrap();
        store.delete("t", "x", None).await.unwrap();
        store.delete("t", "9", None).await.unwrap();
    }
    let some = StatsFilter { top: 100, ..all() };
    assert_eq!(store.stats("t", &some).await.unwrap(), fresh.stats("t", &some).await.unwrap());
    for store in [&fresh, &store] {
        assert_eq!(store.sweep(2 * DAY + 700).await.unwrap(), 698, "two days and a third of one, without 8 and 9");
    }
    assert_eq!(store.stats("t", &some).await.unwrap(), fresh.stats("t", &some).await.unwrap());
    store.sweep(i64::MAX).await.unwrap();
    assert_eq!(store.stats("t", &all()).await.unwrap(), StatsReport::default());
    assert_eq!(rows(&store, "SELECT (SELECT count(*) FROM daily) + (SELECT count(*) FROM daily_site)").await, 0);
}

#[tokio::test]
async fn top_sites_by_index_equal_top_sites_of_all() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&folder.path().join("s.db")).await.unwrap();
    let mut rng = SeededRng(2);
    let entries: Vec<_> = (0..4000).map(|n| message(&mut rng, n, n as i64 / 800, 2000.0)).collect();
    store.put(&entries).await.unwrap();
    let mut totals: BTreeMap<String, i64> = BTreeMap::new();
    for citation in entries.iter().flat_map(|entry| &entry.record.citations) {
        *totals.entry(citation.hostname.as_ref().unwrap().replacen("www.", "", 1)).or_default() += 1;
    }
    let mut expected: Vec<_> = totals.into_iter().collect();
    expected.sort_by_key(|(_, citations)| -citations);
    let mut by_index = 0;
    for top in [1, 2, 3, 5, 10, 20, 40, 80, 200, 1000, 10_000] {
        let filter = StatsFilter { top, ..all() };
        let mut tx = store.readers().begin().await.unwrap();
        let mut reader = ReportReader { conn: &mut tx, tenant: "t", filter: &filter };
        if let Some(candidates) = sql_report::candidates(&mut reader, &filter, top, 10).await.unwrap() {
            assert!(candidates.len() >= top && candidates.len() < 200, "{top}: {}", candidates.len());
            by_index += 1;
        }
        let found = sql_report::report(&mut reader, &filter).await.unwrap().sites;
        let found: Vec<_> = found.into_iter().map(|one| (one.domain, one.site.citations)).collect();
        assert_eq!(found, expected[..top.min(expected.len())], "{top}");
    }
    assert!((4..10).contains(&by_index), "both ways: {by_index}");
}

/// The query plan as text.
async fn plan(store: &SqliteStore, sql: &str) -> String {
    let rows =
        sqlx::query(AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"))).fetch_all(&store.readers()).await.unwrap();
    rows.iter().map(|row| row.get::<String, _>("detail")).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn report_queries_use_indexes() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&folder.path().join("s.db")).await.unwrap();
    for sql in [
        report::DAY_TOTALS,
        report::THRESHOLD,
        report::CANDIDATES,
        report::TOP_OF_SITES,
        report::TOP_SITES,
        report::SITES_BY_DAY,
    ] {
        let plan = plan(&store, sql).await;
        let scans = plan.lines().filter(|line| line.contains("SCAN") && !line.contains("SCAN c VIRTUAL TABLE"));
        assert_eq!(scans.count(), 0, "{sql}\n{plan}");
        assert!(
            plan.contains("SEARCH d USING INDEX") || plan.contains("SEARCH d USING COVERING INDEX"),
            "{sql}\n{plan}"
        );
    }
}
