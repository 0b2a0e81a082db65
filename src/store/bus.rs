//! Words between the replicas that share an engine.

use super::StoreFut;

/// What is said goes to all who listen at that moment, also to the one who says it, and is kept for nobody.
pub trait Bus: Send + Sync + 'static {
    /// A word is a line of JSON; it may be as long as a record.
    fn say<'a>(&'a self, word: &'a str) -> StoreFut<'a, ()>;
    /// From when this returns, everything is heard.
    fn listen(&self) -> StoreFut<'_, Box<dyn Ear>>;
}

pub trait Ear: Send {
    /// The next word. After an error words may have been missed, and this one hears no more: listen anew.
    ///
    /// # Cancel safety
    ///
    /// Dropped while it waits, it has taken nothing.
    fn hear(&mut self) -> StoreFut<'_, String>;
}
