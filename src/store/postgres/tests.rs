mod bus;
mod outage;
mod plans;

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};
use url::Url;

use super::*;
use crate::store::{
    day_of,
    tests::{
        entry,
        server::{TTL, open, postgres_url},
    },
};

const DAY: i64 = 86_400_000;

async fn connect(url: &Url) -> PgConnection {
    PgConnection::connect(url.as_str()).await.unwrap()
}

async fn number(url: &Url, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(&mut connect(url).await).await.unwrap()
}

async fn execute(url: &Url, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut connect(url).await).await.unwrap();
}

/// The error of a refused open; it must contain a remedy and no address.
async fn open_error(url: &Url) -> String {
    let Err(StoreError::Engine(message)) = PostgresStore::open(&EngineUrl::new(url.clone()), TTL).await else {
        panic!("opened")
    };
    assert!(message.contains("; ") && !message.contains("127.0.0.1"), "{message}");
    message
}

const ROWS: &str = "SELECT (SELECT count(*) FROM citetap_record) + (SELECT count(*) FROM citetap_record_apart)";
const TABLES: &str = "SELECT count(*) FROM pg_class WHERE relnamespace = current_schema()::regnamespace
                      AND relkind = 'r' AND relname ~ '^citetap_(record|domain)_[0-9]+$'";

#[tokio::test]
async fn eight_concurrent_opens_create_one_schema() {
    let url = postgres_url().await;
    let opening: Vec<_> = (0..8)
        .map(|n| {
            let url = url.clone();
            tokio::spawn(async move {
                let store = open(&url).await;
                store.put(&[entry("t", "p", &n.to_string(), now_ms())]).await.unwrap();
                store.close().await;
            })
        })
        .collect();
    for one in opening {
        one.await.unwrap();
    }
    assert_eq!(number(&url, "SELECT count(*) FROM citetap_meta").await, 1);
    assert_eq!(number(&url, ROWS).await, 8);
    assert_eq!(number(&url, TABLES).await, 2, "one day, once");
}

#[tokio::test]
async fn key_is_unique_across_partitions_and_writers() {
    let url = postgres_url().await;
    let now = now_ms();
    let stores = [open(&url).await, open(&url).await];
    let writers: Vec<_> = stores
        .into_iter()
        .enumerate()
        .map(|(who, store)| {
            tokio::spawn(async move {
                for round in 0..30 {
                    // Another day in each round and for each writer, some without a partition.
                    let ms = [now, now - DAY, now - 3 * DAY, 5, now + DAY, now + 99 * DAY][(round + who * 2) % 6];
                    let mut one = entry("t", "p", "same", ms);
                    one.record.summary = Some(format!("{who} {round}"));
                    let mut other = entry("t", "q", "same", ms);
                    other.record.summary.clone_from(&one.record.summary);
                    store.put(&[one, other]).await.unwrap();
                    if round % 7 == 6 {
                        store.delete("t", "same", None).await.unwrap();
                    }
                }
                store
            })
        })
        .collect();
    let mut stores = Vec::new();
    for one in writers {
        stores.push(one.await.unwrap());
    }
    assert!(number(&url, ROWS).await <= 2);
    stores[0].put(&[entry("t", "p", "same", now), entry("t", "q", "same", 7)]).await.unwrap();
    assert_eq!(number(&url, ROWS).await, 2);
    let domains = "SELECT (SELECT count(*) FROM citetap_domain) + (SELECT count(*) FROM citetap_domain_apart)";
    assert_eq!(number(&url, domains).await, 4, "and its domains with it");
    assert_eq!(number(&url, "SELECT sum(messages)::bigint FROM citetap_daily").await, 2, "and what they add up to");
}

#[tokio::test]
async fn sweep_drops_expired_partitions() {
    let url = postgres_url().await;
    let store = open(&url).await;
    let now = now_ms();
    let entries: Vec<_> = (0..20)
        .map(|n| entry("t", "p", &n.to_string(), now - n % 10 * DAY))
        .chain([entry("t", "p", "old", 5)])
        .collect();
    store.put(&entries).await.unwrap();
    assert_eq!(number(&url, TABLES).await, 20);
    let midnight = day_of(now - 4 * DAY) * DAY;
    assert_eq!(store.sweep(midnight).await.unwrap(), 11);
    assert_eq!(number(&url, TABLES).await, 2 * (5 + 2), "five days are left, and two were made ahead");
    assert_eq!(number(&url, ROWS).await, 10);
    assert_eq!(number(&url, "SELECT count(*) FROM citetap_part").await, 7);
    assert!(store.get("t", "4", None).await.unwrap().is_some());
    assert!(store.get("t", "5", None).await.unwrap().is_none());
    assert_eq!(store.sweep(midnight).await.unwrap(), 0);
    // A table in use is not waited for; the next sweep drops it.
    let mut reader = connect(&url).await;
    let mut tx = reader.begin().await.unwrap();
    sqlx::query("SELECT * FROM citetap_record").fetch_all(&mut *tx).await.unwrap();
    assert_eq!(store.sweep(midnight + DAY).await.unwrap(), 2);
    assert_eq!(number(&url, "SELECT count(*) FROM citetap_part").await, 7);
    assert!(store.get("t", "4", None).await.unwrap().is_none(), "but it is gone for everybody");
    tx.commit().await.unwrap();
    store.sweep(midnight + DAY).await.unwrap();
    assert_eq!(number(&url, "SELECT count(*) FROM citetap_part").await, 6);
}

#[tokio::test]
async fn sweep_horizon_hides_part_of_a_partition() {
    let url = postgres_url().await;
    let store = open(&url).await;
    let day = day_of(now_ms() - 3 * DAY);
    let entries: Vec<_> = (0..4500_i64)
        .map(|n| {
            let mut one = entry("t", "p", &n.to_string(), day * DAY + n / 3);
            one.record.task_id = Some(if n < 9 { "early" } else { "late" }.to_owned());
            one
        })
        .collect();
    store.put(&entries).await.unwrap();
    let commit = |task: &str| Advance {
        tenant: "t".to_owned(),
        task: task.to_owned(),
        consumer: "c".to_owned(),
        last: None,
        sources: vec!["a".to_owned()],
        now_ms: 1,
    };
    for task in ["early", "late"] {
        assert!(matches!(store.advance(&commit(task)).await, Ok(AdvanceOutcome::Moved(_))));
    }
    let boundary = day * DAY + 1000;
    assert_eq!(store.sweep(boundary).await.unwrap(), 3000);
    assert_eq!(number(&url, ROWS).await, 4500, "not a row was deleted");

    assert_eq!(store.get("t", "2999", None).await.unwrap(), None);
    assert!(store.get("t", "3000", None).await.unwrap().is_some());
    let page = store.list("t", &Filter { until_ms: Some(boundary + 1), ..Filter::default() }).await.unwrap();
    assert_eq!(page.entries.len(), 3);
    let of_domain =
        Filter { domain: Some("example.com".to_owned()), until_ms: Some(boundary + 1), ..Filter::default() };
    assert_eq!(store.list("t", &of_domain).await.unwrap().entries.len(), 3);
    assert_eq!(store.task("t", "late", None, 1).await.unwrap().entries[0].created_ms, boundary);
    let day_filter = StatsFilter { days: day..day + 1, top: 1, ..StatsFilter::default() };
    assert_eq!(store.stats("t", &day_filter).await.unwrap().days[0].counts.messages, 1500);
    assert_eq!(store.delete("t", "2999", None).await.unwrap(), 0);
    assert_eq!(store.progress("t", "early", "c").await.unwrap(), None, "cursors go with their task");
    assert_eq!(store.advance(&commit("early")).await.unwrap(), AdvanceOutcome::NoTask);
    assert!(store.progress("t", "late", "c").await.unwrap().is_some());

    // A stream that began before the boundary and ends now is stored until the next sweep.
    store.put(&[entry("t", "p", "7", boundary - 1)]).await.unwrap();
    assert!(store.get("t", "7", None).await.unwrap().is_some());
    assert_eq!(number(&url, ROWS).await, 4500, "in the place of the hidden one");
    assert_eq!(store.stats("t", &day_filter).await.unwrap().days[0].counts.messages, 1501);
    assert_eq!(store.sweep(boundary - 5).await.unwrap(), 0, "the horizon does not go back");
    assert!(store.get("t", "2999", None).await.unwrap().is_none());
    assert_eq!(store.sweep(boundary).await.unwrap(), 1);
    assert_eq!(store.stats("t", &day_filter).await.unwrap().days[0].counts.messages, 1500);
}

#[tokio::test]
async fn concurrent_writers_create_a_partition_once() {
    let url = postgres_url().await;
    let tomorrow = now_ms() + DAY;
    let stores = [open(&url).await, open(&url).await, open(&url).await, open(&url).await];
    let writers: Vec<_> = stores
        .into_iter()
        .enumerate()
        .map(|(n, store)| {
            tokio::spawn(async move {
                for ms in [tomorrow, tomorrow + DAY, tomorrow - 9 * DAY] {
                    store.put(&[entry("t", "p", &format!("{n} {ms}"), ms)]).await.unwrap();
                    store.sweep(0).await.unwrap();
                }
            })
        })
        .collect();
    for one in writers {
        one.await.unwrap();
    }
    assert_eq!(number(&url, "SELECT count(*) FROM citetap_record").await, 12);
    assert_eq!(number(&url, "SELECT count(*) FROM citetap_part").await, 4, "today was made ahead");
}

/// Two partition widths at once, as when replicas with another `ttl` take over.
#[tokio::test]
async fn partitions_of_another_width_fit_in_between() {
    let url = postgres_url().await;
    let long =
        PostgresStore::open(&EngineUrl::new(url.clone()), Some(Duration::from_secs(365 * 86_400))).await.unwrap();
    let short = open(&url).await;
    let now = now_ms();
    for n in 0..20 {
        let store = if n % 2 == 0 { &short } else { &long };
        store.put(&[entry("t", "p", &n.to_string(), now - n * DAY)]).await.unwrap();
    }
    assert_eq!(number(&url, "SELECT count(*) FROM citetap_record").await, 20);
    let page = short.list("t", &Filter::default()).await.unwrap();
    assert_eq!(page.entries.len(), 20);
}

#[tokio::test]
async fn sweep_runs_on_one_replica_at_a_time() {
    let url = postgres_url().await;
    let store = open(&url).await;
    store.put(&[entry("t", "p", "1", 1)]).await.unwrap();
    let mut other = connect(&url).await;
    let schema = store.pool.known_schema().unwrap();
    let lock = sqlx::query("SELECT pg_advisory_lock($1, $2)").bind(schema.lock_class());
    lock.bind(schema::AdvisoryLock::Sweep.number()).execute(&mut other).await.unwrap();
    assert_eq!(store.sweep(9).await.unwrap(), 0);
    assert!(store.get("t", "1", None).await.unwrap().is_some());
    other.close().await.unwrap();
    assert_eq!(store.sweep(9).await.unwrap(), 1);
}

#[tokio::test]
async fn commit_is_synchronous_despite_server_default() {
    let mut url = postgres_url().await;
    url.query_pairs_mut().append_pair("options[synchronous_commit]", "off");
    let store = open(&url).await;
    let mut tx = store.begin_write(&[]).await.unwrap();
    let query = sqlx::query_scalar("SELECT current_setting('synchronous_commit')");
    let setting: String = query.fetch_one(&mut tx.conn).await.unwrap();
    assert_eq!(setting, "on");
}

#[tokio::test]
async fn read_only_server_serves_reads_only() {
    let url = postgres_url().await;
    open(&url).await.put(&[entry("t", "p", "1", now_ms())]).await.unwrap();
    let mut read_only = url.clone();
    read_only.query_pairs_mut().append_pair("options[default_transaction_read_only]", "on");
    let store = open(&read_only).await;
    let day = now_ms() - 2 * DAY;
    for result in [store.put(&[entry("t", "p", "2", day)]).await, store.ping().await] {
        let Err(StoreError::Engine(message)) = result else { panic!("{result:?}") };
        assert!(message.contains("takes no writes") && message.contains("25006"), "{message}");
    }
    assert!(store.get("t", "1", None).await.unwrap().is_some());
    let mut nothing = postgres_url().await;
    nothing.query_pairs_mut().append_pair("options[default_transaction_read_only]", "on");
    assert!(open_error(&nothing).await.contains("name the primary"));
}

#[tokio::test]
async fn open_error_names_cause_and_remedy() {
    let url = postgres_url().await;
    let mut missing = url.clone();
    missing.set_path("/nowhere-at-all");
    assert!(open_error(&missing).await.contains("no such database"));
    let mut stranger = url.clone();
    stranger.set_username("stranger").unwrap();
    stranger.set_password(Some("hunter2")).unwrap();
    let message = open_error(&stranger).await;
    assert!(message.contains("let this user in") && !message.contains("hunter2"), "{message}");
    let mut typo = url.clone();
    typo.query_pairs_mut().append_pair("pasword", "hunter2");
    assert!(open_error(&typo).await.contains("not known"));
    let mut nowhere = url.clone();
    nowhere.query_pairs_mut().append_pair("options[search_path]", "nowhere");
    assert!(open_error(&nowhere).await.contains("CREATE SCHEMA"));

    let schema = sqlx::query_scalar("SELECT current_schema()::text").fetch_one(&mut connect(&url).await).await;
    let schema: String = schema.unwrap();
    let user = format!("u{}", uuid::Uuid::new_v4().simple());
    execute(&url, &format!("CREATE ROLE {user} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {user}")).await;
    let mut poor = url.clone();
    poor.set_username(&user).unwrap();
    assert!(open_error(&poor).await.contains("GRANT"));

    open(&url).await.close().await;
    execute(&url, "UPDATE citetap_meta SET schema = 99").await;
    assert!(open_error(&url).await.contains("newer citetap (schema 99"));
}

#[tokio::test]
async fn tls_verify_full_checks_the_certificate() {
    let url = postgres_url().await;
    let authority = std::env::var("CITETAP_TEST_POSTGRES_CA").expect("run the tests by tests/engines");
    let mut known = url.clone();
    known.query_pairs_mut().append_pair("sslmode", "verify-full").append_pair("sslrootcert", &authority);
    let store = open(&known).await;
    let mut tx = store.begin_write(&[]).await.unwrap();
    let query = sqlx::query_scalar("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()");
    let encrypted: bool = query.fetch_one(&mut tx.conn).await.unwrap();
    assert!(encrypted);
    let mut unknown = url.clone();
    unknown.query_pairs_mut().append_pair("sslmode", "verify-full");
    assert!(open_error(&unknown).await.contains("certificate"));
}

#[tokio::test]
async fn value_under_another_key_is_not_served() {
    let url = postgres_url().await;
    let store = open(&url).await;
    let now = now_ms();
    store.put(&[entry("t", "p", "7", now), entry("t", "p", "8", now), entry("u", "p", "7", 1)]).await.unwrap();
    let swap = "UPDATE citetap_record SET body = (SELECT body FROM citetap_record WHERE id = '8') WHERE id = '7'";
    execute(&url, swap).await;
    assert_eq!(store.get("t", "7", None).await, Err(StoreError::Mismatch));
    assert!(matches!(store.list("t", &Filter::default()).await, Err(StoreError::Mismatch)));
    execute(&url, "UPDATE citetap_record SET body = (SELECT body FROM citetap_record_apart) WHERE id = '7'").await;
    assert_eq!(store.get("t", "7", None).await, Err(StoreError::Mismatch), "another tenant's");
    execute(&url, "UPDATE citetap_record SET body = replace(body, 'websearch', 'secret') WHERE id = '8'").await;
    let Err(StoreError::Engine(message)) = store.get("t", "8", None).await else { panic!("served") };
    assert!(!message.contains("secret"), "{message}");
}

#[tokio::test]
async fn long_ids_and_conversations_are_found() {
    let url = postgres_url().await;
    let store = open(&url).await;
    // Random, so that compression does not make long keys fit into an index.
    let noise: String = (0..300).map(|_| uuid::Uuid::new_v4().simple().to_string()).collect();
    for (n, length) in [399, 400, 401, 9000].into_iter().enumerate() {
        let text = &noise[..length];
        let mut one = entry("t", text, text, now_ms() - n as i64 * DAY);
        one.record.conversation_id = Some(text.to_owned());
        store.put(std::slice::from_ref(&one)).await.unwrap();
        store.put(std::slice::from_ref(&one)).await.unwrap();
        assert_eq!(store.get("t", text, Some(text)).await.unwrap(), Some(one));
        let filter = Filter { conversation: Some(text.to_owned()), ..Filter::default() };
        assert_eq!(store.list("t", &filter).await.unwrap().entries.len(), 1);
    }
    let mut filter = Filter { limit: 1, ..Filter::default() };
    let mut pages = 0;
    while let Some(next) = store.list("t", &filter).await.unwrap().next {
        filter.cursor = Some(next);
        pages += 1;
    }
    assert_eq!(pages, 3);
}

#[tokio::test]
async fn dropped_put_leaves_no_partial_write() {
    let url = postgres_url().await;
    let store = open(&url).await;
    let now = now_ms();
    let batch: Vec<_> = (0..100).map(|n| entry("t", "dropped", &n.to_string(), now - n * DAY / 20)).collect();
    for micros in [0, 500, 2000, 5000, 10_000, 20_000, 40_000] {
        let _ = tokio::time::timeout(Duration::from_micros(micros), store.put(&batch)).await;
        store.ping().await.unwrap();
        let found = store.list("t", &Filter { limit: 1000, ..Filter::default() }).await.unwrap().entries.len();
        assert!(found == 0 || found == 100, "{found}");
        let sum = number(&url, "SELECT coalesce(sum(messages), 0)::bigint FROM citetap_daily").await;
        assert_eq!(sum, found as i64);
    }
}
