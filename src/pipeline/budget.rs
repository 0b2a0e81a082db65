//! Byte buffers within a cap of their own and a budget shared by all streams.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use bytes::{Bytes, BytesMut};

/// Limit on the bytes that all streams hold together.
#[derive(Debug)]
pub struct Budget {
    used: AtomicUsize,
    max: usize,
}

impl Budget {
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), max })
    }

    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn reserve(&self, n: usize) -> bool {
        let before = self.used.fetch_add(n, Ordering::Relaxed);
        if before.saturating_add(n) > self.max {
            self.used.fetch_sub(n, Ordering::Relaxed);
            return false;
        }
        true
    }

    fn release(&self, n: usize) {
        self.used.fetch_sub(n, Ordering::Relaxed);
    }
}

/// Frames from this size get their whole cap reserved at once.
const LARGE: usize = 64 * 1024;
/// Bytes by which a frame may exceed its cap: the LF that [`capped_len`] does not count.
const FINAL_LF: usize = 1;

/// A reservation of the budget for bytes that are held elsewhere, released on drop.
#[derive(Debug)]
pub struct BudgetShare {
    budget: Arc<Budget>,
    n: usize,
}

impl BudgetShare {
    /// Reserves `n` bytes; `None` if the budget is used up.
    pub fn reserve(budget: &Arc<Budget>, n: usize) -> Option<Self> {
        budget.reserve(n).then(|| Self { budget: Arc::clone(budget), n })
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.budget.release(self.n);
    }
}

/// Bytes of a complete frame, or of its last part, that count towards the cap. An LF after the final CR does not count,
/// because it may arrive in the next chunk.
pub fn capped_len(end: &[u8]) -> usize {
    end.len() - usize::from(end.ends_with(b"\r\n"))
}

/// Buffer of one stream. Its bytes count towards the budget until they are taken or dropped.
#[derive(Debug)]
pub struct HeldBytes {
    bytes: BytesMut,
    budget: Arc<Budget>,
    cap: usize,
}

impl HeldBytes {
    pub fn new(budget: Arc<Budget>, cap: usize) -> Self {
        Self { bytes: BytesMut::new(), budget, cap }
    }

    pub fn cap(&self) -> usize {
        self.cap
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Appends bytes. Returns false and appends nothing if the cap or the budget would be exceeded.
    pub fn add(&mut self, more: &[u8]) -> bool {
        self.add_capped(more, more.len())
    }

    /// Appends the last part of a frame, of which [`capped_len`] bytes count towards the cap.
    pub fn add_end(&mut self, end: &[u8]) -> bool {
        self.add_capped(end, capped_len(end))
    }

    fn add_capped(&mut self, more: &[u8], capped_len: usize) -> bool {
        if self.bytes.len() + capped_len > self.cap || !self.budget.reserve(more.len()) {
            return false;
        }
        let needed = self.bytes.len() + more.len();
        if needed > LARGE && self.bytes.capacity() < needed {
            // Growing step by step would leave copies behind, while pages that are never written use no memory.
            self.bytes.reserve(self.cap + FINAL_LF - self.bytes.len());
        }
        self.bytes.extend_from_slice(more);
        true
    }

    /// Returns the bytes and their reservation of the budget.
    pub fn freeze(mut self) -> (Bytes, BudgetShare) {
        let bytes = std::mem::take(&mut self.bytes).freeze();
        let share = BudgetShare { budget: Arc::clone(&self.budget), n: bytes.len() };
        (bytes, share)
    }

    /// Takes the bytes. The reservation of a large frame lasts until its last slice is dropped, which is when hyper has
    /// written it: a client that does not read keeps it in memory. Smaller frames are within what every stream may hold.
    pub fn take(&mut self) -> Bytes {
        let bytes = std::mem::take(&mut self.bytes).freeze();
        let share = BudgetShare { budget: Arc::clone(&self.budget), n: bytes.len() };
        if bytes.len() <= LARGE {
            return bytes;
        }
        Bytes::from_owner(ReservedBytes { bytes, _share: share })
    }
}

/// Bytes with their reservation of the budget.
struct ReservedBytes {
    bytes: Bytes,
    _share: BudgetShare,
}

impl AsRef<[u8]> for ReservedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.budget.release(self.bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_taken_bytes_count_until_dropped() {
        let budget = Budget::new(4 * LARGE);
        for (len, counted) in [(LARGE, 0), (LARGE + 1, LARGE + 1)] {
            let mut held = HeldBytes::new(Arc::clone(&budget), 2 * LARGE);
            assert!(held.add(&vec![b'x'; len]));
            let slice = held.take().slice(1..2);
            assert_eq!(budget.used(), counted, "{len}");
            drop((slice, held));
            assert_eq!(budget.used(), 0, "{len}");
        }
    }
}
