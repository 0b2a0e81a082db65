//! How far consumers have read, by tenant, task and consumer.

use std::{collections::BTreeMap, sync::Arc};

use crate::store::task::{Advance, Advanced, CONSUMERS_MAX, Consumed, Progress};

/// Sources remembered of all consumers together. Beyond it whoever has not committed for longest starts over.
pub(super) const MAX_SOURCES: usize = 1_000_000;

type Key = (Arc<str>, Arc<str>, Arc<str>);

#[derive(Default)]
pub(super) struct Readers {
    by_key: BTreeMap<Key, Consumed>,
    sources: usize,
}

/// A consumer that has consumed nothing takes room as well.
fn weight(consumed: &Consumed) -> usize {
    consumed.len() + 1
}

impl Readers {
    pub(super) fn get(&self, tenant: &str, task: &str, consumer: &str) -> Option<Progress> {
        Some(self.by_key.get(&(tenant.into(), task.into(), consumer.into()))?.progress())
    }

    /// The task is known to have a record.
    pub(super) fn advance(&mut self, advance: &Advance, max_sources: usize) -> Advanced {
        let Advance { tenant, task, consumer, .. } = advance;
        let key: Key = (tenant.as_str().into(), task.as_str().into(), consumer.as_str().into());
        if !self.by_key.contains_key(&key) {
            if self.of_task(tenant, task).count() >= CONSUMERS_MAX {
                return Advanced::TooMany;
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

    /// The task has no record any more.
    pub(super) fn forget(&mut self, tenant: &str, task: &str) {
        let gone: Vec<Key> = self.of_task(tenant, task).cloned().collect();
        for key in gone {
            self.remove(&key);
        }
    }

    fn of_task(&self, tenant: &str, task: &str) -> impl Iterator<Item = &Key> {
        let first: Key = (tenant.into(), task.into(), "".into());
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

    fn remove(&mut self, key: &Key) {
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
    fn beyond_the_cap_the_idle_start_over() {
        let mut readers = Readers::default();
        readers.advance(&advance("a", 1, 3), 4);
        readers.advance(&advance("b", 1, 2), 4);
        assert!(readers.get("t", "task", "b").is_some(), "at the cap");
        readers.advance(&advance("a", 2, 4), 4);
        assert!(readers.get("t", "task", "b").is_none() && readers.get("t", "task", "a").is_some());
        assert_eq!(readers.sources, 3);
        readers.forget("t", "task");
        assert_eq!((readers.by_key.len(), readers.sources), (0, 0));
    }
}
