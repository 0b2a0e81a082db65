//! Writes the records of a relayed message to the store. If a record is finished before the route's own search, it is
//! stored at once and amended when the search ends. Watchers of the message get both versions. Called by `observer`.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::oneshot::{self, Receiver},
    time::{Instant, timeout},
};

use super::supplement::{SearchHandle, SearchResult};
use crate::{
    app::{App, in_flight::InFlight},
    citation::{Record, record::SupplementStatus, supplement::merge},
    config::Provider,
    store::{Entry, StoreError},
    telemetry::{ReasonLabel, SupplementLabels},
};

/// The writer's reply to a write: queued, with the result to come, or refused.
type PendingWrite = Result<Receiver<Result<(), StoreError>>, StoreError>;

/// What a record is stored under, and where.
#[derive(Clone)]
pub struct RecordContext {
    pub app: Arc<App>,
    pub route: String,
    /// The route's provider as configured.
    pub provider: Provider,
    pub tenant: String,
    pub created_ms: i64,
}

impl RecordContext {
    fn entry(&self, record: &Record) -> Entry {
        Entry { tenant: self.tenant.clone(), created_ms: self.created_ms, record: record.clone() }
    }

    /// Merges a search result into a record. Sources that joined too late for the event mark the record as late.
    fn merge_result(&self, record: &mut Record, result: &SearchResult, is_late: bool) {
        merge(record, &result.outcome(), &self.app.config.rules.corroboration);
        record.late |= is_late && record.stats.supplement == Some(SupplementStatus::Joined);
    }

    fn count(&self, outcome: &'static str) {
        let labels = SupplementLabels { route: self.route.clone(), outcome };
        self.app.metrics.supplements.get_or_create(&labels).inc();
    }

    fn count_skipped(&self, reason: &'static str) {
        self.count("skipped");
        self.app.metrics.supplements_skipped.get_or_create(&ReasonLabel { reason }).inc();
    }
}

/// The metric label of a record's search; `None` if there was none or it is pending.
fn outcome(record: &Record, is_late: bool) -> Option<&'static str> {
    match record.stats.supplement? {
        SupplementStatus::Joined if is_late => Some("late"),
        SupplementStatus::Joined => Some("joined"),
        SupplementStatus::Empty => Some("empty"),
        SupplementStatus::Failed => Some("failed"),
        SupplementStatus::Pending => None,
    }
}

/// Stores the versions of one message's record.
pub struct Records {
    pub context: RecordContext,
    /// `None` if there is no search, or its result is not needed.
    pub search: Option<SearchHandle>,
    amendment: Option<Arc<Mutex<Amendment>>>,
    /// The search's outcome is in the metrics, or an [`Amender`] will put it there.
    is_counted: bool,
}

/// The last record written and the search result, shared with the [`Amender`]. The result is merged when both are there.
struct Amendment {
    record: Box<Record>,
    /// The result, and whether it is late.
    result: Option<(SearchResult, bool)>,
}

/// A record that was passed to the writer.
pub struct Put {
    pub record: Box<Record>,
    pub write: PendingWrite,
    /// Set if an amended version follows. Drop it after this version was published to watchers.
    pub published: Option<oneshot::Sender<()>>,
}

impl Records {
    pub fn new(context: RecordContext, search: Option<SearchHandle>) -> Self {
        Self { context, search, amendment: None, is_counted: false }
    }

    /// Passes a record to the writer, with the search result if it is there; otherwise an amended version follows.
    /// `has_event`: the client gets an event with this record, so a later result is late.
    pub fn put(&mut self, mut record: Box<Record>, has_event: bool, in_flight: Option<&Arc<InFlight>>) -> Put {
        let context = &self.context;
        if let Some(amendment) = &self.amendment {
            // Locked until the writer has the record, so that an older version cannot overwrite a newer one.
            let mut amendment = lock(amendment);
            amendment.record.clone_from(&record);
            if let Some((result, is_late)) = &amendment.result {
                context.merge_result(&mut record, result, *is_late);
            }
            let write = context.app.writer.put(context.entry(&record));
            return Put { record, write, published: None };
        }
        let is_pending = record.stats.supplement == Some(SupplementStatus::Pending);
        if is_pending && let Some(result) = self.search.as_ref().and_then(SearchHandle::try_result) {
            context.merge_result(&mut record, &result, has_event);
        }
        if let Some(outcome) = outcome(&record, is_pending && has_event).filter(|_| !self.is_counted) {
            self.is_counted = true;
            context.count(outcome);
        }
        let write = context.app.writer.put(context.entry(&record));
        let published = self.spawn_amender(&record, has_event, in_flight);
        Put { record, write, published }
    }

    fn spawn_amender(
        &mut self,
        record: &Record,
        has_event: bool,
        in_flight: Option<&Arc<InFlight>>,
    ) -> Option<oneshot::Sender<()>> {
        if record.stats.supplement != Some(SupplementStatus::Pending) {
            return None;
        }
        let runtime = tokio::runtime::Handle::try_current().ok()?;
        let search = self.search.clone()?;
        let amendment = Arc::new(Mutex::new(Amendment { record: Box::new(record.clone()), result: None }));
        let (published, first_published) = oneshot::channel();
        let grace = if has_event { Duration::ZERO } else { search.max_wait };
        let amender = Amender {
            context: self.context.clone(),
            search,
            amendment: Arc::clone(&amendment),
            late_from: Instant::now() + grace,
            in_flight: in_flight.cloned(),
            first_published,
        };
        runtime.spawn(amender.run());
        self.amendment = Some(amendment);
        self.is_counted = true;
        Some(published)
    }

    /// Called when the message has ended. Drops a search that no record waits for, and counts it as skipped.
    pub fn ended(&mut self, is_finished: bool) {
        let Some(search) = self.search.take().filter(|_| !self.is_counted) else { return };
        self.is_counted = true;
        self.context.count_skipped(match search.try_result() {
            Some(SearchResult::Skipped(reason)) => reason,
            _ if is_finished => "not_needed",
            _ => "not_finished",
        });
    }
}

fn lock(amendment: &Mutex<Amendment>) -> MutexGuard<'_, Amendment> {
    amendment.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The task that waits for a search result and stores the amended record. The search's own timeout ends it.
struct Amender {
    context: RecordContext,
    search: SearchHandle,
    amendment: Arc<Mutex<Amendment>>,
    /// A result from then on is late.
    late_from: Instant,
    in_flight: Option<Arc<InFlight>>,
    /// Closed once watchers have the first version.
    first_published: oneshot::Receiver<()>,
}

impl Amender {
    async fn run(self) {
        let result = self.search.result().await;
        let is_late = Instant::now() >= self.late_from;
        let (record, write) = self.amend(&result, is_late);
        match (&result, outcome(&record, is_late)) {
            (SearchResult::Skipped(reason), _) => self.context.count_skipped(reason),
            (_, Some(outcome)) => self.context.count(outcome),
            (_, None) => {}
        }
        let Some(in_flight) = self.in_flight else { return };
        // Watchers must get this version after the first one.
        let _ = self.first_published.await;
        let limit = self.context.app.config.timeouts.commit;
        let stored = match write {
            Ok(write) => match timeout(limit, write).await {
                // The record was deleted, or replaced by a newer stream: nothing to publish.
                Ok(Ok(Err(StoreError::Gone))) => return,
                written => matches!(written, Ok(Ok(Ok(())))),
            },
            Err(_) => false,
        };
        in_flight.update(Record { stored, ..*record }, true);
    }

    fn amend(&self, result: &SearchResult, is_late: bool) -> (Box<Record>, PendingWrite) {
        let mut amendment = lock(&self.amendment);
        let mut record = amendment.record.clone();
        self.context.merge_result(&mut record, result, is_late);
        amendment.result = Some((result.clone(), is_late));
        let write = self.context.app.writer.amend(self.context.entry(&record));
        (record, write)
    }
}
