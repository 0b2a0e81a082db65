//! Response bodies that [`AbandonedBodies`] can drop. An h2 client that keeps its window closed has a live connection, and
//! its body is not polled, so neither can time out: the body has to be dropped from outside.

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

/// The client's handle of a body in a [`Slot`].
struct Guarded(Arc<Slot>);

/// Makes a relayed body droppable from outside, and the source of snapshots of its message.
pub fn guard(open: &AbandonedBodies, mut body: Relayed) -> body::Body {
    let slot = Arc::new_cyclic(|slot: &Weak<Slot>| {
        body.observer_mut().set_snapshot_source(slot.clone());
        Slot { body: Mutex::new(Some(body)) }
    });
    open.add(Arc::downgrade(&slot) as Weak<dyn Abandonable>);
    body::Body::new(Guarded(slot))
}

/// A relayed body, shared by its client, the check for abandoned bodies and watchers of its message.
struct Slot {
    /// `None` once it was abandoned.
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
    fn publish_snapshot(&self) {
        if let Some(body) = self.lock().as_mut() {
            body.publish_snapshot();
        }
    }
}

impl Abandonable for Slot {
    /// Cancels the upstream and stores the record, as any drop of the body does.
    fn drop_if_abandoned(&self, limit: Duration) {
        // A locked body is being polled, so it is not abandoned.
        let Ok(mut body) = self.body.try_lock() else { return };
        let abandoned = body.take_if(|body| body.unpolled_since().is_some_and(|at| at.elapsed() > limit));
        drop(body);
        // Dropped without the lock, because the drop stores and reports.
        drop(abandoned);
    }
}
