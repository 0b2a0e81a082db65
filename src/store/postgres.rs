//! Records in PostgreSQL, which several replicas share: every commit durable, days in tables of their own, one connection
//! that writes, a few that read, one that listens.

mod bus;
mod change;
mod daily;
mod error;
mod link;
mod parts;
mod query;
mod report;
mod schema;
mod sweep;
mod tasks;
#[cfg(test)]
pub(super) mod tests;
mod text;

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex as Short, PoisonError,
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
    change::Change,
    error::{Fault, said},
    link::{Idle, Link, Use},
    parts::{Part, Plan, now_ms},
    report::Reader,
    schema::Place,
};
use super::{
    Bus, Entry, Filter, Fut, Page, RecordStore, Result, StatsFilter, StatsReport, Store, StoreError, StoreFut,
    packed::Packed,
    page::Pager,
    sums,
    task::{Advance, Advanced, Progress},
};
use crate::config::EngineUrl;

/// A sweep that takes longer goes on with the next one.
const SWEEP_WAIT: Duration = Duration::from_secs(600);

/// # Cancel safety
///
/// A call that is dropped half-way leaves nothing half-done: its transaction rolls back with its connection.
pub struct PostgresStore {
    link: Arc<Link>,
    writer: Mutex<Slot>,
    plan: Plan,
    /// Which of the sums are ours.
    shard: i16,
    /// The days that were there when they were last looked at.
    days: Short<Vec<Part>>,
    /// The last try to make a day failed: told once.
    no_days: AtomicBool,
}

enum Slot {
    Ready(Idle, Place),
    /// In use, or lost to a failure: the next write opens a new one.
    Empty,
    Closed,
}

/// A write transaction. Unless it is committed, its connection is not used again.
struct Writing<'a> {
    slot: MutexGuard<'a, Slot>,
    conn: PgConnection,
    place: Place,
    shard: i16,
}

impl Writing<'_> {
    fn change(&mut self) -> Change<'_> {
        Change { conn: &mut self.conn, place: &self.place, shard: self.shard }
    }

    async fn commit<T>(mut self, value: T) -> Result<T, Fault> {
        sqlx::raw_sql("COMMIT").execute(&mut self.conn).await?;
        *self.slot = Slot::Ready(Idle::new(self.conn), self.place);
        Ok(value)
    }
}

impl PostgresStore {
    /// Makes the tables, or finds them. A server that cannot be reached is asked again when it is needed; one that refuses
    /// us is an error, and so are tables that are newer than this program.
    pub async fn open(url: &EngineUrl, ttl: Option<Duration>) -> Result<Self, StoreError> {
        let link = Arc::new(Link::new(url).map_err(Fault::refusal)?);
        let slot = match link.connect(Use::Write).await {
            Ok((conn, place)) => Slot::Ready(Idle::new(conn), place),
            Err(fault) if fault.is_absence() => {
                let error = StoreError::from(fault);
                tracing::warn!(%error, "the store cannot be reached, and is asked again");
                Slot::Empty
            }
            Err(fault) => return Err(fault.refusal()),
        };
        let random = uuid::Uuid::new_v4().as_bytes()[0];
        Ok(Self {
            link,
            writer: Mutex::new(slot),
            plan: Plan::new(ttl),
            shard: i16::from(random % daily::SHARDS),
            days: Short::default(),
            no_days: AtomicBool::new(false),
        })
    }

    /// Begins a write transaction, for records of these moments.
    async fn writing(&self, created_ms: &[i64]) -> Result<Writing<'_>, Fault> {
        let mut slot = self.writer.lock().await;
        let idle = match std::mem::replace(&mut *slot, Slot::Empty) {
            Slot::Ready(mut idle, place) => idle.is_there().await.then_some((idle.conn, place)),
            Slot::Empty => None,
            Slot::Closed => {
                *slot = Slot::Closed;
                return Err(StoreError::Closed.into());
            }
        };
        if let Some((mut conn, place)) = idle {
            match self.begin(&mut conn, &place, created_ms).await {
                Ok(()) => return Ok(Writing { slot, conn, place, shard: self.shard }),
                // Nothing was asked of it yet, so it can be another.
                Err(fault) if fault.is_absence() => {}
                Err(fault) => return Err(fault),
            }
        }
        let (mut conn, place) = self.link.connect(Use::Write).await?;
        self.begin(&mut conn, &place, created_ms).await?;
        Ok(Writing { slot, conn, place, shard: self.shard })
    }

    async fn begin(&self, conn: &mut PgConnection, place: &Place, created_ms: &[i64]) -> Result<(), Fault> {
        self.make_days(conn, place, created_ms).await?;
        sqlx::raw_sql("BEGIN").execute(conn).await?;
        Ok(())
    }

    /// Tables for the days of these moments. Without them records are stored all the same, apart.
    async fn make_days(&self, conn: &mut PgConnection, place: &Place, created_ms: &[i64]) -> Result<(), Fault> {
        let days = self.days.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let lacking = self.plan.lacks(&days, now_ms(), created_ms.iter().copied());
        if lacking.is_empty() {
            return Ok(());
        }
        match parts::make(conn, place, &self.plan, &lacking).await {
            Ok(days) => {
                *self.days.lock().unwrap_or_else(PoisonError::into_inner) = days;
                self.no_days.store(false, Relaxed);
                Ok(())
            }
            Err(fault) if fault.leaves_the_connection() => {
                if !self.no_days.swap(true, Relaxed) {
                    let error = StoreError::from(fault);
                    tracing::warn!(%error, "no table for the day: its records are kept apart, and swept row by row");
                }
                Ok(())
            }
            Err(fault) => Err(fault),
        }
    }
}

/// Of several entries with one key the last.
fn last_of_each<'a>(rows: Vec<Packed<'a>>) -> Vec<Packed<'a>> {
    let mut seen = HashSet::with_capacity(rows.len());
    let mut kept: Vec<_> = rows.into_iter().rev().filter(|row| seen.insert(row.key())).collect();
    kept.reverse();
    kept
}

impl RecordStore for PostgresStore {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn put<'a>(&'a self, entries: &'a [Entry]) -> StoreFut<'a, ()> {
        Box::pin(async move {
            // Before the lock: making text of large records takes longer than writing it.
            let rows = entries.iter().map(|entry| Packed::new("postgres", entry)).collect::<Result<Vec<_>, _>>()?;
            let rows = last_of_each(rows);
            let created_ms: Vec<i64> = rows.iter().map(|row| row.entry.created_ms).collect();
            let mut writing = self.writing(&created_ms).await?;
            writing.change().put(&rows).await?;
            Ok(writing.commit(()).await?)
        })
    }

    fn get<'a>(&'a self, tenant: &'a str, id: &'a str, provider: Option<&'a str>) -> StoreFut<'a, Option<Entry>> {
        Box::pin(async move {
            let query =
                sqlx::query(query::GET).bind(text::key(tenant)).bind(text::key(id)).bind(provider.map(text::key));
            let row = self.link.read(async |conn| Ok(query.fetch_optional(conn).await?)).await?;
            match row.map(|row| query::read(tenant, &row)).transpose()?.flatten() {
                Some((entry, _)) if !entry.has_key(id, provider) => Err(StoreError::Mismatch),
                found => Ok(found.map(|(entry, _)| entry)),
            }
        })
    }

    fn list<'a>(&'a self, tenant: &'a str, filter: &'a Filter) -> StoreFut<'a, Page> {
        Box::pin(async move {
            let mut pager = Pager::new(filter);
            let mut query = query::list(tenant, filter, pager.wanted());
            for row in self.link.read(async |conn| Ok(query.build().fetch_all(conn).await?)).await? {
                if pager.is_over() {
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
            let report = self.link.read(async |conn| {
                let mut tx = conn.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
                let mut report = sums::report(&mut Reader { conn: &mut tx, tenant, filter }, filter).await?;
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
            let mut writing = self.writing(&[]).await?;
            let gone = writing.change().delete(tenant, id, provider).await?;
            Ok(writing.commit(gone).await?)
        })
    }

    /// Also makes the days that come.
    fn sweep(&self, before_ms: i64) -> StoreFut<'_, u64> {
        Box::pin(async move {
            // Its own connection: it may wait for a lock, and writes do not wait for it.
            let (mut conn, place) = self.link.connect(Use::Write).await?;
            let swept = async {
                sweep::prepare_days(&mut conn, &place, &self.plan).await?;
                sweep::sweep(&mut conn, &place, before_ms).await
            };
            let swept = timeout(SWEEP_WAIT, swept).await.unwrap_or(Err(Fault::Silent(SWEEP_WAIT)));
            let _ = timeout(Duration::from_secs(1), conn.close()).await;
            Ok(swept?)
        })
    }

    fn ping(&self) -> StoreFut<'_, ()> {
        Box::pin(async move {
            let mut writing = self.writing(&[]).await?;
            let query = "INSERT INTO citetap_probe AS p (one, n) VALUES (1, 1)
                         ON CONFLICT (one) DO UPDATE SET n = p.n + 1";
            sqlx::query(query).execute(&mut writing.conn).await.map_err(Fault::from)?;
            writing.commit(()).await?;
            let query = sqlx::query("SELECT one FROM citetap_meta");
            let there = self.link.read(async |conn| Ok(query.fetch_optional(conn).await?)).await?;
            there.map(drop).ok_or_else(|| said("a row of our own is missing"))
        })
    }

    fn bus(&self) -> Option<Arc<dyn Bus>> {
        Some(Arc::new(PostgresBus { link: Arc::clone(&self.link) }))
    }

    fn close(&self) -> Fut<'_, ()> {
        Box::pin(async move {
            self.link.close().await;
            let slot = std::mem::replace(&mut *self.writer.lock().await, Slot::Closed);
            if let Slot::Ready(idle, _) = slot {
                let _ = timeout(Duration::from_secs(1), idle.conn.close()).await;
            }
        })
    }
}

impl Store for PostgresStore {
    fn progress<'a>(&'a self, tenant: &'a str, task: &'a str, consumer: &'a str) -> StoreFut<'a, Option<Progress>> {
        Box::pin(async move { self.link.read(async |conn| tasks::progress(conn, tenant, task, consumer).await).await })
    }

    fn advance<'a>(&'a self, advance: &'a Advance) -> StoreFut<'a, Advanced> {
        Box::pin(async move {
            let mut writing = self.writing(&[]).await?;
            let advanced = tasks::advance(&mut writing.conn, &writing.place, advance).await?;
            Ok(writing.commit(advanced).await?)
        })
    }
}
