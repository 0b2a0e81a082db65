//! The one task that writes. A request hands its entry over and may die: the entry is written all the same.
//!
//! Entries that wait together are committed together. One that fails is answered with the error, kept, and tried again
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

use self::task::{Job, Task};
use super::{
    Entry, Store, StoreError,
    task::{Advance, Advanced},
};

/// A write that is under way for so long is told as trouble: an engine may wait for a lock much longer than any chat does.
const LONG: Duration = Duration::from_secs(2);

/// A handle on the task. When the last one goes, the task flushes and closes the store, as after [`Writer::shutdown`].
#[derive(Clone)]
pub struct Writer {
    queue: mpsc::Sender<Job>,
    stats: Arc<WriterStats>,
}

/// Counters since the start, for whoever shows them.
#[derive(Debug)]
pub struct WriterStats {
    /// Entries stored, at once or later.
    pub committed: AtomicU64,
    /// Entries whose first commit failed.
    pub failed: AtomicU64,
    /// Entries stored by a later try.
    pub retried: AtomicU64,
    /// Entries lost for good: the retry buffer was full, the engine kept refusing them, or it was down at shutdown.
    pub dropped: AtomicU64,
    /// Entries refused because the queue was full.
    pub refused: AtomicU64,
    /// Entries waiting for a later try, now.
    pub waiting: AtomicU64,
    /// Successful calls of `Store::put`.
    pub commits: AtomicU64,
    last_commit_micros: AtomicU64,
    health: Mutex<Health>,
}

#[derive(Debug, Default)]
struct Health {
    /// Why the last write failed.
    failure: Option<StoreError>,
    /// When the task began what it is doing.
    busy: Option<Instant>,
}

/// The task is at the engine until this is dropped.
struct Busy(Arc<WriterStats>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.health().busy = None;
    }
}

impl WriterStats {
    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn busy(self: &Arc<Self>) -> Busy {
        self.health().busy = Some(Instant::now());
        Busy(Arc::clone(self))
    }

    /// How long the last successful commit took.
    pub fn last_commit(&self) -> Duration {
        Duration::from_micros(self.last_commit_micros.load(Relaxed))
    }
}

impl Writer {
    /// Starts the task on the current tokio runtime. `queue` entries may wait (at least one, at most what tokio takes).
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
        tokio::spawn(Task::new(store, receiver, Arc::clone(&stats)).run());
        Self { queue: sender, stats }
    }

    /// Hands an entry over without waiting. The receiver tells when it is durable; dropping it changes nothing.
    /// A receiver that ends without a value means that the task died: not stored.
    pub fn put(&self, entry: Entry) -> Result<oneshot::Receiver<Result<(), StoreError>>, StoreError> {
        self.hand_over(|reply| Job::Put(Box::new(entry), reply))
    }

    /// The same for a later version of a record that was put before: one that was deleted since does not come back, and
    /// one of a newer stream with the same id stays. Those are answered with [`StoreError::Gone`].
    pub fn amend(&self, entry: Entry) -> Result<oneshot::Receiver<Result<(), StoreError>>, StoreError> {
        self.hand_over(|reply| Job::Amend(Box::new(entry), reply))
    }

    fn hand_over(
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

    /// Forgets a record, also one that still waits to be stored. `Store::delete` alone would let that one come back.
    /// Takes its turn in the queue, so give it a time limit.
    pub async fn delete(&self, tenant: &str, id: &str, provider: Option<&str>) -> Result<u64, StoreError> {
        let (reply, receiver) = oneshot::channel();
        let job =
            Job::Delete { tenant: tenant.to_owned(), id: id.to_owned(), provider: provider.map(str::to_owned), reply };
        self.queue.send(job).await.map_err(|_| StoreError::Closed)?;
        receiver.await.unwrap_or(Err(StoreError::Closed))
    }

    /// A record was deleted elsewhere: one that still waits to be stored must not bring it back.
    pub fn give_up(&self, tenant: String, id: String, provider: Option<String>) {
        // A queue that is full is one of puts: what it holds was not there to be deleted.
        let _ = self.queue.try_send(Job::GiveUp { tenant, id, provider });
    }

    /// Commits how far a consumer has read: durable when it answers, and done also when the asker has left. Not tried
    /// again if it fails: the consumer does that. Takes its turn in the queue, so give it a time limit.
    pub async fn advance(&self, advance: Advance) -> Result<Advanced, StoreError> {
        let (reply, receiver) = oneshot::channel();
        self.queue.send(Job::Advance(Box::new(advance), reply)).await.map_err(|_| StoreError::Closed)?;
        receiver.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Jobs in the queue.
    pub fn depth(&self) -> usize {
        self.queue.max_capacity() - self.queue.capacity()
    }

    /// Jobs that it takes.
    pub fn limit(&self) -> usize {
        self.queue.max_capacity()
    }

    /// Why nothing is stored now: a failed commit, until the store works again; one that takes long; a task that is gone.
    pub fn trouble(&self) -> Option<StoreError> {
        if self.queue.is_closed() {
            return Some(StoreError::Closed);
        }
        let health = self.stats.health();
        let long = health.busy.is_some_and(|began| began.elapsed() > LONG);
        health.failure.clone().or_else(|| long.then(|| StoreError::Engine("a write takes long".to_owned())))
    }

    pub fn healthy(&self) -> bool {
        self.trouble().is_none()
    }

    pub fn stats(&self) -> &Arc<WriterStats> {
        &self.stats
    }

    /// Takes no more entries, commits those that wait, closes the store. Returns how many entries could not be stored.
    pub async fn shutdown(self) -> u64 {
        let (reply, receiver) = oneshot::channel();
        // Waits for a place in a full queue. When somebody else has shut the task down, there is nothing left to do.
        match self.queue.send(Job::Stop(reply)).await {
            Ok(()) => receiver.await.unwrap_or(0),
            Err(_) => 0,
        }
    }
}
