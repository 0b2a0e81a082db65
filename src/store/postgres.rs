//! PostgreSQL engine, shared by replicas. Records are partitioned by creation time. One connection writes, a few read,
//! one listens.

mod bus;
mod change;
mod cursors;
mod daily;
mod error;
mod partitions;
mod pool;
mod query;
mod report;
mod schema;
mod sweep;
#[cfg(test)]
pub(super) mod tests;
mod text;

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex as SyncMutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use sqlx::{Connection as _, PgConnection};
use tokio::{
    sync::{Mutex, MutexGuard},
    time::timeout,
};

use self::{
    bus::PostgresBus,
    change::RecordChange,
    error::{PostgresError, engine_error},
    partitions::{Partition, PartitionPlan, now_ms},
    pool::{Access, IdleConn, Pool},
    report::ReportReader,
    schema::SchemaId,
};
use super::{
    Bus, Entry, Filter, Fut, Page, RecordStore, Result, StatsFilter, StatsReport, Store, StoreError, StoreFut,
    encoded::EncodedRecord,
    page::Pager,
    sql_report,
    task::{Advance, AdvanceOutcome, Progress},
};
use crate::config::EngineUrl;

/// A sweep that takes longer is cut off and continued by the next one.
const SWEEP_TIMEOUT: Duration = Duration::from_secs(600);

/// Records in PostgreSQL.
///
/// # Cancel safety
///
/// Dropping a call half-way changes nothing: its transaction rolls back when the connection closes.
pub struct PostgresStore {
    pool: Arc<Pool>,
    writer: Mutex<ConnSlot>,
    plan: PartitionPlan,
    /// The shard of the daily aggregates that this replica updates.
    shard: i16,
    /// The partitions as last read.
    partitions: SyncMutex<Vec<Partition>>,
    /// The last attempt to create a partition failed; logged once.
    partition_failed: AtomicBool,
}

enum ConnSlot {
    Ready(IdleConn, SchemaId),
    /// In use, or lost to a failure: the next write opens a new connection.
    Empty,
    Closed,
}

/// A write transaction. Unless it is committed, its connection is dropped.
struct WriteTransaction<'a> {
    slot: MutexGuard<'a, ConnSlot>,
    conn: PgConnection,
    schema: SchemaId,
    shard: i16,
}

impl WriteTransaction<'_> {
    fn change(&mut self) -> RecordChange<'_> {
        RecordChange { conn: &mut self.conn, schema: &self.schema, shard: self.shard }
    }

    async fn commit<T>(mut self, value: T) -> Result<T, PostgresError> {
        sqlx::raw_sql("COMMIT").execute(&mut self.conn).await?;
        *self.slot = ConnSlot::Ready(IdleConn::new(self.conn), self.schema);
        Ok(value)
    }
}

impl PostgresStore {
    /// Opens the schema, creating its tables if needed. An unreachable server is not an error; one that refuses the
    /// connection is, and so are tables newer than this program.
    pub async fn open(url: &EngineUrl, ttl: Option<Duration>) -> Result<Self, StoreError> {
        let pool = Arc::new(Pool::new(url).map_err(PostgresError::into_open_error)?);
        let slot = match pool.connect(Access::Write).await {
            Ok((conn, schema)) => ConnSlot::Ready(IdleConn::new(conn), schema),
            Err(error) if error.is_unreachable() => {
                let error = StoreError::from(error);
                tracing::warn!(%error, "store cannot be reached; it is retried when it is needed");
                ConnSlot::Empty
            }
            Err(error) => return Err(error.into_open_error()),
        };
        let random = uuid::Uuid::new_v4().as_bytes()[0];
        Ok(Self {
            pool,
            writer: Mutex::new(slot),
            plan: PartitionPlan::new(ttl),
            shard: i16::from(random % daily::SHARD_COUNT),
            partitions: SyncMutex::default(),
            partition_failed: AtomicBool::new(false),
        })
    }

    /// Begins a write transaction for records created at these times.
    async fn begin_write(&self, created_ms: &[i64]) -> Result<WriteTransaction<'_>, PostgresError> {
        let mut slot = self.writer.lock().await;
        let idle = match std::mem::replace(&mut *slot, ConnSlot::Empty) {
            ConnSlot::Ready(mut idle, schema) => idle.is_alive().await.then_some((idle.conn, schema)),
            ConnSlot::Empty => None,
            ConnSlot::Closed => {
                *slot = ConnSlot::Closed;
                return Err(StoreError::Closed.into());
            }
        };
        if let Some((mut conn, schema)) = idle {
            match self.begin(&mut conn, &schema, created_ms).await {
                Ok(()) => return Ok(WriteTransaction { slot, conn, schema, shard: self.shard }),
                // Nothing was sent on it yet, so it is safe to use a new connection.
                Err(error) if error.is_unreachable() => {}
                Err(error) => return Err(error),
            }
        }
        let (mut conn, schema) = self.pool.connect(Access::Write).await?;
        self.begin(&mut conn, &schema, created_ms).await?;
        Ok(WriteTransaction { slot, conn, schema, shard: self.shard })
    }

    async fn begin(&self, conn: &mut PgConnection, schema: &SchemaId, created_ms: &[i64]) -> Result<(), PostgresError> {
        self.ensure_partitions(conn, schema, created_ms).await?;
        sqlx::raw_sql("BEGIN").execute(conn).await?;
        Ok(())
    }

    /// Creates the missing partitions for these times. On failure records go to the overflow tables instead.
    async fn ensure_partitions(
        &self,
        conn: &mut PgConnection,
        schema: &SchemaId,
        created_ms: &[i64],
    ) -> Result<(), PostgresError> {
        let known = self.partitions.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let missing = self.plan.missing(&known, now_ms(), created_ms.iter().copied());
        if missing.is_empty() {
            return Ok(());
        }
        match partitions::create(conn, schema, &self.plan, &missing).await {
            Ok(known) => {
                *self.partitions.lock().unwrap_or_else(PoisonError::into_inner) = known;
                self.partition_failed.store(false, Relaxed);
                Ok(())
            }
            Err(error) if error.connection_survives() => {
                if !self.partition_failed.swap(true, Relaxed) {
                    let error = StoreError::from(error);
                    tracing::warn!(%error, "cannot create the day's partition: its records go to the overflow table and expire row by row");
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// Keeps the last of several entries with one key.
fn last_per_key<'a>(rows: Vec<EncodedRecord<'a>>) -> Vec<EncodedRecord<'a>> {
    let mut seen = HashSet::with_capacity(rows.len());
    let mut latest: Vec<_> = rows.into_iter().rev().filter(|row| seen.insert(row.key())).collect();
    latest.reverse();
    latest
}

impl RecordStore for PostgresStore {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn put<'a>(&'a self, entries: &'a [Entry]) -> StoreFut<'a, ()> {
        Box::pin(async move {
            // Encode before taking the lock: serializing large records takes longer than writing them.
            let rows =
                entries.iter().map(|entry| EncodedRecord::new("postgres", entry)).collect::<Result<Vec<_>, _>>()?;
            let rows = last_per_key(rows);
            let created_ms: Vec<i64> = rows.iter().map(|row| row.entry.created_ms).collect();
            let mut tx = self.begin_write(&created_ms).await?;
            tx.change().put(&rows).await?;
            Ok(tx.commit(()).await?)
        })
    }

    fn get<'a>(&'a self, tenant: &'a str, id: &'a str, provider: Option<&'a str>) -> StoreFut<'a, Option<Entry>> {
        Box::pin(async move {
            let query =
                sqlx::query(query::GET).bind(text::key(tenant)).bind(text::key(id)).bind(provider.map(text::key));
            let row = self.pool.read(async |conn| Ok(query.fetch_optional(conn).await?)).await?;
            match row.map(|row| query::read(tenant, &row)).transpose()?.flatten() {
                Some((entry, _)) if !entry.has_key(id, provider) => Err(StoreError::Mismatch),
                found => Ok(found.map(|(entry, _)| entry)),
            }
        })
    }

    fn list<'a>(&'a self, tenant: &'a str, filter: &'a Filter) -> StoreFut<'a, Page> {
        Box::pin(async move {
            let mut pager = Pager::new(filter);
            let mut query = query::list(tenant, filter, pager.fetch_limit());
            for row in self.pool.read(async |conn| Ok(query.build().fetch_all(conn).await?)).await? {
                if pager.close_if_full() {
                    break;
                }
                let Some((entry, weight)) = query::read(tenant, &row)? else { break };
                filter.check_task(&entry)?;
                pager.push(entry, weight);
            }
            Ok(pager.finish())
        })
    }

    fn stats<'a>(&'a self, tenant: &'a str, filter: &'a StatsFilter) -> StoreFut<'a, StatsReport> {
        Box::pin(async move {
            let report = self.pool.read(async |conn| {
                let mut tx = conn.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
                let mut report =
                    sql_report::report(&mut ReportReader { conn: &mut tx, tenant, filter }, filter).await?;
                for day in &mut report.days {
                    day.provider = text::unescape(std::mem::take(&mut day.provider));
                }
                tx.commit().await?;
                Ok(report)
            });
            report.await
        })
    }

    fn delete<'a>(&'a self, tenant: &'a str, id: &'a str, provider: Option<&'a str>) -> StoreFut<'a, u64> {
        Box::pin(async move {
            let mut tx = self.begin_write(&[]).await?;
            let deleted = tx.change().delete(tenant, id, provider).await?;
            Ok(tx.commit(deleted).await?)
        })
    }

    /// Also creates the upcoming partitions.
    fn sweep(&self, before_ms: i64) -> StoreFut<'_, u64> {
        Box::pin(async move {
            // On its own connection: a sweep may wait for a lock, and writes must not wait for the sweep.
            let (mut conn, schema) = self.pool.connect(Access::Write).await?;
            let swept = async {
                sweep::create_upcoming_partitions(&mut conn, &schema, &self.plan).await?;
                sweep::sweep(&mut conn, &schema, before_ms).await
            };
            let swept = timeout(SWEEP_TIMEOUT, swept).await.unwrap_or(Err(PostgresError::Timeout(SWEEP_TIMEOUT)));
            let _ = timeout(Duration::from_secs(1), conn.close()).await;
            Ok(swept?)
        })
    }

    fn ping(&self) -> StoreFut<'_, ()> {
        Box::pin(async move {
            let mut tx = self.begin_write(&[]).await?;
            let query = "INSERT INTO citetap_probe AS p (one, n) VALUES (1, 1)
                         ON CONFLICT (one) DO UPDATE SET n = p.n + 1";
            sqlx::query(query).execute(&mut tx.conn).await.map_err(PostgresError::from)?;
            tx.commit(()).await?;
            let query = sqlx::query("SELECT one FROM citetap_meta");
            let there = self.pool.read(async |conn| Ok(query.fetch_optional(conn).await?)).await?;
            there.map(drop).ok_or_else(|| engine_error("a row of our own is missing"))
        })
    }

    fn bus(&self) -> Option<Arc<dyn Bus>> {
        Some(Arc::new(PostgresBus { pool: Arc::clone(&self.pool) }))
    }

    fn close(&self) -> Fut<'_, ()> {
        Box::pin(async move {
            self.pool.close().await;
            let slot = std::mem::replace(&mut *self.writer.lock().await, ConnSlot::Closed);
            if let ConnSlot::Ready(idle, _) = slot {
                let _ = timeout(Duration::from_secs(1), idle.conn.close()).await;
            }
        })
    }
}

impl Store for PostgresStore {
    fn progress<'a>(&'a self, tenant: &'a str, task: &'a str, consumer: &'a str) -> StoreFut<'a, Option<Progress>> {
        Box::pin(
            async move { self.pool.read(async |conn| cursors::progress(conn, tenant, task, consumer).await).await },
        )
    }

    fn advance<'a>(&'a self, advance: &'a Advance) -> StoreFut<'a, AdvanceOutcome> {
        Box::pin(async move {
            let mut tx = self.begin_write(&[]).await?;
            let advanced = cursors::advance(&mut tx.conn, &tx.schema, advance).await?;
            Ok(tx.commit(advanced).await?)
        })
    }
}
