//! Promises of space: who may count on which blocks.
//!
//! A free block is in one of these states. Only this file changes the counters; each arrow names
//! what does it.
//!
//! ```text
//!              reserve                       pick                      record
//!   given out ◀───────── unpromised       ┌───────▶ picked ──────────────────────────▶ in use
//!   as a promise            ▲  ▲          │           │      keep: the promise ends       │
//!        │                  │  │          │           │      with the block              │
//!        ▼     unreserve    │  │          │  unpick   │                                  │ free
//!     reserved ─────────────┘  │       reserved ◀─────┘                                  ▼
//!                              └──────────────────────────────────────────────────────  held
//!                                   release: the transaction that freed it has committed
//! ```
//!
//! | promise | made by | held by | kept or given back by |
//! |---|---|---|---|
//! | a page's block | `Fs::reserve_blocks` in `file_io/write.rs` | the page's delalloc tag | `Fs::record_ranges`, `Fs::drop_pages` |
//! | nodes for pages of a file | `Changes::promise` in `extents/promise.rs` | `Inode::nodes` | `Groups::take_promised_block`, `Fs::settle_nodes` |
//! | blocks of a fallocate | `Fs::allocate` | its stack | the same |
//! | a block of a directory, attribute or link | `Groups::alloc_metadata_block` | its stack | the same |
//!
//! Invariants:
//! - `free = unpromised + promised + held`. So nothing that is promised can be taken by anybody
//!   else, metadata included: whatever takes a block has a promise for it first.
//! - A promise is a count and names no block. [`pick`](super::Groups::pick) finds one, because the
//!   groups together always have at least as many available blocks as are promised and not picked.
//!   A damaged group is the exception: its blocks leave `unpromised` when it is found, which may be
//!   after they were promised.
//! - A promise never becomes less than what it may take: nodes are promised for the worst case.
//!
//! The last `margin` blocks are promised only to changes that need no data block and have to work
//! on a full volume ([`Claim::Margin`]): writing to allocated space, and making holes.
//!
//! A promise is made for every new page, by any number of threads at once. So threads have
//! *stocks*: blocks that are promised to nobody in particular. A stock is filled only while far
//! more is unpromised than all stocks can have, and they are emptied before anybody is told that
//! the volume is full.

use crate::{Error, Result};
use crossbeam_utils::CachePadded;
use sync::atomic::{AtomicI64, Ordering};

const STOCKS: usize = 16;
/// Blocks that a stock is filled up by.
const STOCK_FILL: i64 = 256;
/// Blocks in a stock at most.
const STOCK_MAX: i64 = 4 * STOCK_FILL;
/// Stocks are used while at least so much is unpromised beyond the margin.
const AMPLE: i64 = STOCKS as i64 * STOCK_MAX;
/// Blocks of the margin at most.
const MARGIN_MAX: u64 = 4096;

/// What a promise is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Anything that a full volume refuses.
    Ordinary,
    /// What has to work on a full volume: it may take the margin.
    Margin,
}

/// The counters of a volume, in blocks.
pub(super) struct Space {
    /// Free, available and promised to nobody. Below 0 only where promised blocks turned out to be
    /// damaged.
    unpromised: CachePadded<AtomicI64>,
    /// Clear bits of all bitmaps.
    free: CachePadded<AtomicI64>,
    /// Of these, what cannot be picked: freed by a transaction that has not committed, or in a
    /// damaged group.
    held: CachePadded<AtomicI64>,
    /// Of these, what a commit does not release.
    damaged: AtomicI64,
    /// Of the promises, those for nodes: more than will be used.
    nodes: CachePadded<AtomicI64>,
    stocks: [CachePadded<AtomicI64>; STOCKS],
    margin: i64,
}

/// Takes `blocks` off a counter if `least` stay.
fn take(counter: &AtomicI64, blocks: i64, least: i64) -> bool {
    let taken = |now: i64| now.checked_sub(blocks).filter(|left| *left >= least);
    counter
        .fetch_update(Ordering::AcqRel, Ordering::Relaxed, taken)
        .is_ok()
}

impl Space {
    pub fn new(free: u64, total: u64) -> Space {
        Space {
            unpromised: CachePadded::new(AtomicI64::new(free as i64)),
            free: CachePadded::new(AtomicI64::new(free as i64)),
            held: CachePadded::default(),
            damaged: AtomicI64::new(0),
            nodes: CachePadded::default(),
            stocks: Default::default(),
            margin: (total / 50).min(MARGIN_MAX) as i64,
        }
    }

    /// Promises `blocks`. No lock is taken.
    ///
    /// # Errors
    /// `NoSpace`.
    pub fn reserve(&self, blocks: u64, claim: Claim) -> Result<()> {
        let wanted = i64::try_from(blocks).map_err(|_| Error::NoSpace)?;
        let stock = &self.stocks[sync::thread::ordinal() % STOCKS];
        if take(stock, wanted, 0) {
            return Ok(());
        }
        let fill = wanted.saturating_add(STOCK_FILL);
        if wanted <= STOCK_FILL && take(&self.unpromised, fill, self.margin + AMPLE) {
            stock.fetch_add(STOCK_FILL, Ordering::AcqRel);
            return Ok(());
        }
        let least = match claim {
            Claim::Ordinary => self.margin,
            Claim::Margin => 0,
        };
        if take(&self.unpromised, wanted, least) {
            return Ok(());
        }
        for stock in &self.stocks {
            let stocked = stock.swap(0, Ordering::AcqRel);
            self.unpromised.fetch_add(stocked, Ordering::AcqRel);
        }
        match take(&self.unpromised, wanted, least) {
            true => Ok(()),
            false => Err(Error::NoSpace),
        }
    }

    /// Gives a promise back.
    pub fn unreserve(&self, blocks: u64) {
        let blocks = blocks as i64;
        if blocks == 0 {
            return;
        }
        let stock = &self.stocks[sync::thread::ordinal() % STOCKS];
        let ample = self.unpromised.load(Ordering::Relaxed) >= self.margin + AMPLE;
        if ample && stock.load(Ordering::Relaxed) + blocks <= STOCK_MAX {
            stock.fetch_add(blocks, Ordering::AcqRel);
        } else {
            self.unpromised.fetch_add(blocks, Ordering::AcqRel);
        }
    }

    /// As [`Space::reserve`], for nodes of extent trees.
    pub fn reserve_nodes(&self, nodes: u64, claim: Claim) -> Result<()> {
        self.reserve(nodes, claim)?;
        self.nodes.fetch_add(nodes as i64, Ordering::AcqRel);
        Ok(())
    }

    /// Gives a promise of [`Space::reserve_nodes`] back.
    pub fn unreserve_nodes(&self, nodes: u64) {
        self.nodes.fetch_sub(nodes as i64, Ordering::AcqRel);
        self.unreserve(nodes);
    }

    /// A promise of [`Space::reserve_nodes`] becomes one of [`Space::reserve`].
    pub fn use_node(&self) {
        self.nodes.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether more is promised than will be used, which shows when the files have been written.
    pub fn is_overpromised(&self) -> bool {
        self.nodes.load(Ordering::Acquire) > 0
    }

    /// Whether a commit releases blocks.
    pub fn waits_for_commit(&self) -> bool {
        self.held.load(Ordering::Acquire) > self.damaged.load(Ordering::Relaxed)
    }

    /// Blocks promised, about.
    pub fn reserved(&self) -> u64 {
        let count = |counter: &AtomicI64| counter.load(Ordering::Relaxed);
        let stocked: i64 = self.stocks.iter().map(|stock| count(stock)).sum();
        let others = count(&self.held) + count(&self.unpromised) + stocked;
        (count(&self.free) - others).max(0) as u64
    }

    /// Clear bits of all bitmaps.
    pub fn free(&self) -> u64 {
        self.free.load(Ordering::Relaxed).max(0) as u64
    }

    /// Bits were set in a bitmap, for blocks that had been promised: the promise is kept, and ends.
    pub fn keep(&self, blocks: u32) {
        self.free.fetch_sub(i64::from(blocks), Ordering::AcqRel);
    }

    /// Bits were cleared in a bitmap; the blocks are held until [`Space::release`].
    pub fn freed(&self, blocks: u32) {
        self.held.fetch_add(i64::from(blocks), Ordering::AcqRel);
        self.free.fetch_add(i64::from(blocks), Ordering::AcqRel);
    }

    /// Held blocks can be picked again.
    pub fn release(&self, blocks: u32) {
        self.unpromised
            .fetch_add(i64::from(blocks), Ordering::AcqRel);
        self.held.fetch_sub(i64::from(blocks), Ordering::AcqRel);
    }

    /// Free blocks can never be picked: their group is damaged.
    pub fn lose(&self, blocks: u32) {
        let blocks = i64::from(blocks);
        self.damaged.fetch_add(blocks, Ordering::AcqRel);
        self.held.fetch_add(blocks, Ordering::AcqRel);
        self.unpromised.fetch_sub(blocks, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_end_before_the_space_does() {
        let space = Space::new(10_000, 10_000);
        let mut promised = 0;
        while space.reserve(7, Claim::Ordinary).is_ok() {
            promised += 7;
        }
        assert_eq!(space.reserved(), promised);
        assert_eq!(promised, 9_800 / 7 * 7);
        space.reserve(200, Claim::Margin).unwrap();
        assert!(space.reserve(1, Claim::Margin).is_err());
        space.unreserve(promised + 200);
        assert_eq!(space.reserved(), 0);
        space.freed(100);
        assert_eq!((space.free(), space.reserved()), (10_100, 0));
        assert!(space.waits_for_commit());
        assert!(space.reserve(u64::MAX, Claim::Margin).is_err());
        assert!(space.reserve(9_801, Claim::Ordinary).is_err());
        space.release(100);
        assert!(!space.waits_for_commit());
        space.reserve(9_801, Claim::Ordinary).unwrap();
        space.keep(9_000);
        assert_eq!((space.free(), space.reserved()), (1_100, 801));
    }

    #[test]
    fn lost_blocks_are_not_promised() {
        let space = Space::new(10_000, 10_000);
        space.lose(5_000);
        assert!(!space.waits_for_commit());
        assert!(space.reserve(4_801, Claim::Ordinary).is_err());
        space.reserve(4_800, Claim::Ordinary).unwrap();
        assert_eq!((space.free(), space.reserved()), (10_000, 4_800));
    }

    #[test]
    fn racing_promises_never_exceed_the_space() {
        for free in [40_000, 1_000] {
            let space = Space::new(free, 1_000_000);
            let margin = space.margin as u64;
            let total: u64 = sync::thread::scope(|scope| {
                let threads: Vec<_> = (0..4)
                    .map(|_| {
                        scope.spawn(|| {
                            let (mut mine, mut steps) = (0, 0);
                            while space.reserve(3, Claim::Ordinary).is_ok() {
                                (mine, steps) = (mine + 3, steps + 1);
                                if steps % 5 == 0 {
                                    space.unreserve(3);
                                    mine -= 3;
                                }
                            }
                            mine
                        })
                    })
                    .collect();
                threads.into_iter().map(|t| t.join().unwrap()).sum()
            });
            assert_eq!(space.reserved(), total);
            assert!(total <= free.saturating_sub(margin), "{total} of {free}");
            // Nothing stays in a stock.
            while space.reserve(1, Claim::Ordinary).is_ok() {}
            assert_eq!(space.reserved(), free.saturating_sub(margin));
        }
    }
}
