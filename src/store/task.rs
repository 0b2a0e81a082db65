//! How far the consumers of a task have read. Every engine keeps it the same way: the position, and each source that
//! was consumed. It goes when the last record of its task does.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use crate::citation::reading::is_failed_id;

/// Consumers of one task; a further one is refused.
pub const CONSUMERS_MAX: usize = 64;

/// Sources remembered of one consumer. Beyond it the first ones go: what the task still has of them is read again.
pub const CONSUMED_MAX: usize = 65_536;

/// Where a consumer stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Empty until something was consumed, as the next.
    pub query: String,
    pub source: String,
    /// Failed items are passed, not counted.
    pub count: u64,
    pub updated_ms: i64,
}

/// Where a consumer stands, and what it has consumed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    pub position: Position,
    pub consumed: HashSet<String>,
}

/// A commit: these sources are consumed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advance {
    pub tenant: String,
    pub task: String,
    pub consumer: String,
    /// The last query and source consumed; `None` where nothing but failed items was passed.
    pub last: Option<(String, String)>,
    /// In read order, and never none.
    pub sources: Vec<String>,
    pub now_ms: i64,
}

/// What became of it. Only the first changed anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Advanced {
    /// Durable.
    Moved(Position),
    /// That is where the consumer stands already.
    Same(Position),
    /// All of it was consumed before, and the consumer stands elsewhere: never backwards.
    Behind(Position),
    /// No record of the task is there.
    NoTask,
    /// [`CONSUMERS_MAX`]
    TooMany,
}

impl Advance {
    /// The position after it, where `new` sources were not known before.
    pub(super) fn moves<'a>(&self, from: &Position, new: impl Iterator<Item = &'a str>) -> Position {
        let consumed = new.filter(|source| !is_failed_id(source)).count() as u64;
        let (query, source) = self.last.clone().unwrap_or_else(|| (from.query.clone(), from.source.clone()));
        Position { query, source, count: from.count + consumed, updated_ms: self.now_ms.max(from.updated_ms) }
    }

    /// What it is where none of its sources is new.
    pub(super) fn stays(&self, at: Position) -> Advanced {
        let here = self.last.as_ref().is_none_or(|(query, source)| *query == at.query && *source == at.source);
        if here { Advanced::Same(at) } else { Advanced::Behind(at) }
    }
}

/// What a consumer has read, for the stores that change it here: compares and changes like every engine.
#[derive(Default)]
pub(super) struct Consumed {
    pub(super) position: Position,
    consumed: HashSet<Arc<str>>,
    first_to_last: VecDeque<Arc<str>>,
}

impl Consumed {
    /// `sources`: the first consumed first.
    pub(super) fn new(position: Position, sources: Vec<String>) -> Self {
        let first_to_last: VecDeque<Arc<str>> = sources.into_iter().map(Arc::from).collect();
        Self { position, consumed: first_to_last.iter().cloned().collect(), first_to_last }
    }

    pub(super) fn sources(&self) -> Vec<String> {
        self.first_to_last.iter().map(|source| source.to_string()).collect()
    }

    pub(super) fn progress(&self) -> Progress {
        Progress { position: self.position.clone(), consumed: self.sources().into_iter().collect() }
    }

    /// Sources that it remembers.
    pub(super) fn len(&self) -> usize {
        self.consumed.len()
    }

    pub(super) fn advance(&mut self, advance: &Advance) -> Advanced {
        let mut new = Vec::new();
        for source in advance.sources.iter().map(|source| Arc::<str>::from(source.as_str())) {
            if self.consumed.insert(Arc::clone(&source)) {
                self.first_to_last.push_back(Arc::clone(&source));
                new.push(source);
            }
        }
        if new.is_empty() {
            return advance.stays(self.position.clone());
        }
        self.position = advance.moves(&self.position, new.iter().map(|source| &**source));
        while self.consumed.len() > CONSUMED_MAX {
            let Some(first) = self.first_to_last.pop_front() else { break };
            self.consumed.remove(&first);
        }
        Advanced::Moved(self.position.clone())
    }
}
