//! One number that bounds pages, inodes and metadata blocks together.
//!
//! Charging never fails and never blocks. A thread that is about to use memory first calls
//! [`Budget::make_room`], without holding locks, and reclaims a batch there if the budget is full.
//! Threads reclaim concurrently: a thread allocates from the memory that it freed itself, and a
//! single reclaimer among many writers would not get enough processor time.

#[cfg(test)]
mod tests;

use crate::counter::ShardedCounter;
use crate::reuse::Reuse;
use crossbeam_utils::CachePadded;
use std::cell::Cell;
use std::sync::{Arc, Weak};
use sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use sync::{Mutex, Rank};
use units::PageSize;

/// The use of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Pages of files.
    Pages,
    /// Inodes.
    Inodes,
    /// Metadata blocks.
    Metadata,
}

/// A cache that can free memory.
pub trait Shrinker: Send + Sync {
    /// The kind that it frees. Inodes are freed with their pages.
    fn kind(&self) -> Kind;
    /// Frees about `want` clean and unused bytes. Returns how many it freed. Must not block on I/O.
    fn shrink(&self, want: u64) -> u64;
}

/// Bytes that a shard of a counter may gather, if the limit is large.
const CHARGE_BATCH: u64 = 64 << 10;
/// Calls of `make_room` that do not try again after a fruitless reclaim.
const FRUITLESS_CALLS: u32 = 64;
/// Maximum of bytes that a reclaim frees below the limit.
const RECLAIM_BATCH: u64 = 1 << 20;
/// A reclaim that frees less than this part of its goal is fruitless.
const FRUITFUL_PART: u64 = 8;
/// Minimum part of a reclaim that metadata is asked for. Smaller parts are added up first, because
/// a shrinker of metadata scans a whole part of its cache.
const METADATA_PART: u64 = 8;

/// Free bytes that the pool and the heap may each keep.
fn slack(limit: u64) -> u64 {
    (limit / 32).max(1 << 20)
}

thread_local! {
    /// This thread reclaims: a shrinker that calls `make_room` must not wait for itself.
    static RECLAIMING: Cell<bool> = const { Cell::new(false) };
}

/// A budget of memory. Volumes of a process may share one.
pub struct Budget {
    limit: CachePadded<AtomicU64>,
    total: ShardedCounter,
    kinds: [ShardedCounter; 3],
    /// Bytes of metadata that cannot be reclaimed before a checkpoint.
    pinned: ShardedCounter,
    shrinkers: Mutex<Vec<Weak<dyn Shrinker>>>,
    /// Held by the thread that trims pool or heap.
    trimming: Mutex<()>,
    /// Bytes that metadata was not asked for yet, because its part was below [`METADATA_PART`].
    metadata_debt: AtomicU64,
    /// Bytes that running reclaims will free.
    pursued: AtomicU64,
    /// The shrinker that the next reclaim asks first.
    turn: AtomicUsize,
    /// Calls left that do not reclaim, after a fruitless one.
    fruitless: AtomicU32,
    /// The most bytes of inodes since the heap was last trimmed, approximately. The difference to
    /// the bytes in use is free memory of the heap.
    inodes_peak: CachePadded<AtomicU64>,
    /// Pages of large files that are used again.
    reuse: Reuse,
}

impl Budget {
    /// A budget of `bytes`.
    pub fn new(bytes: u64) -> Arc<Budget> {
        // Below 8 MiB a batch would be a page or less. Small budgets are counted exactly instead.
        let batch = match (bytes / 2048).min(CHARGE_BATCH) {
            small if small <= PageSize::KIB_4.bytes() => 0,
            batch => batch as i64,
        };
        Arc::new(Budget {
            limit: CachePadded::new(AtomicU64::new(bytes)),
            total: ShardedCounter::new(batch),
            kinds: std::array::from_fn(|_| ShardedCounter::new(batch)),
            pinned: ShardedCounter::new(batch),
            shrinkers: Rank::Shrinkers.mutex(Vec::new()),
            trimming: Rank::Trimming.mutex(()),
            metadata_debt: AtomicU64::new(0),
            pursued: AtomicU64::new(0),
            turn: AtomicUsize::new(0),
            fruitless: AtomicU32::new(0),
            inodes_peak: CachePadded::default(),
            reuse: Reuse::default(),
        })
    }
    /// A budget for caches that take about `bytes` of the process's memory. An eighth is left for
    /// uncounted memory: fragmentation of the heap, and tables that grow by doubling.
    pub fn of_memory(bytes: u64) -> Arc<Budget> {
        Budget::new(bytes - bytes / 8)
    }
    /// The limit in bytes.
    pub fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }
    /// Changes the limit.
    pub fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Relaxed);
        self.fruitless.store(0, Relaxed);
    }
    /// Bytes in use, all kinds.
    pub fn used(&self) -> u64 {
        self.total.exact()
    }
    /// Bytes in use of one kind.
    pub fn used_by(&self, kind: Kind) -> u64 {
        self.kinds[kind as usize].exact()
    }
    /// Adds bytes. Never fails and never blocks; [`Budget::make_room`] reclaims.
    #[inline]
    pub fn charge(&self, kind: Kind, bytes: u64) {
        self.kinds[kind as usize].add(bytes as i64);
        self.total.add(bytes as i64);
    }
    /// Subtracts bytes.
    #[inline]
    pub fn uncharge(&self, kind: Kind, bytes: u64) {
        self.kinds[kind as usize].add(-(bytes as i64));
        self.total.add(-(bytes as i64));
    }
    /// Adds `bytes` (which may be negative) to the charged metadata that waits for a checkpoint.
    pub fn pin(&self, bytes: i64) {
        self.pinned.add(bytes);
    }
    /// Bytes of metadata that wait for a checkpoint, of all volumes.
    pub fn pinned(&self) -> u64 {
        self.pinned.exact()
    }
    /// How much of the pages of large files is used again.
    pub(crate) fn reuse(&self) -> &Reuse {
        &self.reuse
    }
    /// Adds a shrinker.
    pub fn register(&self, shrinker: Weak<dyn Shrinker>) {
        let mut shrinkers = self.shrinkers.lock();
        shrinkers.retain(|held| held.strong_count() > 0);
        shrinkers.push(shrinker);
    }
    /// Reclaims a batch of clean memory if the limit is exceeded. Returns whether the budget is
    /// within its limit now. The caller may hold locks up to [`Rank::Group`]: shrinkers wait for
    /// higher ones only.
    #[inline]
    pub fn make_room(&self) -> bool {
        Rank::BufferMap.assert_may_wait();
        let limit = self.limit();
        self.note_inodes(slack(limit));
        self.total.approximate() <= limit || self.make_room_slow()
    }

    /// Frees all clean memory, and returns free memory of the buffer pool and of the heap to the
    /// system.
    pub fn drop_caches(&self) {
        {
            RECLAIMING.set(true);
            let _end = EndReclaim(self, 0);
            // Freed objects may have held others, so one pass is not enough. Other threads may
            // load objects meanwhile, so the number of passes is bounded.
            for _ in 0..4 {
                let freed: u64 = self.shrinkers().iter().map(|s| s.shrink(u64::MAX)).sum();
                if freed == 0 {
                    break;
                }
            }
        }
        block::pool::trim(0, u64::MAX);
        crate::heap::trim();
    }

    #[cold]
    fn make_room_slow(&self) -> bool {
        if RECLAIMING.get() {
            return false;
        }
        let pass = |left: u32| left.checked_sub(1);
        if self.fruitless.fetch_update(Relaxed, Relaxed, pass).is_ok() {
            return false;
        }
        let limit = self.limit();
        let used = self.used();
        if used <= limit {
            return true;
        }
        let others = self.pursued.load(Relaxed);
        let want = (used - limit).saturating_sub(others) + (limit / 64).min(RECLAIM_BATCH);
        self.pursued.fetch_add(want, Relaxed);
        RECLAIMING.set(true);
        let _end = EndReclaim(self, want);
        let freed = self.reclaim(want);
        if freed < want / FRUITFUL_PART {
            self.fruitless.store(FRUITLESS_CALLS, Relaxed);
        }
        self.trim_pool(limit, freed);
        self.used() <= self.limit()
    }

    /// Returns free buffers to the system. Buffers freed for other buffers are used again at once;
    /// those freed for inodes are not. At most 1.5 times `freed` is returned after each reclaim,
    /// because a writer waits for it.
    fn trim_pool(&self, limit: u64, freed: u64) {
        let slack = slack(limit);
        // The lock comes first: an explored schedule must not depend on free memory of the process.
        if let Some(_one_at_a_time) = self.trimming.try_lock()
            && block::pool::stats().free_bytes > slack
        {
            block::pool::trim(slack / 2, freed + freed / 2);
        }
    }

    /// Notes how many bytes of inodes there are. Trims the heap if there were more by `slack`.
    #[inline]
    fn note_inodes(&self, slack: u64) {
        let inodes = self.kinds[Kind::Inodes as usize].approximate();
        let peak = self.inodes_peak.load(Relaxed);
        if inodes > peak {
            self.inodes_peak.fetch_max(inodes, Relaxed);
        } else if peak - inodes > slack {
            self.trim_heap(slack);
        }
    }

    /// Returns free memory of the heap to the system. Evicted inodes leave blocks in which only
    /// inodes fit: new ones use them again, and other objects cannot.
    #[cold]
    fn trim_heap(&self, slack: u64) {
        let Some(_one_at_a_time) = self.trimming.try_lock() else {
            return;
        };
        let inodes = self.used_by(Kind::Inodes);
        if self.inodes_peak.load(Relaxed).saturating_sub(inodes) > slack {
            self.inodes_peak.store(inodes, Relaxed);
            crate::heap::trim();
        }
    }

    fn shrinkers(&self) -> Vec<Arc<dyn Shrinker>> {
        let shrinkers = self.shrinkers.lock();
        shrinkers.iter().filter_map(Weak::upgrade).collect()
    }

    /// Asks the shrinkers in turn for `want` bytes. Returns how many were freed. Metadata frees its
    /// share of all reclaimable memory, as the kernel's caches do (`shrink_slab`), so metadata in
    /// use is not evicted faster than pages; less while pages are used once ([`crate::reuse`]).
    /// While the budget is exceeded, the other kind frees the rest.
    fn reclaim(&self, want: u64) -> u64 {
        let shrinkers = self.shrinkers();
        if shrinkers.is_empty() {
            return 0;
        }
        let pinned = self.pinned();
        let metadata = self.used_by(Kind::Metadata).saturating_sub(pinned);
        let all = self.used().saturating_sub(pinned).max(1);
        let of_metadata = u128::from(want) * u128::from(metadata.min(all)) / u128::from(all);
        let of_metadata = self.metadata_due(self.reuse.of(of_metadata as u64), want);
        let first = self.turn.fetch_add(1, Relaxed);
        let (mut from_metadata, mut from_others) = (0_u64, 0_u64);
        for quotas in [(of_metadata, want - of_metadata), (want, want)] {
            for i in 0..shrinkers.len() {
                let shrinker = &shrinkers[(first + i) % shrinkers.len()];
                let missing = want.saturating_sub(from_metadata + from_others);
                let (quota, freed) = match shrinker.kind() {
                    Kind::Metadata => (quotas.0, &mut from_metadata),
                    Kind::Pages | Kind::Inodes => (quotas.1, &mut from_others),
                };
                let left = quota.saturating_sub(*freed).min(missing);
                if left > 0 {
                    *freed += shrinker.shrink(left);
                }
            }
            if self.used() <= self.limit() {
                break;
            }
        }
        from_metadata + from_others
    }

    /// Returns how many bytes metadata is asked for now if its share is `part` of `want`: the share
    /// and earlier ones that were deferred, or 0 to defer it.
    fn metadata_due(&self, part: u64, want: u64) -> u64 {
        let due = part.saturating_add(self.metadata_debt.swap(0, Relaxed));
        if due >= want / METADATA_PART {
            return due.min(want);
        }
        self.metadata_debt.fetch_add(due, Relaxed);
        0
    }
}

/// Ends a reclaim of so many bytes when it is dropped, also after a panic of a shrinker.
struct EndReclaim<'a>(&'a Budget, u64);
impl Drop for EndReclaim<'_> {
    fn drop(&mut self) {
        self.0.pursued.fetch_sub(self.1, Relaxed);
        RECLAIMING.set(false);
    }
}
