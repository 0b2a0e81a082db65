//! Record storage: the engine traits, the writer task in front of them, and four engines. `relay` writes through
//! [`Writer`], `api` reads through [`Store`]. No error text may quote a record.
//!
//! # How to write an engine
//!
//! 1. Implement [`RecordStore`]: `put`, `get`, `list`, `delete`, `sweep` and `ping`, besides `name` and `close`.
//!    `encoded` turns a record into its stored text, its search terms and its aggregate; `filter_match` tests an entry
//!    against a filter; `Filter::position` is the sort key of a list; `page` fills a page. Report an engine's error
//!    code, never its text, which may quote a record.
//! 2. Wrap it in [`WithProgress`], which stores task cursors as records of a reserved tenant and changes them under a
//!    process-local lock. That is correct for an engine used by one process. An engine shared by replicas implements
//!    [`Store`] itself: `advance` must compare and change in one engine transaction, and a task's cursors are deleted
//!    with its last record. Such an engine also provides a [`Bus`].
//! 3. Add a variant to `config::StoreUrl`, open it in [`open`], and add a line to the macro in `tests.rs`, which runs
//!    the conformance suite over it. `tests/minimal.rs` is the smallest engine that passes.
//!
//! The default `stats` reads every record of the period, page by page. Override it where the engine maintains daily
//! aggregates, as the bundled engines do (`stats::DailyAggregates`, `sql_report`). Every other default is correct for
//! every engine.

pub mod bus;
pub mod memory;
pub mod postgres;
pub mod redis;
pub mod sqlite;
pub mod task;
pub mod writer;

mod cursor;
mod encoded;
mod filter_match;
mod page;
mod progress;
mod sql_list;
mod sql_report;
mod stats;
mod terms;
#[cfg(test)]
mod tests;

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use crate::{
    citation::{bundle::task_id, record::Record},
    config::StoreUrl,
};
use task::{Advance, AdvanceOutcome, Progress};

pub use self::redis::RedisStore;
pub use bus::{Bus, Subscription};
pub use memory::MemoryStore;
pub use postgres::PostgresStore;
pub use progress::WithProgress;
pub use sqlite::SqliteStore;
pub use stats::{
    Counts, DayStats, STATS_DAYS_MAX, STATS_TOP_MAX, SiteCounts, SiteStats, StatsFilter, StatsReport, day_of,
};
pub use writer::{Writer, WriterStats};

/// Page size when the filter sets no limit.
pub const PAGE_DEFAULT: usize = 50;
/// Largest page size; a higher limit is reduced to this.
pub const PAGE_MAX: usize = 1000;

pub type Result<T, E = StoreError> = std::result::Result<T, E>;
pub type Fut<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
pub type StoreFut<'a, T> = Fut<'a, Result<T>>;

/// A stored record and its tenant. The key is (tenant, provider, message id).
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub tenant: String,
    /// Milliseconds since the Unix epoch; lists are ordered by it.
    pub created_ms: i64,
    pub record: Record,
}

impl Entry {
    /// True if the entry has this message id and, if one is given, this provider.
    fn has_key(&self, id: &str, provider: Option<&str>) -> bool {
        self.record.message_id == id && provider.is_none_or(|provider| self.record.provider == provider)
    }
}

/// Selects the records of a list call: newest first, or oldest first if `task` is set. `None` fields do not filter.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Records of this task only (see [`task_id`](crate::citation::bundle::task_id)), oldest first.
    pub task: Option<String>,
    pub conversation: Option<String>,
    pub provider: Option<String>,
    /// Hostname of a citation, or a parent domain of it (`example.com` finds `www.example.com`).
    pub domain: Option<String>,
    /// Case-insensitive substring of a title, an excerpt, a query or the summary.
    pub q: Option<String>,
    /// Lower bound in milliseconds, inclusive.
    pub since_ms: Option<i64>,
    /// Upper bound in milliseconds, exclusive.
    pub until_ms: Option<i64>,
    /// Page size. 0 means [`PAGE_DEFAULT`]; values above [`PAGE_MAX`] are reduced to it.
    pub limit: usize,
    pub cursor: Option<Cursor>,
}

impl Filter {
    /// Sort key of an entry in this list; unique within a tenant.
    pub fn position<'a>(&self, created_ms: i64, provider: &'a str, id: &'a str) -> (i64, &'a str, &'a str) {
        // The bitwise complement reverses the order and, unlike negation, cannot overflow.
        (if self.task.is_some() { created_ms } else { !created_ms }, provider, id)
    }

    /// Rejects an entry whose record belongs to another task than the filter's (a corrupted index must not leak
    /// records).
    fn check_task(&self, entry: &Entry) -> Result<()> {
        match &self.task {
            Some(task) if task_id(&entry.record) != *task => Err(StoreError::Mismatch),
            _ => Ok(()),
        }
    }
}

/// Position of a page's last entry; the next page starts strictly after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    pub created_ms: i64,
    pub provider: String,
    pub id: String,
}

/// One page of a list. Large records can end it before the limit, so check `next` rather than the length.
#[derive(Debug)]
pub struct Page {
    pub entries: Vec<Entry>,
    /// Set if there are more entries.
    pub next: Option<Cursor>,
}

/// The interface of a storage engine. `put` is one transaction: all or nothing, and durable when it returns `Ok`.
/// [`StoreError::Volatile`] means that everything was written but may be lost if the engine crashes.
pub trait RecordStore: Send + Sync + 'static {
    /// Engine name for metric labels: `sqlite`, `memory`, ….
    fn name(&self) -> &'static str;
    /// Inserts or replaces each entry by key. If entries share a key, the last one wins.
    fn put<'a>(&'a self, entries: &'a [Entry]) -> StoreFut<'a, ()>;
    /// Looks up a record. Without a provider, returns the tenant's newest record of that id.
    fn get<'a>(&'a self, tenant: &'a str, id: &'a str, provider: Option<&'a str>) -> StoreFut<'a, Option<Entry>>;
    fn list<'a>(&'a self, tenant: &'a str, filter: &'a Filter) -> StoreFut<'a, Page>;
    /// Deletes matching records and returns how many were deleted.
    fn delete<'a>(&'a self, tenant: &'a str, id: &'a str, provider: Option<&'a str>) -> StoreFut<'a, u64>;
    /// Deletes records created before `before_ms` and returns how many were deleted.
    fn sweep(&self, before_ms: i64) -> StoreFut<'_, u64>;
    /// Checks that the engine can read and write now.
    fn ping(&self) -> StoreFut<'_, ()>;
    /// Flushes and closes. Every later call returns [`StoreError::Closed`].
    fn close(&self) -> Fut<'_, ()>;

    /// Lists the records of a task, oldest first. `limit` has the meaning of [`Filter::limit`].
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
    /// Statistics over the tenant's current records; replaced, deleted and swept records are not counted. The default
    /// implementation reads all records of the period.
    fn stats<'a>(&'a self, tenant: &'a str, filter: &'a StatsFilter) -> StoreFut<'a, StatsReport> {
        Box::pin(async move { stats::from_records(self, tenant, filter).await })
    }
    /// Message bus between the replicas that share this engine; `None` if it is not shared.
    fn bus(&self) -> Option<Arc<dyn Bus>> {
        None
    }
    /// A problem in the engine's setup that the operator should fix, if there is one.
    fn setup_warning(&self) -> Option<String> {
        None
    }
}

/// What the server uses: records plus the read cursors of task consumers. [`WithProgress`] builds one from a
/// [`RecordStore`].
pub trait Store: RecordStore {
    /// Reads a consumer's progress; `None` if it has committed nothing.
    fn progress<'a>(&'a self, tenant: &'a str, task: &'a str, consumer: &'a str) -> StoreFut<'a, Option<Progress>>;
    /// Advances a consumer's cursor: compares and changes in one transaction, durable on return.
    fn advance<'a>(&'a self, advance: &'a Advance) -> StoreFut<'a, AdvanceOutcome>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreError {
    /// The engine failed. The text contains no user data.
    Engine(String),
    /// The stored record does not carry the key it was read under; it is not served.
    Mismatch,
    /// The write was made, but may be lost if the engine crashes.
    Volatile,
    /// The record to change no longer exists.
    Gone,
    /// The writer's queue is full.
    Full,
    /// The writer has stopped, or the engine was closed.
    Closed,
}

/// Opens the configured engine. `ttl` is the lifetime of a record, for engines that expire records themselves. An
/// unreachable server is not an error: the engine reconnects when it is used. A server that refuses the connection is
/// an error.
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
