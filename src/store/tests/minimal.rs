//! The smallest engine: only the required methods of [`RecordStore`], so that the suite covers its defaults.

use std::{collections::BTreeMap, sync::Mutex};

use crate::store::{
    Entry, Filter, Fut, Page, RecordStore, Result, StoreError, StoreFut, filter_match::FilterMatcher, page::Pager,
    terms,
};

/// (tenant, provider, id) to entry.
type Records = BTreeMap<(String, String, String), Entry>;

/// `None` once closed.
pub(crate) struct MinimalStore(Mutex<Option<Records>>);

impl MinimalStore {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Some(Records::new())))
    }

    fn records<T>(&self, work: impl FnOnce(&mut Records) -> T) -> Result<T> {
        self.0.lock().unwrap().as_mut().map(work).ok_or(StoreError::Closed)
    }

    /// Deletes the entries that match and returns how many there were.
    fn remove(&self, goes: impl Fn(&Entry) -> bool) -> Result<u64> {
        self.records(|records| {
            let before = records.len();
            records.retain(|_, entry| !goes(entry));
            (before - records.len()) as u64
        })
    }
}

impl RecordStore for MinimalStore {
    fn name(&self) -> &'static str {
        "minimal"
    }

    fn put<'a>(&'a self, entries: &'a [Entry]) -> StoreFut<'a, ()> {
        Box::pin(async move {
            let key = |one: &Entry| (one.tenant.clone(), one.record.provider.clone(), one.record.message_id.clone());
            self.records(|records| records.extend(entries.iter().map(|one| (key(one), one.clone()))))
        })
    }

    fn get<'a>(&'a self, tenant: &'a str, id: &'a str, provider: Option<&'a str>) -> StoreFut<'a, Option<Entry>> {
        Box::pin(async move {
            self.records(|records| {
                let found = records.values().filter(|one| one.tenant == tenant && one.has_key(id, provider));
                found.min_by_key(|one| !one.created_ms).cloned()
            })
        })
    }

    fn list<'a>(&'a self, tenant: &'a str, filter: &'a Filter) -> StoreFut<'a, Page> {
        Box::pin(async move {
            let position = |one: &Entry| {
                let (ms, provider, id) = filter.position(one.created_ms, &one.record.provider, &one.record.message_id);
                (ms, provider.to_owned(), id.to_owned())
            };
            let after = filter.cursor.as_ref();
            let after = after.map(|after| {
                let (ms, provider, id) = filter.position(after.created_ms, &after.provider, &after.id);
                (ms, provider.to_owned(), id.to_owned())
            });
            let matcher = FilterMatcher::new(filter);
            let mut pager = Pager::new(filter);
            self.records(|records| {
                let of_tenant = records.values().filter(|one| one.tenant == tenant && matcher.matches(one));
                let mut found: Vec<_> = of_tenant.map(|one| (position(one), one)).collect();
                found.retain(|(position, _)| after.as_ref().is_none_or(|after| position > after));
                found.sort_by(|(one, _), (other, _)| one.cmp(other));
                for (_, one) in found {
                    if pager.close_if_full() {
                        break;
                    }
                    pager.push(one.clone(), terms::weight(one));
                }
                pager.finish()
            })
        })
    }

    fn delete<'a>(&'a self, tenant: &'a str, id: &'a str, provider: Option<&'a str>) -> StoreFut<'a, u64> {
        Box::pin(async move { self.remove(|one| one.tenant == tenant && one.has_key(id, provider)) })
    }

    fn sweep(&self, before_ms: i64) -> StoreFut<'_, u64> {
        Box::pin(async move { self.remove(|one| one.created_ms < before_ms) })
    }

    fn ping(&self) -> StoreFut<'_, ()> {
        Box::pin(async move { self.records(|_| ()) })
    }

    fn close(&self) -> Fut<'_, ()> {
        Box::pin(async move {
            *self.0.lock().unwrap() = None;
        })
    }
}
