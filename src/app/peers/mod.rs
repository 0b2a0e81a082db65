//! Finds a message in flight that another replica on the same store relays, so that `/citations` can read and watch it
//! on any replica. `api` calls [`Peers::find`] and [`Peers::forget`]; `server` runs [`Peers::run`].
//!
//! Nothing about a message is published until another replica asks for it. The replica that relays it then publishes a
//! snapshot, and another one whenever the record grows, until its lease expires. The replica that asked mirrors the
//! snapshots among its messages in flight, so its readers need not know where the message is relayed.
//!
//! # Cancel safety
//!
//! A caller may be dropped at any time: each query runs in its own task, which ends when no client watches the message.

mod lease;
mod peer_message;
mod query;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, interval, sleep, timeout};
use uuid::Uuid;

use self::{lease::Lease, peer_message::PeerMessage, query::PeerQuery};
use super::in_flight::{Key, LiveMessages};
use crate::store::{Bus, Subscription, writer::Writer};

/// Interval between keepalive messages.
const HELLO_INTERVAL: Duration = Duration::from_secs(2);
/// A replica that sent nothing for this long is considered gone.
const PEER_TIMEOUT: Duration = Duration::from_secs(7);
/// Time limit to publish one message.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(1);
/// Delay before subscribing again after the connection was lost.
const RESUBSCRIBE_DELAY: Duration = Duration::from_secs(1);
/// Replicas that are tracked; further ones are not asked.
const PEERS_MAX: usize = 1000;

/// This replica's side of the protocol between replicas.
pub struct Peers {
    bus: Arc<dyn Bus>,
    me: Uuid,
    live: LiveMessages,
    writer: Writer,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// When each other replica last sent a message.
    last_seen: HashMap<Uuid, Instant>,
    /// Messages that this replica asks for or mirrors.
    queries: HashMap<Key, PeerQuery>,
    /// Messages whose snapshots this replica publishes.
    leases: HashMap<Key, Arc<Lease>>,
}

impl Peers {
    pub fn new(bus: Arc<dyn Bus>, live: LiveMessages, writer: Writer) -> Arc<Self> {
        Arc::new(Self { bus, me: Uuid::new_v4(), live, writer, inner: Mutex::default() })
    }

    /// Announces this replica and handles messages of others until dropped.
    pub async fn run(self: Arc<Self>) {
        let mut failing = false;
        loop {
            match self.bus.subscribe().await {
                Ok(subscription) => {
                    if std::mem::take(&mut failing) {
                        tracing::warn!("receiving messages of other replicas again");
                    }
                    self.publish(&PeerMessage::Hello { from: self.me, joining: true }).await;
                    self.listen(subscription).await;
                }
                Err(_) if failing => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot receive messages of other replicas");
                    failing = true;
                }
            }
            sleep(RESUBSCRIBE_DELAY).await;
        }
    }

    /// Handles messages until the connection is lost.
    async fn listen(self: &Arc<Self>, mut subscription: Box<dyn Subscription>) {
        let mut hello = interval(HELLO_INTERVAL);
        loop {
            tokio::select! {
                text = subscription.recv() => match text {
                    // Ignore what does not parse: a replica of another version may send unknown messages.
                    Ok(text) => if let Ok(message) = serde_json::from_str(&text) { self.handle(message).await },
                    Err(_) => return,
                },
                _ = hello.tick() => self.publish(&PeerMessage::Hello { from: self.me, joining: false }).await,
            }
        }
    }

    async fn handle(self: &Arc<Self>, message: PeerMessage) {
        let from = message.from();
        if from == self.me {
            return;
        }
        if let PeerMessage::Bye { .. } = message {
            return self.remove_peer(from);
        }
        {
            let mut inner = self.lock();
            if inner.last_seen.len() < PEERS_MAX || inner.last_seen.contains_key(&from) {
                inner.last_seen.insert(from, Instant::now());
            }
        }
        match message {
            PeerMessage::Hello { joining: true, .. } => {
                self.publish(&PeerMessage::Hello { from: self.me, joining: false }).await
            }
            PeerMessage::Ask { tenant, id, .. } => self.reply(from, (tenant, id)).await,
            PeerMessage::Have { tenant, id, record, done, .. } => self.mirror((tenant, id), from, *record, done),
            PeerMessage::Lack { to, tenant, id, .. } if to == self.me => self.peer_lacks(&(tenant, id), from),
            PeerMessage::Forget { tenant, id, provider, .. } => {
                self.live.forget(&tenant, &id, provider.as_deref());
                self.writer.cancel_retry(tenant, id, provider);
            }
            PeerMessage::Hello { .. } | PeerMessage::Bye { .. } | PeerMessage::Lack { .. } => {}
        }
    }

    /// Publishes that a record was deleted here: another replica may still retry to store it, or show it to watchers.
    pub async fn forget(&self, tenant: &str, id: &str, provider: Option<&str>) {
        let (tenant, id, provider) = (tenant.to_owned(), id.to_owned(), provider.map(str::to_owned));
        self.publish(&PeerMessage::Forget { from: self.me, tenant, id, provider }).await;
    }

    /// Publishes that this replica stops, so that others do not wait for its replies.
    pub async fn leave(&self) {
        self.publish(&PeerMessage::Bye { from: self.me }).await;
    }

    /// Publishes a message. A failure is ignored, because the asking side has a timeout of its own.
    async fn publish(&self, message: &PeerMessage) {
        if let Ok(text) = serde_json::to_string(message) {
            let _ = timeout(PUBLISH_TIMEOUT, self.bus.publish(&text)).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
