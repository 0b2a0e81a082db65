//! Tests entries against a filter, for engines that scan instead of querying.

use std::{borrow::Cow, collections::BTreeSet};

use super::{Entry, Filter, terms};
use crate::citation::bundle::task_id;

/// A filter with its domain and search text normalized for comparison.
pub(super) struct FilterMatcher<'a> {
    filter: &'a Filter,
    domain: Option<String>,
    q: Option<String>,
}

impl<'a> FilterMatcher<'a> {
    pub(super) fn new(filter: &'a Filter) -> Self {
        Self {
            filter,
            domain: filter.domain.as_deref().map(terms::query_domain),
            q: filter.q.as_deref().map(str::to_lowercase),
        }
    }

    /// True if the entry passes every condition except the cursor.
    pub(super) fn matches(&self, entry: &Entry) -> bool {
        let domains = || Cow::Owned(terms::domains(&entry.record));
        let search = || Cow::Owned(terms::search_text(&entry.record));
        self.matches_terms(entry, domains, search)
    }

    /// [`matches`](Self::matches) for callers that may already have the entry's [`terms`]; the closures run only if
    /// needed.
    pub(super) fn matches_terms<'e>(
        &self,
        entry: &Entry,
        domains: impl FnOnce() -> Cow<'e, BTreeSet<String>>,
        search: impl FnOnce() -> Cow<'e, str>,
    ) -> bool {
        let (filter, record) = (self.filter, &entry.record);
        filter.since_ms.is_none_or(|since| entry.created_ms >= since)
            && filter.until_ms.is_none_or(|until| entry.created_ms < until)
            && filter.task.as_ref().is_none_or(|task| task_id(record) == *task)
            && filter.provider.as_ref().is_none_or(|provider| record.provider == *provider)
            && filter
                .conversation
                .as_ref()
                .is_none_or(|conversation| record.conversation_id.as_ref() == Some(conversation))
            && self.domain.as_ref().is_none_or(|domain| domains().contains(domain))
            && self.q.as_ref().is_none_or(|q| search().contains(q.as_str()))
    }
}
