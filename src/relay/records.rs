//! The way of a message's record to the store. A record that was finished before its search had answered is followed
//! by a later version of itself, and those who watch the message hear of both.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::oneshot::{self, Receiver},
    time::{Instant, timeout},
};

use super::supplement::{Search, Searched};
use crate::{
    app::{App, in_flight::InFlight},
    citation::{Record, record::SupplementStatus, supplement::merge},
    config::Provider,
    store::{Entry, StoreError},
    telemetry::{ReasonLabel, SupplementLabels},
};

/// What the writer says to a put.
type Stored = Result<Receiver<Result<(), StoreError>>, StoreError>;

/// Whose record it is.
#[derive(Clone)]
pub struct RecordContext {
    pub app: Arc<App>,
    pub route: String,
    /// As configured.
    pub provider: Provider,
    pub tenant: String,
    pub created_ms: i64,
}

impl RecordContext {
    fn entry(&self, record: &Record) -> Entry {
        Entry { tenant: self.tenant.clone(), created_ms: self.created_ms, record: record.clone() }
    }

    /// Gives a record that waits for its search the answer. What an event could not name any more is late.
    fn complete(&self, record: &mut Record, searched: &Searched, late: bool) {
        merge(record, &searched.supply(), &self.app.config.rules.corroboration);
        record.late |= late && record.stats.supplement == Some(SupplementStatus::Joined);
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

/// `None` while nothing is known, and where there was nothing to know.
fn outcome(record: &Record, late: bool) -> Option<&'static str> {
    match record.stats.supplement? {
        SupplementStatus::Joined if late => Some("late"),
        SupplementStatus::Joined => Some("joined"),
        SupplementStatus::Empty => Some("empty"),
        SupplementStatus::Failed => Some("failed"),
        SupplementStatus::Pending => None,
    }
}

pub struct Records {
    pub owner: RecordContext,
    /// Dropped where nobody needs it.
    pub search: Option<Search>,
    later: Option<Arc<Mutex<Later>>>,
    counted: bool,
}

/// What was put last, and the answer: whichever of them comes second brings them together.
struct Later {
    last: Box<Record>,
    answer: Option<(Searched, bool)>,
}

/// A record that is with the writer.
pub struct Put {
    pub record: Box<Record>,
    pub stored: Stored,
    /// A later version follows: to be dropped when those who watch have heard of this one.
    pub follows: Option<oneshot::Sender<()>>,
}

impl Records {
    pub fn new(owner: RecordContext, search: Option<Search>) -> Self {
        Self { owner, search, later: None, counted: false }
    }

    /// Hands a record to the writer. One that waits for its search gets the answer if that is there, and else is
    /// followed by it. `told`: an event goes out without it.
    pub fn put(&mut self, mut record: Box<Record>, told: bool, watched: Option<&Arc<InFlight>>) -> Put {
        let owner = &self.owner;
        if let Some(later) = &self.later {
            // Held until the record is with the writer, so that no older version comes after a newer one.
            let mut later = lock(later);
            later.last.clone_from(&record);
            if let Some((searched, late)) = &later.answer {
                owner.complete(&mut record, searched, *late);
            }
            let stored = owner.app.writer.put(owner.entry(&record));
            return Put { record, stored, follows: None };
        }
        let pending = record.stats.supplement == Some(SupplementStatus::Pending);
        if pending && let Some(searched) = self.search.as_ref().and_then(Search::now) {
            owner.complete(&mut record, &searched, told);
        }
        if let Some(outcome) = outcome(&record, pending && told).filter(|_| !self.counted) {
            self.counted = true;
            owner.count(outcome);
        }
        let stored = owner.app.writer.put(owner.entry(&record));
        let follows = self.follow(&record, told, watched);
        Put { record, stored, follows }
    }

    fn follow(&mut self, record: &Record, told: bool, watched: Option<&Arc<InFlight>>) -> Option<oneshot::Sender<()>> {
        if record.stats.supplement != Some(SupplementStatus::Pending) {
            return None;
        }
        let runtime = tokio::runtime::Handle::try_current().ok()?;
        let search = self.search.clone()?;
        let later = Arc::new(Mutex::new(Later { last: Box::new(record.clone()), answer: None }));
        let (follows, heard) = oneshot::channel();
        let grace = if told { Duration::ZERO } else { search.max_wait };
        let follower = Follower {
            owner: self.owner.clone(),
            search,
            later: Arc::clone(&later),
            late_from: Instant::now() + grace,
            watched: watched.cloned(),
            heard,
        };
        runtime.spawn(follower.run());
        self.later = Some(later);
        self.counted = true;
        Some(follows)
    }

    /// The message is over. A search that nobody waits for is given up.
    pub fn ended(&mut self, finished: bool) {
        let Some(search) = self.search.take().filter(|_| !self.counted) else { return };
        self.counted = true;
        self.owner.count_skipped(match search.now() {
            Some(Searched::Skipped(reason)) => reason,
            _ if finished => "not_needed",
            _ => "not_finished",
        });
    }
}

fn lock(later: &Mutex<Later>) -> MutexGuard<'_, Later> {
    later.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for the answer, however late, and stores the record with it. Ends with the search, which has its own time limit.
struct Follower {
    owner: RecordContext,
    search: Search,
    later: Arc<Mutex<Later>>,
    late_from: Instant,
    watched: Option<Arc<InFlight>>,
    heard: oneshot::Receiver<()>,
}

impl Follower {
    async fn run(self) {
        let searched = self.search.answered().await;
        let late = Instant::now() >= self.late_from;
        let (record, stored) = self.amend(&searched, late);
        match (&searched, outcome(&record, late)) {
            (Searched::Skipped(reason), _) => self.owner.count_skipped(reason),
            (_, Some(outcome)) => self.owner.count(outcome),
            (_, None) => {}
        }
        let Some(watched) = self.watched else { return };
        // Their last word comes after the one before it.
        let _ = self.heard.await;
        let limit = self.owner.app.config.timeouts.commit;
        let stored = match stored {
            Ok(stored) => match timeout(limit, stored).await {
                // Deleted, or a newer stream's: there is nothing to tell.
                Ok(Ok(Err(StoreError::Gone))) => return,
                stored => matches!(stored, Ok(Ok(Ok(())))),
            },
            Err(_) => false,
        };
        watched.update(Record { stored, ..*record }, true);
    }

    fn amend(&self, searched: &Searched, late: bool) -> (Box<Record>, Stored) {
        let mut later = lock(&self.later);
        let mut record = later.last.clone();
        self.owner.complete(&mut record, searched, late);
        later.answer = Some((searched.clone(), late));
        let stored = self.owner.app.writer.amend(self.owner.entry(&record));
        (record, stored)
    }
}
