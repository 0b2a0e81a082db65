//! Fills one page of a list, with the same limits for every engine.

use super::{Cursor, Entry, Filter, PAGE_DEFAULT, PAGE_MAX, Page};

/// A page ends early once its records reach this size (bounds the memory of one list call).
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

    /// How many entries the engine should fetch: one more than the page holds shows whether there is a next page.
    pub(super) fn fetch_limit(&self) -> usize {
        self.limit + 1
    }

    /// If the page is full, sets its `next` cursor and returns true. Call it only while another entry is available.
    pub(super) fn close_if_full(&mut self) -> bool {
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
