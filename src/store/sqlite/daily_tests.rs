//! The sums in the file: those of older files, the first sites, the plans, and what a million records take.

use std::{collections::BTreeMap, time::Instant};

use sqlx::{ConnectOptions as _, Row as _};

use super::*;
use crate::{
    citation::record::{Citation, Stats},
    store::{Counts, DayStats, tests::entry},
};

const DAY: i64 = 86_400_000;

fn all() -> StatsFilter {
    StatsFilter { days: 0..100, top: 10, by_day: true, ..StatsFilter::default() }
}

/// Numbers that look random, the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Below `of`, the low ones far more often, as sites are in answers.
    fn low(&mut self, of: f64) -> u32 {
        of.powf(self.roll()) as u32 - 1
    }
}

/// Message `n` of a day: four sources, one in three answers of another provider.
fn message(dice: &mut Dice, n: usize, day: i64, sites: f64) -> Entry {
    let mut one =
        entry("t", if n.is_multiple_of(3) { "tencent" } else { "doubao" }, &n.to_string(), day * DAY + n as i64 % DAY);
    let like = one.record.citations.remove(0);
    one.record.citations.extend((1..=4).map(|number| {
        let site = dice.low(sites);
        Citation {
            number,
            hostname: Some(format!("www.site-{site}.com")),
            url: Some(format!("https://www.site-{site}.com/article/{n}")),
            cited: dice.roll() < 0.5,
            aliases: Vec::new(),
            ..like.clone()
        }
    }));
    one.record.stats = Stats { dedup_count: (n % 2) as u32, ..Stats::default() };
    one
}

async fn rows(store: &SqliteStore, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(&store.readers()).await.unwrap()
}

#[tokio::test]
async fn a_file_from_before_the_sums_is_counted_once_and_counts_down_again() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (folder.path().join("old.db"), folder.path().join("new.db"));
    let mut dice = Dice(1);
    let entries: Vec<_> = (0..1203).map(|n| message(&mut dice, n, n as i64 / 300, 50.0)).collect();
    let fresh = SqliteStore::open(&new).await.unwrap();
    fresh.put(&entries).await.unwrap();

    // As the version before left it.
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

    // Replaced, deleted, swept: what they counted goes with them, from days that stay.
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
async fn the_first_sites_found_by_the_index_are_the_first_of_all() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&folder.path().join("s.db")).await.unwrap();
    let mut dice = Dice(2);
    let entries: Vec<_> = (0..4000).map(|n| message(&mut dice, n, n as i64 / 800, 2000.0)).collect();
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
        let mut reader = Reader { conn: &mut tx, tenant: "t", filter: &filter };
        if let Some(candidates) = reader.candidates(top, 10).await.unwrap() {
            assert!(candidates.len() >= top && candidates.len() < 200, "{top}: {}", candidates.len());
            by_index += 1;
        }
        let found = reader.report().await.unwrap().sites;
        let found: Vec<_> = found.into_iter().map(|one| (one.domain, one.site.citations)).collect();
        assert_eq!(found, expected[..top.min(expected.len())], "{top}");
    }
    assert!((4..10).contains(&by_index), "both ways: {by_index}");
}

/// The plan of a query as one text.
async fn plan(store: &SqliteStore, sql: &str) -> String {
    let rows =
        sqlx::query(AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"))).fetch_all(&store.readers()).await.unwrap();
    rows.iter().map(|row| row.get::<String, _>("detail")).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn sums_are_found_by_their_keys() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&folder.path().join("s.db")).await.unwrap();
    for sql in [report::SLOTS, report::LEAST, report::CANDIDATES, report::FIRST_OF, report::FIRST, report::BY_SLOT] {
        let plan = plan(&store, sql).await;
        let scans = plan.lines().filter(|line| line.contains("SCAN") && !line.contains("SCAN c VIRTUAL TABLE"));
        assert_eq!(scans.count(), 0, "{sql}\n{plan}");
        assert!(
            plan.contains("SEARCH d USING INDEX") || plan.contains("SEARCH d USING COVERING INDEX"),
            "{sql}\n{plan}"
        );
    }
}

/// How the store wrote a record before there were sums.
async fn put_without_sums(store: &SqliteStore, entries: &[Entry]) {
    let rows: Vec<_> = entries.iter().map(|entry| Packed::new("sqlite", entry).unwrap()).collect();
    store
        .write(async |tx: &mut Transaction<'_, Sqlite>| {
            for row in rows {
                row::upsert(row, tx, true).await.map_err(engine)?;
            }
            Ok(())
        })
        .await
        .unwrap();
}

/// Writes with and without sums, in turns on two files, in batches as the writer makes them.
/// `cargo test --lib -- --ignored --nocapture writes_with_and_without_sums`
#[tokio::test]
#[ignore = "a measurement of minutes"]
async fn writes_with_and_without_sums() {
    let folder = tempfile::tempdir().unwrap();
    let with = SqliteStore::open(&folder.path().join("with.db")).await.unwrap();
    let without = SqliteStore::open(&folder.path().join("without.db")).await.unwrap();
    let mut dice = Dice(3);
    let mut n = 0;
    for (batch, batches) in [(1, 1000), (16, 500), (256, 100)] {
        let mut took = [Vec::new(), Vec::new()];
        for turn in 0..batches {
            let entries: Vec<_> = (n..n + batch).map(|n| message(&mut dice, n, n as i64 / 20_000, 30_000.0)).collect();
            n += batch;
            for which in [turn % 2, (turn + 1) % 2] {
                let began = Instant::now();
                if which == 0 {
                    with.put(&entries).await.unwrap();
                } else {
                    put_without_sums(&without, &entries).await;
                }
                took[which].push(began.elapsed().as_secs_f64());
            }
        }
        // The median: another process's hiccup is not ours.
        let [with, without] = took.map(|mut took| {
            took.sort_by(f64::total_cmp);
            batch as f64 / took[took.len() / 2]
        });
        println!("batches of {batch}: {with:.0}/s with sums, {without:.0}/s without: {:.2}", with / without);
    }
}

/// A million records (or CITETAP_RECORDS) over 30 days: plans, and the time of `stats` beside that of adding up records.
/// `cargo test --lib -- --ignored --nocapture stats_over_a_million_records`
#[tokio::test]
#[ignore = "takes minutes and gigabytes"]
async fn stats_over_a_million_records() {
    let records = std::env::var("CITETAP_RECORDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000_000_usize);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let mut dice = Dice(4);
    let began = Instant::now();
    for from in (0..records).step_by(1000) {
        let to = (from + 1000).min(records);
        let entries: Vec<_> = (from..to).map(|n| message(&mut dice, n, (n * 30 / records) as i64, 30_000.0)).collect();
        store.put(&entries).await.unwrap();
    }
    let size = std::fs::metadata(&path).unwrap().len() >> 20;
    println!("{records} records, {size} MiB, written in {:.0} s", began.elapsed().as_secs_f64());
    let sites = rows(&store, "SELECT count(*) FROM daily_site").await;
    println!("{} rows in daily, {sites} in daily_site", rows(&store, "SELECT count(*) FROM daily").await);
    for sql in [report::SLOTS, report::LEAST, report::CANDIDATES, report::FIRST_OF, report::BY_SLOT] {
        println!("{sql}\n  {}", plan(&store, sql).await.replace('\n', "\n  "));
    }
    let mut shown = Vec::new();
    for (name, filter) in [
        ("30 days, 10 sites", all()),
        ("30 days, 100 sites", StatsFilter { top: 100, ..all() }),
        ("7 days, 10 sites", StatsFilter { days: 20..27, ..all() }),
        ("one provider", StatsFilter { provider: Some("doubao".to_owned()), ..all() }),
        ("one site", StatsFilter { domain: Some("site-500.com".to_owned()), ..all() }),
        ("all sites, no index", StatsFilter { top: 10_000, by_day: false, ..all() }),
    ] {
        let took = time(3, async || drop(store.stats("t", &filter).await.unwrap())).await;
        println!("stats, {name}: {:.1} ms", took * 1000.0);
        shown.push(took);
    }
    let sums = "SELECT created_ms / 86400000, provider, count(*), sum(json_array_length(body, '$.record.citations')),
                sum(body ->> '$.record.stats.dedupCount') FROM record WHERE tenant = 't' GROUP BY 1, 2";
    let sites = "SELECT c.value ->> 'hostname' AS host, count(*) AS n, sum(c.value ->> 'cited')
                 FROM record, json_each(body, '$.record.citations') c WHERE tenant = 't' GROUP BY 1 ORDER BY n DESC LIMIT 10";
    let full = time(1, async || {
        for sql in [sums, sites] {
            sqlx::query(sql).fetch_all(&store.readers()).await.unwrap();
        }
    })
    .await;
    println!("adding up the records: {:.1} s, {:.0} times as long as the 30 days", full, full / shown[0]);
}

/// The fastest of so many.
async fn time(times: usize, work: impl AsyncFn()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..times {
        let began = Instant::now();
        work().await;
        best = best.min(began.elapsed().as_secs_f64());
    }
    best
}
