//! Consumer progress by tenant, task and consumer, for the in-memory engine.

use std::{collections::BTreeMap, sync::Arc};

use crate::store::task::{Advance, AdvanceOutcome, CONSUMERS_MAX, Consumed, Progress};

/// Consumed sources remembered over all consumers. Above it the consumer that has been idle longest is forgotten.
pub(super) const SOURCES_MAX: usize = 1_000_000;

type CursorKey = (Arc<str>, Arc<str>, Arc<str>);

#[derive(Default)]
pub(super) struct ConsumerCursors {
    by_key: BTreeMap<CursorKey, Consumed>,
    sources: usize,
}

/// Cost of a consumer towards [`SOURCES_MAX`]; one without sources counts 1.
fn weight(consumed: &Consumed) -> usize {
    consumed.len() + 1
}

impl ConsumerCursors {
    pub(super) fn get(&self, tenant: &str, task: &str, consumer: &str) -> Option<Progress> {
        Some(self.by_key.get(&(tenant.into(), task.into(), consumer.into()))?.progress())
    }

    /// Advances a cursor. The caller has checked that the task has a record.
    pub(super) fn advance(&mut self, advance: &Advance, max_sources: usize) -> AdvanceOutcome {
        let Advance { tenant, task, consumer, .. } = advance;
        let key: CursorKey = (tenant.as_str().into(), task.as_str().into(), consumer.as_str().into());
        if !self.by_key.contains_key(&key) {
            if self.in_task(tenant, task).count() >= CONSUMERS_MAX {
                return AdvanceOutcome::TooManyConsumers;
            }
            self.sources += weight(&Consumed::default());
        }
        let consumed = self.by_key.entry(key).or_default();
        let before = weight(consumed);
        let advanced = consumed.advance(advance);
        self.sources = self.sources + weight(consumed) - before;
        self.evict(max_sources);
        advanced
    }

    /// Deletes the cursors of a task that has no records left.
    pub(super) fn remove_task(&mut self, tenant: &str, task: &str) {
        let keys: Vec<CursorKey> = self.in_task(tenant, task).cloned().collect();
        for key in keys {
            self.remove(&key);
        }
    }

    fn in_task(&self, tenant: &str, task: &str) -> impl Iterator<Item = &CursorKey> {
        let first: CursorKey = (tenant.into(), task.into(), "".into());
        let keys = self.by_key.range(first..).map(|(key, _)| key);
        keys.take_while(move |(of, task_of, _)| **of == *tenant && **task_of == *task)
    }

    fn evict(&mut self, max_sources: usize) {
        while self.sources > max_sources && self.by_key.len() > 1 {
            let idle = self.by_key.iter().min_by_key(|(_, consumed)| consumed.position.updated_ms);
            let Some(idle) = idle.map(|(key, _)| key.clone()) else { return };
            self.remove(&idle);
        }
    }

    fn remove(&mut self, key: &CursorKey) {
        if let Some(consumed) = self.by_key.remove(key) {
            self.sources -= weight(&consumed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advance(consumer: &str, source: usize, now_ms: i64) -> Advance {
        Advance {
            tenant: "t".to_owned(),
            task: "task".to_owned(),
            consumer: consumer.to_owned(),
            last: None,
            sources: vec![source.to_string()],
            now_ms,
        }
    }

    #[test]
    fn cursors_beyond_the_cap_drop_the_idle() {
        let mut cursors = ConsumerCursors::default();
        cursors.advance(&advance("a", 1, 3), 4);
        cursors.advance(&advance("b", 1, 2), 4);
        assert!(cursors.get("t", "task", "b").is_some(), "at the cap");
        cursors.advance(&advance("a", 2, 4), 4);
        assert!(cursors.get("t", "task", "b").is_none() && cursors.get("t", "task", "a").is_some());
        assert_eq!(cursors.sources, 3);
        cursors.remove_task("t", "task");
        assert_eq!((cursors.by_key.len(), cursors.sources), (0, 0));
    }
}
