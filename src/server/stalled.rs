//! Answers that nobody takes. A client that keeps its h2 window shut is not seen by its connection, which is
//! alive, nor by the body, which is not asked for more: somebody else has to look.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::{carry::Ticket, keeper::Watch, live::Teller, outgoing::Answered};
use crate::pipeline::body::{Aborted, BoxError, LATE, Outcome, TapBody};

/// How often we look, at most.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The body is being asked, or has ended.
const ASKED: u64 = 0;

type Relayed = TapBody<Answered, Watch>;

/// A body that can be taken away from a client that does not take from it, and asked for what it has seen.
pub struct Guarded {
    slot: Arc<Slot>,
    /// Where the client's connection can carry it, for as long as the library does.
    ticket: Option<Ticket>,
}

struct Slot {
    body: Mutex<Option<Relayed>>,
    /// When it last handed something out, in milliseconds of the watch's clock, if it was not asked since.
    handed: AtomicU64,
    began: Instant,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Option<Relayed>> {
        self.body.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX).max(ASKED + 1)
    }
}

impl Guarded {
    /// Something more is at hand, without a look at the upstream.
    pub fn has_more(&self) -> bool {
        self.slot.lock().as_ref().is_some_and(TapBody::has_more)
    }

    pub fn carried_by(&mut self, ticket: Ticket) {
        self.ticket = Some(ticket);
    }
}

impl Body for Guarded {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Self { slot, ticket } = self.get_mut();
        let carried = || Self { slot: Arc::clone(slot), ticket: None };
        if ticket.as_mut().is_some_and(|ticket| ticket.is_due(false, carried)) {
            return Poll::Pending;
        }
        let mut body = slot.lock();
        let Some(body) = body.as_mut() else {
            return Poll::Ready(Some(Err(Aborted(Outcome::ClientGone).into())));
        };
        let polled = Pin::new(body).poll_frame(task);
        let handed = if matches!(polled, Poll::Ready(Some(Ok(_)))) { slot.now() } else { ASKED };
        slot.handed.store(handed, Relaxed);
        if polled.is_pending()
            && let Some(ticket) = ticket
        {
            ticket.is_due(true, carried);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.slot.lock().as_ref().is_some_and(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.slot.lock().as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

impl Teller for Slot {
    fn tell(&self) {
        if let Some(body) = self.lock().as_mut() {
            body.tell();
        }
    }
}

impl Slot {
    /// Takes the body away if it was not asked for so long: its upstream is cancelled, its record kept.
    fn look(&self, limit: Duration) {
        let handed = self.handed.load(Relaxed);
        let waited = Duration::from_millis(self.now().saturating_sub(handed));
        if handed != ASKED && waited > limit {
            let stalled = self.lock().take();
            // Outside of the lock: it stores and reports.
            drop(stalled);
        }
    }
}

/// Every guarded body that is open.
#[derive(Default)]
pub struct Stalls {
    open: Mutex<Vec<Weak<Slot>>>,
}

impl Stalls {
    pub fn guard(&self, mut body: Relayed) -> Guarded {
        let slot = Arc::new_cyclic(|slot: &Weak<Slot>| {
            body.keeper_mut().told_by(slot.clone());
            Slot { body: Mutex::new(Some(body)), handed: AtomicU64::new(ASKED + 1), began: Instant::now() }
        });
        self.lock().push(Arc::downgrade(&slot));
        Guarded { slot, ticket: None }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Slot>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks now and then, for ever.
    pub async fn watch(&self, limit: Duration) {
        loop {
            let (pause, began) = ((limit / 4).min(LOOK_EVERY), Instant::now());
            tokio::time::sleep(pause).await;
            if began.elapsed() > pause + LATE {
                // The process was stopped, and the clients may have been ready all the while: they get another chance.
                continue;
            }
            self.look(limit);
        }
    }

    /// Takes away what was not asked for so long. What waits for its upstream or for a commit has been asked.
    pub fn look(&self, limit: Duration) {
        let mut open = Vec::new();
        self.lock().retain(|look| match look.upgrade() {
            Some(look) => {
                open.push(look);
                true
            }
            None => false,
        });
        for look in open {
            look.look(limit);
        }
    }
}
