//! How much of the pages of large files is used again before it is reclaimed.
//!
//! Inodes and metadata blocks age in proportion to the memory that is reclaimed. A file that is
//! written or read once would age all of them each time that it has filled the memory, and gain
//! nothing: nobody uses its pages again. So their share of a reclaim is multiplied by the part of
//! the pages that had been used again when the clock's hand passed them. The idea is that of
//! workingset detection in Linux (Weiner 2012), without records of evicted pages.

use sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The whole, as a fixed-point number.
const ONE: u32 = 1 << 16;
/// Inodes and metadata age at least this much: those that nobody uses must go at last.
const LEAST: u32 = ONE / 32;
/// The weight of one pass over pages is one in so many.
const WEIGHT: u32 = 8;

/// A moving mean.
pub(crate) struct Reuse(AtomicU32);

impl Default for Reuse {
    /// As if all pages were used again: inodes age as pages do.
    fn default() -> Reuse {
        Reuse(AtomicU32::new(ONE))
    }
}

impl Reuse {
    /// A pass over large files freed so many pages, and spared so many that had been used again.
    /// Without any of either there is no large file to learn from.
    pub(crate) fn note(&self, freed: u64, spared: u64) {
        let part = match freed + spared {
            0 => ONE,
            all => (u128::from(spared) * u128::from(ONE) / u128::from(all)) as u32,
        };
        // Of two threads at once, one may win. The mean needs no more.
        let mean = self.0.load(Relaxed);
        let next = mean - mean / WEIGHT + part / WEIGHT;
        self.0.store(next.min(ONE), Relaxed);
    }

    /// The part of `share` by which inodes or metadata age.
    pub(crate) fn of(&self, share: u64) -> u64 {
        let part = self.0.load(Relaxed).max(LEAST);
        (u128::from(share) * u128::from(part) / u128::from(ONE)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_follows_the_pages_that_are_used_again() {
        let reuse = Reuse::default();
        assert_eq!(reuse.of(1000), 1000, "nothing is known");
        (0..100).for_each(|_| reuse.note(64, 0));
        assert_eq!(reuse.of(3200), 100, "a stream");
        (0..100).for_each(|_| reuse.note(50, 50));
        assert!((480..=500).contains(&reuse.of(1000)));
        (0..100).for_each(|_| reuse.note(0, 0));
        assert!(reuse.of(1000) >= 990, "no large file is left");
        assert!(reuse.of(u64::MAX) > u64::MAX / 2);
    }
}
