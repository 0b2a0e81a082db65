//! Query plans: every query uses indexes, also without statistics and over many partitions.

use sqlx::{Execute as _, Postgres, postgres::PgArguments};

use super::*;
use crate::store::Cursor;

/// The plan of a query as text, made on a connection of the store.
async fn plan(store: &PostgresStore, sql: &str, arguments: PgArguments) -> String {
    let mut read_conn = store.pool.acquire_read().await.unwrap();
    let query = sqlx::query_with(AssertSqlSafe(format!("EXPLAIN {sql}")), arguments);
    let rows = query.fetch_all(&mut read_conn.conn).await.unwrap();
    read_conn.release();
    rows.iter().map(|row| row.get::<String, _>(0)).collect::<Vec<_>>().join("\n")
}

/// All variants of the list query.
fn list_queries() -> Vec<(String, PgArguments)> {
    let text = || Some("x".to_owned());
    let cursor = || Cursor { created_ms: 5, provider: "p".to_owned(), id: "5".to_owned() };
    let mut all = Vec::new();
    for bits in 0..64 {
        let on = |bit: u32| bits & (1 << bit) != 0;
        let filter = Filter {
            task: None,
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
    for cursor in [None, Some(cursor())] {
        all.push(query::list("t", &Filter { task: text(), cursor, ..Filter::default() }, 10));
    }
    all.into_iter()
        .map(|mut query| {
            let mut query = query.build();
            let arguments = query.take_arguments().unwrap().unwrap();
            (query.sql().as_str().to_owned(), arguments)
        })
        .collect()
}

#[tokio::test]
async fn every_list_query_uses_an_index() {
    let store = open(&postgres_url().await).await;
    let now = now_ms();
    let days: Vec<_> = (0..5).map(|n| entry("t", "p", &n.to_string(), now - n * DAY)).collect();
    store.put(&days).await.unwrap();
    let get =
        sqlx::query::<Postgres>(query::GET).bind("t").bind("1").bind(None::<String>).take_arguments().unwrap().unwrap();
    let mut all = list_queries();
    all.push((query::GET.to_owned(), get));
    for (sql, arguments) in all {
        let plan = plan(&store, &sql, arguments).await;
        assert!(!plan.contains("Seq Scan on citetap_record") && !plan.contains("Seq Scan on citetap_domain"), "{plan}");
        // A page may be sorted at the end; the rest must come in order, except within one millisecond.
        let sorts = plan.lines().filter(|line| line.contains("Sort  (cost")).collect::<Vec<_>>();
        let whole = sorts.iter().filter(|line| !line.contains("Incremental")).count();
        assert!(whole <= 2, "{whole} sorts\n{sql}\n{plan}");
    }
}
