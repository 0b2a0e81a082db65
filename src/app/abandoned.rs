//! Drops response bodies whose client does not read. With a closed h2 window neither the connection, which is alive,
//! nor the body, which is not polled, notices. `server` therefore runs [`AbandonedBodies::watch`] over all open bodies.

use std::{
    sync::{Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

/// Maximum interval between two checks.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// A pause longer than planned by this much means that the process was suspended.
const SUSPENDED: Duration = Duration::from_millis(500);

/// A response body that can be dropped while its client still holds the response.
pub trait Abandonable: Send + Sync {
    /// Drops the body if its client has not polled it for this long.
    fn drop_if_abandoned(&self, limit: Duration);
}

/// All open response bodies.
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
                // Clients may have been ready while the process was suspended: skip this check.
                continue;
            }
            self.drop_abandoned(limit);
        }
    }

    /// Drops the bodies that have not been polled for this long. A body that waits for its upstream or for a commit
    /// counts as polled.
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
