//! What a reading asks of a document: by which keys, and which strings it tried to open. Whatever lies under other keys
//! cannot have changed what the reading came to.

use std::cell::{Cell, RefCell};

use memchr::memmem;

thread_local! {
    static ON: Cell<bool> = const { Cell::new(false) };
    static ASKED: RefCell<Asked> = const { RefCell::new(Asked { keys: String::new(), opened: Vec::new() }) };
}

/// Between keys: no key that is asked for has one.
const BETWEEN: char = '\0';

#[derive(Debug, Default)]
pub struct Asked {
    /// In the order in which they were asked for, as often as they were.
    keys: String,
    /// Where these strings lie in memory.
    opened: Vec<usize>,
}

/// Turned off again also where the reading panics.
struct On;

impl Drop for On {
    fn drop(&mut self) {
        ON.set(false);
    }
}

/// Notes what `read` asks for.
pub fn during<T>(read: impl FnOnce() -> T) -> (T, Asked) {
    ASKED.take();
    ON.set(true);
    let on = On;
    let result = read();
    drop(on);
    (result, ASKED.take())
}

/// A key is asked for.
#[inline]
pub fn key(key: &str) {
    if ON.get() {
        note(key);
    }
}

#[cold]
fn note(key: &str) {
    ASKED.with_borrow_mut(|asked| {
        asked.keys.push(BETWEEN);
        asked.keys.push_str(key);
        asked.keys.push(BETWEEN);
    });
}

/// A string is looked at as JSON of its own.
pub fn opens(text: &str) {
    if ON.get() {
        ASKED.with_borrow_mut(|asked| asked.opened.push(text.as_ptr().addr()));
    }
}

impl Asked {
    pub fn has_key(&self, key: &str) -> bool {
        let found = memmem::find(self.keys.as_bytes(), [&b"\0"[..], key.as_bytes(), b"\0"].concat().as_slice());
        found.is_some() || key.contains(BETWEEN)
    }

    /// Was the string that begins at this address opened?
    pub fn has_opened(&self, address: usize) -> bool {
        self.opened.contains(&address)
    }
}
