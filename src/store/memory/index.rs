//! Indexes over the in-memory records: by id, newest first, oldest first, and by task.

use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
};

use super::cursors::ConsumerCursors;
use crate::{
    citation::bundle::task_id,
    store::{Cursor, Entry, Filter, filter_match::FilterMatcher, stats::Aggregate, terms},
};

/// Four indexes over the same records. Keys share their text (`Arc<str>`), so an index costs pointers only.
#[derive(Default)]
pub(super) struct Index {
    pub(super) by_id: BTreeMap<IdKey, Arc<IndexedEntry>>,
    pub(super) newest_first: BTreeMap<NewestKey, Arc<IndexedEntry>>,
    pub(super) oldest_first: BTreeSet<AgeKey>,
    by_task: BTreeMap<TaskKey, Arc<IndexedEntry>>,
    pub(super) cursors: ConsumerCursors,
    bytes: usize,
    pub(super) closed: bool,
}

/// (tenant, id, provider)
type IdKey = (Arc<str>, Arc<str>, Arc<str>);

/// (created, tenant, provider, id)
pub(super) type AgeKey = (i64, Arc<str>, Arc<str>, Arc<str>);

/// (tenant, created, provider, id)
type NewestKey = (Arc<str>, Reverse<i64>, Arc<str>, Arc<str>);

/// (tenant, task, created, provider, id)
type TaskKey = (Arc<str>, Arc<str>, i64, Arc<str>, Arc<str>);

pub(super) struct IndexedEntry {
    pub(super) entry: Entry,
    task: Arc<str>,
    search: String,
    domains: BTreeSet<String>,
    pub(super) aggregate: Aggregate,
    pub(super) weight: usize,
}

impl Index {
    pub(super) fn insert(&mut self, indexed: IndexedEntry) {
        let (ms, tenant, provider, id) = indexed.age_key();
        let by_id = (tenant.clone(), id.clone(), provider.clone());
        let old = self.by_id.get(&by_id).map(|old| old.age_key()).and_then(|old| self.detach(&old));
        let indexed = Arc::new(indexed);
        self.bytes += indexed.weight;
        self.by_id.insert(by_id, Arc::clone(&indexed));
        self.newest_first.insert((tenant.clone(), Reverse(ms), provider.clone(), id.clone()), Arc::clone(&indexed));
        self.by_task.insert((tenant.clone(), Arc::clone(&indexed.task), ms, provider.clone(), id.clone()), indexed);
        self.oldest_first.insert((ms, tenant, provider, id));
        // After the insert: an updated record has not left its task.
        if let Some(old) = old {
            self.remove_cursors_of_empty_task(&old);
        }
    }

    pub(super) fn remove(&mut self, key: &AgeKey) {
        if let Some(removed) = self.detach(key) {
            self.remove_cursors_of_empty_task(&removed);
        }
    }

    fn detach(&mut self, key: &AgeKey) -> Option<Arc<IndexedEntry>> {
        let (ms, tenant, provider, id) = key.clone();
        self.oldest_first.remove(key);
        self.newest_first.remove(&(tenant.clone(), Reverse(ms), provider.clone(), id.clone()));
        let indexed = self.by_id.remove(&(tenant.clone(), id.clone(), provider.clone()))?;
        self.by_task.remove(&(tenant, Arc::clone(&indexed.task), ms, provider, id));
        self.bytes -= indexed.weight;
        Some(indexed)
    }

    /// Deletes a task's cursors if `removed` was its last record.
    fn remove_cursors_of_empty_task(&mut self, removed: &IndexedEntry) {
        if !self.has_task(&removed.entry.tenant, &removed.task) {
            self.cursors.remove_task(&removed.entry.tenant, &removed.task);
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

    pub(super) fn with_id(
        &self,
        tenant: &str,
        id: &str,
        provider: Option<&str>,
    ) -> impl Iterator<Item = &IndexedEntry> {
        let first = (Arc::from(tenant), Arc::from(id), Arc::from(provider.unwrap_or("")));
        self.by_id
            .range(first..)
            .map(|(_, indexed)| &**indexed)
            .take_while(move |indexed| indexed.entry.tenant == tenant && indexed.entry.record.message_id == id)
            .filter(move |indexed| provider.is_none_or(|provider| indexed.entry.record.provider == provider))
    }

    pub(super) fn has_task(&self, tenant: &str, task: &str) -> bool {
        self.in_task(tenant, task, None).next().is_some()
    }

    /// Records of a tenant in the filter's order, after its cursor, and of its task if it names one.
    pub(super) fn list<'a>(
        &'a self,
        tenant: &'a str,
        filter: &'a Filter,
    ) -> Box<dyn Iterator<Item = &'a Arc<IndexedEntry>> + 'a> {
        let cursor = filter.cursor.as_ref();
        match &filter.task {
            Some(task) => Box::new(self.in_task(tenant, task, cursor)),
            None => Box::new(self.newest(tenant, cursor)),
        }
    }

    /// Records of a task, oldest first.
    fn in_task(&self, tenant: &str, task: &str, after: Option<&Cursor>) -> impl Iterator<Item = &Arc<IndexedEntry>> {
        let key = |ms, provider: &str, id: &str| -> TaskKey {
            (tenant.into(), task.into(), ms, Arc::from(provider), Arc::from(id))
        };
        let start = match after {
            Some(after) => Bound::Excluded(key(after.created_ms, &after.provider, &after.id)),
            None => Bound::Included(key(i64::MIN, "", "")),
        };
        let found = self.by_task.range((start, Bound::Unbounded)).map(|(_, indexed)| indexed);
        found.take_while(move |indexed| indexed.entry.tenant == tenant && *indexed.task == *task)
    }

    fn newest(&self, tenant: &str, after: Option<&Cursor>) -> impl Iterator<Item = &Arc<IndexedEntry>> {
        let key = |ms, provider: &str, id: &str| (Arc::from(tenant), Reverse(ms), Arc::from(provider), Arc::from(id));
        let start: Bound<NewestKey> = match after {
            Some(after) => Bound::Excluded(key(after.created_ms, &after.provider, &after.id)),
            None => Bound::Included(key(i64::MAX, "", "")),
        };
        let found = self.newest_first.range((start, Bound::Unbounded)).map(|(_, indexed)| indexed);
        found.take_while(move |indexed| indexed.entry.tenant == tenant)
    }
}

impl IndexedEntry {
    pub(super) fn new(entry: &Entry) -> Self {
        let search = terms::search_text(&entry.record);
        let domains = terms::domains(&entry.record);
        let weight = terms::weight(entry) + search.len();
        let task = task_id(&entry.record).as_ref().into();
        Self { entry: entry.clone(), task, search, domains, aggregate: Aggregate::of(&entry.record), weight }
    }

    pub(super) fn matches(&self, matcher: &FilterMatcher<'_>) -> bool {
        matcher.matches_terms(&self.entry, || Cow::Borrowed(&self.domains), || Cow::Borrowed(&self.search))
    }

    pub(super) fn age_key(&self) -> AgeKey {
        let entry = &self.entry;
        let [tenant, provider, id] =
            [&entry.tenant, &entry.record.provider, &entry.record.message_id].map(|text| Arc::from(text.as_str()));
        (entry.created_ms, tenant, provider, id)
    }
}
