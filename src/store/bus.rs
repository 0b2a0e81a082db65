//! Words between the replicas that share an engine.

use super::{Fut, StoreError};

/// What is said goes to all who listen at that moment, also to the one who says it, and is kept for nobody.
pub trait Bus: Send + Sync + 'static {
    /// A word is a line of JSON; it may be as long as a record.
    fn say<'a>(&'a self, word: &'a str) -> Fut<'a, Result<(), StoreError>>;
    /// From when this returns, everything is heard.
    fn listen(&self) -> Fut<'_, Result<Box<dyn Ear>, StoreError>>;
}

pub trait Ear: Send {
    /// The next word. After an error words may have been missed, and this one hears no more: listen anew.
    ///
    /// # Cancel safety
    ///
    /// Dropped while it waits, it has taken nothing.
    fn hear(&mut self) -> Fut<'_, Result<String, StoreError>>;
}
