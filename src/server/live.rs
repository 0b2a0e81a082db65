//! Messages in flight: what is known of each so far, for those who ask before it is stored.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::watch;

use crate::citation::Record;

/// Where a message stands.
#[derive(Debug, Clone)]
pub struct State {
    /// Stored already, and not done: a search of our own may still add to it.
    pub record: Arc<Record>,
    /// Its stream is over for those who wait: the record is as stored as it will be.
    pub done: bool,
}

/// Tenant and message id. Bounded by the caps on streams and on searches beside them.
type Key = (String, String);

#[derive(Debug, Default, Clone)]
pub struct Live {
    messages: Arc<Mutex<HashMap<Key, watch::Sender<State>>>>,
}

impl Live {
    /// The message, if it is in flight.
    pub fn watch(&self, tenant: &str, id: &str) -> Option<watch::Receiver<State>> {
        let key = (tenant.to_owned(), id.to_owned());
        self.lock().get(&key).map(watch::Sender::subscribe)
    }

    /// Announces a message. Of two with one id, the later is found.
    pub fn begin(&self, tenant: &str, record: Record) -> InFlight {
        let key = (tenant.to_owned(), record.message_id.clone());
        let (sender, _) = watch::channel(State { record: Arc::new(record), done: false });
        self.lock().insert(key.clone(), sender.clone());
        InFlight { live: self.clone(), key, sender }
    }

    /// A record was deleted: it is not found here either. One that is not stored yet was not meant.
    pub fn forget(&self, tenant: &str, id: &str, provider: Option<&str>) {
        let is_meant = |sender: &watch::Sender<State>| {
            let record = &sender.borrow().record;
            record.stored && provider.is_none_or(|provider| provider == record.provider)
        };
        let key = (tenant.to_owned(), id.to_owned());
        let mut messages = self.lock();
        if messages.get(&key).is_some_and(is_meant) {
            messages.remove(&key);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, watch::Sender<State>>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One message in flight; dropped, it is found no more and those who wait are told.
pub struct InFlight {
    live: Live,
    key: Key,
    sender: watch::Sender<State>,
}

impl InFlight {
    pub fn update(&self, record: Record, done: bool) {
        self.sender.send_replace(State { record: Arc::new(record), done });
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.sender.send_modify(|state| state.done = true);
        let mut messages = self.live.lock();
        if messages.get(&self.key).is_some_and(|sender| sender.same_channel(&self.sender)) {
            messages.remove(&self.key);
        }
    }
}
