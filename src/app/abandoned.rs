//! Answers that nobody takes. A client that keeps its h2 window shut is not seen by its connection, which is alive, nor by
//! the body, which is not polled: it has to be looked for.

use std::{
    sync::{Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

/// Longest pause between two checks.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// A pause that was longer than it should be by this much: the process was suspended.
const SUSPENDED: Duration = Duration::from_millis(500);

/// A response body that can be taken away from its client.
pub trait Abandonable: Send + Sync {
    /// Drops the body if its client has not polled it for this long.
    fn drop_if_abandoned(&self, limit: Duration);
}

/// Every such body that is open.
#[derive(Default)]
pub struct AbandonedBodies {
    open: Mutex<Vec<Weak<dyn Abandonable>>>,
}

impl AbandonedBodies {
    pub fn add(&self, body: Weak<dyn Abandonable>) {
        self.lock().push(body);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<dyn Abandonable>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks all of them periodically, and never returns.
    pub async fn watch(&self, limit: Duration) {
        loop {
            let (pause, began) = ((limit / 4).min(CHECK_EVERY), Instant::now());
            tokio::time::sleep(pause).await;
            if began.elapsed() > pause + SUSPENDED {
                // The process was suspended, and the clients may have been ready all the while: they get another chance.
                continue;
            }
            self.drop_abandoned(limit);
        }
    }

    /// Drops the bodies whose clients have not polled them for this long. One that waits for its upstream or for a commit
    /// has been polled.
    pub fn drop_abandoned(&self, limit: Duration) {
        let mut open = Vec::new();
        self.lock().retain(|body| match body.upgrade() {
            Some(body) => {
                open.push(body);
                true
            }
            None => false,
        });
        for body in open {
            body.drop_if_abandoned(limit);
        }
    }
}
