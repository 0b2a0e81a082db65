//! What the scripted upstream saw, for tests to ask.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Version, request::Parts};

/// Of a request's body so much is kept; the rest is read and counted.
pub const MAX_SEEN_BODY: usize = 1024 * 1024;

/// The newest requests are kept, up to so many and so many bytes of their bodies together; older ones are forgotten.
const MAX_SEEN: usize = 16_384;
const MAX_SEEN_BODIES: usize = 64 * 1024 * 1024;

/// One request, as far as it has come, and how far its answer is.
#[derive(Debug, Clone)]
pub struct Seen {
    pub method: Method,
    /// Path and query as they came.
    pub path: String,
    pub version: Version,
    pub headers: HeaderMap,
    /// Up to [`MAX_SEEN_BODY`].
    pub body: Bytes,
    /// All of it.
    pub body_len: u64,
    /// How much of the answer's body was given to the HTTP layer, which takes more only as the client reads.
    pub bytes_out: u64,
    pub outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Under way, or hanging.
    Open,
    /// All was handed out.
    Ended,
    /// The script broke it.
    Aborted,
    /// The client left first.
    Cancelled,
    /// The upstream was shut down first.
    Stopped,
}

#[derive(Debug, Default)]
pub(super) struct Observed {
    seen: Mutex<Log>,
    pub(super) requests: AtomicUsize,
    pub(super) connections: AtomicUsize,
    pub(super) accepted: AtomicUsize,
    pub(super) cancelled: AtomicUsize,
    pub(super) stopping: AtomicBool,
}

#[derive(Debug, Default)]
struct Log {
    entries: VecDeque<Arc<Entry>>,
    bodies: usize,
}

#[derive(Debug)]
struct Entry {
    method: Method,
    path: String,
    version: Version,
    headers: HeaderMap,
    body: Mutex<(Bytes, u64)>,
    bytes_out: AtomicU64,
    outcome: Mutex<Outcome>,
}

impl Observed {
    pub(super) fn admit(self: &Arc<Self>, parts: &Parts) -> Ticket {
        let path = parts.uri.path_and_query().map_or_else(|| parts.uri.to_string(), ToString::to_string);
        let entry = Arc::new(Entry {
            method: parts.method.clone(),
            path,
            version: parts.version,
            headers: parts.headers.clone(),
            body: Mutex::default(),
            bytes_out: AtomicU64::new(0),
            outcome: Mutex::new(Outcome::Open),
        });
        self.requests.fetch_add(1, Relaxed);
        let mut log = lock(&self.seen);
        log.entries.push_back(Arc::clone(&entry));
        log.shrink();
        drop(log);
        Ticket { entry, observed: Arc::clone(self) }
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        lock(&self.seen).entries.iter().map(|entry| entry.snapshot()).collect()
    }

    pub(super) fn connected(self: &Arc<Self>) -> Connected {
        self.accepted.fetch_add(1, Relaxed);
        self.connections.fetch_add(1, Relaxed);
        Connected(Arc::clone(self))
    }
}

impl Log {
    fn shrink(&mut self) {
        while self.entries.len() > MAX_SEEN || (self.bodies > MAX_SEEN_BODIES && self.entries.len() > 1) {
            if let Some(old) = self.entries.pop_front() {
                self.bodies = self.bodies.saturating_sub(lock(&old.body).0.len());
            }
        }
    }
}

impl Entry {
    fn snapshot(&self) -> Seen {
        let (body, body_len) = lock(&self.body).clone();
        Seen {
            method: self.method.clone(),
            path: self.path.clone(),
            version: self.version,
            headers: self.headers.clone(),
            body,
            body_len,
            bytes_out: self.bytes_out.load(Relaxed),
            outcome: *lock(&self.outcome),
        }
    }
}

/// Goes with a request until its answer is over. Dropped before, it says that the client has left.
pub(super) struct Ticket {
    entry: Arc<Entry>,
    observed: Arc<Observed>,
}

impl Ticket {
    pub(super) fn set(&self, outcome: Outcome) {
        *lock(&self.entry.outcome) = outcome;
    }

    pub(super) fn handed_out(&self, bytes: u64) {
        self.entry.bytes_out.fetch_add(bytes, Relaxed);
    }

    /// The request's body as it stands: what is kept of it, and its length so far.
    pub(super) fn body(&self, kept: &mut BytesMut, len: u64) -> Bytes {
        let body = kept.split().freeze();
        *lock(&self.entry.body) = (body.clone(), len);
        let mut log = lock(&self.observed.seen);
        log.bodies += body.len();
        log.shrink();
        body
    }

    pub(super) fn seen(&self) -> Seen {
        self.entry.snapshot()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut outcome = lock(&self.entry.outcome);
        if *outcome == Outcome::Open {
            if self.observed.stopping.load(Relaxed) {
                *outcome = Outcome::Stopped;
            } else {
                *outcome = Outcome::Cancelled;
                self.observed.cancelled.fetch_add(1, Relaxed);
            }
        }
    }
}

pub(super) struct Connected(Arc<Observed>);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}

/// These locks guard plain values, which a panic elsewhere leaves whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
