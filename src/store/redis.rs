//! Redis or Valkey engine, which replicas may share.
//!
//! Each change is one Lua script over the keys of one tenant, so it is atomic. A batch for several tenants, or a very
//! large one, runs as several scripts; each record is then written completely or not at all. Every key has its own
//! expiry, so nothing accumulates even without sweeps.

mod address;
mod bus;
mod connection;
mod cursors;
mod error;
mod keys;
mod list;
mod report;
mod script;
mod server_info;
#[cfg(test)]
mod tests;
mod value;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use ::redis::{aio::MultiplexedConnection, cmd};

use self::{
    address::{Address, Durability},
    bus::RedisBus,
    connection::{CallError, ConnectError, SharedConnection},
    keys::Keys,
    list::IndexRange,
    script::{DELETE, NEWEST, PUT, REGISTER_TENANT, SWEEP},
    server_info::{ServerInfo, SyncMode},
    value::EncodedValue,
};
use super::{
    Bus, Entry, Filter, Fut, Page, RecordStore, Result, StatsFilter, StatsReport, Store, StoreError, StoreFut, day_of,
    page::Pager,
    task::{Advance, AdvanceOutcome, Progress},
};
use crate::config::EngineUrl;

const READ_TIMEOUT: Duration = Duration::from_secs(5);
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the server may take to confirm that a write is on disk or on its replicas.
const SYNC_TIMEOUT: Duration = Duration::from_secs(3);
/// Time that expired keys are kept for a sweep to subtract them from the aggregates; sweeps run more often.
const GRACE_MS: i64 = 24 * 60 * 60 * 1000;
/// Approximate limits of one script, in key changes and bytes (the server runs nothing else meanwhile).
const SCRIPT_WORK_MAX: usize = 10_000;
const SCRIPT_BYTES_MAX: usize = 32 << 20;
/// Approximate limits of one sweep step, in records and key changes; smaller, because no caller waits for it.
const SWEEP_BATCH: usize = 100;
const SWEEP_WORK_MAX: usize = 4000;
/// Expiry times above this are clamped: Lua computes with doubles.
const EXPIRY_MAX_MS: i64 = 1 << 52;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// Records in a Redis server.
///
/// # Cancel safety
///
/// Dropping a call half-way is safe: a script runs completely or not at all.
pub struct RedisStore {
    address: Address,
    ttl_ms: Option<i64>,
    /// How long expired records are kept, so that a sweep can subtract them from the aggregates.
    grace_ms: i64,
    /// Connection for reads and for publishing, neither of which waits for a disk.
    reads: Arc<SharedConnection>,
    writes: SharedConnection,
    /// The warning about the server's setup that was logged last.
    warning: Mutex<Option<String>>,
}

impl RedisStore {
    /// Opens the store. An unreachable server is not an error: it is retried when used. A refusal is.
    pub async fn open(url: &EngineUrl, ttl: Option<Duration>) -> Result<Self, StoreError> {
        let address = Address::parse(url.reveal())?;
        let reads = Arc::new(SharedConnection::new(address.client.clone()));
        let writes = SharedConnection::new(address.client.clone());
        let ttl_ms = ttl.map(|ttl| i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX));
        let store = Self { address, ttl_ms, grace_ms: GRACE_MS, reads, writes, warning: Mutex::default() };
        match store.writes.server().await {
            Ok(server) => store.warn_on_change(&server),
            Err(ConnectError::Refused(error)) => return Err(error),
            Err(ConnectError::Unreachable(error)) => {
                tracing::warn!(%error, "store cannot be reached; it is retried when it is needed");
            }
        }
        Ok(store)
    }

    fn keys(&self, tenant: &str) -> Keys {
        Keys::new(&self.address.prefix, tenant)
    }

    /// Creation time of the oldest record that has not expired.
    fn oldest_live_ms(&self) -> Option<i64> {
        self.ttl_ms.map(|ttl| now().saturating_sub(ttl))
    }

    /// Expiry time of a key whose newest record was created at `created_ms`; 0 means never.
    fn expires_at(&self, created_ms: i64) -> i64 {
        let until = |ttl| created_ms.saturating_add(ttl).saturating_add(self.grace_ms).clamp(1, EXPIRY_MAX_MS);
        self.ttl_ms.map_or(0, until)
    }

    fn expiry_slack_ms(&self) -> i64 {
        self.grace_ms / 24
    }

    /// Logs warnings about the server's setup when they change.
    fn warn_on_change(&self, server: &ServerInfo) {
        let warnings = server.warnings(self.address.durable);
        let warning = (!warnings.is_empty()).then(|| warnings.join("; "));
        let mut last = self.warning.lock().unwrap_or_else(PoisonError::into_inner);
        if *last != warning {
            match &warning {
                Some(warning) => tracing::warn!(remark = %warning, "store setup needs attention"),
                None => tracing::warn!("store setup is fine again"),
            }
            *last = warning;
        }
    }

    /// Runs a change and reports its durability. `Volatile` means that the change was made.
    async fn write<T>(
        &self,
        work: impl AsyncFnOnce(&mut MultiplexedConnection) -> Result<T, CallError>,
    ) -> Result<(T, Result<(), StoreError>), StoreError> {
        let done = self.writes.call(WRITE_TIMEOUT, async |conn, server| {
            self.warn_on_change(server);
            let value = work(conn).await?;
            let durable = self.wait_durable(conn, server).await?;
            Ok((value, if durable { Ok(()) } else { Err(StoreError::Volatile) }))
        });
        done.await
    }

    /// Waits until the changes of this connection are as durable as configured. Returns false if they are not.
    async fn wait_durable(&self, conn: &mut MultiplexedConnection, server: &ServerInfo) -> Result<bool, CallError> {
        let millis = SYNC_TIMEOUT.as_millis() as u64;
        let synced = match (self.address.durable, server.sync) {
            (Durability::Always | Durability::Memory, _) | (_, SyncMode::BeforeReply) => true,
            (Durability::Check, SyncMode::Never) => false,
            (Durability::Check, SyncMode::OnWaitAof) => {
                let mut wait = cmd("WAITAOF");
                // Fails without an append-only file, and where the command is forbidden.
                let local: Result<(u64, u64), _> = wait.arg(1).arg(0).arg(millis).query_async(conn).await;
                match local {
                    Ok((local, _)) => local > 0,
                    Err(error) if error::breaks_connection(&error) => return Err(error.into()),
                    Err(_) => false,
                }
            }
        };
        if !synced || self.address.replicas == 0 {
            return Ok(synced);
        }
        let have: usize = cmd("WAIT").arg(self.address.replicas).arg(millis).query_async(conn).await?;
        Ok(have >= self.address.replicas)
    }

    async fn put_batch(&self, conn: &mut MultiplexedConnection, values: &[EncodedValue<'_>]) -> Result<(), CallError> {
        let Some(first) = values.first() else { return Ok(()) };
        let (keys, now) = (self.keys(&first.entry.tenant), now());
        let mut call = PUT.key(keys.newest());
        call.arg(&keys.base).arg(now).arg(self.expiry_slack_ms());
        let expired_before = self.ttl_ms.map_or(i64::MIN, |ttl| now.saturating_sub(ttl).saturating_sub(self.grace_ms));
        call.arg(keys::descending(expired_before)).arg(keys::ascending(expired_before));
        for value in values {
            let created = value.entry.created_ms;
            let day_ends = day_of(created).saturating_add(1).saturating_mul(DAY_MS);
            call.arg(&value.name).arg(&value.meta).arg(&value.body);
            call.arg(self.expires_at(created)).arg(self.expires_at(day_ends));
        }
        Ok(call.invoke_async(conn).await?)
    }

    /// Adds the tenant to the set that sweeps iterate.
    async fn register_tenant(&self, conn: &mut MultiplexedConnection, tenant: &str) -> Result<(), CallError> {
        let mut call = REGISTER_TENANT.key(keys::tenants(&self.address.prefix));
        call.arg("").arg(now()).arg(self.expiry_slack_ms()).arg(tenant).arg(self.expires_at(now()));
        Ok(call.invoke_async(conn).await?)
    }

    async fn sweep_tenant(&self, tenant: &str, before_ms: i64) -> Result<u64, StoreError> {
        let Some(last) = before_ms.checked_sub(1) else { return Ok(0) };
        let (keys, mut deleted) = (self.keys(tenant), 0);
        loop {
            let batch = self.writes.call(WRITE_TIMEOUT, async |conn, _| {
                let mut call = SWEEP.key(keys.newest());
                call.arg(&keys.base)
                    .arg(now())
                    .arg(self.expiry_slack_ms())
                    .arg(keys::descending(last))
                    .arg(SWEEP_BATCH)
                    .arg(SWEEP_WORK_MAX);
                let counts: (u64, u64) = call.invoke_async(conn).await?;
                Ok(counts)
            });
            let (seen, removed) = batch.await?;
            deleted += removed;
            if seen == 0 {
                return Ok(deleted);
            }
        }
    }
}

impl RecordStore for RedisStore {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn put<'a>(&'a self, entries: &'a [Entry]) -> StoreFut<'a, ()> {
        Box::pin(async move {
            // Encode before using the connection: serializing large records takes longer than sending them.
            let mut by_tenant: BTreeMap<&str, Vec<EncodedValue<'_>>> = BTreeMap::new();
            for entry in entries {
                by_tenant.entry(&entry.tenant).or_default().push(EncodedValue::new(entry)?);
            }
            let written = self.write(async |conn| {
                for (tenant, values) in &by_tenant {
                    self.register_tenant(conn, tenant).await?;
                    for values in script_batches(values) {
                        self.put_batch(conn, values).await?;
                    }
                }
                Ok(())
            });
            written.await?.1
        })
    }

    fn get<'a>(&'a self, tenant: &'a str, id: &'a str, provider: Option<&'a str>) -> StoreFut<'a, Option<Entry>> {
        Box::pin(async move {
            let keys = self.keys(tenant);
            let found = self.reads.call(READ_TIMEOUT, async |conn, _| match provider {
                Some(provider) => {
                    let key = keys.record(provider, id);
                    let body: Option<Vec<u8>> = cmd("HGET").arg(key).arg("b").query_async(conn).await?;
                    Ok(body.map(|body| (None, body)))
                }
                None => {
                    let mut call = NEWEST.key(keys.of("i:", id));
                    let found: Vec<Vec<u8>> = call.arg(&keys.base).invoke_async(conn).await?;
                    let mut found = found.into_iter();
                    Ok(found.next().zip(found.next()).map(|(member, body)| (Some(member), body)))
                }
            });
            let Some((member, body)) = found.await? else { return Ok(None) };
            let entry = value::read(tenant, &body)?;
            let is_there = member.is_none_or(|member| member == keys::newest_member(&entry).as_bytes());
            if !is_there || !entry.has_key(id, provider) {
                return Err(StoreError::Mismatch);
            }
            Ok(Some(entry).filter(|entry| self.oldest_live_ms().is_none_or(|live| entry.created_ms >= live)))
        })
    }

    fn list<'a>(&'a self, tenant: &'a str, filter: &'a Filter) -> StoreFut<'a, Page> {
        Box::pin(async move {
            let keys = self.keys(tenant);
            let Some(range) = IndexRange::new(&keys, filter, self.oldest_live_ms()) else {
                return Ok(Pager::new(filter).finish());
            };
            let page = self.reads.call(READ_TIMEOUT, async |conn, _| range.page(conn, (&keys, tenant), filter).await);
            page.await
        })
    }

    fn stats<'a>(&'a self, tenant: &'a str, filter: &'a StatsFilter) -> StoreFut<'a, StatsReport> {
        Box::pin(async move {
            let keys = self.keys(tenant);
            self.reads.call(READ_TIMEOUT, async |conn, _| report::report(conn, &keys, filter).await).await
        })
    }

    fn delete<'a>(&'a self, tenant: &'a str, id: &'a str, provider: Option<&'a str>) -> StoreFut<'a, u64> {
        Box::pin(async move {
            let keys = self.keys(tenant);
            let live = self.oldest_live_ms().map_or_else(String::new, keys::descending);
            let written = self.write(async |conn| {
                let mut call = DELETE.key(keys.newest());
                call.arg(&keys.base)
                    .arg(now())
                    .arg(self.expiry_slack_ms())
                    .arg(id)
                    .arg(keys::name_prefix(provider))
                    .arg(&live);
                let deleted: u64 = call.invoke_async(conn).await?;
                Ok(deleted)
            });
            // The deletion was made; reporting a failure because it may be lost would mislead.
            Ok(written.await?.0)
        })
    }

    fn sweep(&self, before_ms: i64) -> StoreFut<'_, u64> {
        Box::pin(async move {
            let key = keys::tenants(&self.address.prefix);
            let tenants = self.writes.call(READ_TIMEOUT, async |conn, _| {
                let tenants: Vec<String> = cmd("ZRANGE").arg(&key).arg(0).arg(-1).query_async(conn).await?;
                Ok(tenants)
            });
            let mut deleted = 0;
            for tenant in tenants.await? {
                deleted += self.sweep_tenant(&tenant, before_ms).await?;
            }
            Ok(deleted)
        })
    }

    fn ping(&self) -> StoreFut<'_, ()> {
        Box::pin(async move {
            let key = keys::probe(&self.address.prefix);
            let probe = async |conn: &mut MultiplexedConnection, server: &ServerInfo| {
                self.warn_on_change(server);
                cmd("SET").arg(&key).arg(1).arg("EX").arg(60).query_async::<()>(conn).await?;
                Ok(())
            };
            self.writes.call(READ_TIMEOUT, probe).await?;
            self.reads.call(READ_TIMEOUT, async |conn, _| Ok(cmd("GET").arg(&key).query_async::<()>(conn).await?)).await
        })
    }

    fn bus(&self) -> Option<Arc<dyn Bus>> {
        let (connection, client) = (Arc::clone(&self.reads), self.address.client.clone());
        Some(Arc::new(RedisBus { connection, client, channel: keys::channel(&self.address.prefix) }))
    }

    fn setup_warning(&self) -> Option<String> {
        self.warning.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn close(&self) -> Fut<'_, ()> {
        Box::pin(async move {
            self.reads.close().await;
            self.writes.close().await;
        })
    }
}

impl Store for RedisStore {
    fn progress<'a>(&'a self, tenant: &'a str, task: &'a str, consumer: &'a str) -> StoreFut<'a, Option<Progress>> {
        Box::pin(async move {
            let keys = self.keys(tenant);
            self.reads.call(READ_TIMEOUT, async |conn, _| cursors::progress(conn, &keys, task, consumer).await).await
        })
    }

    fn advance<'a>(&'a self, advance: &'a Advance) -> StoreFut<'a, AdvanceOutcome> {
        Box::pin(async move {
            let (keys, live) = (self.keys(&advance.tenant), self.oldest_live_ms());
            let written = self.write(async |conn| cursors::advance(conn, &keys, advance, live).await);
            // The cursor was moved; losing it only means that items are read twice.
            Ok(written.await?.0)
        })
    }
}

/// Splits a batch into scripts of bounded size. A record is never split.
fn script_batches<'a, 'v>(mut values: &'a [EncodedValue<'v>]) -> impl Iterator<Item = &'a [EncodedValue<'v>]> {
    std::iter::from_fn(move || {
        let (mut work, mut bytes) = (0, 0);
        let fits = |value: &&EncodedValue<'_>| {
            let first = work == 0;
            work += value.work;
            bytes += value.body.len();
            first || (work <= SCRIPT_WORK_MAX && bytes <= SCRIPT_BYTES_MAX)
        };
        let (batch, rest) = values.split_at(values.iter().take_while(fits).count());
        values = rest;
        (!batch.is_empty()).then_some(batch)
    })
}

fn now() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}
