//! An entry as a row, and back.

use serde::{Deserialize, Serialize};
use sqlx::{Row as _, Sqlite, Transaction, sqlite::SqliteRow};

use super::error::engine;
use crate::{
    citation::{bundle::task_id, record::Record},
    store::{Entry, StoreError, terms},
};

/// The value carries its key.
#[derive(Serialize)]
struct Body<'a> {
    tenant: &'a str,
    record: &'a Record,
}

#[derive(Deserialize)]
struct OwnedBody {
    tenant: String,
    record: Record,
}

pub(super) struct NewRow<'a> {
    entry: &'a Entry,
    body: String,
    search: String,
    /// A JSON array: one statement for any number of them.
    domains: String,
}

impl<'a> NewRow<'a> {
    pub(super) fn new(entry: &'a Entry) -> Result<Self, StoreError> {
        let json = |text: Result<String, serde_json::Error>| {
            text.map_err(|_| StoreError::Engine("sqlite: a record cannot be written as JSON".to_owned()))
        };
        Ok(Self {
            entry,
            body: json(serde_json::to_string(&Body { tenant: &entry.tenant, record: &entry.record }))?,
            search: terms::search_text(&entry.record),
            domains: json(serde_json::to_string(&terms::domains(&entry.record)))?,
        })
    }

    pub(super) async fn upsert(self, tx: &mut Transaction<'_, Sqlite>) -> Result<(), sqlx::Error> {
        let Entry { tenant, created_ms, record } = self.entry;
        let n: i64 = sqlx::query_scalar(
            "INSERT INTO record (tenant, provider, id, created_ms, conversation, body, search, task)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
             ON CONFLICT (tenant, provider, id) DO UPDATE SET created_ms = excluded.created_ms,
             conversation = excluded.conversation, body = excluded.body, search = excluded.search, task = excluded.task
             RETURNING n",
        )
        .bind(tenant)
        .bind(&record.provider)
        .bind(&record.message_id)
        .bind(created_ms)
        .bind(&record.conversation_id)
        .bind(self.body)
        .bind(self.search)
        .bind(task_id(record).as_ref())
        .fetch_one(&mut **tx)
        .await?;
        sqlx::query("DELETE FROM record_domain WHERE record = ?1").bind(n).execute(&mut **tx).await?;
        sqlx::query("INSERT INTO record_domain (record, domain, tenant, created_ms) SELECT ?1, value, ?2, ?3 FROM json_each(?4)")
            .bind(n)
            .bind(tenant)
            .bind(created_ms)
            .bind(self.domains)
            .execute(&mut **tx)
            .await?;
        Ok(())
    }
}

/// The entry in a row and its weight, or an error when the row's value was stored under another key.
pub(super) fn read(tenant: &str, row: &SqliteRow) -> Result<(Entry, usize), StoreError> {
    let created_ms = row.try_get("created_ms").map_err(engine)?;
    let provider: &str = row.try_get("provider").map_err(engine)?;
    let id: &str = row.try_get("id").map_err(engine)?;
    let body: &str = row.try_get("body").map_err(engine)?;
    // The parser's own message would quote the record.
    let stored: OwnedBody = serde_json::from_str(body)
        .map_err(|_| StoreError::Engine("sqlite: a stored record is not readable".to_owned()))?;
    if stored.tenant != tenant || stored.record.provider != provider || stored.record.message_id != id {
        return Err(StoreError::Mismatch);
    }
    Ok((Entry { tenant: stored.tenant, created_ms, record: stored.record }, body.len()))
}
