//! Random numbers whose seed is printed and can be replayed with `SLUICE_SEED`.

use std::time::{SystemTime, UNIX_EPOCH};

/// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// From `SLUICE_SEED`, or the time; prints what replays it.
    pub fn new(test: &str) -> Rng {
        let given = std::env::var("SLUICE_SEED").ok();
        let seed = match &given {
            Some(text) => text.parse().expect("SLUICE_SEED is a number"),
            None => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(1, |d| d.as_nanos() as u64 % 1_000_000_007),
        };
        eprintln!("{test}: replay with SLUICE_SEED={seed}");
        Rng(seed)
    }

    /// From a number.
    pub fn from_seed(seed: u64) -> Rng {
        Rng(seed)
    }

    /// Another, whose numbers have nothing to do with those that follow here.
    pub fn fork(&mut self) -> Rng {
        Rng(self.next_u64())
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n` (`n` > 0).
    pub fn below(&mut self, n: u64) -> u64 {
        self.next_u64() % n
    }

    /// An index below `n` (`n` > 0).
    pub fn index(&mut self, n: usize) -> usize {
        self.below(n as u64) as usize
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of `items`.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.index(items.len())]
    }

    /// `len` bytes, none of them zero, so that a hole is never mistaken for data.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(len + 8);
        while out.len() < len {
            out.extend((self.next_u64() | 0x0101_0101_0101_0101).to_le_bytes());
        }
        out.truncate(len);
        out
    }
}
