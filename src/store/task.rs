//! Read cursors of task consumers. Every engine stores the same: a position and the consumed sources, deleted with the
//! task's last record.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use crate::citation::task_reader::is_failed_source_id;

/// Most consumers of one task; a further one is refused.
pub const CONSUMERS_MAX: usize = 64;

/// Consumed sources remembered per consumer. Above it the oldest are forgotten, and read again if the task still has
/// them.
pub const CONSUMED_SOURCES_MAX: usize = 65_536;

/// How far a consumer has read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Query of the last consumed item; empty until something was consumed.
    pub query: String,
    pub source: String,
    /// Number of consumed items, without failed ones.
    pub count: u64,
    pub updated_ms: i64,
}

/// A consumer's position and consumed sources.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    pub position: Position,
    pub consumed: HashSet<String>,
}

/// A commit: the consumer has consumed these sources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advance {
    pub tenant: String,
    pub task: String,
    pub consumer: String,
    /// Query and source of the last consumed item; `None` if only failed items were passed.
    pub last: Option<(String, String)>,
    /// Sources in read order; never empty.
    pub sources: Vec<String>,
    pub now_ms: i64,
}

/// Result of an [`Advance`]. Only `Moved` changed anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdvanceOutcome {
    /// The cursor moved; durable.
    Moved(Position),
    /// Nothing new; the commit names the current position.
    Unchanged(Position),
    /// Nothing new, and the position is elsewhere: a cursor never moves backwards.
    Behind(Position),
    /// The task has no records.
    NoTask,
    /// The task already has [`CONSUMERS_MAX`] consumers.
    TooManyConsumers,
}

impl Advance {
    /// Position after this commit, given the `new` sources not consumed before.
    pub(super) fn next_position<'a>(&self, from: &Position, new: impl Iterator<Item = &'a str>) -> Position {
        let consumed = new.filter(|source| !is_failed_source_id(source)).count() as u64;
        let (query, source) = self.last.clone().unwrap_or_else(|| (from.query.clone(), from.source.clone()));
        Position { query, source, count: from.count + consumed, updated_ms: self.now_ms.max(from.updated_ms) }
    }

    /// Outcome of a commit without new sources.
    pub(super) fn without_new_sources(&self, at: Position) -> AdvanceOutcome {
        let is_current = self.last.as_ref().is_none_or(|(query, source)| *query == at.query && *source == at.source);
        if is_current { AdvanceOutcome::Unchanged(at) } else { AdvanceOutcome::Behind(at) }
    }
}

/// A consumer's progress, for engines that apply a commit in process memory rather than in the database.
#[derive(Default)]
pub(super) struct Consumed {
    pub(super) position: Position,
    consumed: HashSet<Arc<str>>,
    oldest_first: VecDeque<Arc<str>>,
}

impl Consumed {
    /// `sources` must be oldest first.
    pub(super) fn new(position: Position, sources: Vec<String>) -> Self {
        let oldest_first: VecDeque<Arc<str>> = sources.into_iter().map(Arc::from).collect();
        Self { position, consumed: oldest_first.iter().cloned().collect(), oldest_first }
    }

    pub(super) fn sources(&self) -> Vec<String> {
        self.oldest_first.iter().map(|source| source.to_string()).collect()
    }

    pub(super) fn progress(&self) -> Progress {
        Progress { position: self.position.clone(), consumed: self.sources().into_iter().collect() }
    }

    /// Number of remembered sources.
    pub(super) fn len(&self) -> usize {
        self.consumed.len()
    }

    pub(super) fn advance(&mut self, advance: &Advance) -> AdvanceOutcome {
        let mut new = Vec::new();
        for source in advance.sources.iter().map(|source| Arc::<str>::from(source.as_str())) {
            if self.consumed.insert(Arc::clone(&source)) {
                self.oldest_first.push_back(Arc::clone(&source));
                new.push(source);
            }
        }
        if new.is_empty() {
            return advance.without_new_sources(self.position.clone());
        }
        self.position = advance.next_position(&self.position, new.iter().map(|source| &**source));
        while self.consumed.len() > CONSUMED_SOURCES_MAX {
            let Some(first) = self.oldest_first.pop_front() else { break };
            self.consumed.remove(&first);
        }
        AdvanceOutcome::Moved(self.position.clone())
    }
}
