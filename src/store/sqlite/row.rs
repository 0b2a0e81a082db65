//! Converts entries to rows and back.

use sqlx::{Row as _, Sqlite, Transaction, sqlite::SqliteRow};

use super::error::engine_error;
use crate::{
    citation::bundle::task_id,
    store::{
        Entry, StoreError,
        encoded::{EncodedRecord, decode},
    },
};

/// Inserts or updates a record. `known` says that a record of this key exists.
pub(super) async fn upsert(
    row: EncodedRecord<'_>,
    tx: &mut Transaction<'_, Sqlite>,
    known: bool,
) -> Result<(), sqlx::Error> {
    let Entry { tenant, created_ms, record } = row.entry;
    let n: i64 = sqlx::query_scalar(
        "INSERT INTO record (tenant, provider, id, created_ms, conversation, body, search, task, tally)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
         ON CONFLICT (tenant, provider, id) DO UPDATE SET created_ms = excluded.created_ms,
         conversation = excluded.conversation, body = excluded.body, search = excluded.search, task = excluded.task,
         tally = excluded.tally
         RETURNING n",
    )
    .bind(tenant)
    .bind(&record.provider)
    .bind(&record.message_id)
    .bind(created_ms)
    .bind(&record.conversation_id)
    .bind(row.body)
    .bind(row.search)
    .bind(task_id(record).as_ref())
    .bind(row.aggregate_json)
    .fetch_one(&mut **tx)
    .await?;
    if known {
        sqlx::query("DELETE FROM record_domain WHERE record = ?1").bind(n).execute(&mut **tx).await?;
    }
    sqlx::query(
        "INSERT INTO record_domain (record, domain, tenant, created_ms) SELECT ?1, value, ?2, ?3 FROM json_each(?4)",
    )
    .bind(n)
    .bind(tenant)
    .bind(created_ms)
    // A JSON array: one statement for any number of domains.
    .bind(serde_json::to_string(&row.domains).unwrap_or_default())
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Decodes a row into an entry and its weight. Fails if the value was stored under another key.
pub(super) fn read(tenant: &str, row: &SqliteRow) -> Result<(Entry, usize), StoreError> {
    let created_ms = row.try_get("created_ms").map_err(engine_error)?;
    let key: (&str, &str) = (row.try_get("provider").map_err(engine_error)?, row.try_get("id").map_err(engine_error)?);
    let body: &str = row.try_get("body").map_err(engine_error)?;
    let entry = decode("sqlite", tenant, created_ms, body, |provider, id| key == (provider, id))?;
    Ok((entry, body.len()))
}
