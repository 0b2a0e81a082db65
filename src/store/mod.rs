//! Where records are kept: one trait, one writer, several engines.

pub mod bus;
pub mod measured;
pub mod memory;
pub mod postgres;
pub mod redis;
pub mod sqlite;
pub mod task;
pub mod writer;

mod cursor;
mod packed;
mod page;
mod stats;
mod sums;
mod terms;
#[cfg(test)]
mod tests;
mod wanted;

use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use crate::{citation::record::Record, config::StoreUrl};
use task::{Advance, Advanced, Progress};

pub use self::redis::RedisStore;
pub use bus::{Bus, Ear};
pub use measured::Measured;
pub use memory::MemoryStore;
pub use postgres::PostgresStore;
pub use sqlite::SqliteStore;
pub use stats::{Counts, DayStats, STATS_DAYS_MAX, STATS_TOP_MAX, Site, SiteStats, StatsFilter, StatsReport, day_of};
pub use writer::{Writer, WriterStats};

/// Entries on a page when the filter names no limit.
pub const PAGE_DEFAULT: usize = 50;
/// Most entries on a page, whatever the filter says.
pub const PAGE_MAX: usize = 1000;

pub type Fut<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A record as stored, with the tenant that it belongs to. The key is (tenant, provider, messageId).
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub tenant: String,
    /// Milliseconds since the epoch; orders lists.
    pub created_ms: i64,
    pub record: Record,
}

/// Which records a list call wants, newest first. Absent fields do not filter.
#[derive(Debug, Clone, Default)]
pub struct Filter {
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

/// The last entry of the page before: lists, and a task's records, go on strictly after it.
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

/// What every engine promises. `put` is one transaction: all or nothing, durable when it returns. One that answers
/// [`StoreError::Volatile`] has put all, and the engine may forget it in a crash.
pub trait Store: Send + Sync + 'static {
    /// `sqlite`, `memory`, …: a metric label.
    fn name(&self) -> &'static str;
    fn put<'a>(&'a self, entries: &'a [Entry]) -> Fut<'a, Result<(), StoreError>>;
    /// Without a provider: the tenant's newest record of that id.
    fn get<'a>(
        &'a self,
        tenant: &'a str,
        id: &'a str,
        provider: Option<&'a str>,
    ) -> Fut<'a, Result<Option<Entry>, StoreError>>;
    fn list<'a>(&'a self, tenant: &'a str, filter: &'a Filter) -> Fut<'a, Result<Page, StoreError>>;
    /// What the tenant's records add up to, those of this moment: what is replaced, deleted or swept counts no more.
    fn stats<'a>(&'a self, tenant: &'a str, filter: &'a StatsFilter) -> Fut<'a, Result<StatsReport, StoreError>>;
    /// How many records went.
    fn delete<'a>(
        &'a self,
        tenant: &'a str,
        id: &'a str,
        provider: Option<&'a str>,
    ) -> Fut<'a, Result<u64, StoreError>>;
    /// The records of a task, oldest first. The limit is as a filter's.
    fn task<'a>(
        &'a self,
        tenant: &'a str,
        task: &'a str,
        after: Option<&'a Cursor>,
        limit: usize,
    ) -> Fut<'a, Result<Page, StoreError>>;
    /// `None`: this consumer has committed nothing.
    fn progress<'a>(
        &'a self,
        tenant: &'a str,
        task: &'a str,
        consumer: &'a str,
    ) -> Fut<'a, Result<Option<Progress>, StoreError>>;
    /// One transaction, which compares and changes; durable when it returns.
    fn advance<'a>(&'a self, advance: &'a Advance) -> Fut<'a, Result<Advanced, StoreError>>;
    /// Removes what was created before `before_ms`; returns how many.
    fn sweep(&self, before_ms: i64) -> Fut<'_, Result<u64, StoreError>>;
    /// Can it read and write right now?
    fn ping(&self) -> Fut<'_, Result<(), StoreError>>;
    /// Where replicas that share this engine talk. `None`: nobody shares it.
    fn bus(&self) -> Option<Arc<dyn Bus>> {
        None
    }
    /// What the operator should know about how the engine is set up, if there is something.
    fn remark(&self) -> Option<String> {
        None
    }
    /// Flush and close.
    fn close(&self) -> Fut<'_, ()>;
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
pub async fn open(url: &StoreUrl, ttl: Option<Duration>) -> Result<Arc<dyn Store>, StoreError> {
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
