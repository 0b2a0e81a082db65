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

use crate::pipeline::body::{Aborted, BoxError, LATE, Outcome};

/// How often we look, at most.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The body is being asked, or has ended.
const ASKED: u64 = 0;

/// A body that can be taken away from a client that does not take from it.
pub struct Guarded<B>(Arc<Slot<B>>);

struct Slot<B> {
    body: Mutex<Option<B>>,
    /// When it last handed something out, in milliseconds of the watch's clock, if it was not asked since.
    handed: AtomicU64,
    began: Instant,
}

impl<B> Slot<B> {
    fn lock(&self) -> MutexGuard<'_, Option<B>> {
        self.body.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX).max(ASKED + 1)
    }
}

impl<B> Body for Guarded<B>
where
    B: Body<Data = Bytes, Error = BoxError> + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let slot = &self.0;
        let mut body = slot.lock();
        let Some(body) = body.as_mut() else {
            return Poll::Ready(Some(Err(Aborted(Outcome::ClientGone).into())));
        };
        let polled = Pin::new(body).poll_frame(task);
        let handed = if matches!(polled, Poll::Ready(Some(Ok(_)))) { slot.now() } else { ASKED };
        slot.handed.store(handed, Relaxed);
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.0.lock().as_ref().is_some_and(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

/// Looks at a body from aside.
trait Look: Send + Sync {
    /// Takes the body away if it was not asked for so long: its upstream is cancelled, its record kept.
    fn look(&self, limit: Duration);
}

impl<B: Send> Look for Slot<B> {
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
    open: Mutex<Vec<Weak<dyn Look>>>,
}

impl Stalls {
    pub fn guard<B: Send + 'static>(&self, body: B) -> Guarded<B> {
        let slot =
            Arc::new(Slot { body: Mutex::new(Some(body)), handed: AtomicU64::new(ASKED + 1), began: Instant::now() });
        let look: Arc<dyn Look> = Arc::clone(&slot) as Arc<dyn Look>;
        self.lock().push(Arc::downgrade(&look));
        Guarded(slot)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<dyn Look>>> {
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
}
