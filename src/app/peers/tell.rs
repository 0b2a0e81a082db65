//! The side that tells.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until},
};
use uuid::Uuid;

use super::{Peers, peer_message::PeerMessage};
use crate::app::in_flight::Key;

/// Between two words about one message, whatever it grows.
const TELL_EVERY: Duration = Duration::from_millis(250);
/// Nobody has asked again for so long: nobody watches.
const LEASE: Duration = Duration::from_secs(10);
/// For a record that is on its way to the store.
const PATIENCE: Duration = Duration::from_millis(500);
/// Messages told of at once; of a further one nothing is said.
const TOLD_MAX: usize = 1000;

/// Somebody wants to hear of a message.
pub struct Lease {
    until: Mutex<Instant>,
    /// PeerQuery once more: whoever has just begun to follow wants to hear what is known.
    again: Notify,
}

impl Lease {
    fn renew(&self) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + LEASE;
        self.again.notify_one();
    }

    fn until(&self) -> Instant {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peers {
    pub async fn answer(self: &Arc<Self>, to: Uuid, key: Key) {
        if !self.live.is_own(&key) {
            let (tenant, id) = key;
            return self.say(&PeerMessage::Lack { from: self.me, to, tenant, id }).await;
        }
        let lease = {
            let mut inner = self.lock();
            if let Some(lease) = inner.told.get(&key) {
                return lease.renew();
            }
            if inner.told.len() >= TOLD_MAX {
                return;
            }
            let lease = Arc::new(Lease { until: Mutex::new(Instant::now() + LEASE), again: Notify::new() });
            inner.told.insert(key.clone(), Arc::clone(&lease));
            lease
        };
        tokio::spawn(Arc::clone(self).tell(key, lease, to));
    }

    async fn tell(self: Arc<Self>, key: Key, lease: Arc<Lease>, to: Uuid) {
        let (tenant, id) = key.clone();
        match self.live.watch(&tenant, &id, PATIENCE).await {
            None => self.say(&PeerMessage::Lack { from: self.me, to, tenant, id }).await,
            Some(mut watched) => loop {
                let (record, done) = watched.now();
                let record = Box::new((*record).clone());
                self.say(&PeerMessage::Have { from: self.me, tenant: tenant.clone(), id: id.clone(), record, done })
                    .await;
                if done {
                    break;
                }
                sleep(TELL_EVERY).await;
                tokio::select! {
                    // The sender went: it said that it is done before.
                    more = watched.changed() => if !more { break },
                    () = lease.again.notified() => {}
                    () = sleep_until(lease.until()) => if lease.until() <= Instant::now() { break },
                }
            },
        }
        self.lock().told.remove(&key);
    }
}
