//! The writer's loop.
//!
//! # Cancel safety
//!
//! Only the wait for a job or for the next try is ever dropped; neither has taken anything yet.

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
    retry::{Kept, Retry},
};
use crate::store::{
    Entry, Store, StoreError, StoreFut,
    task::{Advance, Advanced},
    terms,
};

/// Entries in one commit.
const BATCH_MAX: usize = 256;
/// A batch that weighs this much takes no further entry.
const BATCH_BYTES: usize = 16 << 20;
/// Between two tries of what failed, and between two looks at an engine that is down.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// An engine that answers nothing for so long has failed.
const ENGINE_TIMEOUT: Duration = Duration::from_secs(30);
/// So many entries failing one after another are the engine's fault, not theirs: the others wait for the next try.
const FAILURES_IN_A_ROW: usize = 8;
/// An entry that the engine refuses so often while it takes others, or answers a ping, is given up (about ten minutes).
const REFUSALS_MAX: u32 = 600;

type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

pub(super) enum Job {
    Put(Box<Entry>, Reply<()>),
    Amend(Box<Entry>, Reply<()>),
    Delete { tenant: String, id: String, provider: Option<String>, reply: Reply<u64> },
    GiveUp { tenant: String, id: String, provider: Option<String> },
    Advance(Box<Advance>, Reply<Advanced>),
    Stop(oneshot::Sender<u64>),
}

pub(super) struct Task {
    store: Arc<dyn Store>,
    queue: mpsc::Receiver<Job>,
    stats: Arc<WriterStats>,
    retry: Retry,
    next_try: Instant,
    /// The engine was asked, or has written: until then nobody knows how it is.
    looked: bool,
}

/// What became of a batch, entry by entry.
struct Outcome {
    results: Vec<Result<(), StoreError>>,
    /// Failed when nothing went in.
    engine: Result<(), StoreError>,
    /// It answered a ping, at least.
    engine_up: bool,
}

impl Task {
    pub(super) fn new(store: Arc<dyn Store>, queue: mpsc::Receiver<Job>, stats: Arc<WriterStats>) -> Self {
        Self { store, queue, stats, retry: Retry::default(), next_try: Instant::now(), looked: false }
    }

    pub(super) async fn run(mut self) {
        let mut stops = Vec::new();
        loop {
            // An unhealthy engine is looked at without traffic too: while we are not ready, none may come.
            let ailing = !self.looked || !self.retry.is_empty() || self.stats.health().failure.is_some();
            tokio::select! {
                job = self.queue.recv() => {
                    let Some(job) = job else { break };
                    stops.extend(self.work(job).await);
                    if !stops.is_empty() {
                        // From here on `put` answers Closed; what is queued is still taken.
                        self.queue.close();
                    }
                }
                () = sleep_until(self.next_try), if ailing && stops.is_empty() => self.try_again().await,
            }
        }
        let lost = self.last_try().await;
        self.store.close().await;
        for stop in stops {
            let _ = stop.send(lost);
        }
    }

    /// Does one job and, when it is a put, all puts that wait behind it. Hands back a request to stop.
    async fn work(&mut self, job: Job) -> Option<oneshot::Sender<u64>> {
        let mut next = Some(job);
        while let Some(job) = next.take() {
            let _busy = self.stats.busy();
            match job {
                Job::Put(entry, reply) => next = self.put_all(*entry, reply).await,
                Job::Amend(entry, reply) => match self.holds(&entry).await {
                    Ok(true) => next = self.put_all(*entry, reply).await,
                    Ok(false) => drop(reply.send(Err(StoreError::Gone))),
                    Err(error) => drop(reply.send(Err(error))),
                },
                Job::Delete { tenant, id, provider, reply } => {
                    let done = self.delete(&tenant, &id, provider.as_deref()).await;
                    let _ = reply.send(done);
                }
                Job::GiveUp { tenant, id, provider } => {
                    self.retry.forget(&tenant, &id, provider.as_deref());
                    self.show_waiting();
                }
                Job::Advance(advance, reply) => {
                    let _ = reply.send(in_time(self.store.advance(&advance)).await);
                }
                Job::Stop(stop) => return Some(stop),
            }
        }
        None
    }

    /// Returns the job that ended the batch, if it was not the queue's end or the batch's cap.
    async fn put_all(&mut self, first: Entry, reply: Reply<()>) -> Option<Job> {
        let mut bytes = terms::weight(&first);
        let (mut entries, mut replies) = (vec![first], vec![reply]);
        let mut other = None;
        while entries.len() < BATCH_MAX && bytes < BATCH_BYTES {
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
        self.looked = true;
        self.set_health(&outcome.engine);
        for ((entry, reply), result) in entries.into_iter().zip(replies).zip(outcome.results) {
            if is_kept(&result) {
                count(&self.stats.committed, 1);
                self.retry.supersede(&entry);
            } else {
                count(&self.stats.failed, 1);
                let dropped = self.retry.keep(Kept { entry, refusals: 0 });
                count(&self.stats.dropped, dropped);
                self.next_try = Instant::now() + RETRY_EVERY;
            }
            let _ = reply.send(result);
        }
        self.show_waiting();
        other
    }

    /// Is an earlier version of this record, of the same stream, stored or waiting to be?
    async fn holds(&self, entry: &Entry) -> Result<bool, StoreError> {
        let record = &entry.record;
        if let Some(waiting) = self.retry.find(entry) {
            return Ok(waiting.record.nonce == record.nonce);
        }
        let stored = in_time(self.store.get(&entry.tenant, &record.message_id, Some(&record.provider))).await?;
        Ok(stored.is_some_and(|stored| stored.record.nonce == record.nonce))
    }

    async fn delete(&mut self, tenant: &str, id: &str, provider: Option<&str>) -> Result<u64, StoreError> {
        let waiting = self.retry.forget(tenant, id, provider);
        self.show_waiting();
        let stored = in_time(self.store.delete(tenant, id, provider)).await?;
        Ok(waiting + stored)
    }

    async fn try_again(&mut self) {
        self.looked = true;
        let _busy = self.stats.busy();
        if self.retry.is_empty() {
            let ping = in_time(self.store.ping()).await;
            self.set_health(&ping);
            self.next_try = Instant::now() + RETRY_EVERY;
        } else if self.retry_some().await == 0 {
            // All of these went in: the rest need not wait, but jobs get their turn first.
            self.next_try = Instant::now();
        } else {
            self.next_try = Instant::now() + RETRY_EVERY;
        }
        self.show_waiting();
    }

    /// Tries the oldest of those that wait. Returns how many failed again; they go to the end of the line.
    async fn retry_some(&mut self) -> usize {
        let kept = self.retry.take(BATCH_MAX, BATCH_BYTES);
        let (entries, refusals): (Vec<_>, Vec<_>) = kept.into_iter().map(|kept| (kept.entry, kept.refusals)).unzip();
        let outcome = self.commit(&entries).await;
        // An entry that is refused again and again says nothing about an engine that took others since.
        if outcome.engine.is_ok() || !outcome.engine_up {
            self.set_health(&outcome.engine);
        }
        let mut failed = 0;
        for ((entry, refusals), result) in entries.into_iter().zip(refusals).zip(outcome.results) {
            if is_kept(&result) {
                count(&self.stats.committed, 1);
                count(&self.stats.retried, 1);
                continue;
            }
            failed += 1;
            let refusals = refusals + u32::from(outcome.engine_up);
            if refusals > REFUSALS_MAX {
                count(&self.stats.dropped, 1);
            } else {
                let dropped = self.retry.keep(Kept { entry, refusals });
                count(&self.stats.dropped, dropped);
            }
        }
        failed
    }

    async fn last_try(&mut self) -> u64 {
        while !self.retry.is_empty() && self.retry_some().await == 0 {}
        let lost = self.retry.len() as u64;
        count(&self.stats.dropped, lost);
        lost
    }

    /// All at once; if that fails though the engine is up, each alone, so that one bad entry does not sink the others.
    async fn commit(&self, entries: &[Entry]) -> Outcome {
        let error = match self.put(entries).await {
            Err(error) if error != StoreError::Volatile => error,
            kept => return Outcome { results: vec![kept; entries.len()], engine: Ok(()), engine_up: true },
        };
        // Against an engine that is down, each entry alone would wait for its own timeout.
        if in_time(self.store.ping()).await.is_err() {
            let results = vec![Err(error.clone()); entries.len()];
            return Outcome { results, engine: Err(error), engine_up: false };
        }
        let mut in_a_row = 0;
        let mut results = Vec::with_capacity(entries.len());
        for entry in entries {
            let result =
                if in_a_row < FAILURES_IN_A_ROW { self.put(slice::from_ref(entry)).await } else { Err(error.clone()) };
            in_a_row = if is_kept(&result) { 0 } else { in_a_row + 1 };
            results.push(result);
        }
        let engine = if results.iter().any(is_kept) { Ok(()) } else { Err(error) };
        Outcome { results, engine, engine_up: true }
    }

    async fn put(&self, entries: &[Entry]) -> Result<(), StoreError> {
        let start = Instant::now();
        let result = in_time(self.store.put(entries)).await;
        if !is_kept(&result) {
            return result;
        }
        let micros = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.stats.last_commit_micros.store(micros, Relaxed);
        count(&self.stats.commits, 1);
        result
    }

    /// Logs changes only: an outage is two lines, however many entries it costs.
    fn set_health(&self, result: &Result<(), StoreError>) {
        let was = std::mem::replace(&mut self.stats.health().failure, result.clone().err());
        match result {
            Err(error) if was.is_none() => tracing::warn!(%error, "store does not write"),
            Ok(()) if was.is_some() => tracing::warn!("store writes again"),
            _ => {}
        }
    }

    fn show_waiting(&self) {
        self.stats.waiting.store(self.retry.len() as u64, Relaxed);
    }
}

async fn in_time<T>(call: StoreFut<'_, T>) -> Result<T, StoreError> {
    timeout(ENGINE_TIMEOUT, call)
        .await
        .unwrap_or_else(|_| Err(StoreError::Engine("the engine does not answer".to_owned())))
}

/// The engine has it. Where it may lose it again nobody is told that it is stored, and to try again would not help.
fn is_kept(result: &Result<(), StoreError>) -> bool {
    matches!(result, Ok(()) | Err(StoreError::Volatile))
}

fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Relaxed);
}
