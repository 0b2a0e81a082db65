//! Records in one SQLite file: write-ahead log, every commit synced, one writer, a few readers.

mod daily;
#[cfg(test)]
mod daily_tests;
mod error;
mod query;
mod report;
mod row;
mod schema;
mod tasks;
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
    daily::{Before, COUNTED},
    error::engine,
    report::Reader,
    row::read,
    schema::{FileId, file_id},
};
use super::{
    Entry, Filter, Fut, Page, RecordStore, Result, StatsFilter, StatsReport, Store, StoreError, StoreFut,
    packed::Packed,
    page::Pager,
    stats::Sums,
    sums,
    task::{Advance, Advanced, Progress},
};

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
    writer: Mutex<Writing>,
    readers: RwLock<SqlitePool>,
}

struct Writing {
    slot: Slot,
    /// The file that was opened. Another may be at its place since, or none.
    file: Option<FileId>,
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
        let writing = Writing { slot: Slot::Ready(writer), file: file_id(path).await };
        Ok(Self { path: path.to_owned(), writer: Mutex::new(writing), readers: RwLock::new(readers(path)) })
    }

    fn readers(&self) -> SqlitePool {
        self.readers.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// One write transaction. After any failure, and when the caller goes away, the connection is not used again: what a
    /// failed COMMIT or fsync left in its caches cannot be known.
    async fn write<T>(
        &self,
        work: impl AsyncFnOnce(&mut Transaction<'_, Sqlite>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut writing = self.writer.lock().await;
        let old = match std::mem::replace(&mut writing.slot, Slot::Empty) {
            Slot::Ready(conn) => Some(conn),
            Slot::Empty => None,
            Slot::Closed => {
                writing.slot = Slot::Closed;
                return Err(StoreError::Closed);
            }
        };
        // SQLite would go on in a file that was moved away or removed, and what it stores there is lost.
        let in_place = writing.file.is_some() && file_id(&self.path).await == writing.file;
        let mut conn = match old {
            Some(conn) if in_place => conn,
            old => {
                if let Some(old) = old {
                    let _ = old.close().await;
                }
                if !in_place {
                    writing.file = None;
                    self.begin_anew().await?;
                    writing.file = file_id(&self.path).await;
                }
                schema::connect_writer(&self.path).await.map_err(engine)?
            }
        };
        let done = transaction(&mut conn, work).await;
        if done.is_ok() {
            writing.slot = Slot::Ready(conn);
        } else {
            // Wait for the file to be closed, or the next connection could meet this one's lock.
            let _ = conn.close().await;
        }
        done
    }

    /// Takes the file that is at the path now, or makes one. Every connection to the one before is closed first: the two
    /// may share the name of their log.
    async fn begin_anew(&self) -> Result<(), StoreError> {
        self.readers().close().await;
        // Whoever reads this may not be the one to know paths.
        let unusable = |_| StoreError::Engine("sqlite: the file was replaced; `citetap check` tells more".to_owned());
        schema::prepare(&self.path).await.map_err(unusable)?;
        *self.readers.write().unwrap_or_else(PoisonError::into_inner) = readers(&self.path);
        tracing::warn!("another store file is at the path, and taken from now on");
        Ok(())
    }
}

fn readers(path: &Path) -> SqlitePool {
    SqlitePoolOptions::new()
        .max_connections(READERS)
        .acquire_timeout(READ_WAIT)
        .connect_lazy_with(schema::reader_options(path))
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

impl RecordStore for SqliteStore {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn put<'a>(&'a self, entries: &'a [Entry]) -> StoreFut<'a, ()> {
        Box::pin(async move {
            // Before the lock: making text of large records takes longer than writing it.
            let rows = entries.iter().map(|entry| Packed::new("sqlite", entry)).collect::<Result<Vec<_>, _>>()?;
            self.write(async |tx: &mut Transaction<'_, Sqlite>| {
                let mut before = Before::read(tx, &rows).await.map_err(engine)?;
                let mut sums = Sums::default();
                for row in rows {
                    let known = before.replace(&row, &mut sums);
                    row::upsert(row, tx, known).await.map_err(engine)?;
                }
                daily::apply(tx, &sums).await.map_err(engine)
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
            .map_err(engine)?;
            match row.map(|row| read(tenant, &row)).transpose()? {
                Some((entry, _)) if !entry.has_key(id, provider) => Err(StoreError::Mismatch),
                found => Ok(found.map(|(entry, _)| entry)),
            }
        })
    }

    fn list<'a>(&'a self, tenant: &'a str, filter: &'a Filter) -> StoreFut<'a, Page> {
        Box::pin(async move {
            let mut pager = Pager::new(filter);
            let mut query = query::list(tenant, filter, pager.wanted());
            let readers = self.readers();
            let mut rows = query.build().fetch(&readers);
            while let Some(row) = rows.try_next().await.map_err(engine)? {
                if pager.is_over() {
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
            let mut tx = self.readers().begin().await.map_err(engine)?;
            let report = sums::report(&mut Reader { conn: &mut tx, tenant, filter }, filter).await.map_err(engine)?;
            tx.commit().await.map_err(engine)?;
            Ok(report)
        })
    }

    fn delete<'a>(&'a self, tenant: &'a str, id: &'a str, provider: Option<&'a str>) -> StoreFut<'a, u64> {
        Box::pin(async move {
            self.write(async |tx: &mut Transaction<'_, Sqlite>| {
                let query = "tenant = ?1 AND id = ?2 AND (?3 IS NULL OR provider = ?3)";
                let query = format!("DELETE FROM record WHERE {query} RETURNING {COUNTED}");
                let query = sqlx::query(AssertSqlSafe(query)).bind(tenant).bind(id).bind(provider);
                daily::remove(tx, query).await.map_err(engine)
            })
            .await
        })
    }

    fn sweep(&self, before_ms: i64) -> StoreFut<'_, u64> {
        Box::pin(async move {
            let mut gone = 0;
            loop {
                let step = self
                    .write(async |tx: &mut Transaction<'_, Sqlite>| {
                        let query = "n IN (SELECT n FROM record WHERE created_ms < ?1 LIMIT ?2)";
                        let query = format!("DELETE FROM record WHERE {query} RETURNING {COUNTED}");
                        let query = sqlx::query(AssertSqlSafe(query)).bind(before_ms).bind(SWEEP_STEP);
                        daily::remove(tx, query).await.map_err(engine)
                    })
                    .await?;
                gone += step;
                if step < SWEEP_STEP.unsigned_abs() {
                    return Ok(gone);
                }
            }
        })
    }

    fn ping(&self) -> StoreFut<'_, ()> {
        Box::pin(async move {
            // The write first: it finds a file that was replaced, and those who read follow.
            self.write(async |tx: &mut Transaction<'_, Sqlite>| {
                let query = "INSERT INTO probe (one, n) VALUES (1, 1) ON CONFLICT (one) DO UPDATE SET n = n + 1";
                sqlx::query(query).execute(&mut **tx).await.map_err(engine).map(drop)
            })
            .await?;
            let query = sqlx::query("SELECT n FROM record LIMIT 1");
            query.fetch_optional(&self.readers()).await.map_err(engine).map(drop)
        })
    }

    fn close(&self) -> Fut<'_, ()> {
        Box::pin(async move {
            // The writer last: whoever closes last folds the log into the file, and readers may not.
            self.readers().close().await;
            let slot = std::mem::replace(&mut self.writer.lock().await.slot, Slot::Closed);
            if let Slot::Ready(conn) = slot {
                let _ = conn.close().await;
            }
        })
    }
}

impl Store for SqliteStore {
    fn progress<'a>(&'a self, tenant: &'a str, task: &'a str, consumer: &'a str) -> StoreFut<'a, Option<Progress>> {
        Box::pin(async move { tasks::progress(&self.readers(), tenant, task, consumer).await })
    }

    fn advance<'a>(&'a self, advance: &'a Advance) -> StoreFut<'a, Advanced> {
        Box::pin(
            async move { self.write(async |tx: &mut Transaction<'_, Sqlite>| tasks::advance(tx, advance).await).await },
        )
    }
}
