//! Bounded queue of entries whose commit failed.

use std::collections::VecDeque;

use crate::store::{Entry, terms};

/// Above this many entries the oldest is dropped.
pub(super) const RETRY_ENTRIES_MAX: usize = 1024;
/// Above about this many bytes the oldest entry is dropped.
pub(super) const RETRY_BYTES_MAX: usize = 64 << 20;

#[derive(Default)]
pub(super) struct RetryQueue {
    waiting: VecDeque<FailedEntry>,
    bytes: usize,
}

pub(super) struct FailedEntry {
    pub(super) entry: Entry,
    /// Failures of this entry while the engine was up.
    pub(super) refusals: u32,
}

impl RetryQueue {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Queues an entry, replacing an older version of the record. Returns how many entries were dropped to make room.
    pub(super) fn push(&mut self, failed: FailedEntry) -> u64 {
        self.remove_older_version(&failed.entry);
        self.bytes += terms::weight(&failed.entry);
        self.waiting.push_back(failed);
        let mut dropped = 0;
        while self.waiting.len() > RETRY_ENTRIES_MAX || self.bytes > RETRY_BYTES_MAX {
            let Some(oldest) = self.pop() else { break };
            drop(oldest);
            dropped += 1;
        }
        dropped
    }

    /// Removes and returns the oldest entries: at most `count`, and about `bytes` in size.
    pub(super) fn pop_batch(&mut self, count: usize, bytes: usize) -> Vec<FailedEntry> {
        let mut taken = Vec::new();
        let mut room = bytes;
        while taken.len() < count && room > 0 {
            let Some(failed) = self.pop() else { break };
            room = room.saturating_sub(terms::weight(&failed.entry));
            taken.push(failed);
        }
        taken
    }

    /// Removes the queued version of a record of which a newer one was stored, so that a retry cannot overwrite it.
    pub(super) fn remove_older_version(&mut self, newer: &Entry) {
        self.remove(&newer.tenant, &newer.record.message_id, Some(&newer.record.provider));
    }

    /// The queued version of this record.
    pub(super) fn find(&self, entry: &Entry) -> Option<&Entry> {
        let (id, provider) = (&entry.record.message_id, &entry.record.provider);
        self.waiting.iter().map(|failed| &failed.entry).find(|failed| {
            failed.tenant == entry.tenant && failed.record.message_id == *id && failed.record.provider == *provider
        })
    }

    pub(super) fn remove(&mut self, tenant: &str, id: &str, provider: Option<&str>) -> u64 {
        let before = self.waiting.len();
        let bytes = &mut self.bytes;
        self.waiting.retain(|FailedEntry { entry, .. }| {
            let same = entry.tenant == tenant
                && entry.record.message_id == id
                && provider.is_none_or(|provider| entry.record.provider == provider);
            if same {
                *bytes -= terms::weight(entry);
            }
            !same
        });
        (before - self.waiting.len()) as u64
    }

    fn pop(&mut self) -> Option<FailedEntry> {
        let failed = self.waiting.pop_front()?;
        self.bytes -= terms::weight(&failed.entry);
        Some(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::entry;

    fn failed(id: &str, ms: i64) -> FailedEntry {
        FailedEntry { entry: entry("t", "p", id, ms), refusals: 0 }
    }

    #[test]
    fn retry_queue_at_the_cap_drops_the_oldest() {
        let mut retry = RetryQueue::default();
        for n in 0..RETRY_ENTRIES_MAX {
            assert_eq!(retry.push(failed(&n.to_string(), 0)), 0);
        }
        assert_eq!(retry.push(failed("one more", 0)), 1);
        assert_eq!(retry.len(), RETRY_ENTRIES_MAX);
        let ids: Vec<_> =
            retry.pop_batch(1, usize::MAX).into_iter().map(|failed| failed.entry.record.message_id).collect();
        assert_eq!(ids, ["1"]);
    }

    #[test]
    fn retry_queue_bounds_and_counts_bytes() {
        let mut retry = RetryQueue::default();
        let large = || {
            let mut large = failed("large", 0);
            large.entry.record.summary = Some("x".repeat(RETRY_BYTES_MAX / 2));
            large
        };
        retry.push(large());
        assert_eq!(retry.push(large()), 0, "the same record takes the place of its older version");
        retry.push(failed("small", 0));
        let mut other = large();
        other.entry.record.message_id = "other".to_owned();
        assert_eq!(retry.push(other), 1);
        retry.remove("t", "other", None);
        retry.pop_batch(9, usize::MAX);
        assert_eq!((retry.len(), retry.bytes), (0, 0));
    }

    #[test]
    fn retry_queue_keeps_the_newest_version() {
        let mut retry = RetryQueue::default();
        retry.push(failed("a", 1));
        retry.push(failed("a", 2));
        let versions: Vec<_> =
            retry.pop_batch(9, usize::MAX).into_iter().map(|failed| failed.entry.created_ms).collect();
        assert_eq!(versions, [2]);
    }
}
