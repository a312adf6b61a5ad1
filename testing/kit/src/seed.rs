//! Random numbers. The seed is printed; `SLUICE_SEED` replays it.

use std::time::{SystemTime, UNIX_EPOCH};

/// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
#[derive(Clone, Debug)]
pub struct Rng(u64);

/// The seed that `SLUICE_SEED` names.
fn given() -> Option<u64> {
    let seed = std::env::var("SLUICE_SEED").ok()?;
    Some(seed.parse().expect("SLUICE_SEED is a number"))
}

/// Seeds for a test that runs once for each: all of `range`, or the one that `SLUICE_SEED` names.
pub fn seeds(range: std::ops::RangeInclusive<u64>) -> Vec<u64> {
    given().map_or_else(|| range.collect(), |seed| vec![seed])
}

impl Rng {
    /// Seeds from `SLUICE_SEED`, or else from the time, and prints the seed. The test harness shows
    /// it if the test fails.
    pub fn new(test: &str) -> Rng {
        let from_time = || {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            now.map_or(1, |d| d.as_nanos() as u64 % 1_000_000_007)
        };
        let seed = given().unwrap_or_else(from_time);
        eprintln!("{test}: replay with SLUICE_SEED={seed}");
        Rng(seed)
    }

    /// Seeds from a number.
    pub fn from_seed(seed: u64) -> Rng {
        Rng(seed)
    }

    /// A generator with a seed drawn from this one.
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

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next_u64() % n
    }

    /// An index below `n`, which is not 0.
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

    /// Puts `items` into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.index(i + 1));
        }
    }

    /// `len` bytes, none of them zero: a hole differs from data.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(len + 8);
        while out.len() < len {
            out.extend((self.next_u64() | 0x0101_0101_0101_0101).to_le_bytes());
        }
        out.truncate(len);
        out
    }
}
