//! The writer's loop.
//!
//! # Cancel safety
//!
//! `select!` only drops the wait for a job or for the retry timer; neither has consumed anything.

use std::{
    slice,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until, timeout},
};

use super::{
    WriterStats,
    retry::{FailedEntry, RetryQueue},
};
use crate::store::{
    Entry, Store, StoreError, StoreFut,
    task::{Advance, AdvanceOutcome},
    terms,
};

/// Most entries in one commit.
const BATCH_ENTRIES_MAX: usize = 256;
/// A batch of this size takes no further entry.
const BATCH_BYTES_MAX: usize = 16 << 20;
/// Interval between retries, and between pings of an engine that is down.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// An engine call that takes longer counts as failed.
const ENGINE_TIMEOUT: Duration = Duration::from_secs(30);
/// After this many failures in a row, the engine is at fault: leave the rest of the batch to the next retry.
const CONSECUTIVE_FAILURES_MAX: usize = 8;
/// An entry refused this often by a working engine is dropped (about ten minutes).
const REFUSALS_MAX: u32 = 600;

type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

pub(super) enum Job {
    Put(Box<Entry>, Reply<()>),
    Amend(Box<Entry>, Reply<()>),
    Delete { tenant: String, id: String, provider: Option<String>, reply: Reply<u64> },
    CancelRetry { tenant: String, id: String, provider: Option<String> },
    Advance(Box<Advance>, Reply<AdvanceOutcome>),
    Stop(oneshot::Sender<u64>),
}

pub(super) struct WriterTask {
    store: Arc<dyn Store>,
    queue: mpsc::Receiver<Job>,
    stats: Arc<WriterStats>,
    retry: RetryQueue,
    next_retry: Instant,
    /// True once the engine has been pinged or written to; its health is unknown before.
    engine_probed: bool,
}

/// Result of committing a batch.
struct BatchOutcome {
    results: Vec<Result<(), StoreError>>,
    /// `Err` if no entry was stored.
    engine: Result<(), StoreError>,
    /// True if the engine stored something or answered a ping.
    engine_up: bool,
}

impl WriterTask {
    pub(super) fn new(store: Arc<dyn Store>, queue: mpsc::Receiver<Job>, stats: Arc<WriterStats>) -> Self {
        Self { store, queue, stats, retry: RetryQueue::default(), next_retry: Instant::now(), engine_probed: false }
    }

    pub(super) async fn run(mut self) {
        let mut stop_replies = Vec::new();
        loop {
            // Probe an unhealthy engine even without traffic: while not ready, the server gets none.
            let needs_probe = !self.engine_probed || !self.retry.is_empty() || self.stats.health().failure.is_some();
            tokio::select! {
                job = self.queue.recv() => {
                    let Some(job) = job else { break };
                    stop_replies.extend(self.run_job(job).await);
                    if !stop_replies.is_empty() {
                        // From here on `put` returns Closed; jobs already queued are still run.
                        self.queue.close();
                    }
                }
                () = sleep_until(self.next_retry), if needs_probe && stop_replies.is_empty() => self.retry_or_ping().await,
            }
        }
        let lost = self.final_retry().await;
        self.store.close().await;
        for stop in stop_replies {
            let _ = stop.send(lost);
        }
    }

    /// Runs a job and, if it is a put, all puts queued behind it. Returns the reply channel of a stop request.
    async fn run_job(&mut self, job: Job) -> Option<oneshot::Sender<u64>> {
        let mut next = Some(job);
        while let Some(job) = next.take() {
            let _busy = self.stats.busy();
            match job {
                Job::Put(entry, reply) => next = self.put_all(*entry, reply).await,
                Job::Amend(entry, reply) => match self.has_version_of_same_stream(&entry).await {
                    Ok(true) => next = self.put_all(*entry, reply).await,
                    Ok(false) => drop(reply.send(Err(StoreError::Gone))),
                    Err(error) => drop(reply.send(Err(error))),
                },
                Job::Delete { tenant, id, provider, reply } => {
                    let done = self.delete(&tenant, &id, provider.as_deref()).await;
                    let _ = reply.send(done);
                }
                Job::CancelRetry { tenant, id, provider } => {
                    self.retry.remove(&tenant, &id, provider.as_deref());
                    self.update_waiting_gauge();
                }
                Job::Advance(advance, reply) => {
                    let _ = reply.send(with_timeout(self.store.advance(&advance)).await);
                }
                Job::Stop(stop) => return Some(stop),
            }
        }
        None
    }

    /// Returns the job that ended the batch, unless the queue was empty or the batch full.
    async fn put_all(&mut self, first: Entry, reply: Reply<()>) -> Option<Job> {
        let mut bytes = terms::weight(&first);
        let (mut entries, mut replies) = (vec![first], vec![reply]);
        let mut other = None;
        while entries.len() < BATCH_ENTRIES_MAX && bytes < BATCH_BYTES_MAX {
            match self.queue.try_recv() {
                Ok(Job::Put(entry, reply)) => {
                    bytes += terms::weight(&entry);
                    entries.push(*entry);
                    replies.push(reply);
                }
                Ok(job) => {
                    other = Some(job);
                    break;
                }
                Err(_) => break,
            }
        }
        let outcome = self.commit(&entries).await;
        self.engine_probed = true;
        self.set_health(&outcome.engine);
        for ((entry, reply), result) in entries.into_iter().zip(replies).zip(outcome.results) {
            if is_accepted(&result) {
                add(&self.stats.committed, 1);
                self.retry.remove_older_version(&entry);
            } else {
                add(&self.stats.failed, 1);
                let dropped = self.retry.push(FailedEntry { entry, refusals: 0 });
                add(&self.stats.dropped, dropped);
                self.next_retry = Instant::now() + RETRY_INTERVAL;
            }
            let _ = reply.send(result);
        }
        self.update_waiting_gauge();
        other
    }

    /// True if an earlier version of this record, from the same stream, is stored or waits for a retry.
    async fn has_version_of_same_stream(&self, entry: &Entry) -> Result<bool, StoreError> {
        let record = &entry.record;
        if let Some(waiting) = self.retry.find(entry) {
            return Ok(waiting.record.nonce == record.nonce);
        }
        let stored = with_timeout(self.store.get(&entry.tenant, &record.message_id, Some(&record.provider))).await?;
        Ok(stored.is_some_and(|stored| stored.record.nonce == record.nonce))
    }

    async fn delete(&mut self, tenant: &str, id: &str, provider: Option<&str>) -> Result<u64, StoreError> {
        let waiting = self.retry.remove(tenant, id, provider);
        self.update_waiting_gauge();
        let stored = with_timeout(self.store.delete(tenant, id, provider)).await?;
        Ok(waiting + stored)
    }

    async fn retry_or_ping(&mut self) {
        self.engine_probed = true;
        let _busy = self.stats.busy();
        if self.retry.is_empty() {
            let ping = with_timeout(self.store.ping()).await;
            self.set_health(&ping);
            self.next_retry = Instant::now() + RETRY_INTERVAL;
        } else if self.retry_batch().await == 0 {
            // The whole batch was stored: continue with the rest at once, but let queued jobs go first.
            self.next_retry = Instant::now();
        } else {
            self.next_retry = Instant::now() + RETRY_INTERVAL;
        }
        self.update_waiting_gauge();
    }

    /// Retries the oldest entries and returns how many failed again; those go to the back of the queue.
    async fn retry_batch(&mut self) -> usize {
        let failed_entries = self.retry.pop_batch(BATCH_ENTRIES_MAX, BATCH_BYTES_MAX);
        let (entries, refusals): (Vec<_>, Vec<_>) =
            failed_entries.into_iter().map(|failed| (failed.entry, failed.refusals)).unzip();
        let outcome = self.commit(&entries).await;
        // Repeated refusals of single entries say nothing about an engine that stores others.
        if outcome.engine.is_ok() || !outcome.engine_up {
            self.set_health(&outcome.engine);
        }
        let mut failed = 0;
        for ((entry, refusals), result) in entries.into_iter().zip(refusals).zip(outcome.results) {
            if is_accepted(&result) {
                add(&self.stats.committed, 1);
                add(&self.stats.retried, 1);
                continue;
            }
            failed += 1;
            let refusals = refusals + u32::from(outcome.engine_up);
            if refusals > REFUSALS_MAX {
                add(&self.stats.dropped, 1);
            } else {
                let dropped = self.retry.push(FailedEntry { entry, refusals });
                add(&self.stats.dropped, dropped);
            }
        }
        failed
    }

    async fn final_retry(&mut self) -> u64 {
        while !self.retry.is_empty() && self.retry_batch().await == 0 {}
        let lost = self.retry.len() as u64;
        add(&self.stats.dropped, lost);
        lost
    }

    /// Commits all entries at once. If that fails while the engine is up, commits them one by one, so that a bad entry
    /// does not fail the others.
    async fn commit(&self, entries: &[Entry]) -> BatchOutcome {
        let error = match self.put(entries).await {
            Err(error) if error != StoreError::Volatile => error,
            accepted => {
                return BatchOutcome { results: vec![accepted; entries.len()], engine: Ok(()), engine_up: true };
            }
        };
        // With the engine down, each single commit would only run into its timeout.
        if with_timeout(self.store.ping()).await.is_err() {
            let results = vec![Err(error.clone()); entries.len()];
            return BatchOutcome { results, engine: Err(error), engine_up: false };
        }
        let mut consecutive_failures = 0;
        let mut results = Vec::with_capacity(entries.len());
        for entry in entries {
            let result = if consecutive_failures < CONSECUTIVE_FAILURES_MAX {
                self.put(slice::from_ref(entry)).await
            } else {
                Err(error.clone())
            };
            consecutive_failures = if is_accepted(&result) { 0 } else { consecutive_failures + 1 };
            results.push(result);
        }
        let engine = if results.iter().any(is_accepted) { Ok(()) } else { Err(error) };
        BatchOutcome { results, engine, engine_up: true }
    }

    async fn put(&self, entries: &[Entry]) -> Result<(), StoreError> {
        let start = Instant::now();
        let result = with_timeout(self.store.put(entries)).await;
        if !is_accepted(&result) {
            return result;
        }
        let micros = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.stats.last_commit_micros.store(micros, Relaxed);
        add(&self.stats.commits, 1);
        result
    }

    /// Logs transitions only: an outage is two lines, however many entries it affects.
    fn set_health(&self, result: &Result<(), StoreError>) {
        let was = std::mem::replace(&mut self.stats.health().failure, result.clone().err());
        match result {
            Err(error) if was.is_none() => tracing::warn!(%error, "store does not write"),
            Ok(()) if was.is_some() => tracing::warn!("store writes again"),
            _ => {}
        }
    }

    fn update_waiting_gauge(&self) {
        self.stats.waiting.store(self.retry.len() as u64, Relaxed);
    }
}

async fn with_timeout<T>(call: StoreFut<'_, T>) -> Result<T, StoreError> {
    timeout(ENGINE_TIMEOUT, call)
        .await
        .unwrap_or_else(|_| Err(StoreError::Engine("the engine does not answer".to_owned())))
}

/// True if the engine has the entry. A volatile write counts: it must not be reported as stored, but retrying would not
/// help.
fn is_accepted(result: &Result<(), StoreError>) -> bool {
    matches!(result, Ok(()) | Err(StoreError::Volatile))
}

fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Relaxed);
}
