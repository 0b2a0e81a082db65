//! Entries whose commit failed, kept for a later try.

use std::collections::VecDeque;

use crate::store::{Entry, terms};

/// Beyond this many the oldest is dropped.
pub(super) const RETRY_MAX: usize = 1024;
/// Beyond this many bytes (about) the oldest is dropped.
pub(super) const RETRY_BYTES: usize = 64 << 20;

#[derive(Default)]
pub(super) struct Retry {
    waiting: VecDeque<Kept>,
    bytes: usize,
}

pub(super) struct Kept {
    pub(super) entry: Entry,
    /// How often it failed alone while the engine was well.
    pub(super) refusals: u32,
}

impl Retry {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Keeps it in place of an older version of the same record. Returns how many were dropped to make room.
    pub(super) fn keep(&mut self, kept: Kept) -> u64 {
        self.supersede(&kept.entry);
        self.bytes += terms::weight(&kept.entry);
        self.waiting.push_back(kept);
        let mut dropped = 0;
        while self.waiting.len() > RETRY_MAX || self.bytes > RETRY_BYTES {
            let Some(oldest) = self.pop() else { break };
            drop(oldest);
            dropped += 1;
        }
        dropped
    }

    /// The oldest ones, at most `count` and about `bytes`.
    pub(super) fn take(&mut self, count: usize, bytes: usize) -> Vec<Kept> {
        let mut taken = Vec::new();
        let mut room = bytes;
        while taken.len() < count && room > 0 {
            let Some(kept) = self.pop() else { break };
            room = room.saturating_sub(terms::weight(&kept.entry));
            taken.push(kept);
        }
        taken
    }

    /// A newer version of this record is stored or kept: the older one must not come after it.
    pub(super) fn supersede(&mut self, newer: &Entry) {
        self.forget(&newer.tenant, &newer.record.message_id, Some(&newer.record.provider));
    }

    /// The version of this record that waits.
    pub(super) fn find(&self, entry: &Entry) -> Option<&Entry> {
        let (id, provider) = (&entry.record.message_id, &entry.record.provider);
        self.waiting.iter().map(|kept| &kept.entry).find(|kept| {
            kept.tenant == entry.tenant && kept.record.message_id == *id && kept.record.provider == *provider
        })
    }

    pub(super) fn forget(&mut self, tenant: &str, id: &str, provider: Option<&str>) -> u64 {
        let before = self.waiting.len();
        let bytes = &mut self.bytes;
        self.waiting.retain(|Kept { entry, .. }| {
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

    fn pop(&mut self) -> Option<Kept> {
        let kept = self.waiting.pop_front()?;
        self.bytes -= terms::weight(&kept.entry);
        Some(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::entry;

    fn kept(id: &str, ms: i64) -> Kept {
        Kept { entry: entry("t", "p", id, ms), refusals: 0 }
    }

    #[test]
    fn at_the_cap_all_stay_and_over_it_the_oldest_goes() {
        let mut retry = Retry::default();
        for n in 0..RETRY_MAX {
            assert_eq!(retry.keep(kept(&n.to_string(), 0)), 0);
        }
        assert_eq!(retry.keep(kept("one more", 0)), 1);
        assert_eq!(retry.len(), RETRY_MAX);
        let ids: Vec<_> = retry.take(1, usize::MAX).into_iter().map(|kept| kept.entry.record.message_id).collect();
        assert_eq!(ids, ["1"]);
    }

    #[test]
    fn bytes_are_bounded_too_and_counted_right() {
        let mut retry = Retry::default();
        let large = || {
            let mut large = kept("large", 0);
            large.entry.record.summary = Some("x".repeat(RETRY_BYTES / 2));
            large
        };
        retry.keep(large());
        assert_eq!(retry.keep(large()), 0, "the same record takes the place of its older version");
        retry.keep(kept("small", 0));
        let mut other = large();
        other.entry.record.message_id = "other".to_owned();
        assert_eq!(retry.keep(other), 1);
        retry.forget("t", "other", None);
        retry.take(9, usize::MAX);
        assert_eq!((retry.len(), retry.bytes), (0, 0));
    }

    #[test]
    fn only_the_newest_version_is_kept() {
        let mut retry = Retry::default();
        retry.keep(kept("a", 1));
        retry.keep(kept("a", 2));
        let versions: Vec<_> = retry.take(9, usize::MAX).into_iter().map(|kept| kept.entry.created_ms).collect();
        assert_eq!(versions, [2]);
    }
}
