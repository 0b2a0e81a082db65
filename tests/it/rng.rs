//! A seeded random number generator: the same seed gives the same numbers (splitmix64).

use std::{ops::Range, time::Duration};

#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Takes the seed from the environment, otherwise a random one.
    pub fn seed(name: &str) -> u64 {
        let value = std::env::var(name).ok();
        let any = || u64::from(uuid::Uuid::new_v4().as_fields().0);
        value.map_or_else(any, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text}")))
    }

    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Derives an independent generator for a concurrent task.
    pub const fn fork(&mut self) -> Self {
        Self(self.next())
    }

    pub fn within(&mut self, range: Range<usize>) -> usize {
        range.start + usize::try_from(self.next() % (range.end - range.start) as u64).unwrap()
    }

    pub const fn one_in(&mut self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.within(0..from.len())]
    }

    pub fn millis(&mut self, range: Range<usize>) -> Duration {
        Duration::from_millis(self.within(range) as u64)
    }
}
