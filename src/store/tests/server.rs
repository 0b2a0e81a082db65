//! PostgreSQL server for the tests, started by `tests/engines`. Every test gets its own schema.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use url::Url;

use crate::{config::EngineUrl, store::PostgresStore};

/// Record lifetime in these tests.
pub(crate) const TTL: Option<Duration> = Some(Duration::from_secs(30 * 86_400));

/// URL of a new, empty schema.
pub(crate) async fn postgres_url() -> Url {
    let url = std::env::var("CITETAP_TEST_POSTGRES")
        .expect("CITETAP_TEST_POSTGRES names no server: run the tests by `tests/engines cargo nextest run`");
    let schema = format!("t{}", uuid::Uuid::new_v4().simple());
    let mut conn = PgConnection::connect(&url).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(format!("CREATE SCHEMA {schema}"))).execute(&mut conn).await.unwrap();
    conn.close().await.unwrap();
    let mut url = Url::parse(&url).unwrap();
    url.query_pairs_mut().append_pair("options[search_path]", &schema);
    url
}

pub(crate) async fn open(url: &Url) -> PostgresStore {
    PostgresStore::open(&EngineUrl::new(url.clone()), TTL).await.unwrap()
}

pub(crate) async fn postgres() -> PostgresStore {
    open(&postgres_url().await).await
}
