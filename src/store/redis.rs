//! Records in a Redis or Valkey server that several replicas may share.
//!
//! Each change is one script, over keys of one tenant, and leaves nothing half-done. A batch for several tenants, or one
//! that would hold the server up, takes several: then each record of it is there whole or not at all. Everything has an
//! end of its own in the server (records, sets, sums, cursors), so that nothing stays for ever even if nobody sweeps.

mod address;
mod bus;
mod error;
mod keys;
mod link;
mod list;
mod report;
mod script;
mod server;
mod tasks;
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
    address::{Address, Durable},
    bus::RedisBus,
    keys::Keys,
    link::{Failure, Link, Trouble},
    list::Stretch,
    script::{DELETE, NEWEST, NOTE, PUT, SWEEP},
    server::{Server, Sync},
    value::Value,
};
use super::{
    Bus, Entry, Filter, Fut, Page, RecordStore, Result, StatsFilter, StatsReport, Store, StoreError, StoreFut, day_of,
    page::Pager,
    task::{Advance, Advanced, Progress},
};
use crate::config::EngineUrl;

const READ: Duration = Duration::from_secs(5);
const WRITE: Duration = Duration::from_secs(10);
/// How long the server may take to say that a write is on disk, or at its replicas.
const SETTLE: Duration = Duration::from_secs(3);
/// Sweeps come more often.
const GRACE_MS: i64 = 24 * 60 * 60 * 1000;
/// Changes that one script makes, about, and bytes that it takes: the server does nothing else meanwhile.
const WORK_MAX: usize = 10_000;
const BYTES_MAX: usize = 32 << 20;
/// Records that one step of a sweep removes, and changes that it makes, about: nobody waits for it.
const SWEEP_STEP: usize = 100;
const SWEEP_WORK: usize = 4000;
/// Times beyond these, in milliseconds, are all the same to us: scripts count in floating point.
const EXPIRY_MAX: i64 = 1 << 52;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// # Cancel safety
///
/// A call that is dropped half-way leaves nothing half-done: a script runs whole or not at all.
pub struct RedisStore {
    address: Address,
    ttl_ms: Option<i64>,
    /// What is past its time is kept so much longer, for a sweep to take it out of the sums.
    grace_ms: i64,
    /// Also what is said to others: it does not wait for a disk.
    reads: Arc<Link>,
    writes: Link,
    /// What was said last about the server.
    remark: Mutex<Option<String>>,
}

impl RedisStore {
    /// A server that cannot be reached is tried again when it is needed; one that refuses us is an error.
    pub async fn open(url: &EngineUrl, ttl: Option<Duration>) -> Result<Self, StoreError> {
        let address = Address::parse(url.reveal())?;
        let reads = Arc::new(Link::new(address.client.clone()));
        let writes = Link::new(address.client.clone());
        let ttl_ms = ttl.map(|ttl| i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX));
        let store = Self { address, ttl_ms, grace_ms: GRACE_MS, reads, writes, remark: Mutex::default() };
        match store.writes.server().await {
            Ok(server) => store.note(&server),
            Err(Failure::Refused(error)) => return Err(error),
            Err(Failure::Unreachable(error)) => {
                tracing::warn!(%error, "store cannot be reached, and is tried again when it is needed");
            }
        }
        Ok(store)
    }

    fn keys(&self, tenant: &str) -> Keys {
        Keys::new(&self.address.prefix, tenant)
    }

    /// When the oldest record was created that is not past its time.
    fn live(&self) -> Option<i64> {
        self.ttl_ms.map(|ttl| now().saturating_sub(ttl))
    }

    /// Until when a key is kept whose records were created at the latest then; 0 is for ever.
    fn until(&self, created_ms: i64) -> i64 {
        let until = |ttl| created_ms.saturating_add(ttl).saturating_add(self.grace_ms).clamp(1, EXPIRY_MAX);
        self.ttl_ms.map_or(0, until)
    }

    fn slack(&self) -> i64 {
        self.grace_ms / 24
    }

    /// Says what the operator should know, when it has changed.
    fn note(&self, server: &Server) {
        let remarks = server.remarks(self.address.durable);
        let remark = (!remarks.is_empty()).then(|| remarks.join("; "));
        let mut said = self.remark.lock().unwrap_or_else(PoisonError::into_inner);
        if *said != remark {
            match &remark {
                Some(remark) => tracing::warn!(%remark, "store is not set up for what it is used for"),
                None => tracing::warn!("store is set up well again"),
            }
            *said = remark;
        }
    }

    /// A change, and whether it is durable. `Volatile`: it was made.
    async fn write<T>(
        &self,
        work: impl AsyncFnOnce(&mut MultiplexedConnection) -> Result<T, Trouble>,
    ) -> Result<(T, Result<(), StoreError>), StoreError> {
        let done = self.writes.call(WRITE, async |conn, server| {
            self.note(server);
            let value = work(conn).await?;
            let settled = self.settle(conn, server).await?;
            Ok((value, if settled { Ok(()) } else { Err(StoreError::Volatile) }))
        });
        done.await
    }

    /// Is everything that this connection has changed where it has to be?
    async fn settle(&self, conn: &mut MultiplexedConnection, server: &Server) -> Result<bool, Trouble> {
        let millis = SETTLE.as_millis() as u64;
        let synced = match (self.address.durable, server.sync) {
            (Durable::Always | Durable::Memory, _) | (_, Sync::Answered) => true,
            (Durable::Check, Sync::Never) => false,
            (Durable::Check, Sync::Asked) => {
                let mut wait = cmd("WAITAOF");
                // Refused where there is no file, and where the command is forbidden.
                let here: Result<(u64, u64), _> = wait.arg(1).arg(0).arg(millis).query_async(conn).await;
                match here {
                    Ok((here, _)) => here > 0,
                    Err(error) if error::breaks(&error) => return Err(error.into()),
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

    async fn put_some(&self, conn: &mut MultiplexedConnection, values: &[Value<'_>]) -> Result<(), Trouble> {
        let Some(first) = values.first() else { return Ok(()) };
        let (keys, now) = (self.keys(&first.entry.tenant), now());
        let mut call = PUT.key(keys.newest());
        call.arg(&keys.base).arg(now).arg(self.slack());
        let gone = self.ttl_ms.map_or(i64::MIN, |ttl| now.saturating_sub(ttl).saturating_sub(self.grace_ms));
        call.arg(keys::down(gone)).arg(keys::up(gone));
        for value in values {
            let created = value.entry.created_ms;
            let day_ends = day_of(created).saturating_add(1).saturating_mul(DAY_MS);
            call.arg(&value.name).arg(&value.meta).arg(&value.body);
            call.arg(self.until(created)).arg(self.until(day_ends));
        }
        Ok(call.invoke_async(conn).await?)
    }

    /// So that sweeps find it.
    async fn note_tenant(&self, conn: &mut MultiplexedConnection, tenant: &str) -> Result<(), Trouble> {
        let mut call = NOTE.key(keys::tenants(&self.address.prefix));
        call.arg("").arg(now()).arg(self.slack()).arg(tenant).arg(self.until(now()));
        Ok(call.invoke_async(conn).await?)
    }

    async fn sweep_tenant(&self, tenant: &str, before_ms: i64) -> Result<u64, StoreError> {
        let Some(last) = before_ms.checked_sub(1) else { return Ok(0) };
        let (keys, mut gone) = (self.keys(tenant), 0);
        loop {
            let step = self.writes.call(WRITE, async |conn, _| {
                let mut call = SWEEP.key(keys.newest());
                call.arg(&keys.base).arg(now()).arg(self.slack()).arg(keys::down(last)).arg(SWEEP_STEP).arg(SWEEP_WORK);
                let step: (u64, u64) = call.invoke_async(conn).await?;
                Ok(step)
            });
            let (seen, removed) = step.await?;
            gone += removed;
            if seen == 0 {
                return Ok(gone);
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
            // Before the connection: making text of large records takes longer than sending it.
            let mut by_tenant: BTreeMap<&str, Vec<Value<'_>>> = BTreeMap::new();
            for entry in entries {
                by_tenant.entry(&entry.tenant).or_default().push(Value::new(entry)?);
            }
            let written = self.write(async |conn| {
                for (tenant, values) in &by_tenant {
                    self.note_tenant(conn, tenant).await?;
                    for values in portions(values) {
                        self.put_some(conn, values).await?;
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
            let found = self.reads.call(READ, async |conn, _| match provider {
                Some(provider) => {
                    let key = keys.record(provider, id);
                    let body: Option<Vec<u8>> = cmd("HGET").arg(key).arg("b").query_async(conn).await?;
                    Ok(body.map(|body| (None, body)))
                }
                None => {
                    let mut call = NEWEST.key(keys.of("i:", id));
                    let found: Vec<Vec<u8>> = call.arg(&keys.base).invoke_async(conn).await?;
                    let mut found = found.into_iter();
                    Ok(found.next().zip(found.next()).map(|(place, body)| (Some(place), body)))
                }
            });
            let Some((place, body)) = found.await? else { return Ok(None) };
            let entry = value::read(tenant, &body)?;
            let is_there = place.is_none_or(|place| place == keys::place(&entry).as_bytes());
            if !is_there || !entry.has_key(id, provider) {
                return Err(StoreError::Mismatch);
            }
            Ok(Some(entry).filter(|entry| self.live().is_none_or(|live| entry.created_ms >= live)))
        })
    }

    fn list<'a>(&'a self, tenant: &'a str, filter: &'a Filter) -> StoreFut<'a, Page> {
        Box::pin(async move {
            let keys = self.keys(tenant);
            let Some(stretch) = Stretch::new(&keys, filter, self.live()) else {
                return Ok(Pager::new(filter).finish());
            };
            let page = self.reads.call(READ, async |conn, _| stretch.page(conn, (&keys, tenant), filter).await);
            page.await
        })
    }

    fn stats<'a>(&'a self, tenant: &'a str, filter: &'a StatsFilter) -> StoreFut<'a, StatsReport> {
        Box::pin(async move {
            let keys = self.keys(tenant);
            self.reads.call(READ, async |conn, _| report::report(conn, &keys, filter).await).await
        })
    }

    fn delete<'a>(&'a self, tenant: &'a str, id: &'a str, provider: Option<&'a str>) -> StoreFut<'a, u64> {
        Box::pin(async move {
            let keys = self.keys(tenant);
            let live = self.live().map_or_else(String::new, keys::down);
            let written = self.write(async |conn| {
                let mut call = DELETE.key(keys.newest());
                call.arg(&keys.base).arg(now()).arg(self.slack()).arg(id).arg(keys::beginning(provider)).arg(&live);
                let gone: u64 = call.invoke_async(conn).await?;
                Ok(gone)
            });
            // As durable as the server makes it: to say that it failed would be less true.
            Ok(written.await?.0)
        })
    }

    fn sweep(&self, before_ms: i64) -> StoreFut<'_, u64> {
        Box::pin(async move {
            let key = keys::tenants(&self.address.prefix);
            let tenants = self.writes.call(READ, async |conn, _| {
                let tenants: Vec<String> = cmd("ZRANGE").arg(&key).arg(0).arg(-1).query_async(conn).await?;
                Ok(tenants)
            });
            let mut gone = 0;
            for tenant in tenants.await? {
                gone += self.sweep_tenant(&tenant, before_ms).await?;
            }
            Ok(gone)
        })
    }

    fn ping(&self) -> StoreFut<'_, ()> {
        Box::pin(async move {
            let key = keys::probe(&self.address.prefix);
            let probe = async |conn: &mut MultiplexedConnection, server: &Server| {
                self.note(server);
                cmd("SET").arg(&key).arg(1).arg("EX").arg(60).query_async::<()>(conn).await?;
                Ok(())
            };
            self.writes.call(READ, probe).await?;
            self.reads.call(READ, async |conn, _| Ok(cmd("GET").arg(&key).query_async::<()>(conn).await?)).await
        })
    }

    fn bus(&self) -> Option<Arc<dyn Bus>> {
        let (link, client) = (Arc::clone(&self.reads), self.address.client.clone());
        Some(Arc::new(RedisBus { link, client, channel: keys::channel(&self.address.prefix) }))
    }

    fn remark(&self) -> Option<String> {
        self.remark.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
            self.reads.call(READ, async |conn, _| tasks::progress(conn, &keys, task, consumer).await).await
        })
    }

    fn advance<'a>(&'a self, advance: &'a Advance) -> StoreFut<'a, Advanced> {
        Box::pin(async move {
            let (keys, live) = (self.keys(&advance.tenant), self.live());
            let written = self.write(async |conn| tasks::advance(conn, &keys, advance, live).await);
            // As durable as the server makes it: a cursor that is lost means that something is read twice.
            Ok(written.await?.0)
        })
    }
}

/// Cuts what one script would be too long for. A record is never cut, so each is there whole or not at all.
fn portions<'a, 'v>(mut values: &'a [Value<'v>]) -> impl Iterator<Item = &'a [Value<'v>]> {
    std::iter::from_fn(move || {
        let (mut work, mut bytes) = (0, 0);
        let fits = |value: &&Value<'_>| {
            let first = work == 0;
            work += value.work;
            bytes += value.body.len();
            first || (work <= WORK_MAX && bytes <= BYTES_MAX)
        };
        let (portion, rest) = values.split_at(values.iter().take_while(fits).count());
        values = rest;
        (!portion.is_empty()).then_some(portion)
    })
}

fn now() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}
