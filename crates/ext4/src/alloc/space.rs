//! How much space is left: free blocks, promises, and what is free but cannot be taken yet.
//!
//! A promise ([`Space::reserve`]) is made for every page that becomes dirty, by any number of threads at once, so its
//! count is spread over shards, and the exact sum is only made where space runs short. Promises are added before they
//! are checked and taken back if the check fails: two racing for the last block may both lose, but never both win.
//!
//! A promise is only good if [`pick`](super::Groups::pick) can keep it. Blocks freed by a transaction that has not
//! committed cannot be picked, so they are not promised either; and some blocks are held back for the metadata that
//! writing the promised data needs (extent nodes), as that is allocated without a promise of its own.

use crate::{Error, Result};
use crossbeam_utils::CachePadded;
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

const SHARDS: usize = 16;
/// A shard hands its count over when it has grown this large.
const SHARD_MAX: i64 = 1024;
/// Data blocks per block of metadata held back for them: a half full leaf of an extent tree maps more, even where no two
/// blocks are adjacent.
const DATA_PER_METADATA: i64 = 128;
/// Blocks held back on any volume of sufficient size.
const MARGIN_MAX: i64 = 4096;

/// The counters of a volume, in blocks.
pub(super) struct Space {
    /// Clear bits of all bitmaps.
    free: CachePadded<AtomicI64>,
    /// Of these, what cannot be picked: freed by a transaction that has not committed, or in a damaged group.
    held: CachePadded<AtomicI64>,
    /// Promises, less what the shards have.
    reserved: CachePadded<AtomicI64>,
    shards: [CachePadded<AtomicI64>; SHARDS],
    margin: i64,
}

thread_local! {
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}

fn shard_index() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    SHARD.with(|shard| {
        if shard.get() == usize::MAX {
            shard.set(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
        }
        shard.get()
    })
}

impl Space {
    pub fn new(free: u64, total: u64) -> Space {
        Space {
            free: CachePadded::new(AtomicI64::new(free as i64)),
            held: CachePadded::default(),
            reserved: CachePadded::default(),
            shards: Default::default(),
            margin: (total / 50).min(MARGIN_MAX as u64) as i64,
        }
    }

    fn add_reserved(&self, blocks: i64) {
        let shard = &self.shards[shard_index()];
        let now = shard.fetch_add(blocks, Ordering::Relaxed) + blocks;
        if now.abs() >= SHARD_MAX {
            // What is moved is never missing from the sum for long, and never counted less than it is.
            self.reserved.fetch_add(now, Ordering::Relaxed);
            shard.fetch_sub(now, Ordering::Relaxed);
        }
    }

    fn fits(&self, reserved: i64) -> bool {
        let usable = self.free.load(Ordering::Relaxed) - self.held.load(Ordering::Relaxed);
        reserved + reserved / DATA_PER_METADATA + self.margin <= usable
    }

    /// Promises `blocks`.
    pub fn reserve(&self, blocks: u64) -> Result<()> {
        let wanted = i64::try_from(blocks).map_err(|_| Error::NoSpace)?;
        self.add_reserved(wanted);
        // The shards hold at most so much more than the global count says.
        let slack = SHARDS as i64 * SHARD_MAX;
        let rough = self.reserved.load(Ordering::Relaxed) + slack;
        if self.fits(rough) || self.fits(self.reserved_exact()) {
            return Ok(());
        }
        self.add_reserved(-wanted);
        Err(Error::NoSpace)
    }

    /// Takes a promise back.
    pub fn unreserve(&self, blocks: u64) {
        self.add_reserved(-(blocks as i64));
    }

    fn reserved_exact(&self) -> i64 {
        let shards: i64 = self.shards.iter().map(|s| s.load(Ordering::Relaxed)).sum();
        self.reserved.load(Ordering::Relaxed) + shards
    }

    /// Blocks promised.
    pub fn reserved(&self) -> u64 {
        self.reserved_exact().max(0) as u64
    }

    /// Whether a promise of `blocks` may fail now and not after a commit. Rough.
    pub fn waits_for_commit(&self, blocks: u64) -> bool {
        let held = self.held.load(Ordering::Relaxed);
        let usable = self.free.load(Ordering::Relaxed) - held - self.margin;
        held > 0 && usable - self.reserved() as i64 <= blocks as i64
    }

    /// Clear bits of all bitmaps.
    pub fn free(&self) -> u64 {
        self.free.load(Ordering::Relaxed).max(0) as u64
    }

    /// Bits were set in a bitmap.
    pub fn took(&self, blocks: u32) {
        self.free.fetch_sub(i64::from(blocks), Ordering::Relaxed);
    }

    /// Bits were cleared in a bitmap; the blocks are held until [`Space::release`].
    pub fn freed(&self, blocks: u32) {
        // In this order a racing promise sees too little, never too much.
        self.hold(blocks);
        self.free.fetch_add(i64::from(blocks), Ordering::Relaxed);
    }

    /// Free blocks can no longer be picked.
    pub fn hold(&self, blocks: u32) {
        self.held.fetch_add(i64::from(blocks), Ordering::Relaxed);
    }

    /// Held blocks can be picked again.
    pub fn release(&self, blocks: u32) {
        self.held.fetch_sub(i64::from(blocks), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_end_before_the_space_does() {
        let space = Space::new(10_000, 10_000);
        let mut promised = 0;
        while space.reserve(7).is_ok() {
            promised += 7;
        }
        assert_eq!(space.reserved(), promised);
        assert!((9_600..9_800).contains(&promised), "{promised}");
        space.unreserve(promised);
        assert_eq!(space.reserved(), 0);
        space.freed(100);
        assert_eq!(space.free(), 10_100);
        assert!(space.reserve(u64::MAX).is_err());
        assert!(space.reserve(9_800).is_err());
        space.release(100);
        assert!(space.reserve(9_800).is_ok());
    }

    #[test]
    fn racing_promises_never_exceed_the_space() {
        let space = Space::new(100_000, 1_000_000);
        let total: u64 = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let mut mine = 0;
                        while space.reserve(3).is_ok() {
                            mine += 3;
                        }
                        mine
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).sum()
        });
        assert_eq!(space.reserved(), total);
        assert!(total + total / 128 + 4096 <= 100_000 && total > 95_000);
    }
}
