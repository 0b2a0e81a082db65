//! The records in their orders.

use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
};

use super::progress::Readers;
use crate::{
    citation::bundle::task_id,
    store::{Cursor, Entry, Filter, stats::Tally, terms, wanted::Wanted},
};

/// Four orders over the same records. Keys share their text, so an index costs pointers only.
#[derive(Default)]
pub(super) struct Index {
    pub(super) by_id: BTreeMap<Key, Arc<Held>>,
    pub(super) newest_first: BTreeMap<Place, Arc<Held>>,
    pub(super) oldest_first: BTreeSet<Age>,
    by_task: BTreeMap<Step, Arc<Held>>,
    pub(super) readers: Readers,
    bytes: usize,
    pub(super) closed: bool,
}

/// (tenant, id, provider)
type Key = (Arc<str>, Arc<str>, Arc<str>);

/// (created, tenant, provider, id)
pub(super) type Age = (i64, Arc<str>, Arc<str>, Arc<str>);

/// (tenant, created, provider, id)
type Place = (Arc<str>, Reverse<i64>, Arc<str>, Arc<str>);

/// (tenant, task, created, provider, id)
type Step = (Arc<str>, Arc<str>, i64, Arc<str>, Arc<str>);

pub(super) struct Held {
    pub(super) entry: Entry,
    task: Arc<str>,
    search: String,
    domains: BTreeSet<String>,
    pub(super) tally: Tally,
    pub(super) weight: usize,
}

impl Index {
    pub(super) fn insert(&mut self, held: Held) {
        let (ms, tenant, provider, id) = held.age();
        let by_id = (tenant.clone(), id.clone(), provider.clone());
        let old = self.by_id.get(&by_id).map(|old| old.age()).and_then(|old| self.take_out(&old));
        let held = Arc::new(held);
        self.bytes += held.weight;
        self.by_id.insert(by_id, Arc::clone(&held));
        self.newest_first.insert((tenant.clone(), Reverse(ms), provider.clone(), id.clone()), Arc::clone(&held));
        self.by_task.insert((tenant.clone(), Arc::clone(&held.task), ms, provider.clone(), id.clone()), held);
        self.oldest_first.insert((ms, tenant, provider, id));
        // Now: a record that only changed has not left its task.
        if let Some(old) = old {
            self.left(&old);
        }
    }

    pub(super) fn remove(&mut self, key: &Age) {
        if let Some(gone) = self.take_out(key) {
            self.left(&gone);
        }
    }

    fn take_out(&mut self, key: &Age) -> Option<Arc<Held>> {
        let (ms, tenant, provider, id) = key.clone();
        self.oldest_first.remove(key);
        self.newest_first.remove(&(tenant.clone(), Reverse(ms), provider.clone(), id.clone()));
        let held = self.by_id.remove(&(tenant.clone(), id.clone(), provider.clone()))?;
        self.by_task.remove(&(tenant, Arc::clone(&held.task), ms, provider, id));
        self.bytes -= held.weight;
        Some(held)
    }

    /// Cursors go with the last record of their task.
    fn left(&mut self, gone: &Held) {
        if !self.has_task(&gone.entry.tenant, &gone.task) {
            self.readers.forget(&gone.entry.tenant, &gone.task);
        }
    }

    pub(super) fn evict(&mut self, max_records: usize, max_bytes: usize) {
        while self.by_id.len() > max_records || (self.bytes > max_bytes && self.by_id.len() > 1) {
            let Some(oldest) = self.oldest_first.first().cloned() else {
                return;
            };
            self.remove(&oldest);
        }
    }

    pub(super) fn of_id(&self, tenant: &str, id: &str, provider: Option<&str>) -> impl Iterator<Item = &Held> {
        let first = (Arc::from(tenant), Arc::from(id), Arc::from(provider.unwrap_or("")));
        self.by_id
            .range(first..)
            .map(|(_, held)| &**held)
            .take_while(move |held| held.entry.tenant == tenant && held.entry.record.message_id == id)
            .filter(move |held| provider.is_none_or(|provider| held.entry.record.provider == provider))
    }

    pub(super) fn has_task(&self, tenant: &str, task: &str) -> bool {
        self.of_task(tenant, task, None).next().is_some()
    }

    /// The records of a tenant in the order of the filter and after its cursor, and only those of its task.
    pub(super) fn list<'a>(
        &'a self,
        tenant: &'a str,
        filter: &'a Filter,
    ) -> Box<dyn Iterator<Item = &'a Arc<Held>> + 'a> {
        let cursor = filter.cursor.as_ref();
        match &filter.task {
            Some(task) => Box::new(self.of_task(tenant, task, cursor)),
            None => Box::new(self.newest(tenant, cursor)),
        }
    }

    /// Oldest first.
    fn of_task(&self, tenant: &str, task: &str, after: Option<&Cursor>) -> impl Iterator<Item = &Arc<Held>> {
        let step = |ms, provider: &str, id: &str| -> Step {
            (tenant.into(), task.into(), ms, Arc::from(provider), Arc::from(id))
        };
        let start = match after {
            Some(after) => Bound::Excluded(step(after.created_ms, &after.provider, &after.id)),
            None => Bound::Included(step(i64::MIN, "", "")),
        };
        let found = self.by_task.range((start, Bound::Unbounded)).map(|(_, held)| held);
        found.take_while(move |held| held.entry.tenant == tenant && *held.task == *task)
    }

    fn newest(&self, tenant: &str, after: Option<&Cursor>) -> impl Iterator<Item = &Arc<Held>> {
        let place = |ms, provider: &str, id: &str| (Arc::from(tenant), Reverse(ms), Arc::from(provider), Arc::from(id));
        let start: Bound<Place> = match after {
            Some(after) => Bound::Excluded(place(after.created_ms, &after.provider, &after.id)),
            None => Bound::Included(place(i64::MAX, "", "")),
        };
        let found = self.newest_first.range((start, Bound::Unbounded)).map(|(_, held)| held);
        found.take_while(move |held| held.entry.tenant == tenant)
    }
}

impl Held {
    pub(super) fn new(entry: &Entry) -> Self {
        let search = terms::search_text(&entry.record);
        let domains = terms::domains(&entry.record);
        let weight = terms::weight(entry) + search.len();
        let task = task_id(&entry.record).as_ref().into();
        Self { entry: entry.clone(), task, search, domains, tally: Tally::of(&entry.record), weight }
    }

    pub(super) fn is(&self, wanted: &Wanted<'_>) -> bool {
        wanted.matches_terms(&self.entry, || Cow::Borrowed(&self.domains), || Cow::Borrowed(&self.search))
    }

    pub(super) fn age(&self) -> Age {
        let entry = &self.entry;
        let [tenant, provider, id] =
            [&entry.tenant, &entry.record.provider, &entry.record.message_id].map(|text| Arc::from(text.as_str()));
        (entry.created_ms, tenant, provider, id)
    }
}
