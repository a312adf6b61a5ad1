//! A counter that many threads change and few read.
//!
//! Each thread adds to one of a few padded shards. A shard that has gathered a batch is added to
//! the central value. The central value is off by less than `shards × batch`; an exact read adds
//! the shards. Algorithm: the kernel's `percpu_counter` (`lib/percpu_counter.c`).

use crossbeam_utils::CachePadded;
use sync::atomic::{AtomicI64, Ordering::Relaxed};

/// Shards of a counter, a power of two. Threads are assigned in turn.
pub const SHARDS: usize = 8;

/// The calling thread's shard number, below [`SHARDS`].
#[inline]
pub fn this_shard() -> usize {
    sync::thread::ordinal() % SHARDS
}

/// A sharded counter.
pub struct ShardedCounter {
    center: CachePadded<AtomicI64>,
    shards: [CachePadded<AtomicI64>; SHARDS],
    batch: i64,
}

impl ShardedCounter {
    /// A counter at zero. A shard gathers less than `batch`; with 0, each change goes to the
    /// central value.
    pub fn new(batch: i64) -> ShardedCounter {
        ShardedCounter {
            center: CachePadded::default(),
            shards: Default::default(),
            batch,
        }
    }
    /// Adds `delta`, which may be negative.
    #[inline]
    pub fn add(&self, delta: i64) {
        if self.batch == 0 {
            self.center.fetch_add(delta, Relaxed);
            return;
        }
        let shard = &self.shards[this_shard()];
        let gathered = shard.fetch_add(delta, Relaxed) + delta;
        if gathered.abs() >= self.batch {
            self.center.fetch_add(shard.swap(0, Relaxed), Relaxed);
        }
    }
    /// The central value, by one load. Never negative.
    #[inline]
    pub fn approximate(&self) -> u64 {
        self.center.load(Relaxed).max(0) as u64
    }
    /// The value, exact if no thread changes it meanwhile. Never negative.
    pub fn exact(&self) -> u64 {
        let gathered: i64 = self.shards.iter().map(|shard| shard.load(Relaxed)).sum();
        (self.center.load(Relaxed) + gathered).max(0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrent_additions_are_exact_and_the_approximation_is_bounded() {
        let counter = ShardedCounter::new(100);
        sync::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        counter.add(3);
                        counter.add(-1);
                    }
                });
            }
        });
        assert_eq!(counter.exact(), 160_000);
        let far = counter.exact().abs_diff(counter.approximate());
        assert!(far <= SHARDS as u64 * 100);
    }
}
