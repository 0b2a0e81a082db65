//! Finds the ledger entry of a URL or document id. It stores hashes, not texts, to keep the memory per stream small.

use std::{
    collections::HashMap,
    hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState},
};

/// Map from keys of URLs and document ids to ledger entries.
#[derive(Debug, Default)]
pub(super) struct SourceIndex {
    seed: RandomState,
    entries: HashMap<Key, u32, BuildHasherDefault<IdentityHasher>>,
}

/// A keyed 128-bit hash of a URL or document id. The seed is random and secret, so collisions happen only by chance: among a
/// million keys with a probability of 2^-89.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key(u64, u64);

impl SourceIndex {
    /// Key of a canonical URL, or of the text of an invalid one.
    pub fn url_key(&self, url: &str) -> Key {
        self.key(url, b'u')
    }

    pub fn doc_key(&self, id: &str) -> Key {
        self.key(id, b'd')
    }

    pub fn get(&self, key: Key) -> Option<usize> {
        self.entries.get(&key).map(|entry| *entry as usize)
    }

    /// Maps the key to the entry, unless it has one.
    pub fn insert(&mut self, key: Key, entry: usize) {
        self.entries.entry(key).or_insert(u32::try_from(entry).unwrap_or(u32::MAX));
    }

    fn key(&self, text: &str, kind: u8) -> Key {
        let mut hasher = self.seed.build_hasher();
        hasher.write(text.as_bytes());
        hasher.write_u8(kind);
        let first = hasher.finish();
        // SipHash extends its output to 128 bits in the same way: one more byte, then a second finish.
        hasher.write_u8(0xFF);
        Key(first, hasher.finish())
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0);
    }
}

/// Passes the key through, which is a hash already.
#[derive(Debug, Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_entry_keeps_its_key_and_kinds_differ() {
        let mut index = SourceIndex::default();
        let (url, doc) = (index.url_key("a"), index.doc_key("a"));
        index.insert(url, 1);
        index.insert(url, 2);
        assert_eq!((index.get(url), index.get(doc), index.get(index.url_key("b"))), (Some(1), None, None));
    }
}
