//! Messages in flight and their records so far, for clients that ask before a record is stored. `relay` announces them,
//! `api` and `peers` watch them. Most messages are never asked for, so a record is made only when a client asks.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use tokio::sync::watch;

use crate::citation::Record;

/// What watchers of a message see.
#[derive(Debug, Clone)]
struct State {
    /// `None` before the first snapshot. A stored record is not `done` if a supplementary search may still add to it.
    record: Option<Arc<Record>>,
    /// True once the record will not change: its stream has ended, and the store has committed or refused it.
    done: bool,
}

/// Makes a snapshot of a message's record on demand.
pub trait SnapshotSource: Send + Sync {
    /// Sends the current record to the watchers.
    fn publish_snapshot(&self);
}

/// A source that publishes nothing.
pub struct NoSource;

impl SnapshotSource for NoSource {
    fn publish_snapshot(&self) {}
}

/// Tenant and message id.
pub type Key = (String, String);

struct Message {
    sender: watch::Sender<State>,
    /// True if this replica relays it; false for the mirror of a message on another replica.
    is_own: bool,
    snapshot_source: Weak<dyn SnapshotSource>,
}

/// The messages in flight. The caps on streams, on supplementary searches and on peer queries bound their number.
#[derive(Default, Clone)]
pub struct LiveMessages {
    messages: Arc<Mutex<HashMap<Key, Message>>>,
}

impl LiveMessages {
    /// Watches a message if it is in flight. Waits up to `limit` for the record of one that is on its way to the store.
    pub async fn watch(&self, tenant: &str, id: &str, limit: Duration) -> Option<Watched> {
        let key = (tenant.to_owned(), id.to_owned());
        let (mut receiver, snapshot_source) = {
            let messages = self.lock();
            let message = messages.get(&key)?;
            (message.sender.subscribe(), message.snapshot_source.upgrade())
        };
        // Outside the lock: the source locks its stream, which may be announcing another message here.
        if let Some(snapshot_source) = snapshot_source {
            snapshot_source.publish_snapshot();
        }
        let first = receiver.wait_for(|state| state.record.is_some() || state.done);
        let record = tokio::time::timeout(limit, first).await.ok()?.ok()?.record.clone()?;
        Some(Watched { record, receiver })
    }

    /// Announces a message that this replica relays. Of two with one id, the later is found.
    pub fn begin(
        &self,
        tenant: &str,
        id: String,
        record: Option<Record>,
        snapshot_source: Weak<dyn SnapshotSource>,
    ) -> InFlight {
        let key = (tenant.to_owned(), id);
        let (sender, _) = watch::channel(State { record: record.map(Arc::new), done: false });
        self.lock().insert(key.clone(), Message { sender: sender.clone(), is_own: true, snapshot_source });
        InFlight { live: self.clone(), key, sender }
    }

    /// Adds the mirror of a message that another replica relays. `None` if one with this id is in flight here.
    pub fn mirror(&self, tenant: &str, id: &str, record: Record, done: bool) -> Option<InFlight> {
        let key = (tenant.to_owned(), id.to_owned());
        let (sender, _) = watch::channel(State { record: Some(Arc::new(record)), done });
        let mut messages = self.lock();
        if messages.contains_key(&key) {
            return None;
        }
        messages.insert(
            key.clone(),
            Message { sender: sender.clone(), is_own: false, snapshot_source: Weak::<NoSource>::new() },
        );
        drop(messages);
        Some(InFlight { live: self.clone(), key, sender })
    }

    /// True if this replica relays the message.
    pub fn is_own(&self, key: &Key) -> bool {
        self.lock().get(key).is_some_and(|message| message.is_own)
    }

    /// Removes a message whose stored record was deleted. One that is not stored yet stays: the delete did not mean it.
    pub fn forget(&self, tenant: &str, id: &str, provider: Option<&str>) {
        let is_deleted = |message: &Message| {
            let state = message.sender.borrow();
            let has_provider = |record: &Record| provider.is_none_or(|provider| provider == record.provider);
            state.record.as_ref().is_some_and(|record| record.stored && has_provider(record))
        };
        let key = (tenant.to_owned(), id.to_owned());
        let mut messages = self.lock();
        if messages.get(&key).is_some_and(is_deleted) {
            messages.remove(&key);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Message>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A watcher of a message in flight.
pub struct Watched {
    record: Arc<Record>,
    receiver: watch::Receiver<State>,
}

impl Watched {
    /// The current record, and true if it is final.
    pub fn now(&mut self) -> (Arc<Record>, bool) {
        let state = self.receiver.borrow_and_update();
        if let Some(record) = &state.record {
            self.record = Arc::clone(record);
        }
        (Arc::clone(&self.record), state.done)
    }

    /// Waits for a change; `false` if no more will come.
    pub async fn changed(&mut self) -> bool {
        self.receiver.changed().await.is_ok()
    }

    /// Waits until the record is final.
    pub async fn done(&mut self) {
        let _ = self.receiver.wait_for(|state| state.done).await;
    }
}

/// A message in flight. Dropping it notifies the watchers and removes the message.
pub struct InFlight {
    live: LiveMessages,
    key: Key,
    sender: watch::Sender<State>,
}

impl InFlight {
    /// True if a client or another replica watches the message.
    pub fn is_watched(&self) -> bool {
        self.sender.receiver_count() > 0
    }

    /// Sends a new record to the watchers.
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
