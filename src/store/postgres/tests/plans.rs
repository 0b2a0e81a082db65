//! Every question walks indexes: without statistics, as on the first day, and over many days.

use std::time::Instant;

use sqlx::{Execute as _, postgres::PgArguments};

use super::*;

/// The plan of a query as one text, as the store's own connections make it.
async fn plan(store: &PostgresStore, sql: &str, arguments: PgArguments, analyze: bool) -> String {
    let mut reading = store.link.reading().await.unwrap();
    let how = if analyze { "EXPLAIN (ANALYZE, BUFFERS)" } else { "EXPLAIN" };
    let query = sqlx::query_with(AssertSqlSafe(format!("{how} {sql}")), arguments);
    let rows = query.fetch_all(&mut reading.conn).await.unwrap();
    reading.done();
    rows.iter().map(|row| row.get::<String, _>(0)).collect::<Vec<_>>().join("\n")
}

/// Everything that reads or changes records, but the sums.
fn questions() -> Vec<(String, PgArguments)> {
    let text = || Some("x".to_owned());
    let cursor = || Cursor { created_ms: 5, provider: "p".to_owned(), id: "5".to_owned() };
    let mut all = Vec::new();
    for bits in 0..64 {
        let on = |bit: u32| bits & (1 << bit) != 0;
        let filter = Filter {
            conversation: on(0).then(text).flatten(),
            provider: on(1).then(text).flatten(),
            domain: on(2).then(text).flatten(),
            q: on(3).then(text).flatten(),
            since_ms: on(4).then_some(1),
            until_ms: on(4).then_some(9),
            limit: 9,
            cursor: on(5).then(cursor),
        };
        all.push(query::list("t", &filter, 10));
    }
    all.push(query::task("t", "x", None, 10));
    all.push(query::task("t", "x", Some(&cursor()), 10));
    all.into_iter()
        .map(|mut query| {
            let mut query = query.build();
            let arguments = query.take_arguments().unwrap().unwrap();
            (query.sql().as_str().to_owned(), arguments)
        })
        .collect()
}

#[tokio::test]
async fn every_list_and_task_walks_an_index() {
    let store = open(&postgres_url().await).await;
    let now = now_ms();
    let days: Vec<_> = (0..5).map(|n| entry("t", "p", &n.to_string(), now - n * DAY)).collect();
    store.put(&days).await.unwrap();
    let get =
        sqlx::query::<Postgres>(query::GET).bind("t").bind("1").bind(None::<String>).take_arguments().unwrap().unwrap();
    let mut all = questions();
    all.push((query::GET.to_owned(), get));
    for (sql, arguments) in all {
        let plan = plan(&store, &sql, arguments, false).await;
        assert!(!plan.contains("Seq Scan on citetap_record") && !plan.contains("Seq Scan on citetap_domain"), "{plan}");
        // What is sorted at the end is a page; the rest comes in order, but for what shares a millisecond.
        let sorts = plan.lines().filter(|line| line.contains("Sort  (cost")).collect::<Vec<_>>();
        let whole = sorts.iter().filter(|line| !line.contains("Incremental")).count();
        assert!(whole <= 2, "{whole} sorts\n{sql}\n{plan}");
    }
}

/// A million records (or CITETAP_RECORDS) over 30 days, in batches as the writer makes them: what writes and reads take.
/// `tests/engines cargo test --lib -- --ignored --nocapture a_million_records_over_thirty_days`
#[tokio::test]
#[ignore = "takes minutes and gigabytes"]
async fn a_million_records_over_thirty_days() {
    let records = std::env::var("CITETAP_RECORDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000_000_i64);
    let url = postgres_url().await;
    let store = open(&url).await;
    let now = now_ms();
    let message = |n: i64| {
        let mut one =
            entry(["t", "u"][(n % 2) as usize], "doubao", &n.to_string(), now - 29 * DAY + n * 29 * DAY / records);
        one.record.conversation_id = Some(format!("talk-{}", n / 10));
        one.record.citations[0].hostname = Some(format!("www.site-{}.com", n * n % 997));
        one
    };
    let steps = 10;
    for step in 0..steps {
        let (from, to) = (records * step / steps, records * (step + 1) / steps);
        let began = Instant::now();
        for first in (from..to).step_by(256) {
            let batch: Vec<_> = (first..(first + 256).min(to)).map(message).collect();
            store.put(&batch).await.unwrap();
        }
        let rate = (to - from) as f64 / began.elapsed().as_secs_f64();
        let ids: Vec<String> = (0..50).map(|n| (to * (n + 1) / 51).to_string()).collect();
        let began = Instant::now();
        for id in &ids {
            let tenant = if id.parse::<i64>().unwrap() % 2 == 0 { "t" } else { "u" };
            assert!(store.get(tenant, id, None).await.unwrap().is_some());
        }
        let get = began.elapsed().as_secs_f64() * 1e3 / 50.0;
        let began = Instant::now();
        for n in 0..50 {
            assert!(store.get("t", &format!("no-{n}"), None).await.unwrap().is_none());
        }
        let miss = began.elapsed().as_secs_f64() * 1e3 / 50.0;
        let mut took = Vec::new();
        for filter in [
            Filter::default(),
            Filter { conversation: Some(format!("talk-{}", to / 20)), ..Filter::default() },
            Filter { domain: Some("site-4.com".to_owned()), ..Filter::default() },
            Filter { until_ms: Some(now - 29 * DAY + to / 2 * 29 * DAY / records), ..Filter::default() },
        ] {
            let began = Instant::now();
            for _ in 0..20 {
                assert!(!store.list("t", &filter).await.unwrap().entries.is_empty());
            }
            took.push(format!("{:.2}", began.elapsed().as_secs_f64() * 1e3 / 20.0));
        }
        let one = message(to);
        let began = Instant::now();
        for _ in 0..20 {
            store.put(std::slice::from_ref(&one)).await.unwrap();
        }
        let put = began.elapsed().as_secs_f64() * 1e3 / 20.0;
        println!(
            "{to} records: {rate:.0}/s in batches of 256, put {put:.2} ms, get {get:.2} ms, none {miss:.2} ms, lists {} ms",
            took.join(" ")
        );
    }
    for (sql, arguments) in questions().into_iter().filter(|(sql, _)| !sql.contains("strpos")).take(5) {
        println!("{sql}\n{}", plan(&store, &sql, arguments, true).await);
    }
    let began = Instant::now();
    let gone = store.sweep(now - 20 * DAY - DAY / 3).await.unwrap();
    println!("swept {gone} in {:.2} s", began.elapsed().as_secs_f64());
}
