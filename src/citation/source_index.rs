//! Which source a URL or a document id means, without keeping either.

use std::{
    collections::HashMap,
    hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState},
};

#[derive(Debug, Default)]
pub(super) struct Names {
    seed: RandomState,
    /// Keys to entries.
    entries: HashMap<Key, u32, BuildHasherDefault<Ready>>,
}

/// 128 bits of a name's keyed hash. Nobody knows the seed, so two names share a key by chance alone, which does not
/// happen: a million of them would with a probability of 2^-89.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key(u64, u64);

impl Names {
    /// Of a canonical URL, or the text of one that is no link.
    pub fn url(&self, name: &str) -> Key {
        self.key(name, b'u')
    }

    pub fn doc(&self, name: &str) -> Key {
        self.key(name, b'd')
    }

    pub fn get(&self, key: Key) -> Option<usize> {
        self.entries.get(&key).map(|entry| *entry as usize)
    }

    /// Whoever has a name first keeps it.
    pub fn note(&mut self, key: Key, entry: usize) {
        self.entries.entry(key).or_insert(u32::try_from(entry).unwrap_or(u32::MAX));
    }

    fn key(&self, name: &str, kind: u8) -> Key {
        let mut hasher = self.seed.build_hasher();
        hasher.write(name.as_bytes());
        hasher.write_u8(kind);
        let first = hasher.finish();
        // One more byte and another finish, as SipHash itself makes 128 bits.
        hasher.write_u8(0xFF);
        Key(first, hasher.finish())
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0);
    }
}

/// A key is a hash already.
#[derive(Debug, Default)]
struct Ready(u64);

impl Hasher for Ready {
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
    fn a_name_is_its_first_holders_and_a_url_is_no_document() {
        let mut names = Names::default();
        let (url, doc) = (names.url("a"), names.doc("a"));
        names.note(url, 1);
        names.note(url, 2);
        assert_eq!((names.get(url), names.get(doc), names.get(names.url("b"))), (Some(1), None, None));
    }
}
