//! Every question walks indexes: without statistics, as on the first day, and over many days.

use sqlx::{Execute as _, Postgres, postgres::PgArguments};

use super::*;
use crate::store::Cursor;

/// The plan of a query as one text, as the store's own connections make it.
async fn plan(store: &PostgresStore, sql: &str, arguments: PgArguments) -> String {
    let mut reading = store.link.reading().await.unwrap();
    let query = sqlx::query_with(AssertSqlSafe(format!("EXPLAIN {sql}")), arguments);
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
        let plan = plan(&store, &sql, arguments).await;
        assert!(!plan.contains("Seq Scan on citetap_record") && !plan.contains("Seq Scan on citetap_domain"), "{plan}");
        // What is sorted at the end is a page; the rest comes in order, but for what shares a millisecond.
        let sorts = plan.lines().filter(|line| line.contains("Sort  (cost")).collect::<Vec<_>>();
        let whole = sorts.iter().filter(|line| !line.contains("Incremental")).count();
        assert!(whole <= 2, "{whole} sorts\n{sql}\n{plan}");
    }
}
