//! Reservations ("promises") of space.
//!
//! A free cluster is in one of these states. Without `bigalloc` a cluster is a block. Only this
//! file changes the counters.
//!
//! ```text
//!   unpromised ──reserve──▶ reserved ──pick──▶ picked ──record──▶ in use
//!     ▲   ▲                  │    ▲              │      (allocated) │
//!     │   └────unreserve─────┘    └────unpick────┘                  │ free (freed)
//!     │                                                             ▼
//!     └── released: the transaction that freed it has committed ── held
//! ```
//!
//! | reservation | made by | held by | consumed or released by |
//! |---|---|---|---|
//! | a page's block | `file_io/write.rs` | the page's delalloc tag | `Fs::record_ranges`, `Fs::drop_pages` |
//! | with `bigalloc`, a cluster for pages | `Changes::promise_clusters` in `extents/clusters.rs` | `Inode::nodes` | `extents::insert_picked`, `Fs::settle_clusters` |
//! | nodes for pages of a file | `Changes::promise` in `extents/promise.rs` | `Inode::nodes` | `Groups::alloc_reserved_block`, `Fs::settle_nodes` |
//! | blocks of a fallocate | `Fs::allocate` | its stack | the same |
//! | a block of a directory, attribute or link | `Groups::alloc_metadata_block` | its stack | the same |
//!
//! Invariants:
//! - `free = unpromised + reserved + held`. Every allocation, metadata included, reserves its block
//!   first. So a reserved block is never allocated to another user.
//! - A reservation is a count and names no block. [`pick`](super::Groups::pick) finds a block,
//!   because the groups together have at least as many available blocks as are reserved and not
//!   picked. A damaged group is the exception. Its blocks leave `unpromised` when the damage is
//!   found; they may be reserved by then.
//! - A reservation covers all blocks that its holder can take. Extent nodes are reserved for the
//!   worst case.
//!
//! The last `margin` blocks are reserved for changes that must work on a full volume and need no
//! data block ([`Claim::Margin`]): writes to allocated space, and punching holes. Such a change of
//! a block map needs no block at all, so a volume without extents has no margin. The `root` blocks
//! before it are left free by threads that act for users ([`super::root_reserve`]).
//!
//! Every new page makes a reservation, on any number of threads concurrently. So unpromised blocks
//! are partly kept in per-thread *shards*. A shard is filled only while far more blocks are
//! unpromised than all shards can hold. All shards are emptied before a reservation fails.

use super::root_reserve;
use crate::{Error, Result};
use crossbeam_utils::CachePadded;
use ext4_format::features::IncompatFeatures;
use sync::atomic::{AtomicI64, AtomicU64, Ordering};

const SHARDS: usize = 16;
/// Blocks moved to a shard when it is empty.
const SHARD_FILL: i64 = 256;
/// The most blocks in a shard.
const SHARD_MAX: i64 = 4 * SHARD_FILL;
/// Shards are used while at least this many blocks are unpromised beyond the margin and those for
/// root.
const SHARD_THRESHOLD: i64 = SHARDS as i64 * SHARD_MAX;
/// The most blocks of the margin.
const MARGIN_MAX: u64 = 4096;

/// The class of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// An operation that fails on a full volume.
    Ordinary,
    /// An operation that must work on a full volume: it may use the margin.
    Margin,
}

/// The counters of a volume, in clusters.
pub(super) struct Space {
    /// Free blocks that are available and not reserved, except those in shards. It is below 0 only
    /// if reserved blocks were found in a damaged group.
    unpromised: CachePadded<AtomicI64>,
    /// Clear bits of all bitmaps.
    free: CachePadded<AtomicI64>,
    /// The part of `free` that cannot be picked: blocks freed by a transaction that has not
    /// committed, and blocks of damaged groups.
    held: CachePadded<AtomicI64>,
    /// How often held blocks were released.
    releases: AtomicU64,
    /// The part of `held` in damaged groups. A commit does not release it.
    damaged: AtomicI64,
    /// Blocks reserved for extent nodes, in the worst case.
    nodes: CachePadded<AtomicI64>,
    shards: [CachePadded<AtomicI64>; SHARDS],
    margin: i64,
    root: AtomicI64,
}

/// Subtracts `blocks` from a counter if at least `least` remain. Returns whether it did.
fn try_sub(counter: &AtomicI64, blocks: i64, least: i64) -> bool {
    let sub = |now: i64| now.checked_sub(blocks).filter(|left| *left >= least);
    counter
        .fetch_update(Ordering::AcqRel, Ordering::Relaxed, sub)
        .is_ok()
}

impl Space {
    /// `free` of the `total` clusters are free.
    pub fn new(free: u64, total: u64, incompat: IncompatFeatures) -> Space {
        let margin = match incompat.contains(IncompatFeatures::EXTENTS) {
            true => (total / 50).min(MARGIN_MAX) as i64,
            false => 0,
        };
        Space {
            unpromised: CachePadded::new(AtomicI64::new(free as i64)),
            free: CachePadded::new(AtomicI64::new(free as i64)),
            held: CachePadded::default(),
            releases: AtomicU64::new(0),
            damaged: AtomicI64::new(0),
            nodes: CachePadded::default(),
            shards: Default::default(),
            margin,
            root: AtomicI64::new(0),
        }
    }

    /// Sets the number of blocks that are left for root.
    pub fn set_root_reserve(&self, blocks: u64) {
        self.root.store(blocks as i64, Ordering::Relaxed);
    }

    /// The unpromised blocks at which shards are filled.
    fn shard_threshold(&self) -> i64 {
        self.margin + self.root.load(Ordering::Relaxed) + SHARD_THRESHOLD
    }

    /// The unpromised blocks that a reservation by the calling thread leaves.
    fn least_left(&self, claim: Claim) -> i64 {
        match claim {
            Claim::Margin => 0,
            Claim::Ordinary if root_reserve::is_kept() => {
                self.margin + self.root.load(Ordering::Relaxed)
            }
            Claim::Ordinary => self.margin,
        }
    }

    /// Reserves `blocks`. No lock is taken.
    ///
    /// # Errors
    /// `NoSpace`.
    pub fn reserve(&self, blocks: u64, claim: Claim) -> Result<()> {
        let wanted = i64::try_from(blocks).map_err(|_| Error::NoSpace)?;
        let shard = &self.shards[sync::thread::ordinal() % SHARDS];
        if try_sub(shard, wanted, 0) {
            return Ok(());
        }
        let fill = wanted.saturating_add(SHARD_FILL);
        if wanted <= SHARD_FILL && try_sub(&self.unpromised, fill, self.shard_threshold()) {
            shard.fetch_add(SHARD_FILL, Ordering::AcqRel);
            return Ok(());
        }
        let least = self.least_left(claim);
        if try_sub(&self.unpromised, wanted, least) {
            return Ok(());
        }
        for shard in &self.shards {
            let in_shard = shard.swap(0, Ordering::AcqRel);
            self.unpromised.fetch_add(in_shard, Ordering::AcqRel);
        }
        match try_sub(&self.unpromised, wanted, least) {
            true => Ok(()),
            false => Err(Error::NoSpace),
        }
    }

    /// Releases a reservation.
    pub fn unreserve(&self, blocks: u64) {
        let blocks = blocks as i64;
        if blocks == 0 {
            return;
        }
        let shard = &self.shards[sync::thread::ordinal() % SHARDS];
        let use_shards = self.unpromised.load(Ordering::Relaxed) >= self.shard_threshold();
        if use_shards && shard.load(Ordering::Relaxed) + blocks <= SHARD_MAX {
            shard.fetch_add(blocks, Ordering::AcqRel);
        } else {
            self.unpromised.fetch_add(blocks, Ordering::AcqRel);
        }
    }

    /// Reserves blocks for nodes of extent trees.
    ///
    /// # Errors
    /// `NoSpace`.
    pub fn reserve_nodes(&self, nodes: u64, claim: Claim) -> Result<()> {
        self.reserve(nodes, claim)?;
        self.nodes.fetch_add(nodes as i64, Ordering::AcqRel);
        Ok(())
    }

    /// Releases a reservation of [`Space::reserve_nodes`].
    pub fn unreserve_nodes(&self, nodes: u64) {
        self.nodes.fetch_sub(nodes as i64, Ordering::AcqRel);
        self.unreserve(nodes);
    }

    /// Counts the allocation of one node that [`Space::reserve_nodes`] reserved.
    pub fn node_allocated(&self) {
        self.nodes.fetch_sub(1, Ordering::AcqRel);
    }

    /// Returns whether blocks are reserved for extent nodes. Writing the files releases those that
    /// are not needed.
    pub fn has_reserved_nodes(&self) -> bool {
        self.nodes.load(Ordering::Acquire) > 0
    }

    /// Returns whether a commit releases blocks.
    pub fn commit_frees_blocks(&self) -> bool {
        self.held.load(Ordering::Acquire) > self.damaged.load(Ordering::Relaxed)
    }

    /// Returns how often held blocks were released. A thread that finds none held sees all of them.
    pub fn releases(&self) -> u64 {
        self.releases.load(Ordering::Acquire)
    }

    /// Returns the number of reserved blocks. It is approximate while counters change.
    pub fn reserved(&self) -> u64 {
        let count = |counter: &AtomicI64| counter.load(Ordering::Relaxed);
        let in_shards: i64 = self.shards.iter().map(|shard| count(shard)).sum();
        let others = count(&self.held) + count(&self.unpromised) + in_shards;
        (count(&self.free) - others).max(0) as u64
    }

    /// Returns the number of blocks of the margin.
    pub fn margin(&self) -> u64 {
        self.margin as u64
    }

    /// Returns the number of clear bits of all bitmaps.
    pub fn free(&self) -> u64 {
        self.free.load(Ordering::Relaxed).max(0) as u64
    }

    /// Counts reserved blocks whose bits were set in a bitmap. Their reservation ends.
    pub fn allocated(&self, blocks: u32) {
        self.free.fetch_sub(i64::from(blocks), Ordering::AcqRel);
    }

    /// Counts blocks whose bits were cleared in a bitmap. They are held until [`Space::released`].
    pub fn freed(&self, blocks: u32) {
        self.held.fetch_add(i64::from(blocks), Ordering::AcqRel);
        self.free.fetch_add(i64::from(blocks), Ordering::AcqRel);
    }

    /// Makes held blocks unpromised: the transaction that freed them has committed.
    pub fn released(&self, blocks: u32) {
        self.unpromised
            .fetch_add(i64::from(blocks), Ordering::AcqRel);
        self.releases.fetch_add(1, Ordering::AcqRel);
        self.held.fetch_sub(i64::from(blocks), Ordering::AcqRel);
    }

    /// Adds the free clusters of new space.
    pub fn grown(&self, clusters: u64) {
        self.free.fetch_add(clusters as i64, Ordering::AcqRel);
        self.unpromised.fetch_add(clusters as i64, Ordering::AcqRel);
    }

    /// Excludes the free blocks of a damaged group from reservations for good.
    pub fn exclude_damaged(&self, blocks: u32) {
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
    fn reservations_fail_before_the_space_is_used_up() {
        let space = Space::new(10_000, 10_000, IncompatFeatures::EXTENTS);
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
        assert!(space.commit_frees_blocks());
        assert!(space.reserve(u64::MAX, Claim::Margin).is_err());
        assert!(space.reserve(9_801, Claim::Ordinary).is_err());
        space.released(100);
        assert!(!space.commit_frees_blocks());
        space.reserve(9_801, Claim::Ordinary).unwrap();
        space.allocated(9_000);
        assert_eq!((space.free(), space.reserved()), (1_100, 801));
    }

    #[test]
    fn blocks_of_damaged_groups_are_not_reserved() {
        let space = Space::new(10_000, 10_000, IncompatFeatures::EXTENTS);
        space.exclude_damaged(5_000);
        assert!(!space.commit_frees_blocks());
        assert!(space.reserve(4_801, Claim::Ordinary).is_err());
        space.reserve(4_800, Claim::Ordinary).unwrap();
        assert_eq!((space.free(), space.reserved()), (10_000, 4_800));
    }

    #[test]
    fn concurrent_reservations_never_exceed_the_space() {
        for free in [40_000, 1_000] {
            let space = Space::new(free, 1_000_000, IncompatFeatures::EXTENTS);
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
            // Nothing stays in a shard.
            while space.reserve(1, Claim::Ordinary).is_ok() {}
            assert_eq!(space.reserved(), free.saturating_sub(margin));
        }
    }
}
