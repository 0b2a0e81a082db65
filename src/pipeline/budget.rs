//! The incomplete last frame, within its caps.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use bytes::{Bytes, BytesMut};

/// Bytes that all streams together may hold.
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

    fn take(&self, n: usize) -> bool {
        let before = self.used.fetch_add(n, Ordering::Relaxed);
        if before.saturating_add(n) > self.max {
            self.used.fetch_sub(n, Ordering::Relaxed);
            return false;
        }
        true
    }

    fn give(&self, n: usize) {
        self.used.fetch_sub(n, Ordering::Relaxed);
    }
}

/// Bytes from which a frame counts as large.
const LARGE: usize = 64 * 1024;
/// Bytes of a frame that may exceed its cap: the LF of its last line end.
const END: usize = 1;

/// A part of the budget, for bytes that are held elsewhere. Given back when dropped.
#[derive(Debug)]
pub struct BudgetShare {
    budget: Arc<Budget>,
    n: usize,
}

impl BudgetShare {
    /// `None`: the budget is used up.
    pub fn reserve(budget: &Arc<Budget>, n: usize) -> Option<Self> {
        budget.take(n).then(|| Self { budget: Arc::clone(budget), n })
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.budget.give(self.n);
    }
}

/// So many bytes of a whole frame, or of its end, count towards the cap: all but an LF behind the CR that has ended the
/// frame, as that may come in a chunk of its own.
pub fn counted(end: &[u8]) -> usize {
    end.len() - usize::from(end.ends_with(b"\r\n"))
}

/// What one stream holds. Gives its share back when dropped.
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

    /// Adds to the frame; `false`: that would pass a cap, and nothing was added.
    pub fn add(&mut self, more: &[u8]) -> bool {
        self.add_counted(more, more.len())
    }

    /// The same of a frame's end.
    pub fn add_end(&mut self, end: &[u8]) -> bool {
        self.add_counted(end, counted(end))
    }

    fn add_counted(&mut self, more: &[u8], counted: usize) -> bool {
        if self.bytes.len() + counted > self.cap || !self.budget.take(more.len()) {
            return false;
        }
        let needed = self.bytes.len() + more.len();
        if needed > LARGE && self.bytes.capacity() < needed {
            // A frame this large has room for the cap at once: growing step by step would leave copies of it behind, while
            // pages that are not written to take no memory.
            self.bytes.reserve(self.cap + END - self.bytes.len());
        }
        self.bytes.extend_from_slice(more);
        true
    }

    /// All of it, and its share of the budget for whoever holds it now.
    pub fn freeze(mut self) -> (Bytes, BudgetShare) {
        let bytes = std::mem::take(&mut self.bytes).freeze();
        let share = BudgetShare { budget: Arc::clone(&self.budget), n: bytes.len() };
        (bytes, share)
    }

    /// All of it; nothing is held afterwards.
    pub fn take(&mut self) -> Bytes {
        self.budget.give(self.bytes.len());
        std::mem::take(&mut self.bytes).freeze()
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.budget.give(self.bytes.len());
    }
}
