//! Answers that nobody takes. A client that keeps its h2 window shut is not seen by its connection, which is
//! alive, nor by the body, which is not asked for more: somebody else has to look.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::{carry::Ticket, keeper::Watch, live::Teller, outgoing::Answered};
use crate::pipeline::body::{Aborted, BoxError, LATE, Outcome, TapBody};

/// How often we look, at most.
const LOOK_EVERY: Duration = Duration::from_secs(1);

type Relayed = TapBody<Answered, Watch>;
type Polled = Poll<Option<Result<Frame<Bytes>, BoxError>>>;

/// A body that can be taken away from a client that does not take from it, and asked for what it has seen.
pub struct Guarded {
    slot: Arc<Slot>,
    /// Where the client's connection can carry it, for as long as the library does.
    ticket: Option<Ticket>,
}

struct Slot {
    body: Mutex<Option<Relayed>>,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Option<Relayed>> {
        self.body.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll_piece(&self, task: &mut Context<'_>) -> (Polled, bool) {
        match self.lock().as_mut() {
            Some(body) => (Pin::new(&mut *body).poll_frame(task), body.has_more()),
            None => (Poll::Ready(Some(Err(Aborted(Outcome::ClientGone).into()))), false),
        }
    }
}

impl Guarded {
    /// What is next, and whether something more is at hand then, without a look at the upstream.
    pub fn poll_piece(&mut self, task: &mut Context<'_>) -> (Polled, bool) {
        self.slot.poll_piece(task)
    }

    pub fn carried_by(&mut self, ticket: Ticket) {
        self.ticket = Some(ticket);
    }
}

impl Body for Guarded {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, task: &mut Context<'_>) -> Polled {
        let Self { slot, ticket } = self.get_mut();
        let carried = || Self { slot: Arc::clone(slot), ticket: None };
        if ticket.as_mut().is_some_and(|ticket| ticket.is_due(false, carried)) {
            return Poll::Pending;
        }
        let (polled, _) = slot.poll_piece(task);
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
        // Where somebody else has it, it is being asked.
        let Ok(mut body) = self.body.try_lock() else { return };
        let stalled = body.take_if(|body| body.handed_at().is_some_and(|at| at.elapsed() > limit));
        drop(body);
        // Outside of the lock: it stores and reports.
        drop(stalled);
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
            Slot { body: Mutex::new(Some(body)) }
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
