//! The asking side: looks for a message on other replicas and mirrors it here while a client watches it.

use std::{collections::HashSet, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use uuid::Uuid;

use super::{Inner, PEER_TIMEOUT, Peers, peer_message::PeerMessage};
use crate::{
    app::in_flight::{InFlight, Key},
    citation::Record,
};

/// Time limit for other replicas to reply. Queries wait this long after a replica was killed, until [`PEER_TIMEOUT`].
const REPLY_TIMEOUT: Duration = Duration::from_millis(250);
/// Interval at which the lease of a watched message is renewed.
const RENEW_INTERVAL: Duration = Duration::from_secs(3);
/// A holder that sent no snapshot for this long is considered gone.
const HOLDER_TIMEOUT: Duration = Duration::from_secs(10);
/// Messages that are asked for at the same time; a further one is reported as not found.
const QUERIES_MAX: usize = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Asking,
    Following,
    /// No replica relays the message, or none does any more.
    Over,
}

/// A message that this replica asks for or mirrors.
pub struct PeerQuery {
    stage: watch::Sender<Stage>,
    /// Replicas that have not replied yet.
    pending: HashSet<Uuid>,
    /// The replica that relays the message, when its last snapshot came, and the mirror of the message here.
    holder: Option<(Uuid, Instant, InFlight)>,
}

impl Peers {
    /// True if another replica relays this message; it is then mirrored among the messages in flight here.
    pub async fn find(self: &Arc<Self>, tenant: &str, id: &str) -> bool {
        let key = (tenant.to_owned(), id.to_owned());
        let mut stage = {
            let mut inner = self.lock();
            inner.last_seen.retain(|_, last_seen| last_seen.elapsed() < PEER_TIMEOUT);
            match inner.queries.get(&key) {
                Some(query) => query.stage.subscribe(),
                None if inner.last_seen.is_empty() || inner.queries.len() >= QUERIES_MAX => return false,
                None => {
                    let (sender, receiver) = watch::channel(Stage::Asking);
                    let pending = inner.last_seen.keys().copied().collect();
                    inner.queries.insert(key.clone(), PeerQuery { stage: sender, pending, holder: None });
                    tokio::spawn(Arc::clone(self).ask(key, receiver.clone()));
                    receiver
                }
            }
        };
        is_found(&mut stage).await
    }

    async fn ask(self: Arc<Self>, key: Key, mut stage: watch::Receiver<Stage>) {
        let message = PeerMessage::Ask { from: self.me, tenant: key.0.clone(), id: key.1.clone() };
        self.publish(&message).await;
        if is_found(&mut stage).await {
            while timeout(RENEW_INTERVAL, stage.wait_for(|stage| *stage == Stage::Over)).await.is_err() {
                let is_wanted = self.lock().queries.get(&key).is_some_and(PeerQuery::is_wanted);
                if !is_wanted {
                    break;
                }
                self.publish(&message).await;
            }
        }
        self.lock().end_query(&key);
    }

    /// Updates the mirror of a message with a snapshot from the replica that relays it; `done` marks the last snapshot.
    pub fn mirror(&self, key: Key, from: Uuid, record: Record, done: bool) {
        let mut inner = self.lock();
        let Some(query) = inner.queries.get_mut(&key) else { return };
        match &mut query.holder {
            // If two replicas relay one id, the first reply wins.
            Some((holder, ..)) if *holder != from => return,
            Some((_, last_seen, in_flight)) => {
                *last_seen = Instant::now();
                in_flight.update(record, done);
            }
            None => {
                // No mirror if this replica has begun to relay the message in the meantime.
                if let Some(in_flight) = self.live.mirror(&key.0, &key.1, record, done) {
                    query.holder = Some((from, Instant::now(), in_flight));
                }
                query.stage.send_replace(Stage::Following);
            }
        }
        if done {
            inner.end_query(&key);
        }
    }

    /// Handles the reply of a replica that does not relay the message.
    pub fn peer_lacks(&self, key: &Key, from: Uuid) {
        self.lock().remove_holder(key, from);
    }

    /// Forgets a replica that has stopped, and ends the queries that only it could answer.
    pub fn remove_peer(&self, from: Uuid) {
        let mut inner = self.lock();
        inner.last_seen.remove(&from);
        let keys: Vec<_> = inner.queries.keys().cloned().collect();
        for key in keys {
            inner.remove_holder(&key, from);
        }
    }
}

async fn is_found(stage: &mut watch::Receiver<Stage>) -> bool {
    let reply = timeout(REPLY_TIMEOUT, stage.wait_for(|stage| *stage != Stage::Asking)).await;
    matches!(reply, Ok(Ok(stage)) if *stage == Stage::Following)
}

impl PeerQuery {
    /// True while a client watches the mirror and the holder sends snapshots.
    fn is_wanted(&self) -> bool {
        self.holder
            .as_ref()
            .is_some_and(|(_, last_seen, in_flight)| in_flight.is_watched() && last_seen.elapsed() < HOLDER_TIMEOUT)
    }
}

impl Inner {
    /// Rules out a replica as the holder of a message. Ends the query if it was the holder or the last one to reply.
    fn remove_holder(&mut self, key: &Key, from: Uuid) {
        let Some(query) = self.queries.get_mut(key) else { return };
        query.pending.remove(&from);
        let is_over = match &query.holder {
            Some((holder, ..)) => *holder == from,
            None => query.pending.is_empty(),
        };
        if is_over {
            self.end_query(key);
        }
    }

    /// Ends a query. Dropping its mirror notifies the clients that watch the message.
    fn end_query(&mut self, key: &Key) {
        if let Some(query) = self.queries.remove(key) {
            query.stage.send_replace(Stage::Over);
        }
    }
}
