//! Publish/subscribe between the replicas that share an engine. `app::peers` uses it to find a message that another
//! replica is relaying.

use super::StoreFut;

/// A broadcast channel. A payload reaches every current subscriber, the publisher's own included; nothing is kept for
/// later ones.
pub trait Bus: Send + Sync + 'static {
    /// Publishes one line of JSON, which may be as long as a record.
    fn publish<'a>(&'a self, payload: &'a str) -> StoreFut<'a, ()>;
    /// Subscribes. Every payload published after this returns is received.
    fn subscribe(&self) -> StoreFut<'_, Box<dyn Subscription>>;
}

pub trait Subscription: Send {
    /// Waits for the next payload. After an error, payloads may have been missed and this subscription is dead:
    /// subscribe again.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future loses no payload.
    fn recv(&mut self) -> StoreFut<'_, String>;
}
