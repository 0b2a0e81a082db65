//! What the scripted upstream received and sent, for tests to query.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Version, request::Parts};

/// Bytes kept of a request body; the rest is read and counted.
pub const MAX_RECORDED_BODY: usize = 1024 * 1024;

/// Limits for the recorded requests, in number and total body bytes; the oldest are dropped.
const MAX_REQUESTS: usize = 16_384;
const MAX_BODIES_BYTES: usize = 64 * 1024 * 1024;

/// Snapshot of a request and of the progress of its response.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    pub method: Method,
    /// Path and query, as received.
    pub path: String,
    pub version: Version,
    pub headers: HeaderMap,
    /// The first [`MAX_RECORDED_BODY`] bytes.
    pub body: Bytes,
    /// Length of the whole body.
    pub body_len: u64,
    /// Bytes of the response body taken by the HTTP layer, which takes more only as the client reads.
    pub bytes_out: u64,
    pub outcome: Outcome,
}

/// How a response ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// In progress, or hanging.
    Open,
    /// The response was sent completely.
    Ended,
    /// The script aborted it.
    Aborted,
    /// The client left before the end.
    Cancelled,
    /// The upstream was shut down before the end.
    Stopped,
}

#[derive(Debug, Default)]
pub(super) struct RequestLog {
    recorded: Mutex<RecordedRequests>,
    pub(super) requests: AtomicUsize,
    pub(super) connections: AtomicUsize,
    pub(super) accepted: AtomicUsize,
    pub(super) cancelled: AtomicUsize,
    pub(super) stopping: AtomicBool,
}

#[derive(Debug, Default)]
struct RecordedRequests {
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

impl RequestLog {
    pub(super) fn record(self: &Arc<Self>, parts: &Parts) -> ResponseHandle {
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
        let mut recorded = lock(&self.recorded);
        recorded.entries.push_back(Arc::clone(&entry));
        recorded.shrink();
        drop(recorded);
        ResponseHandle { entry, log: Arc::clone(self) }
    }

    pub(super) fn snapshot(&self) -> Vec<RecordedRequest> {
        lock(&self.recorded).entries.iter().map(|entry| entry.snapshot()).collect()
    }

    pub(super) fn connected(self: &Arc<Self>) -> ConnectionGuard {
        self.accepted.fetch_add(1, Relaxed);
        self.connections.fetch_add(1, Relaxed);
        ConnectionGuard(Arc::clone(self))
    }
}

impl RecordedRequests {
    fn shrink(&mut self) {
        while self.entries.len() > MAX_REQUESTS || (self.bodies > MAX_BODIES_BYTES && self.entries.len() > 1) {
            if let Some(old) = self.entries.pop_front() {
                self.bodies = self.bodies.saturating_sub(lock(&old.body).0.len());
            }
        }
    }
}

impl Entry {
    fn snapshot(&self) -> RecordedRequest {
        let (body, body_len) = lock(&self.body).clone();
        RecordedRequest {
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

/// Tracks a request until its response has ended. Dropping it earlier records that the client left.
pub(super) struct ResponseHandle {
    entry: Arc<Entry>,
    log: Arc<RequestLog>,
}

impl ResponseHandle {
    pub(super) fn set(&self, outcome: Outcome) {
        *lock(&self.entry.outcome) = outcome;
    }

    pub(super) fn add_bytes_out(&self, bytes: u64) {
        self.entry.bytes_out.fetch_add(bytes, Relaxed);
    }

    /// Records the request body: the part kept, and its length.
    pub(super) fn body(&self, kept: &mut BytesMut, len: u64) -> Bytes {
        let body = kept.split().freeze();
        *lock(&self.entry.body) = (body.clone(), len);
        let mut recorded = lock(&self.log.recorded);
        recorded.bodies += body.len();
        recorded.shrink();
        body
    }

    pub(super) fn snapshot(&self) -> RecordedRequest {
        self.entry.snapshot()
    }
}

impl Drop for ResponseHandle {
    fn drop(&mut self) {
        let mut outcome = lock(&self.entry.outcome);
        if *outcome == Outcome::Open {
            if self.log.stopping.load(Relaxed) {
                *outcome = Outcome::Stopped;
            } else {
                *outcome = Outcome::Cancelled;
                self.log.cancelled.fetch_add(1, Relaxed);
            }
        }
    }
}

pub(super) struct ConnectionGuard(Arc<RequestLog>);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}

/// Ignores poisoning: these locks guard plain values, which a panic elsewhere leaves consistent.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
