//! Other replicas on the same store: a message that one of them relays can be asked for, waited for and watched at any.
//!
//! Nothing is said of a message until somebody asks for it where it is not. Then that replica asks the others; the one
//! that relays it tells what is known so far, and again whenever that grows, as long as somebody listens. What was told
//! stands among the messages in flight here, so those who wait and watch need not know where it is.
//!
//! # Cancel safety
//!
//! Whoever asks may leave at any time: asking is a task of its own, which ends when nobody watches.

mod ask;
mod peer_message;
mod tell;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, interval, sleep, timeout};
use uuid::Uuid;

use self::{ask::PeerQuery, peer_message::PeerMessage, tell::Lease};
use super::in_flight::{Key, Live};
use crate::store::{Bus, Subscription, writer::Writer};

/// Between two signs of life.
const HELLO_EVERY: Duration = Duration::from_secs(2);
/// A replica that gives none for so long is gone.
const GONE_AFTER: Duration = Duration::from_secs(7);
/// For a word to be said.
const SAY_LIMIT: Duration = Duration::from_secs(1);
/// Before listening is tried again.
const LISTEN_PAUSE: Duration = Duration::from_secs(1);
/// Replicas that are known; further ones are not asked.
const KNOWN_MAX: usize = 1000;

pub struct Peers {
    bus: Arc<dyn Bus>,
    me: Uuid,
    live: Live,
    writer: Writer,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// When each of the others was last heard.
    known: HashMap<Uuid, Instant>,
    /// What we have asked for, or follow.
    asked: HashMap<Key, PeerQuery>,
    /// What we tell others of.
    told: HashMap<Key, Arc<Lease>>,
}

impl Peers {
    pub fn new(bus: Arc<dyn Bus>, live: Live, writer: Writer) -> Arc<Self> {
        Arc::new(Self { bus, me: Uuid::new_v4(), live, writer, inner: Mutex::default() })
    }

    /// Listens and shows that we are there, until dropped.
    pub async fn run(self: Arc<Self>) {
        let mut failing = false;
        loop {
            match self.bus.subscribe().await {
                Ok(subscription) => {
                    if std::mem::take(&mut failing) {
                        tracing::warn!("other replicas are heard again");
                    }
                    self.say(&PeerMessage::Hello { from: self.me, joining: true }).await;
                    self.listen(subscription).await;
                }
                Err(_) if failing => {}
                Err(error) => {
                    tracing::warn!(%error, "other replicas are not heard");
                    failing = true;
                }
            }
            sleep(LISTEN_PAUSE).await;
        }
    }

    /// Until the connection is lost.
    async fn listen(self: &Arc<Self>, mut subscription: Box<dyn Subscription>) {
        let mut hello = interval(HELLO_EVERY);
        loop {
            tokio::select! {
                word = subscription.recv() => match word {
                    // One of another version may say what we do not know.
                    Ok(word) => if let Ok(word) = serde_json::from_str(&word) { self.heard(word).await },
                    Err(_) => return,
                },
                _ = hello.tick() => self.say(&PeerMessage::Hello { from: self.me, joining: false }).await,
            }
        }
    }

    async fn heard(self: &Arc<Self>, word: PeerMessage) {
        let from = word.from();
        if from == self.me {
            return;
        }
        if let PeerMessage::Bye { .. } = word {
            return self.gone(from);
        }
        {
            let mut inner = self.lock();
            if inner.known.len() < KNOWN_MAX || inner.known.contains_key(&from) {
                inner.known.insert(from, Instant::now());
            }
        }
        match word {
            PeerMessage::Hello { joining: true, .. } => {
                self.say(&PeerMessage::Hello { from: self.me, joining: false }).await
            }
            PeerMessage::Ask { tenant, id, .. } => self.answer(from, (tenant, id)).await,
            PeerMessage::Have { tenant, id, record, done, .. } => self.told((tenant, id), from, *record, done),
            PeerMessage::Lack { to, tenant, id, .. } if to == self.me => self.lacks(&(tenant, id), from),
            PeerMessage::Forget { tenant, id, provider, .. } => {
                self.live.forget(&tenant, &id, provider.as_deref());
                self.writer.cancel_retry(tenant, id, provider);
            }
            PeerMessage::Hello { .. } | PeerMessage::Bye { .. } | PeerMessage::Lack { .. } => {}
        }
    }

    /// A record was deleted here: another replica may still try to store it, or show it to those who watch.
    pub async fn forget(&self, tenant: &str, id: &str, provider: Option<&str>) {
        let (tenant, id, provider) = (tenant.to_owned(), id.to_owned(), provider.map(str::to_owned));
        self.say(&PeerMessage::Forget { from: self.me, tenant, id, provider }).await;
    }

    /// The others need not wait for us any more.
    pub async fn leave(&self) {
        self.say(&PeerMessage::Bye { from: self.me }).await;
    }

    /// What cannot be said is not said: whoever asked is patient for a moment only.
    async fn say(&self, word: &PeerMessage) {
        if let Ok(word) = serde_json::to_string(word) {
            let _ = timeout(SAY_LIMIT, self.bus.publish(&word)).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
