//! Messages in flight: what is known of each so far, for those who ask before it is stored. Most messages are never asked
//! for: a record is made when somebody does.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use tokio::sync::watch;

use crate::citation::Record;

/// Where a message stands.
#[derive(Debug, Clone)]
struct State {
    /// `None`: nobody has asked yet. Stored already, and not done: a search of our own may still add to it.
    record: Option<Arc<Record>>,
    /// Its stream is over for those who wait: the record is as stored as it will be.
    done: bool,
}

/// Who can say what is known of a message now.
pub trait SnapshotSource: Send + Sync {
    /// To those who watch.
    fn tell(&self);
}

/// Has nothing to say.
pub struct Nobody;

impl SnapshotSource for Nobody {
    fn tell(&self) {}
}

/// Tenant and message id. Bounded by the caps on streams, on searches beside them, and on what other replicas are asked.
pub type Key = (String, String);

struct Message {
    sender: watch::Sender<State>,
    /// Relayed by this replica; others are known from hearsay.
    own: bool,
    snapshot_source: Weak<dyn SnapshotSource>,
}

#[derive(Default, Clone)]
pub struct Live {
    messages: Arc<Mutex<HashMap<Key, Message>>>,
}

impl Live {
    /// The message, if it is in flight. `patience` is for one that is on its way to the store.
    pub async fn watch(&self, tenant: &str, id: &str, patience: Duration) -> Option<Watched> {
        let key = (tenant.to_owned(), id.to_owned());
        let (mut receiver, snapshot_source) = {
            let messages = self.lock();
            let message = messages.get(&key)?;
            (message.sender.subscribe(), message.snapshot_source.upgrade())
        };
        // Without the lock: whoever tells holds its stream, which may want to announce another message.
        if let Some(snapshot_source) = snapshot_source {
            snapshot_source.tell();
        }
        let known = receiver.wait_for(|state| state.record.is_some() || state.done);
        let record = tokio::time::timeout(patience, known).await.ok()?.ok()?.record.clone()?;
        Some(Watched { record, receiver })
    }

    /// Announces a message. Of two with one id, the later is found.
    pub fn begin(
        &self,
        tenant: &str,
        id: String,
        record: Option<Record>,
        snapshot_source: Weak<dyn SnapshotSource>,
    ) -> InFlight {
        let key = (tenant.to_owned(), id);
        let (sender, _) = watch::channel(State { record: record.map(Arc::new), done: false });
        self.lock().insert(key.clone(), Message { sender: sender.clone(), own: true, snapshot_source });
        InFlight { live: self.clone(), key, sender }
    }

    /// A message that another replica relays, as told by it. `None`: there is one here.
    pub fn mirror(&self, tenant: &str, id: &str, record: Record, done: bool) -> Option<InFlight> {
        let key = (tenant.to_owned(), id.to_owned());
        let (sender, _) = watch::channel(State { record: Some(Arc::new(record)), done });
        let mut messages = self.lock();
        if messages.contains_key(&key) {
            return None;
        }
        messages.insert(
            key.clone(),
            Message { sender: sender.clone(), own: false, snapshot_source: Weak::<Nobody>::new() },
        );
        drop(messages);
        Some(InFlight { live: self.clone(), key, sender })
    }

    /// Does this replica relay it?
    pub fn is_own(&self, key: &Key) -> bool {
        self.lock().get(key).is_some_and(|message| message.own)
    }

    /// A record was deleted: it is not found here either. One that is not stored yet was not meant.
    pub fn forget(&self, tenant: &str, id: &str, provider: Option<&str>) {
        let is_meant = |message: &Message| {
            let state = message.sender.borrow();
            let fits = |record: &Record| provider.is_none_or(|provider| provider == record.provider);
            state.record.as_ref().is_some_and(|record| record.stored && fits(record))
        };
        let key = (tenant.to_owned(), id.to_owned());
        let mut messages = self.lock();
        if messages.get(&key).is_some_and(is_meant) {
            messages.remove(&key);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Message>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A message that somebody watches.
pub struct Watched {
    record: Arc<Record>,
    receiver: watch::Receiver<State>,
}

impl Watched {
    /// As it is now, and whether that was the last word.
    pub fn now(&mut self) -> (Arc<Record>, bool) {
        let state = self.receiver.borrow_and_update();
        if let Some(record) = &state.record {
            self.record = Arc::clone(record);
        }
        (Arc::clone(&self.record), state.done)
    }

    /// Until there is something new; `false`: there never will be.
    pub async fn changed(&mut self) -> bool {
        self.receiver.changed().await.is_ok()
    }

    pub async fn done(&mut self) {
        let _ = self.receiver.wait_for(|state| state.done).await;
    }
}

/// One message in flight; dropped, it is found no more and those who wait are told.
pub struct InFlight {
    live: Live,
    key: Key,
    sender: watch::Sender<State>,
}

impl InFlight {
    pub fn is_watched(&self) -> bool {
        self.sender.receiver_count() > 0
    }

    pub fn update(&self, record: Record, done: bool) {
        self.sender.send_replace(State { record: Some(Arc::new(record)), done });
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.sender.send_modify(|state| state.done = true);
        let mut messages = self.live.lock();
        if messages.get(&self.key).is_some_and(|message| message.sender.same_channel(&self.sender)) {
            messages.remove(&self.key);
        }
    }
}
