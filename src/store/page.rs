//! Fills one page of a list, the same way for every engine.

use super::{Cursor, Entry, Filter, PAGE_DEFAULT, PAGE_MAX, Page};

/// A page ends early once its records weigh this much, so that one list call cannot take all memory.
pub(super) const PAGE_BYTES: usize = 16 << 20;

pub(super) struct Pager {
    limit: usize,
    bytes: usize,
    page: Page,
}

impl Pager {
    pub(super) fn new(filter: &Filter) -> Self {
        let limit = match filter.limit {
            0 => PAGE_DEFAULT,
            limit => limit.min(PAGE_MAX),
        };
        Self { limit, bytes: 0, page: Page { entries: Vec::new(), next: None } }
    }

    /// How many entries an engine has to find: one beyond the page tells whether there is more.
    pub(super) fn wanted(&self) -> usize {
        self.limit + 1
    }

    /// True when the page has no room left; then it knows that there is more, and needs no further entries.
    pub(super) fn is_over(&mut self) -> bool {
        if self.page.entries.len() < self.limit && self.bytes < PAGE_BYTES {
            return false;
        }
        self.page.next = self.page.entries.last().map(|last| Cursor {
            created_ms: last.created_ms,
            provider: last.record.provider.clone(),
            id: last.record.message_id.clone(),
        });
        true
    }

    pub(super) fn push(&mut self, entry: Entry, weight: usize) {
        self.bytes += weight;
        self.page.entries.push(entry);
    }

    pub(super) fn finish(self) -> Page {
        self.page
    }
}
