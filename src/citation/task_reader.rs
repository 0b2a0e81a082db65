//! Pages through a task's results in the read order of the retrieval protocol, for the task API.
//!
//! A position in that order is no sufficient cursor: a message that began earlier may end later and references may come
//! after the finish, so new items can appear before the position. Therefore a commit stores the id of every consumed source,
//! and a page holds the first items that are not consumed.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Record, Rules,
    bundle::{FAILED_ID, ItemState, SearchResultItem, bundles_from},
};

/// Failed items per page; the page ends when one more would follow.
pub const MAX_FAILED: usize = 1000;

/// How far a consumer has read, as the protocol has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SearchReadCursor {
    pub task_id: String,
    /// Empty before anything was consumed, as the next.
    pub last_query_id: String,
    pub last_source_id: String,
    pub consumed_count: u64,
    pub updated_at: String,
    /// What a commit of it adds, in read order, failed items among it. Only in the cursor that comes with a page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consumed: Option<Vec<String>>,
}

/// An item, and where it was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TaskItem {
    pub query_id: String,
    pub message_id: String,
    #[serde(flatten)]
    pub item: SearchResultItem,
}

/// One page of a task.
#[derive(Debug, Default)]
pub struct TaskPage {
    pub items: Vec<TaskItem>,
    pub failed: Vec<TaskItem>,
    /// Source ids of `items` and `failed` in read order.
    pub order: Vec<String>,
    /// True if items are left after this page.
    pub more: bool,
}

/// Fills one page with the items of a task. Feed it the messages, oldest first, until the page is full.
pub struct TaskReader<'a> {
    rules: &'a Rules,
    consumed: &'a HashSet<String>,
    limit: usize,
    /// Queries of the messages so far.
    query_count: usize,
    /// Source ids on the page.
    on_page: HashSet<String>,
    page: TaskPage,
}

impl<'a> TaskReader<'a> {
    /// `consumed` holds the source ids to skip, `limit` is the maximum of items on the page.
    pub fn new(rules: &'a Rules, consumed: &'a HashSet<String>, limit: usize) -> Self {
        Self { rules, consumed, limit, query_count: 0, on_page: HashSet::new(), page: TaskPage::default() }
    }

    /// Adds the message's items that are not consumed. Returns false if the page is full.
    pub fn message(&mut self, record: &Record) -> bool {
        let (bundles, query_count) = bundles_from(self.query_count, record, self.rules);
        self.query_count = query_count;
        for bundle in bundles {
            let mut results = bundle.results;
            results.sort_by(|a, b| {
                let key = |item: &SearchResultItem| (is_failed(item), item.rank);
                b.score_final
                    .total_cmp(&a.score_final)
                    .then_with(|| key(a).cmp(&key(b)))
                    .then_with(|| a.source_id.cmp(&b.source_id))
            });
            for item in results {
                // Filtered items are listed in the bundles only.
                let is_known = self.consumed.contains(&item.source_id) || self.on_page.contains(&item.source_id);
                if item.state != ItemState::Filtered && !is_known && !self.push(&bundle.query_id, record, item) {
                    self.page.more = true;
                    return false;
                }
            }
        }
        true
    }

    /// Returns false if the page is full.
    fn push(&mut self, query_id: &str, record: &Record, item: SearchResultItem) -> bool {
        let (list, cap) = match item.state {
            ItemState::Failed { .. } => (&mut self.page.failed, MAX_FAILED),
            ItemState::Ok | ItemState::Filtered => (&mut self.page.items, self.limit),
        };
        if list.len() >= cap {
            return false;
        }
        self.on_page.insert(item.source_id.clone());
        self.page.order.push(item.source_id.clone());
        list.push(TaskItem { query_id: query_id.to_owned(), message_id: record.message_id.clone(), item });
        true
    }

    /// Source ids on the page so far, in read order.
    pub fn order(&self) -> &[String] {
        &self.page.order
    }

    pub fn finish(self) -> TaskPage {
        self.page
    }
}

/// The ids that a commit of `last` covers: all up to it, and the failed ones that follow directly, which a consumer need not
/// confirm. `None` if `last` is not in `order`.
pub fn covered<'a>(order: &'a [String], last: &str) -> Option<&'a [String]> {
    let end = order.iter().position(|id| id == last)? + 1;
    let failed = order.iter().skip(end).take_while(|id| is_failed_source_id(id)).count();
    order.get(..end + failed)
}

/// True for the id of a failed item. Commits cover failed items without counting them.
pub fn is_failed_source_id(source_id: &str) -> bool {
    source_id.starts_with(FAILED_ID)
}

/// True for 32 lower-case hexadecimal digits, alone or after the prefix of failed items.
pub fn is_source_id(id: &str) -> bool {
    let hash = id.strip_prefix(FAILED_ID).unwrap_or(id);
    hash.len() == 32 && hash.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_failed(item: &SearchResultItem) -> bool {
    matches!(item.state, ItemState::Failed { .. })
}

#[cfg(test)]
#[path = "task_reader_tests.rs"]
mod tests;
