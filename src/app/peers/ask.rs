//! The side that asks.

use std::{collections::HashSet, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use uuid::Uuid;

use super::{GONE_AFTER, Inner, Peers, peer_message::PeerMessage};
use crate::{
    app::in_flight::{InFlight, Key},
    citation::Record,
};

/// For the others to answer. One that was killed is still asked until it is known to be gone.
const PATIENCE: Duration = Duration::from_millis(250);
/// While somebody watches, the one who tells is asked again so often.
const RENEW_EVERY: Duration = Duration::from_secs(3);
/// One who tells, and is not heard for so long, is gone.
const SILENT_MAX: Duration = Duration::from_secs(10);
/// Messages asked for at once; a further one is as if nobody had it.
const ASKED_MAX: usize = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Asking,
    Following,
    /// Nobody has it, or not any more.
    Over,
}

pub struct PeerQuery {
    stage: watch::Sender<Stage>,
    /// Those who have not answered yet.
    silent: HashSet<Uuid>,
    /// Who has it, since when that is known, and its place among the messages in flight.
    holder: Option<(Uuid, Instant, InFlight)>,
}

impl Peers {
    /// Does another replica relay this message? Then it is among those in flight when this returns.
    pub async fn find(self: &Arc<Self>, tenant: &str, id: &str) -> bool {
        let key = (tenant.to_owned(), id.to_owned());
        let mut stage = {
            let mut inner = self.lock();
            inner.known.retain(|_, heard| heard.elapsed() < GONE_AFTER);
            match inner.asked.get(&key) {
                Some(asked) => asked.stage.subscribe(),
                None if inner.known.is_empty() || inner.asked.len() >= ASKED_MAX => return false,
                None => {
                    let (stage, seen) = watch::channel(Stage::Asking);
                    let silent = inner.known.keys().copied().collect();
                    inner.asked.insert(key.clone(), PeerQuery { stage, silent, holder: None });
                    tokio::spawn(Arc::clone(self).ask(key, seen.clone()));
                    seen
                }
            }
        };
        is_found(&mut stage).await
    }

    async fn ask(self: Arc<Self>, key: Key, mut stage: watch::Receiver<Stage>) {
        let word = PeerMessage::Ask { from: self.me, tenant: key.0.clone(), id: key.1.clone() };
        self.say(&word).await;
        if is_found(&mut stage).await {
            while timeout(RENEW_EVERY, stage.wait_for(|stage| *stage == Stage::Over)).await.is_err() {
                let wanted = self.lock().asked.get(&key).is_some_and(PeerQuery::is_wanted);
                if !wanted {
                    break;
                }
                self.say(&word).await;
            }
        }
        self.lock().end(&key);
    }

    /// Somebody tells what is known of a message; `done`: it was the last word.
    pub fn told(&self, key: Key, from: Uuid, record: Record, done: bool) {
        let mut inner = self.lock();
        let Some(asked) = inner.asked.get_mut(&key) else { return };
        match &mut asked.holder {
            // Of two who relay one id, the first who answers.
            Some((holder, ..)) if *holder != from => return,
            Some((_, heard, in_flight)) => {
                *heard = Instant::now();
                in_flight.update(record, done);
            }
            None => {
                // It may have begun here meanwhile.
                if let Some(in_flight) = self.live.mirror(&key.0, &key.1, record, done) {
                    asked.holder = Some((from, Instant::now(), in_flight));
                }
                asked.stage.send_replace(Stage::Following);
            }
        }
        if done {
            inner.end(&key);
        }
    }

    pub fn lacks(&self, key: &Key, from: Uuid) {
        self.lock().without(key, from);
    }

    pub fn gone(&self, from: Uuid) {
        let mut inner = self.lock();
        inner.known.remove(&from);
        let keys: Vec<_> = inner.asked.keys().cloned().collect();
        for key in keys {
            inner.without(&key, from);
        }
    }
}

async fn is_found(stage: &mut watch::Receiver<Stage>) -> bool {
    let answered = timeout(PATIENCE, stage.wait_for(|stage| *stage != Stage::Asking)).await;
    matches!(answered, Ok(Ok(stage)) if *stage == Stage::Following)
}

impl PeerQuery {
    /// Somebody watches it, and it is still told of.
    fn is_wanted(&self) -> bool {
        self.holder.as_ref().is_some_and(|(_, heard, in_flight)| in_flight.is_watched() && heard.elapsed() < SILENT_MAX)
    }
}

impl Inner {
    /// This one does not have it (any more).
    fn without(&mut self, key: &Key, from: Uuid) {
        let Some(asked) = self.asked.get_mut(key) else { return };
        asked.silent.remove(&from);
        let over = match &asked.holder {
            Some((holder, ..)) => *holder == from,
            None => asked.silent.is_empty(),
        };
        if over {
            self.end(key);
        }
    }

    /// Those who watch it are told by the end of its place in flight.
    fn end(&mut self, key: &Key) {
        if let Some(asked) = self.asked.remove(key) {
            asked.stage.send_replace(Stage::Over);
        }
    }
}
