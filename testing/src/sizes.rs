//! Random offsets, lengths of contents, and lengths of attributes.

use testkit::seed::Rng;

/// Offsets and lengths are often multiples of this. It is a multiple of each block size.
const BLOCK: u64 = 4096;
/// Largest offset of ordinary operations.
pub const REACH: u64 = 600 << 10;

/// The sizes of a workload.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sizes {
    /// From empty files to sparse ones of gigabytes.
    Any,
    /// Mostly near the room in an inode.
    Small,
}

impl Sizes {
    /// An offset in a file, in bytes.
    pub fn offset(self, rng: &mut Rng) -> u64 {
        if self == Sizes::Small && !rng.one_in(8) {
            return rng.below(200);
        }
        let at = rng.below(REACH);
        match rng.below(4) {
            0 => at / BLOCK * BLOCK,
            1 => at % 9000,
            // A sparse file, whose tree grows. A block map of 1 KiB blocks reaches to 16 GiB.
            2 if rng.one_in(8) => at + rng.below(1 << 33),
            _ => at,
        }
    }

    /// The length of contents in bytes, at least 1.
    pub fn length(self, rng: &mut Rng) -> u64 {
        if self == Sizes::Small && !rng.one_in(8) {
            return 1 + rng.below(120);
        }
        match rng.below(4) {
            0 => 1 + rng.below(100),
            1 => BLOCK * (1 + rng.below(8)),
            2 => 1 + rng.below(20_000),
            _ => 1 + rng.below(100_000),
        }
    }

    /// The length of an attribute's value in bytes.
    pub fn attribute(self, rng: &mut Rng) -> usize {
        match rng.below(4) {
            0 => 0,
            1 if self == Sizes::Any => 1 + rng.index(1500),
            _ => 1 + rng.index(60),
        }
    }
}
