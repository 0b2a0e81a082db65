//! Records in one SQLite file: write-ahead log, every commit synced, one writer, a few readers.

mod error;
mod query;
mod row;
mod schema;
mod tasks;
#[cfg(test)]
mod tests;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use futures_util::TryStreamExt as _;
use sqlx::{
    Connection as _, Sqlite, SqliteConnection, Transaction,
    sqlite::{SqlitePool, SqlitePoolOptions},
};
use tokio::sync::Mutex;

use self::{
    error::engine,
    row::{NewRow, read},
};
use super::{
    Cursor, Entry, Filter, Fut, Page, Store, StoreError,
    page::Pager,
    task::{Advance, Advanced, Progress},
};
use crate::citation::bundle::task_id;

/// Reads that may run at once; further ones wait.
const READERS: u32 = 4;
/// How long a read waits for its turn.
const READ_WAIT: Duration = Duration::from_secs(5);
/// Records that one transaction of a sweep removes, so that writes get their turn in between.
const SWEEP_STEP: i64 = 500;

/// # Cancel safety
///
/// A call that is dropped half-way leaves nothing half-done: its transaction rolls back with its connection.
pub struct SqliteStore {
    path: PathBuf,
    writer: Mutex<Slot>,
    readers: SqlitePool,
}

enum Slot {
    Ready(SqliteConnection),
    /// In use, or lost to a failure: the next write opens a new one.
    Empty,
    Closed,
}

impl SqliteStore {
    /// Opens the file, or makes it. Refuses one that is damaged, newer than this program, or not ours.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        schema::prepare(path).await?;
        let writer = schema::connect_writer(path).await.map_err(|error| error::opening(path, &error))?;
        let readers = SqlitePoolOptions::new()
            .max_connections(READERS)
            .acquire_timeout(READ_WAIT)
            .connect_lazy_with(schema::reader_options(path));
        Ok(Self { path: path.to_owned(), writer: Mutex::new(Slot::Ready(writer)), readers })
    }

    /// One write transaction. After any failure, and when the caller goes away, the connection is not used again: what a
    /// failed COMMIT or fsync left in its caches cannot be known.
    async fn write<T>(
        &self,
        work: impl AsyncFnOnce(&mut Transaction<'_, Sqlite>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut slot = self.writer.lock().await;
        let mut conn = match std::mem::replace(&mut *slot, Slot::Empty) {
            Slot::Ready(conn) => conn,
            Slot::Empty => schema::connect_writer(&self.path).await.map_err(engine)?,
            Slot::Closed => {
                *slot = Slot::Closed;
                return Err(StoreError::Closed);
            }
        };
        let done = transaction(&mut conn, work).await;
        if done.is_ok() {
            *slot = Slot::Ready(conn);
        } else {
            // Wait for the file to be closed, or the next connection could meet this one's lock.
            let _ = conn.close().await;
        }
        done
    }
}

async fn transaction<T>(
    conn: &mut SqliteConnection,
    work: impl AsyncFnOnce(&mut Transaction<'_, Sqlite>) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    // The lock first: a transaction that starts as a reader cannot wait for it later.
    let mut tx = conn.begin_with("BEGIN IMMEDIATE").await.map_err(engine)?;
    let value = work(&mut tx).await?;
    tx.commit().await.map_err(engine)?;
    Ok(value)
}

impl Store for SqliteStore {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn put<'a>(&'a self, entries: &'a [Entry]) -> Fut<'a, Result<(), StoreError>> {
        Box::pin(async move {
            // Before the lock: making text of large records takes longer than writing it.
            let rows = entries.iter().map(NewRow::new).collect::<Result<Vec<_>, _>>()?;
            self.write(async |tx: &mut Transaction<'_, Sqlite>| {
                for row in rows {
                    row.upsert(tx).await.map_err(engine)?;
                }
                Ok(())
            })
            .await
        })
    }

    fn get<'a>(
        &'a self,
        tenant: &'a str,
        id: &'a str,
        provider: Option<&'a str>,
    ) -> Fut<'a, Result<Option<Entry>, StoreError>> {
        Box::pin(async move {
            let row = sqlx::query(
                "SELECT created_ms, provider, id, body FROM record
                 WHERE tenant = ?1 AND id = ?2 AND (?3 IS NULL OR provider = ?3)
                 ORDER BY created_ms DESC, provider LIMIT 1",
            )
            .bind(tenant)
            .bind(id)
            .bind(provider)
            .fetch_optional(&self.readers)
            .await
            .map_err(engine)?;
            let Some((entry, _)) = row.map(|row| read(tenant, &row)).transpose()? else {
                return Ok(None);
            };
            let asked =
                entry.record.message_id == id && provider.is_none_or(|provider| entry.record.provider == provider);
            if asked { Ok(Some(entry)) } else { Err(StoreError::Mismatch) }
        })
    }

    fn list<'a>(&'a self, tenant: &'a str, filter: &'a Filter) -> Fut<'a, Result<Page, StoreError>> {
        Box::pin(async move {
            let mut pager = Pager::new(filter);
            let mut query = query::list(tenant, filter, pager.wanted());
            let mut rows = query.build().fetch(&self.readers);
            while let Some(row) = rows.try_next().await.map_err(engine)? {
                if pager.is_over() {
                    break;
                }
                let (entry, weight) = read(tenant, &row)?;
                pager.push(entry, weight);
            }
            Ok(pager.finish())
        })
    }

    fn delete<'a>(
        &'a self,
        tenant: &'a str,
        id: &'a str,
        provider: Option<&'a str>,
    ) -> Fut<'a, Result<u64, StoreError>> {
        Box::pin(async move {
            self.write(async |tx: &mut Transaction<'_, Sqlite>| {
                let query = "DELETE FROM record WHERE tenant = ?1 AND id = ?2 AND (?3 IS NULL OR provider = ?3)";
                let query = sqlx::query(query).bind(tenant).bind(id).bind(provider);
                Ok(query.execute(&mut **tx).await.map_err(engine)?.rows_affected())
            })
            .await
        })
    }

    fn task<'a>(
        &'a self,
        tenant: &'a str,
        task: &'a str,
        after: Option<&'a Cursor>,
        limit: usize,
    ) -> Fut<'a, Result<Page, StoreError>> {
        Box::pin(async move {
            let mut pager = Pager::of(limit);
            let after = after.cloned().unwrap_or_else(tasks::start);
            let query = sqlx::query(tasks::OF_TASK).bind(tenant).bind(task);
            let query = query.bind(after.created_ms).bind(after.provider).bind(after.id);
            let mut rows = query.bind(i64::try_from(pager.wanted()).unwrap_or(i64::MAX)).fetch(&self.readers);
            while let Some(row) = rows.try_next().await.map_err(engine)? {
                if pager.is_over() {
                    break;
                }
                let (entry, weight) = read(tenant, &row)?;
                // As everywhere: never what was not asked for.
                if task_id(&entry.record) != task {
                    return Err(StoreError::Mismatch);
                }
                pager.push(entry, weight);
            }
            Ok(pager.finish())
        })
    }

    fn progress<'a>(
        &'a self,
        tenant: &'a str,
        task: &'a str,
        consumer: &'a str,
    ) -> Fut<'a, Result<Option<Progress>, StoreError>> {
        Box::pin(tasks::progress(&self.readers, tenant, task, consumer))
    }

    fn advance<'a>(&'a self, advance: &'a Advance) -> Fut<'a, Result<Advanced, StoreError>> {
        Box::pin(self.write(async |tx: &mut Transaction<'_, Sqlite>| tasks::advance(tx, advance).await))
    }

    fn sweep(&self, before_ms: i64) -> Fut<'_, Result<u64, StoreError>> {
        Box::pin(async move {
            let mut gone = 0;
            loop {
                let step = self
                    .write(async |tx: &mut Transaction<'_, Sqlite>| {
                        let query =
                            "DELETE FROM record WHERE n IN (SELECT n FROM record WHERE created_ms < ?1 LIMIT ?2)";
                        let query = sqlx::query(query).bind(before_ms).bind(SWEEP_STEP);
                        Ok(query.execute(&mut **tx).await.map_err(engine)?.rows_affected())
                    })
                    .await?;
                gone += step;
                if step < SWEEP_STEP.unsigned_abs() {
                    return Ok(gone);
                }
            }
        })
    }

    fn ping(&self) -> Fut<'_, Result<(), StoreError>> {
        Box::pin(async move {
            sqlx::query("SELECT n FROM record LIMIT 1").fetch_optional(&self.readers).await.map_err(engine)?;
            self.write(async |tx: &mut Transaction<'_, Sqlite>| {
                let query = "INSERT INTO probe (one, n) VALUES (1, 1) ON CONFLICT (one) DO UPDATE SET n = n + 1";
                sqlx::query(query).execute(&mut **tx).await.map_err(engine).map(drop)
            })
            .await
        })
    }

    fn close(&self) -> Fut<'_, ()> {
        Box::pin(async move {
            // The writer last: whoever closes last folds the log into the file, and readers may not.
            self.readers.close().await;
            let slot = std::mem::replace(&mut *self.writer.lock().await, Slot::Closed);
            if let Slot::Ready(conn) = slot {
                let _ = conn.close().await;
            }
        })
    }
}
