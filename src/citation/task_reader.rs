//! A task's results in the read order of the retrieval protocol, and the cursor of whoever reads them.
//!
//! A place in that order is not enough to go on from: a message that began earlier may end later, references may come
//! after the finish, and then something new stands before the place. So a reader is told what it has been given, and
//! what it commits is remembered source by source: a page is whatever is left, in order.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Record, Rules,
    bundle::{FAILED_ID, ItemState, SearchResultItem, bundles_from},
};

/// Failed items on a page; it ends at so many.
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

/// One page.
#[derive(Debug, Default)]
pub struct TaskPage {
    pub items: Vec<TaskItem>,
    pub failed: Vec<TaskItem>,
    /// The ids of both, in read order.
    pub order: Vec<String>,
    /// There is something left.
    pub more: bool,
}

/// Reads a task message by message, oldest first, until a page is full.
pub struct TaskReader<'a> {
    rules: &'a Rules,
    consumed: &'a HashSet<String>,
    limit: usize,
    queries: usize,
    taken: HashSet<String>,
    page: TaskPage,
}

impl<'a> TaskReader<'a> {
    /// `consumed`: what is not given again.
    pub fn new(rules: &'a Rules, consumed: &'a HashSet<String>, limit: usize) -> Self {
        Self { rules, consumed, limit, queries: 0, taken: HashSet::new(), page: TaskPage::default() }
    }

    /// Takes what the message adds; false when the page has no room for it.
    pub fn message(&mut self, record: &Record) -> bool {
        let (bundles, queries) = bundles_from(self.queries, record, self.rules);
        self.queries = queries;
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
                // What is filtered is none of the task's evidence; the bundles have it.
                let known = self.consumed.contains(&item.source_id) || self.taken.contains(&item.source_id);
                if item.state != ItemState::Filtered && !known && !self.take(&bundle.query_id, record, item) {
                    self.page.more = true;
                    return false;
                }
            }
        }
        true
    }

    fn take(&mut self, query_id: &str, record: &Record, item: SearchResultItem) -> bool {
        let (list, cap) = match item.state {
            ItemState::Failed { .. } => (&mut self.page.failed, MAX_FAILED),
            ItemState::Ok | ItemState::Filtered => (&mut self.page.items, self.limit),
        };
        if list.len() >= cap {
            return false;
        }
        self.taken.insert(item.source_id.clone());
        self.page.order.push(item.source_id.clone());
        list.push(TaskItem { query_id: query_id.to_owned(), message_id: record.message_id.clone(), item });
        true
    }

    /// The ids on the page so far, in read order.
    pub fn order(&self) -> &[String] {
        &self.page.order
    }

    pub fn finish(self) -> TaskPage {
        self.page
    }
}

/// What is consumed when `last` was: everything up to it, and the failed ones that follow, as they only have to be
/// passed. `None`: it is not in there.
pub fn covered<'a>(order: &'a [String], last: &str) -> Option<&'a [String]> {
    let at = order.iter().position(|id| id == last)? + 1;
    let failed = order.iter().skip(at).take_while(|id| is_failed_source_id(id)).count();
    order.get(..at + failed)
}

/// Of an item that failed: passed, not consumed.
pub fn is_failed_source_id(source_id: &str) -> bool {
    source_id.starts_with(FAILED_ID)
}

/// 32 hexadecimal digits, or those of a failed item.
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
