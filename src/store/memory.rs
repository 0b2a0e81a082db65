//! Records in memory: for tests, demos and sidecars that need no history beyond a restart.

mod index;
mod progress;

use std::{
    cmp::Reverse,
    sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use self::{
    index::{Held, Index},
    progress::MAX_SOURCES,
};
use super::{
    Entry, Filter, Fut, Page, RecordStore, Result, StatsFilter, StatsReport, Store, StoreError, StoreFut, day_of,
    page::Pager,
    stats::{self, Sums},
    task::{Advance, Advanced, Progress},
    wanted::Wanted,
};

/// Beyond this many records the oldest go.
pub const MAX_RECORDS: usize = 100_000;
/// Beyond this many bytes (about) the oldest go, but the newest record always stays.
pub const MAX_BYTES: usize = 256 << 20;

#[derive(Default)]
pub struct MemoryStore {
    inner: RwLock<Index>,
}

impl MemoryStore {
    pub fn new() -> Self {
        Self::default()
    }

    // No code here can panic between two changes that belong together, so a poisoned lock guards whole data.
    fn read(&self) -> Result<RwLockReadGuard<'_, Index>> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        if inner.closed { Err(StoreError::Closed) } else { Ok(inner) }
    }

    fn write(&self) -> Result<RwLockWriteGuard<'_, Index>> {
        let inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        if inner.closed { Err(StoreError::Closed) } else { Ok(inner) }
    }
}

impl RecordStore for MemoryStore {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn put<'a>(&'a self, entries: &'a [Entry]) -> StoreFut<'a, ()> {
        Box::pin(async move {
            let held: Vec<_> = entries.iter().map(Held::new).collect();
            let mut inner = self.write()?;
            for held in held {
                inner.insert(held);
            }
            inner.evict(MAX_RECORDS, MAX_BYTES);
            Ok(())
        })
    }

    fn get<'a>(&'a self, tenant: &'a str, id: &'a str, provider: Option<&'a str>) -> StoreFut<'a, Option<Entry>> {
        Box::pin(async move {
            let inner = self.read()?;
            // Of two equally new ones the first provider by name: the order of lists.
            let newest = inner.of_id(tenant, id, provider).min_by_key(|held| Reverse(held.entry.created_ms));
            Ok(newest.map(|held| held.entry.clone()))
        })
    }

    fn list<'a>(&'a self, tenant: &'a str, filter: &'a Filter) -> StoreFut<'a, Page> {
        Box::pin(async move {
            let wanted = Wanted::new(filter);
            let mut pager = Pager::new(filter);
            let inner = self.read()?;
            for held in inner.list(tenant, filter).filter(|held| held.is(&wanted)) {
                if pager.is_over() {
                    break;
                }
                pager.push(held.entry.clone(), held.weight);
            }
            Ok(pager.finish())
        })
    }

    /// Added up anew each time: there are [`MAX_RECORDS`] at most.
    fn stats<'a>(&'a self, tenant: &'a str, filter: &'a StatsFilter) -> StoreFut<'a, StatsReport> {
        Box::pin(async move {
            let days = stats::days(filter);
            let asked = |held: &Held| {
                let provider = filter.provider.as_ref();
                day_of(held.entry.created_ms) < days.end
                    && provider.is_none_or(|provider| held.entry.record.provider == *provider)
            };
            let all = Filter::default();
            // Adding up takes a while, and writes must not wait for it.
            let held: Vec<_> = {
                let inner = self.read()?;
                let since = inner.list(tenant, &all).take_while(|held| day_of(held.entry.created_ms) >= days.start);
                since.filter(|held| asked(held)).cloned().collect()
            };
            let mut sums = Sums::default();
            for held in held {
                sums.add(tenant, held.entry.created_ms, &held.entry.record.provider, &held.tally, 1);
            }
            Ok(sums.report(filter))
        })
    }

    fn delete<'a>(&'a self, tenant: &'a str, id: &'a str, provider: Option<&'a str>) -> StoreFut<'a, u64> {
        Box::pin(async move {
            let mut inner = self.write()?;
            let gone: Vec<_> = inner.of_id(tenant, id, provider).map(Held::age).collect();
            for key in &gone {
                inner.remove(key);
            }
            Ok(gone.len() as u64)
        })
    }

    fn sweep(&self, before_ms: i64) -> StoreFut<'_, u64> {
        Box::pin(async move {
            let mut inner = self.write()?;
            let mut gone = 0;
            while let Some(oldest) = inner.oldest_first.first().filter(|oldest| oldest.0 < before_ms).cloned() {
                inner.remove(&oldest);
                gone += 1;
            }
            Ok(gone)
        })
    }

    fn ping(&self) -> StoreFut<'_, ()> {
        Box::pin(async move { self.read().map(drop) })
    }

    fn close(&self) -> Fut<'_, ()> {
        Box::pin(async move {
            if let Ok(mut inner) = self.write() {
                *inner = Index::default();
                inner.closed = true;
            }
        })
    }
}

impl Store for MemoryStore {
    fn progress<'a>(&'a self, tenant: &'a str, task: &'a str, consumer: &'a str) -> StoreFut<'a, Option<Progress>> {
        Box::pin(async move { Ok(self.read()?.readers.get(tenant, task, consumer)) })
    }

    fn advance<'a>(&'a self, advance: &'a Advance) -> StoreFut<'a, Advanced> {
        Box::pin(async move {
            let mut inner = self.write()?;
            if !inner.has_task(&advance.tenant, &advance.task) {
                return Ok(Advanced::NoTask);
            }
            Ok(inner.readers.advance(advance, MAX_SOURCES))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::entry;

    #[tokio::test]
    async fn beyond_the_cap_the_oldest_go() {
        let store = MemoryStore::new();
        let entries: Vec<_> = (0..10).map(|n| entry("t", "p", &n.to_string(), n)).collect();
        store.put(&entries).await.unwrap();

        store.inner.write().unwrap().evict(4, MAX_BYTES);
        assert!(store.get("t", "5", None).await.unwrap().is_none());
        assert!(store.get("t", "6", None).await.unwrap().is_some());

        store.inner.write().unwrap().evict(4, 1);
        let inner = store.inner.read().unwrap();
        assert_eq!((inner.by_id.len(), inner.newest_first.len(), inner.oldest_first.len()), (1, 1, 1));
        assert!(inner.of_id("t", "9", None).next().is_some(), "one record is kept however large it is");
    }
}
