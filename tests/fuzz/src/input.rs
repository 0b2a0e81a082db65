//! Splits an input into settings and stream, and a stream into chunks.

use bytes::Bytes;

/// Number of bytes with settings before the stream.
pub const HEAD: usize = 4;

/// The settings bytes and the stream.
pub fn split(data: &[u8]) -> Option<([u8; HEAD], &[u8])> {
    data.split_first_chunk::<HEAD>().map(|(head, rest)| (*head, rest))
}

/// The element that a settings byte selects.
pub fn choose<T: Copy>(from: &[T], byte: u8) -> T {
    from[usize::from(byte) % from.len()]
}

/// A seeded random number generator: the same seed gives the same numbers.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: impl Into<u64>) -> Self {
        Self(seed.into().wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or_default() % n.max(1)
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn of<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// Lengths that add up to `len`. Some are 0, because empty chunks must work too.
fn lengths(len: usize, seed: u8) -> Vec<usize> {
    let mut dice = Dice::new(seed);
    let most = dice.of(&[2, 5, 20, 100, 1000]);
    let (mut left, mut all) = (len, Vec::new());
    while left > 0 {
        let next = dice.below(most + 1).min(left);
        all.push(next);
        left -= next;
    }
    all
}

/// The bytes in chunks of random lengths, or byte by byte if the seed is 0.
pub fn chunks(bytes: &[u8], seed: u8) -> Vec<Bytes> {
    if seed == 0 {
        return bytes.chunks(1).map(Bytes::copy_from_slice).collect();
    }
    let bytes = Bytes::copy_from_slice(bytes);
    let mut at = 0;
    let cut = |len: usize| {
        at += len;
        bytes.slice(at - len..at)
    };
    lengths(bytes.len(), seed).into_iter().map(cut).collect()
}

/// The text in pieces of random lengths, split at character boundaries.
pub fn pieces(text: &str, seed: u8) -> Vec<&str> {
    let (mut at, mut all) = (0, Vec::new());
    for len in lengths(text.len(), seed) {
        let to = text.ceil_char_boundary((at + len).min(text.len()));
        all.push(&text[at..to]);
        at = to;
    }
    all
}
