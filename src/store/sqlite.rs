//! SQLite engine: one file with a write-ahead log, every commit synced, one writer and a few readers.

mod cursors;
mod daily;
#[cfg(test)]
mod daily_tests;
mod error;
mod query;
mod report;
mod row;
mod schema;
#[cfg(test)]
mod tests;

use std::{
    path::{Path, PathBuf},
    sync::{PoisonError, RwLock},
    time::Duration,
};

use futures_util::TryStreamExt as _;
use sqlx::{
    AssertSqlSafe, Connection as _, Sqlite, SqliteConnection, Transaction,
    sqlite::{SqlitePool, SqlitePoolOptions},
};
use tokio::sync::Mutex;

use self::{
    daily::{COUNTED_COLUMNS, PreviousAggregates},
    error::engine_error,
    report::ReportReader,
    row::read,
    schema::{FileId, file_id},
};
use super::{
    Entry, Filter, Fut, Page, RecordStore, Result, StatsFilter, StatsReport, Store, StoreError, StoreFut,
    encoded::EncodedRecord,
    page::Pager,
    sql_report,
    stats::DailyAggregates,
    task::{Advance, AdvanceOutcome, Progress},
};

/// Concurrent reads; further ones wait.
const READERS: u32 = 4;
/// How long a read waits for a connection.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Records deleted per transaction of a sweep, so that writes run in between.
const SWEEP_BATCH: i64 = 500;

/// Records in one SQLite file.
///
/// # Cancel safety
///
/// Dropping a call half-way changes nothing: its transaction rolls back when the connection closes.
pub struct SqliteStore {
    path: PathBuf,
    writer: Mutex<WriterState>,
    readers: RwLock<SqlitePool>,
}

struct WriterState {
    slot: ConnSlot,
    /// Identity of the opened file; the path may name another file by now, or none.
    file: Option<FileId>,
}

enum ConnSlot {
    Ready(SqliteConnection),
    /// In use, or lost to a failure: the next write opens a new connection.
    Empty,
    Closed,
}

impl SqliteStore {
    /// Opens or creates the file. Refuses a file that is damaged, newer than this program, or not ours.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        schema::prepare(path).await?;
        let writer = schema::connect_writer(path).await.map_err(|error| error::open_error(path, &error))?;
        let state = WriterState { slot: ConnSlot::Ready(writer), file: file_id(path).await };
        Ok(Self { path: path.to_owned(), writer: Mutex::new(state), readers: RwLock::new(readers(path)) })
    }

    fn readers(&self) -> SqlitePool {
        self.readers.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs one write transaction. After an error or cancellation the connection is discarded: the state of its caches
    /// after a failed COMMIT or fsync is unknown.
    async fn write<T>(
        &self,
        work: impl AsyncFnOnce(&mut Transaction<'_, Sqlite>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut state = self.writer.lock().await;
        let old = match std::mem::replace(&mut state.slot, ConnSlot::Empty) {
            ConnSlot::Ready(conn) => Some(conn),
            ConnSlot::Empty => None,
            ConnSlot::Closed => {
                state.slot = ConnSlot::Closed;
                return Err(StoreError::Closed);
            }
        };
        // SQLite keeps writing to a file that was moved or removed, where the data would be lost.
        let in_place = state.file.is_some() && file_id(&self.path).await == state.file;
        let mut conn = match old {
            Some(conn) if in_place => conn,
            old => {
                if let Some(old) = old {
                    let _ = old.close().await;
                }
                if !in_place {
                    state.file = None;
                    self.reopen_file().await?;
                    state.file = file_id(&self.path).await;
                }
                schema::connect_writer(&self.path).await.map_err(engine_error)?
            }
        };
        let done = transaction(&mut conn, work).await;
        if done.is_ok() {
            state.slot = ConnSlot::Ready(conn);
        } else {
            // Wait until the file is closed, or the next connection could run into this one's lock.
            let _ = conn.close().await;
        }
        done
    }

    /// Opens the file now at the path, or creates it. Closes all connections to the previous file first, because both
    /// may use the same log name.
    async fn reopen_file(&self) -> Result<(), StoreError> {
        self.readers().close().await;
        // The message can reach API clients, which must not see paths.
        let unusable = |_| StoreError::Engine("sqlite: the file was replaced; `citetap check` tells more".to_owned());
        schema::prepare(&self.path).await.map_err(unusable)?;
        *self.readers.write().unwrap_or_else(PoisonError::into_inner) = readers(&self.path);
        tracing::warn!("the store file was replaced; using the new one");
        Ok(())
    }
}

fn readers(path: &Path) -> SqlitePool {
    SqlitePoolOptions::new()
        .max_connections(READERS)
        .acquire_timeout(READ_TIMEOUT)
        .connect_lazy_with(schema::reader_options(path))
}

async fn transaction<T>(
    conn: &mut SqliteConnection,
    work: impl AsyncFnOnce(&mut Transaction<'_, Sqlite>) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    // Take the write lock first: a transaction that starts as a reader cannot wait for it later.
    let mut tx = conn.begin_with("BEGIN IMMEDIATE").await.map_err(engine_error)?;
    let value = work(&mut tx).await?;
    tx.commit().await.map_err(engine_error)?;
    Ok(value)
}

impl RecordStore for SqliteStore {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn put<'a>(&'a self, entries: &'a [Entry]) -> StoreFut<'a, ()> {
        Box::pin(async move {
            // Encode before taking the lock: serializing large records takes longer than writing them.
            let rows =
                entries.iter().map(|entry| EncodedRecord::new("sqlite", entry)).collect::<Result<Vec<_>, _>>()?;
            self.write(async |tx: &mut Transaction<'_, Sqlite>| {
                let mut previous = PreviousAggregates::read(tx, &rows).await.map_err(engine_error)?;
                let mut aggregates = DailyAggregates::default();
                for row in rows {
                    let known = previous.replace(&row, &mut aggregates);
                    row::upsert(row, tx, known).await.map_err(engine_error)?;
                }
                daily::apply(tx, &aggregates).await.map_err(engine_error)
            })
            .await
        })
    }

    fn get<'a>(&'a self, tenant: &'a str, id: &'a str, provider: Option<&'a str>) -> StoreFut<'a, Option<Entry>> {
        Box::pin(async move {
            let row = sqlx::query(
                "SELECT created_ms, provider, id, body FROM record
                 WHERE tenant = ?1 AND id = ?2 AND (?3 IS NULL OR provider = ?3)
                 ORDER BY created_ms DESC, provider LIMIT 1",
            )
            .bind(tenant)
            .bind(id)
            .bind(provider)
            .fetch_optional(&self.readers())
            .await
            .map_err(engine_error)?;
            match row.map(|row| read(tenant, &row)).transpose()? {
                Some((entry, _)) if !entry.has_key(id, provider) => Err(StoreError::Mismatch),
                found => Ok(found.map(|(entry, _)| entry)),
            }
        })
    }

    fn list<'a>(&'a self, tenant: &'a str, filter: &'a Filter) -> StoreFut<'a, Page> {
        Box::pin(async move {
            let mut pager = Pager::new(filter);
            let mut query = query::list(tenant, filter, pager.fetch_limit());
            let readers = self.readers();
            let mut rows = query.build().fetch(&readers);
            while let Some(row) = rows.try_next().await.map_err(engine_error)? {
                if pager.close_if_full() {
                    break;
                }
                let (entry, weight) = read(tenant, &row)?;
                filter.check_task(&entry)?;
                pager.push(entry, weight);
            }
            Ok(pager.finish())
        })
    }

    fn stats<'a>(&'a self, tenant: &'a str, filter: &'a StatsFilter) -> StoreFut<'a, StatsReport> {
        Box::pin(async move {
            let mut tx = self.readers().begin().await.map_err(engine_error)?;
            let report = sql_report::report(&mut ReportReader { conn: &mut tx, tenant, filter }, filter)
                .await
                .map_err(engine_error)?;
            tx.commit().await.map_err(engine_error)?;
            Ok(report)
        })
    }

    fn delete<'a>(&'a self, tenant: &'a str, id: &'a str, provider: Option<&'a str>) -> StoreFut<'a, u64> {
        Box::pin(async move {
            self.write(async |tx: &mut Transaction<'_, Sqlite>| {
                let query = "tenant = ?1 AND id = ?2 AND (?3 IS NULL OR provider = ?3)";
                let query = format!("DELETE FROM record WHERE {query} RETURNING {COUNTED_COLUMNS}");
                let query = sqlx::query(AssertSqlSafe(query)).bind(tenant).bind(id).bind(provider);
                daily::remove(tx, query).await.map_err(engine_error)
            })
            .await
        })
    }

    fn sweep(&self, before_ms: i64) -> StoreFut<'_, u64> {
        Box::pin(async move {
            let mut deleted = 0;
            loop {
                let batch_size = self
                    .write(async |tx: &mut Transaction<'_, Sqlite>| {
                        let query = "n IN (SELECT n FROM record WHERE created_ms < ?1 LIMIT ?2)";
                        let query = format!("DELETE FROM record WHERE {query} RETURNING {COUNTED_COLUMNS}");
                        let query = sqlx::query(AssertSqlSafe(query)).bind(before_ms).bind(SWEEP_BATCH);
                        daily::remove(tx, query).await.map_err(engine_error)
                    })
                    .await?;
                deleted += batch_size;
                if batch_size < SWEEP_BATCH.unsigned_abs() {
                    return Ok(deleted);
                }
            }
        })
    }

    fn ping(&self) -> StoreFut<'_, ()> {
        Box::pin(async move {
            // Write first: the write detects a replaced file and reopens it for the readers too.
            self.write(async |tx: &mut Transaction<'_, Sqlite>| {
                let query = "INSERT INTO probe (one, n) VALUES (1, 1) ON CONFLICT (one) DO UPDATE SET n = n + 1";
                sqlx::query(query).execute(&mut **tx).await.map_err(engine_error).map(drop)
            })
            .await?;
            let query = sqlx::query("SELECT n FROM record LIMIT 1");
            query.fetch_optional(&self.readers()).await.map_err(engine_error).map(drop)
        })
    }

    fn close(&self) -> Fut<'_, ()> {
        Box::pin(async move {
            // Close the writer last: the last connection to close checkpoints the log, and readers may not.
            self.readers().close().await;
            let slot = std::mem::replace(&mut self.writer.lock().await.slot, ConnSlot::Closed);
            if let ConnSlot::Ready(conn) = slot {
                let _ = conn.close().await;
            }
        })
    }
}

impl Store for SqliteStore {
    fn progress<'a>(&'a self, tenant: &'a str, task: &'a str, consumer: &'a str) -> StoreFut<'a, Option<Progress>> {
        Box::pin(async move { cursors::progress(&self.readers(), tenant, task, consumer).await })
    }

    fn advance<'a>(&'a self, advance: &'a Advance) -> StoreFut<'a, AdvanceOutcome> {
        Box::pin(async move {
            self.write(async |tx: &mut Transaction<'_, Sqlite>| cursors::advance(tx, advance).await).await
        })
    }
}
