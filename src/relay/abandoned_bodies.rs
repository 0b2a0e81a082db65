//! Answers that nobody takes. A client that keeps its h2 window shut is not seen by its connection, which is
//! alive, nor by the body, which is not asked for more: somebody else has to look.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll},
    time::Duration,
};

use axum::body;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::{
    observer::RelayObserver,
    tap_body::{Aborted, TapBody},
};
use crate::{
    app::{
        abandoned::{Abandonable, AbandonedBodies},
        in_flight::SnapshotSource,
    },
    pipeline::Outcome,
    transport::{BoxError, client::ResponseBody},
};

type Relayed = TapBody<ResponseBody, RelayObserver>;

/// A body that can be taken away from a client that does not take from it, and asked for what it has seen.
struct Guarded(Arc<Slot>);

/// The body as the client gets it.
pub fn guard(open: &AbandonedBodies, mut body: Relayed) -> body::Body {
    let slot = Arc::new_cyclic(|slot: &Weak<Slot>| {
        body.observer_mut().told_by(slot.clone());
        Slot { body: Mutex::new(Some(body)) }
    });
    open.add(Arc::downgrade(&slot) as Weak<dyn Abandonable>);
    body::Body::new(Guarded(slot))
}

struct Slot {
    body: Mutex<Option<Relayed>>,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Option<Relayed>> {
        self.body.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Body for Guarded {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.0.lock().as_mut() {
            Some(body) => Pin::new(body).poll_frame(task),
            None => Poll::Ready(Some(Err(Aborted(Outcome::ClientGone).into()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.lock().as_ref().is_some_and(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

impl SnapshotSource for Slot {
    fn tell(&self) {
        if let Some(body) = self.lock().as_mut() {
            body.tell();
        }
    }
}

impl Abandonable for Slot {
    /// Its upstream is cancelled and its record kept.
    fn drop_if_abandoned(&self, limit: Duration) {
        // Where somebody else has it, it is being asked.
        let Ok(mut body) = self.body.try_lock() else { return };
        let stalled = body.take_if(|body| body.handed_at().is_some_and(|at| at.elapsed() > limit));
        drop(body);
        // Outside of the lock: it stores and reports.
        drop(stalled);
    }
}
