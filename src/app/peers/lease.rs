//! The replying side: publishes snapshots of a message that this replica relays while another replica renews its lease.

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

/// Minimum interval between two snapshots of one message.
const SNAPSHOT_INTERVAL: Duration = Duration::from_millis(250);
/// A lease that is not renewed for this long expires: no client watches the message any more.
const LEASE: Duration = Duration::from_secs(10);
/// Time limit for a record that is on its way to the store.
const COMMIT_WAIT: Duration = Duration::from_millis(500);
/// Messages whose snapshots are published at the same time; an ask for a further one gets no reply.
const LEASES_MAX: usize = 1000;

/// The interest of other replicas in a message that this one relays.
pub struct Lease {
    until: Mutex<Instant>,
    /// Signaled by each renewal: a replica that has just begun to mirror the message needs a snapshot now.
    renewed: Notify,
}

impl Lease {
    fn renew(&self) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + LEASE;
        self.renewed.notify_one();
    }

    fn until(&self) -> Instant {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peers {
    /// Replies to a replica that asks for a message: starts or renews its lease, or reports that it is not relayed here.
    pub async fn reply(self: &Arc<Self>, to: Uuid, key: Key) {
        if !self.live.is_own(&key) {
            let (tenant, id) = key;
            return self.publish(&PeerMessage::Lack { from: self.me, to, tenant, id }).await;
        }
        let lease = {
            let mut inner = self.lock();
            if let Some(lease) = inner.leases.get(&key) {
                return lease.renew();
            }
            if inner.leases.len() >= LEASES_MAX {
                return;
            }
            let lease = Arc::new(Lease { until: Mutex::new(Instant::now() + LEASE), renewed: Notify::new() });
            inner.leases.insert(key.clone(), Arc::clone(&lease));
            lease
        };
        tokio::spawn(Arc::clone(self).publish_snapshots(key, lease, to));
    }

    /// Publishes snapshots until the message is done or the lease expires.
    async fn publish_snapshots(self: Arc<Self>, key: Key, lease: Arc<Lease>, to: Uuid) {
        let (tenant, id) = key.clone();
        match self.live.watch(&tenant, &id, COMMIT_WAIT).await {
            None => self.publish(&PeerMessage::Lack { from: self.me, to, tenant, id }).await,
            Some(mut watched) => loop {
                let (record, done) = watched.now();
                let record = Box::new((*record).clone());
                let (tenant, id) = (tenant.clone(), id.clone());
                self.publish(&PeerMessage::Have { from: self.me, tenant, id, record, done }).await;
                if done {
                    break;
                }
                sleep(SNAPSHOT_INTERVAL).await;
                tokio::select! {
                    // The sender was dropped: its last snapshot, marked as done, has been published.
                    more = watched.changed() => if !more { break },
                    () = lease.renewed.notified() => {}
                    () = sleep_until(lease.until()) => if lease.until() <= Instant::now() { break },
                }
            },
        }
        self.lock().leases.remove(&key);
    }
}
