//! Read cursors of task consumers in SQLite.

use std::collections::HashSet;

use sqlx::{
    Row as _, Sqlite, Transaction,
    sqlite::{SqlitePool, SqliteRow},
};

use super::error::engine_error;
use crate::store::{
    StoreError,
    task::{Advance, AdvanceOutcome, CONSUMED_SOURCES_MAX, CONSUMERS_MAX, Position, Progress},
};

pub(super) async fn progress(
    readers: &SqlitePool,
    tenant: &str,
    task: &str,
    consumer: &str,
) -> Result<Option<Progress>, StoreError> {
    // One transaction, so that position and sources are consistent.
    let mut tx = readers.begin().await.map_err(engine_error)?;
    let query = "SELECT n, query, source, count, updated_ms FROM task_cursor
                 WHERE tenant = ?1 AND task = ?2 AND consumer = ?3";
    let row = sqlx::query(query).bind(tenant).bind(task).bind(consumer).fetch_optional(&mut *tx).await;
    let Some(row) = row.map_err(engine_error)? else { return Ok(None) };
    let n: i64 = row.try_get("n").map_err(engine_error)?;
    let query = sqlx::query_scalar("SELECT source FROM task_consumed WHERE cursor = ?1").bind(n);
    let consumed: Vec<String> = query.fetch_all(&mut *tx).await.map_err(engine_error)?;
    Ok(Some(Progress { position: position(&row)?, consumed: HashSet::from_iter(consumed) }))
}

/// Compares and changes in one transaction, also between processes: of two concurrent commits the second sees the
/// first.
pub(super) async fn advance(tx: &mut Transaction<'_, Sqlite>, advance: &Advance) -> Result<AdvanceOutcome, StoreError> {
    let Advance { tenant, task, consumer, .. } = advance;
    let query = "SELECT 1 FROM record WHERE tenant = ?1 AND task = ?2 LIMIT 1";
    if sqlx::query(query).bind(tenant).bind(task).fetch_optional(&mut **tx).await.map_err(engine_error)?.is_none() {
        return Ok(AdvanceOutcome::NoTask);
    }
    let query = "SELECT n, query, source, count, updated_ms FROM task_cursor
                 WHERE tenant = ?1 AND task = ?2 AND consumer = ?3";
    let known = sqlx::query(query).bind(tenant).bind(task).bind(consumer).fetch_optional(&mut **tx).await;
    let (n, from) = match known.map_err(engine_error)? {
        Some(row) => (row.try_get("n").map_err(engine_error)?, position(&row)?),
        None => {
            let query = "SELECT count(*) FROM task_cursor WHERE tenant = ?1 AND task = ?2";
            let others: i64 =
                sqlx::query_scalar(query).bind(tenant).bind(task).fetch_one(&mut **tx).await.map_err(engine_error)?;
            if usize::try_from(others).is_ok_and(|others| others >= CONSUMERS_MAX) {
                return Ok(AdvanceOutcome::TooManyConsumers);
            }
            let query = "INSERT INTO task_cursor (tenant, task, consumer, query, source, count, updated_ms)
                         VALUES (?1, ?2, ?3, '', '', 0, 0) RETURNING n";
            let n: i64 = sqlx::query_scalar(query)
                .bind(tenant)
                .bind(task)
                .bind(consumer)
                .fetch_one(&mut **tx)
                .await
                .map_err(engine_error)?;
            (n, Position::default())
        }
    };
    let sources = serde_json::to_string(&advance.sources)
        .map_err(|_| StoreError::Engine("sqlite: a cursor cannot be written as JSON".to_owned()))?;
    let query = "INSERT INTO task_consumed (cursor, source) SELECT ?1, value FROM json_each(?2) WHERE true
                 ON CONFLICT DO NOTHING RETURNING source";
    let new: Vec<String> =
        sqlx::query_scalar(query).bind(n).bind(sources).fetch_all(&mut **tx).await.map_err(engine_error)?;
    if new.is_empty() {
        return Ok(advance.without_new_sources(from));
    }
    let to = advance.next_position(&from, new.iter().map(String::as_str));
    sqlx::query("UPDATE task_cursor SET query = ?2, source = ?3, count = ?4, updated_ms = ?5 WHERE n = ?1")
        .bind(n)
        .bind(&to.query)
        .bind(&to.source)
        .bind(i64::try_from(to.count).unwrap_or(i64::MAX))
        .bind(to.updated_ms)
        .execute(&mut **tx)
        .await
        .map_err(engine_error)?;
    let query = "DELETE FROM task_consumed WHERE cursor = ?1 AND n <=
                 (SELECT n FROM task_consumed WHERE cursor = ?1 ORDER BY n DESC LIMIT 1 OFFSET ?2)";
    let cap = i64::try_from(CONSUMED_SOURCES_MAX).unwrap_or(i64::MAX);
    sqlx::query(query).bind(n).bind(cap).execute(&mut **tx).await.map_err(engine_error)?;
    Ok(AdvanceOutcome::Moved(to))
}

fn position(row: &SqliteRow) -> Result<Position, StoreError> {
    let count: i64 = row.try_get("count").map_err(engine_error)?;
    Ok(Position {
        query: row.try_get("query").map_err(engine_error)?,
        source: row.try_get("source").map_err(engine_error)?,
        count: u64::try_from(count).unwrap_or_default(),
        updated_ms: row.try_get("updated_ms").map_err(engine_error)?,
    })
}
