//! Counters of a soak run, and its failures.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// The newest messages of a tenant. Generated ids belong to one tenant only.
const KNOWN: usize = 200;

#[derive(Default)]
pub struct Report {
    pub streams: AtomicU64,
    pub requests: AtomicU64,
    pub left: AtomicU64,
    pub stalled: AtomicU64,
    pub altered: AtomicU64,
    pub stored: AtomicU64,
    pub not_stored: AtomicU64,
    pub locks: AtomicU64,
    pub reloads: AtomicU64,
    pub slowest_health_ms: AtomicU64,
    known: Mutex<[VecDeque<(String, bool)>; 2]>,
    counts: Mutex<BTreeMap<String, u64>>,
    faults: Mutex<Vec<String>>,
}

impl Report {
    pub fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Relaxed);
    }

    /// Increments the counter `what`, such as `list 200`.
    pub fn count(&self, what: String) {
        *self.counts.lock().unwrap().entry(what).or_default() += 1;
    }

    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.counts.lock().unwrap().clone()
    }

    pub fn fault(&self, what: String) {
        let mut faults = self.faults.lock().unwrap();
        if faults.len() < 20 {
            faults.push(what);
        }
    }

    pub fn faults(&self) -> Vec<String> {
        self.faults.lock().unwrap().clone()
    }

    /// Counts a response, and reports a fault unless `wanted` has its status.
    pub fn expect(&self, what: &str, status: u16, wanted: &[u16]) {
        Self::add(&self.requests);
        self.count(format!("{what} {status}"));
        if !wanted.contains(&status) {
            self.fault(format!("{what}: {status}, not {wanted:?}"));
        }
    }

    pub fn learn(&self, tenant: usize, id: String, only_here: bool) {
        let known = &mut self.known.lock().unwrap()[tenant];
        known.push_back((id, only_here));
        if known.len() > KNOWN {
            known.pop_front();
        }
    }

    pub fn known(&self, tenant: usize, which: u64) -> Option<(String, bool)> {
        let known = &self.known.lock().unwrap()[tenant];
        let len = known.len() as u64;
        (len > 0).then(|| known[usize::try_from(which % len).unwrap()].clone())
    }
}
