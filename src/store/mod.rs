//! Where records are kept: the traits of a store, the writer in front of it, and four engines.
//!
//! # How to write an engine
//!
//! 1. Implement [`RecordStore`]: `put`, `get`, `list`, `delete`, `sweep` and `ping`, besides `name` and `close`. `packed` makes
//!    a record into the text, the search terms and the sums to store; `wanted` tests an entry against a filter;
//!    `Filter::position` is the order of a list; `page` fills a page. Give an error's code, never its text: it may quote
//!    a record.
//! 2. Wrap it in [`WithProgress`], which keeps the cursors of tasks as records of a reserved tenant and changes them under
//!    a lock of this process. So it is right for an engine that one process uses. An engine that several replicas share
//!    implements [`Store`] itself: `advance` must compare and change in one transaction of the engine, and cursors go with
//!    the last record of their task. Such an engine also has a [`Bus`].
//! 3. Name it in `config::StoreUrl`, open it in [`open`], and add a line to the macro in `tests.rs`: the conformance suite
//!    then runs over it. `tests/toy.rs` is the smallest engine that passes.
//!
//! `stats` reads the records of the period, page by page. Override it where the engine can keep sums by day, as the other
//! engines do (`stats::Sums`, `sums`). Everything else that has a default is right for every engine.

pub mod bus;
pub mod memory;
pub mod postgres;
pub mod redis;
pub mod sqlite;
pub mod task;
pub mod writer;

mod cursor;
mod packed;
mod page;
mod progress;
mod sql;
mod stats;
mod sums;
mod terms;
#[cfg(test)]
mod tests;
mod wanted;

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use crate::{
    citation::{bundle::task_id, record::Record},
    config::StoreUrl,
};
use task::{Advance, Advanced, Progress};

pub use self::redis::RedisStore;
pub use bus::{Bus, Ear};
pub use memory::MemoryStore;
pub use postgres::PostgresStore;
pub use progress::WithProgress;
pub use sqlite::SqliteStore;
pub use stats::{Counts, DayStats, STATS_DAYS_MAX, STATS_TOP_MAX, Site, SiteStats, StatsFilter, StatsReport, day_of};
pub use writer::{Writer, WriterStats};

/// Entries on a page when the filter names no limit.
pub const PAGE_DEFAULT: usize = 50;
/// Most entries on a page, whatever the filter says.
pub const PAGE_MAX: usize = 1000;

pub type Result<T, E = StoreError> = std::result::Result<T, E>;
pub type Fut<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
pub type StoreFut<'a, T> = Fut<'a, Result<T>>;

/// A record as stored, with the tenant that it belongs to. The key is (tenant, provider, messageId).
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub tenant: String,
    /// Milliseconds since the epoch; orders lists.
    pub created_ms: i64,
    pub record: Record,
}

impl Entry {
    /// Whether a call that names this id, and this provider if any, means this entry.
    fn has_key(&self, id: &str, provider: Option<&str>) -> bool {
        self.record.message_id == id && provider.is_none_or(|provider| self.record.provider == provider)
    }
}

/// Which records a list call wants: newest first, or oldest first where it names a task. Absent fields do not filter.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// The records of this task (see [`task_id`](crate::citation::bundle::task_id)), oldest first.
    pub task: Option<String>,
    pub conversation: Option<String>,
    pub provider: Option<String>,
    /// Exact hostname of a citation, or a parent domain of it (`example.com` finds `www.example.com`).
    pub domain: Option<String>,
    /// Case-insensitive substring of a title, an excerpt, a query or the summary.
    pub q: Option<String>,
    /// Inclusive, milliseconds.
    pub since_ms: Option<i64>,
    /// Exclusive, milliseconds.
    pub until_ms: Option<i64>,
    /// 0 means [`PAGE_DEFAULT`]; more than [`PAGE_MAX`] means that.
    pub limit: usize,
    pub cursor: Option<Cursor>,
}

impl Filter {
    /// Sort key of an entry in the order of the list. No two entries of a tenant have the same.
    pub fn position<'a>(&self, created_ms: i64, provider: &'a str, id: &'a str) -> (i64, &'a str, &'a str) {
        // The complement orders the other way and cannot overflow.
        (if self.task.is_some() { created_ms } else { !created_ms }, provider, id)
    }

    /// Refuses an entry that was found under a task which is not its own: never serve what was not asked for.
    fn check_task(&self, entry: &Entry) -> Result<()> {
        match &self.task {
            Some(task) if task_id(&entry.record) != *task => Err(StoreError::Mismatch),
            _ => Ok(()),
        }
    }
}

/// The last entry of the page before: a list goes on strictly after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    pub created_ms: i64,
    pub provider: String,
    pub id: String,
}

/// May hold fewer entries than the limit and still have a `next`: large records end a page early.
#[derive(Debug)]
pub struct Page {
    pub entries: Vec<Entry>,
    /// Present when there is more.
    pub next: Option<Cursor>,
}

/// What an engine implements. `put` is one transaction: all or nothing, durable when it returns. One that answers
/// [`StoreError::Volatile`] has put all, and the engine may forget it in a crash.
pub trait RecordStore: Send + Sync + 'static {
    /// `sqlite`, `memory`, …: a metric label.
    fn name(&self) -> &'static str;
    /// Stores each entry in place of the one with its key. Of several entries with one key the last is stored.
    fn put<'a>(&'a self, entries: &'a [Entry]) -> StoreFut<'a, ()>;
    /// Without a provider: the tenant's newest record of that id.
    fn get<'a>(&'a self, tenant: &'a str, id: &'a str, provider: Option<&'a str>) -> StoreFut<'a, Option<Entry>>;
    fn list<'a>(&'a self, tenant: &'a str, filter: &'a Filter) -> StoreFut<'a, Page>;
    /// Returns how many records went.
    fn delete<'a>(&'a self, tenant: &'a str, id: &'a str, provider: Option<&'a str>) -> StoreFut<'a, u64>;
    /// Removes what was created before `before_ms`; returns how many.
    fn sweep(&self, before_ms: i64) -> StoreFut<'_, u64>;
    /// Can it read and write right now?
    fn ping(&self) -> StoreFut<'_, ()>;
    /// Flushes and closes: every later call answers [`StoreError::Closed`].
    fn close(&self) -> Fut<'_, ()>;

    /// The records of a task, oldest first. The limit is as a filter's.
    fn task<'a>(
        &'a self,
        tenant: &'a str,
        task: &'a str,
        after: Option<&'a Cursor>,
        limit: usize,
    ) -> StoreFut<'a, Page> {
        Box::pin(async move {
            let filter = Filter { task: Some(task.to_owned()), cursor: after.cloned(), limit, ..Filter::default() };
            self.list(tenant, &filter).await
        })
    }
    /// Sums of the tenant's records as they are now: what is replaced, deleted or swept counts no more. The default reads
    /// all records of the period.
    fn stats<'a>(&'a self, tenant: &'a str, filter: &'a StatsFilter) -> StoreFut<'a, StatsReport> {
        Box::pin(async move { stats::of_records(self, tenant, filter).await })
    }
    /// Where replicas that share this engine talk. `None`: nobody shares it.
    fn bus(&self) -> Option<Arc<dyn Bus>> {
        None
    }
    /// What the operator should know about how the engine is set up, if there is something.
    fn remark(&self) -> Option<String> {
        None
    }
}

/// What the server uses: records, and how far the consumers of their tasks have read. [`WithProgress`] makes one of a
/// [`RecordStore`].
pub trait Store: RecordStore {
    /// `None`: this consumer has committed nothing.
    fn progress<'a>(&'a self, tenant: &'a str, task: &'a str, consumer: &'a str) -> StoreFut<'a, Option<Progress>>;
    /// One transaction, which compares and changes; durable when it returns.
    fn advance<'a>(&'a self, advance: &'a Advance) -> StoreFut<'a, Advanced>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreError {
    /// The engine said no; the text has no user data.
    Engine(String),
    /// What was read is not what was asked for: never served.
    Mismatch,
    /// Done, but it is not known to be durable.
    Volatile,
    /// There is no record any more that could be changed.
    Gone,
    /// The writer's queue is full.
    Full,
    /// The writer has stopped, or the engine was closed.
    Closed,
}

/// Opens the engine that the configuration names, ready to read and write. `ttl` is what a record lives, for engines that
/// end it themselves. A server that cannot be reached is no error: it is tried again when it is needed. One that answers
/// and refuses us is.
pub async fn open(url: &StoreUrl, ttl: Option<Duration>) -> Result<Arc<dyn Store>> {
    Ok(match url {
        StoreUrl::Memory => Arc::new(MemoryStore::new()),
        StoreUrl::Sqlite(path) => Arc::new(SqliteStore::open(path).await?),
        StoreUrl::Postgres(url) => Arc::new(PostgresStore::open(url, ttl).await?),
        StoreUrl::Redis(url) => Arc::new(RedisStore::open(url, ttl).await?),
    })
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine(what) => write!(f, "store: {what}"),
            Self::Mismatch => f.write_str("store: a record does not carry the key it was stored under"),
            Self::Volatile => f.write_str("store: a crash of the engine can lose what it was given"),
            Self::Gone => f.write_str("store: the record is gone"),
            Self::Full => f.write_str("store: the write queue is full"),
            Self::Closed => f.write_str("store: closed"),
        }
    }
}

impl std::error::Error for StoreError {}
