//! The writer task: the only place that writes records. A write continues after its request is dropped.
//!
//! Entries that queue up are committed in one batch. An entry that fails is reported to its caller, kept and retried
//! until it is stored, so a record can become durable after its event said `stored: false`.

mod retry;
mod task;
#[cfg(test)]
mod tests;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio::sync::{
    Semaphore,
    mpsc::{self, error::TrySendError},
    oneshot,
};

use self::task::{Job, WriterTask};
use super::{
    Entry, Store, StoreError,
    task::{Advance, AdvanceOutcome},
};

/// A write that takes longer is reported as unhealthy (an engine may wait for a lock much longer than a chat can).
const SLOW_WRITE: Duration = Duration::from_secs(2);

/// Handle of the writer task. Dropping the last one flushes and closes the store, as [`Writer::shutdown`] does.
#[derive(Clone)]
pub struct Writer {
    queue: mpsc::Sender<Job>,
    stats: Arc<WriterStats>,
}

/// Counters since start, read by the metrics and the console.
#[derive(Debug)]
pub struct WriterStats {
    /// Entries stored, on the first try or a later one.
    pub committed: AtomicU64,
    /// Entries whose first commit failed.
    pub failed: AtomicU64,
    /// Entries stored by a retry.
    pub retried: AtomicU64,
    /// Entries lost: the retry queue was full, the engine kept refusing them, or it was down at shutdown.
    pub dropped: AtomicU64,
    /// Entries refused because the queue was full.
    pub refused: AtomicU64,
    /// Entries waiting for a retry now.
    pub waiting: AtomicU64,
    /// Successful calls of `Store::put`.
    pub commits: AtomicU64,
    last_commit_micros: AtomicU64,
    health: Mutex<Health>,
}

#[derive(Debug, Default)]
struct Health {
    /// Error of the last write, if it failed.
    failure: Option<StoreError>,
    /// Start of the engine call in progress.
    busy: Option<Instant>,
}

/// Marks an engine call as in progress until dropped.
struct BusyGuard(Arc<WriterStats>);

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.health().busy = None;
    }
}

impl WriterStats {
    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn busy(self: &Arc<Self>) -> BusyGuard {
        self.health().busy = Some(Instant::now());
        BusyGuard(Arc::clone(self))
    }

    /// Duration of the last successful commit.
    pub fn last_commit(&self) -> Duration {
        Duration::from_micros(self.last_commit_micros.load(Relaxed))
    }
}

impl Writer {
    /// Starts the writer task on the current tokio runtime. `queue` is its capacity, clamped to what tokio allows.
    pub fn spawn(store: Arc<dyn Store>, queue: usize) -> Self {
        let (sender, receiver) = mpsc::channel(queue.clamp(1, Semaphore::MAX_PERMITS));
        let stats = Arc::new(WriterStats {
            committed: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            retried: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            last_commit_micros: AtomicU64::new(0),
            health: Mutex::default(),
        });
        tokio::spawn(WriterTask::new(store, receiver, Arc::clone(&stats)).run());
        Self { queue: sender, stats }
    }

    /// Queues an entry without waiting. The receiver resolves once the entry is durable, and may be dropped. If it
    /// closes without a value, the task has died and the entry is not stored.
    pub fn put(&self, entry: Entry) -> Result<oneshot::Receiver<Result<(), StoreError>>, StoreError> {
        self.enqueue(|reply| Job::Put(Box::new(entry), reply))
    }

    /// [`put`](Self::put) for a later version of a stored record. Fails with [`StoreError::Gone`] if the record was
    /// deleted since or belongs to a newer stream.
    pub fn amend(&self, entry: Entry) -> Result<oneshot::Receiver<Result<(), StoreError>>, StoreError> {
        self.enqueue(|reply| Job::Amend(Box::new(entry), reply))
    }

    fn enqueue(
        &self,
        job: impl FnOnce(oneshot::Sender<Result<(), StoreError>>) -> Job,
    ) -> Result<oneshot::Receiver<Result<(), StoreError>>, StoreError> {
        let (reply, receiver) = oneshot::channel();
        match self.queue.try_send(job(reply)) {
            Ok(()) => Ok(receiver),
            Err(TrySendError::Full(_)) => {
                self.stats.refused.fetch_add(1, Relaxed);
                Err(StoreError::Full)
            }
            Err(TrySendError::Closed(_)) => Err(StoreError::Closed),
        }
    }

    /// Deletes a record from the store and from the retry queue; `Store::delete` alone would let a retry restore it.
    /// Waits for its turn in the queue: use a timeout.
    pub async fn delete(&self, tenant: &str, id: &str, provider: Option<&str>) -> Result<u64, StoreError> {
        let (reply, receiver) = oneshot::channel();
        let job =
            Job::Delete { tenant: tenant.to_owned(), id: id.to_owned(), provider: provider.map(str::to_owned), reply };
        self.queue.send(job).await.map_err(|_| StoreError::Closed)?;
        receiver.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Removes a record that was deleted by another replica from the retry queue.
    pub fn cancel_retry(&self, tenant: String, id: String, provider: Option<String>) {
        // Dropped if the queue is full: the queued entries were put after the deletion.
        let _ = self.queue.try_send(Job::CancelRetry { tenant, id, provider });
    }

    /// Commits a consumer's progress; durable on return, and completed even if the caller is dropped. Not retried on
    /// failure, because the consumer does that. Waits for its turn in the queue: use a timeout.
    pub async fn advance(&self, advance: Advance) -> Result<AdvanceOutcome, StoreError> {
        let (reply, receiver) = oneshot::channel();
        self.queue.send(Job::Advance(Box::new(advance), reply)).await.map_err(|_| StoreError::Closed)?;
        receiver.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Number of queued jobs.
    pub fn queue_depth(&self) -> usize {
        self.queue.max_capacity() - self.queue.capacity()
    }

    /// Capacity of the queue.
    pub fn queue_capacity(&self) -> usize {
        self.queue.max_capacity()
    }

    /// Why records are not being stored now: the last commit failed, a write is slow, or the task has ended.
    pub fn unhealthy_reason(&self) -> Option<StoreError> {
        if self.queue.is_closed() {
            return Some(StoreError::Closed);
        }
        let health = self.stats.health();
        let long = health.busy.is_some_and(|began| began.elapsed() > SLOW_WRITE);
        health.failure.clone().or_else(|| long.then(|| StoreError::Engine("a write takes long".to_owned())))
    }

    pub fn is_healthy(&self) -> bool {
        self.unhealthy_reason().is_none()
    }

    pub fn stats(&self) -> &Arc<WriterStats> {
        &self.stats
    }

    /// Stops accepting entries, commits the queued ones and closes the store. Returns how many entries were lost.
    pub async fn shutdown(self) -> u64 {
        let (reply, receiver) = oneshot::channel();
        // Waits for room in the queue. An error means that the task was shut down already.
        match self.queue.send(Job::Stop(reply)).await {
            Ok(()) => receiver.await.unwrap_or(0),
            Err(_) => 0,
        }
    }
}
