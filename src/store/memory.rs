//! In-memory engine for tests, demos and sidecars that need no history across restarts.

mod cursors;
mod index;

use std::{
    cmp::Reverse,
    sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use self::{
    cursors::SOURCES_MAX,
    index::{Index, IndexedEntry},
};
use super::{
    Entry, Filter, Fut, Page, RecordStore, Result, StatsFilter, StatsReport, Store, StoreError, StoreFut, day_of,
    filter_match::FilterMatcher,
    page::Pager,
    stats::{self, DailyAggregates},
    task::{Advance, AdvanceOutcome, Progress},
};

/// Above this many records the oldest are evicted.
pub const RECORDS_MAX: usize = 100_000;
/// Above about this many bytes the oldest records are evicted; the newest always stays.
pub const BYTES_MAX: usize = 256 << 20;

#[derive(Default)]
pub struct MemoryStore {
    inner: RwLock<Index>,
}

impl MemoryStore {
    pub fn new() -> Self {
        Self::default()
    }

    // No code below can panic between two changes that belong together, so the data behind a poisoned lock is
    // consistent.
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
            let indexed: Vec<_> = entries.iter().map(IndexedEntry::new).collect();
            let mut inner = self.write()?;
            for indexed in indexed {
                inner.insert(indexed);
            }
            inner.evict(RECORDS_MAX, BYTES_MAX);
            Ok(())
        })
    }

    fn get<'a>(&'a self, tenant: &'a str, id: &'a str, provider: Option<&'a str>) -> StoreFut<'a, Option<Entry>> {
        Box::pin(async move {
            let inner = self.read()?;
            // Of equally new records, the first provider by name: the order of lists.
            let newest = inner.with_id(tenant, id, provider).min_by_key(|indexed| Reverse(indexed.entry.created_ms));
            Ok(newest.map(|indexed| indexed.entry.clone()))
        })
    }

    fn list<'a>(&'a self, tenant: &'a str, filter: &'a Filter) -> StoreFut<'a, Page> {
        Box::pin(async move {
            let matcher = FilterMatcher::new(filter);
            let mut pager = Pager::new(filter);
            let inner = self.read()?;
            for indexed in inner.list(tenant, filter).filter(|indexed| indexed.matches(&matcher)) {
                if pager.close_if_full() {
                    break;
                }
                pager.push(indexed.entry.clone(), indexed.weight);
            }
            Ok(pager.finish())
        })
    }

    /// Recomputed on each call, from at most [`RECORDS_MAX`] records.
    fn stats<'a>(&'a self, tenant: &'a str, filter: &'a StatsFilter) -> StoreFut<'a, StatsReport> {
        Box::pin(async move {
            let days = stats::capped_days(filter);
            let in_period = |indexed: &IndexedEntry| {
                let provider = filter.provider.as_ref();
                day_of(indexed.entry.created_ms) < days.end
                    && provider.is_none_or(|provider| indexed.entry.record.provider == *provider)
            };
            let unfiltered = Filter::default();
            // Clone the entries and release the lock: aggregating takes a while and must not block writes.
            let indexed: Vec<_> = {
                let inner = self.read()?;
                let since = inner
                    .list(tenant, &unfiltered)
                    .take_while(|indexed| day_of(indexed.entry.created_ms) >= days.start);
                since.filter(|indexed| in_period(indexed)).cloned().collect()
            };
            let mut aggregates = DailyAggregates::default();
            for indexed in indexed {
                aggregates.add(tenant, indexed.entry.created_ms, &indexed.entry.record.provider, &indexed.aggregate, 1);
            }
            Ok(aggregates.report(filter))
        })
    }

    fn delete<'a>(&'a self, tenant: &'a str, id: &'a str, provider: Option<&'a str>) -> StoreFut<'a, u64> {
        Box::pin(async move {
            let mut inner = self.write()?;
            let keys: Vec<_> = inner.with_id(tenant, id, provider).map(IndexedEntry::age_key).collect();
            for key in &keys {
                inner.remove(key);
            }
            Ok(keys.len() as u64)
        })
    }

    fn sweep(&self, before_ms: i64) -> StoreFut<'_, u64> {
        Box::pin(async move {
            let mut inner = self.write()?;
            let mut deleted = 0;
            while let Some(oldest) = inner.oldest_first.first().filter(|oldest| oldest.0 < before_ms).cloned() {
                inner.remove(&oldest);
                deleted += 1;
            }
            Ok(deleted)
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
        Box::pin(async move { Ok(self.read()?.cursors.get(tenant, task, consumer)) })
    }

    fn advance<'a>(&'a self, advance: &'a Advance) -> StoreFut<'a, AdvanceOutcome> {
        Box::pin(async move {
            let mut inner = self.write()?;
            if !inner.has_task(&advance.tenant, &advance.task) {
                return Ok(AdvanceOutcome::NoTask);
            }
            Ok(inner.cursors.advance(advance, SOURCES_MAX))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::entry;

    #[tokio::test]
    async fn memory_beyond_the_cap_evicts_the_oldest() {
        let store = MemoryStore::new();
        let entries: Vec<_> = (0..10).map(|n| entry("t", "p", &n.to_string(), n)).collect();
        store.put(&entries).await.unwrap();

        store.inner.write().unwrap().evict(4, BYTES_MAX);
        assert!(store.get("t", "5", None).await.unwrap().is_none());
        assert!(store.get("t", "6", None).await.unwrap().is_some());

        store.inner.write().unwrap().evict(4, 1);
        let inner = store.inner.read().unwrap();
        assert_eq!((inner.by_id.len(), inner.newest_first.len(), inner.oldest_first.len()), (1, 1, 1));
        assert!(inner.with_id("t", "9", None).next().is_some(), "one record is kept however large it is");
    }
}
