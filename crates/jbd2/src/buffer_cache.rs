//! The cache of metadata blocks.
//!
//! The cache is sharded by block number; a look-up takes one shard's lock for reading. Concurrent
//! misses of one block read it once: the first thread puts a loading buffer into the map and the
//! others wait for it. The shrinker goes round the shards and evicts buffers to which only the map
//! refers, those first that were not used for the longest time. A write home counts as a use: the
//! block that an inode or a directory changed a while ago is often changed again when its data is
//! written.
//!
//! A scan reads many blocks that are not needed again, without adding them to the cache
//! (`uncached`). Blocks that will probably be needed are read ahead (`read_ahead`).
//!
//! Invariant: a buffer's `Arc` is cloned from the map under its shard's lock, or from another
//! clone. So under the write lock, a buffer with one reference is not in use.

mod read_ahead;
mod uncached;

use crate::buffer::{self, Load};
use crate::{Buffer, JournalError, Overlay};
use block::{Class, IoError, Queue, Reason};
use cache::{Budget, Kind, Shrinker};
use read_ahead::Unused;
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;
use sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use sync::{Condvar, Mutex, Rank, RwLock};
use units::FsBlock;

const SHARDS: usize = 64;
/// Runs of 32 neighbours share a shard. They are often read at once, are adjacent in memory then,
/// and are evicted together, so that whole pages of memory become free.
const RUN_BITS: u32 = 5;
/// The time of uses passes as buffers are added: by 1 for so many. A use of a buffer in the same
/// tick as the last use costs no store.
const ADDED_PER_TICK: u64 = 64;
/// The shrinker's rounds. The first one evicts buffers that were not used while as many were added
/// as there are, the next one while half as many were added, and so on.
const AGE_PARTS: [u32; 4] = [1, 2, 4, 8];
/// The least age that these rounds evict, in ticks.
const LEAST_AGE: u32 = 2;
/// Where the budget is exceeded by more than one part in so many, a last round evicts buffers of
/// any age. Without an excess there is no such round: where transactions refer to nearly all
/// buffers, the others are those in use, such as the blocks of directories to which threads add
/// names.
const EXCESS_PART: u64 = 32;

type BlockMap = FxHashMap<FsBlock, Arc<Buffer>>;

struct Shard {
    map: RwLock<BlockMap>,
    /// Prevents lost wake-ups.
    waiting: Mutex<()>,
    /// Signalled when a load ends.
    loaded: Condvar,
    /// Buffers that were removed from the map after a transaction had changed them. Written under
    /// the lock of `map`.
    changed_removed: AtomicU64,
}

impl Default for Shard {
    fn default() -> Shard {
        Shard {
            map: Rank::BufferMap.rw_lock(BlockMap::default()),
            waiting: Rank::BufferWaiting.mutex(()),
            loaded: Condvar::new(),
            changed_removed: AtomicU64::new(0),
        }
    }
}

/// Returns the ticks from a use to `now`. The use may be later: other threads use buffers while the
/// shrinker is at work.
fn age(used: u32, now: u32) -> u32 {
    match now.wrapping_sub(used) {
        age if age < 1 << 31 => age,
        _ => 0,
    }
}

impl Shard {
    /// Evicts evictable buffers that are not in use, at most so many. Returns their number.
    fn evict(&self, most: u64, evictable: impl Fn(&Buffer) -> bool, ahead: &Unused) -> u64 {
        let Some(mut map) = self.map.try_write() else {
            return 0;
        };
        let mut evicted = 0;
        map.retain(|_, buffer| {
            let evict = evicted < most && Arc::strong_count(buffer) == 1 && evictable(buffer);
            evicted += u64::from(evict);
            if evict {
                self.note_removed(buffer, ahead);
            }
            !evict
        });
        evicted
    }
    /// Counts a buffer that leaves the map. The caller holds its lock for writing.
    fn note_removed(&self, buffer: &Buffer, ahead: &Unused) {
        ahead.note_removed(buffer);
        if buffer.was_changed() {
            self.changed_removed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The buffers in memory, by block.
pub(crate) struct BufferCache {
    queue: Arc<Queue>,
    block_size: u32,
    budget: Arc<Budget>,
    /// Blocks whose newest content is in an unrecovered log (read-only volumes).
    overlay: Overlay,
    shards: Vec<Shard>,
    /// The shard that the shrinker visits next.
    hand: AtomicUsize,
    /// Buffers added.
    added: AtomicU64,
    ahead: Unused,
}

impl BufferCache {
    /// Returns an empty cache and registers it with the budget.
    pub fn new(
        queue: Arc<Queue>,
        block_size: u32,
        budget: Arc<Budget>,
        overlay: Overlay,
    ) -> Arc<BufferCache> {
        let cache = Arc::new(BufferCache {
            queue,
            block_size,
            budget: budget.clone(),
            overlay,
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            hand: AtomicUsize::new(0),
            added: AtomicU64::new(0),
            ahead: Unused::default(),
        });
        let weak = Arc::downgrade(&cache);
        budget.register(weak);
        cache
    }

    fn shard(&self, block: FsBlock) -> &Shard {
        &self.shards[(block.0 >> RUN_BITS) as usize % SHARDS]
    }

    /// Returns a block's buffer if it is cached, loaded or not.
    fn lookup(&self, block: FsBlock) -> Option<Arc<Buffer>> {
        self.shard(block).map.read().get(&block).cloned()
    }
    /// Waits until a buffer's read has ended. Returns whether it has its content.
    fn wait_loaded(&self, buffer: &Buffer) -> bool {
        if buffer.load_state() == Load::Ready {
            return true;
        }
        let shard = self.shard(buffer.block());
        let mut waiting = shard.waiting.lock();
        while buffer.load_state() == Load::Loading {
            shard.loaded.wait(&mut waiting);
        }
        buffer.load_state() == Load::Ready
    }
    /// Puts a loading buffer into the map. Returns `None` if the map has a buffer of the block.
    fn insert_loading(&self, block: FsBlock) -> Option<Arc<Buffer>> {
        let mut map = self.shard(block).map.write();
        if map.contains_key(&block) {
            return None;
        }
        let buffer = Arc::new(Buffer::loading(block, self.block_size, &self.budget));
        self.add(&mut map, &buffer);
        Some(buffer)
    }
    /// Ends a load and wakes the threads that wait for it.
    fn finish_load(&self, buffer: &Arc<Buffer>, data: Option<block::Buf>) {
        match data {
            Some(data) => buffer.loaded(data),
            None => {
                self.remove_same(buffer);
                buffer.load_failed();
            }
        }
        let shard = self.shard(buffer.block());
        drop(shard.waiting.lock());
        shard.loaded.notify_all();
    }
    fn remove_same(&self, buffer: &Arc<Buffer>) {
        let shard = self.shard(buffer.block());
        let mut map = shard.map.write();
        if map
            .get(&buffer.block())
            .is_some_and(|cached| Arc::ptr_eq(cached, buffer))
        {
            map.remove(&buffer.block());
            shard.note_removed(buffer, &self.ahead);
        }
    }

    /// Returns a block's buffer, from the cache or the device.
    pub fn get(&self, block: FsBlock) -> Result<Arc<Buffer>, JournalError> {
        loop {
            if let Some(buffer) = self.lookup(block) {
                if self.wait_loaded(&buffer) {
                    self.touch(&buffer);
                    return Ok(buffer);
                }
                // Another thread's read failed. Read again, to return the error of this read.
                continue;
            }
            self.budget.make_room();
            let Some(buffer) = self.insert_loading(block) else {
                continue;
            };
            let mut load = BlockLoad {
                cache: self,
                buffer: &buffer,
                data: None,
            };
            load.data = Some(self.read(block)?);
            drop(load);
            return Ok(buffer);
        }
    }
    fn add(&self, map: &mut BlockMap, buffer: &Arc<Buffer>) {
        self.added.fetch_add(1, Ordering::Relaxed);
        self.touch(buffer);
        map.insert(buffer.block(), buffer.clone());
    }
    /// Returns the time of uses, in ticks. It wraps around.
    fn time(&self) -> u32 {
        (self.added.load(Ordering::Relaxed) / ADDED_PER_TICK) as u32
    }
    /// Records a use of a buffer.
    pub fn touch(&self, buffer: &Buffer) {
        self.ahead.note_used(buffer);
        buffer.touch(self.time());
    }
    /// Returns the least age of each of the shrinker's rounds, in ticks.
    fn ages_to_evict(&self, want: u64) -> SmallVec<[u32; 5]> {
        if want == u64::MAX {
            return smallvec![0];
        }
        let shards = self.shards.iter();
        let buffers: usize = shards.map(|shard| shard.map.read().len()).sum();
        let ticks = (buffers as u64 / ADDED_PER_TICK) as u32;
        let mut ages = SmallVec::from_iter(AGE_PARTS.map(|part| (ticks / part).max(LEAST_AGE)));
        let limit = self.budget.limit();
        if self.budget.used() > limit + limit / EXCESS_PART {
            ages.push(0);
        }
        ages
    }
    /// Returns the blocks of an unrecovered log.
    pub fn overlay(&self) -> &Overlay {
        &self.overlay
    }
    fn read(&self, block: FsBlock) -> Result<block::Buf, JournalError> {
        if let Some(data) = self.overlay.read(&self.queue, block)? {
            return Ok(data);
        }
        let size = self.block_size as usize;
        let bad = IoError {
            op: block::Op::Read,
            offset: u64::MAX,
            len: size as u64,
            errno: 0,
        };
        let offset = block.checked_offset(self.block_size).ok_or(bad)?;
        let mut bufs =
            self.queue
                .read(offset, size, size, Class::Metadata, Reason::MetadataRead)?;
        bufs.pop().ok_or(bad.into())
    }

    /// Returns a block's buffer without reading it; its content is undefined. The caller replaces
    /// it.
    pub fn get_or_create(&self, block: FsBlock) -> Arc<Buffer> {
        loop {
            if let Some(buffer) = self.lookup(block) {
                // A read in progress would overwrite the new content.
                if self.wait_loaded(&buffer) {
                    self.ahead.note_used(&buffer);
                    return buffer;
                }
                continue;
            }
            self.budget.make_room();
            let mut map = self.shard(block).map.write();
            if map.contains_key(&block) {
                continue;
            }
            let buffer = Arc::new(Buffer::zeroed(block, self.block_size, &self.budget));
            self.add(&mut map, &buffer);
            return buffer;
        }
    }

    /// Removes a block from the cache, even if its buffer is in use. Returns the buffer if it was
    /// cached and loaded.
    pub fn remove(&self, block: FsBlock) -> Option<Arc<Buffer>> {
        loop {
            let buffer = self.lookup(block)?;
            if !self.wait_loaded(&buffer) {
                continue;
            }
            self.remove_same(&buffer);
            return Some(buffer);
        }
    }
}

/// A load of a block by one thread. It ends on drop, and has failed without data, also after a
/// panic.
struct BlockLoad<'a> {
    cache: &'a BufferCache,
    buffer: &'a Arc<Buffer>,
    data: Option<block::Buf>,
}

impl Drop for BlockLoad<'_> {
    fn drop(&mut self) {
        self.cache.finish_load(self.buffer, self.data.take());
    }
}

impl Shrinker for BufferCache {
    fn kind(&self) -> Kind {
        Kind::Metadata
    }

    fn shrink(&self, want: u64) -> u64 {
        let cost = buffer::cost(self.block_size);
        let now = self.time();
        let mut freed = 0;
        for least_age in self.ages_to_evict(want) {
            for _ in 0..SHARDS {
                if freed >= want {
                    return freed;
                }
                let hand = self.hand.fetch_add(1, Ordering::Relaxed) % SHARDS;
                let most = (want - freed).div_ceil(cost);
                let old = |buffer: &Buffer| age(buffer.last_use(), now) >= least_age;
                freed += cost * self.shards[hand].evict(most, old, &self.ahead);
            }
        }
        freed
    }
}

#[cfg(test)]
mod tests {
    use super::age;

    #[test]
    fn a_buffer_that_was_used_during_the_reclaim_is_the_youngest() {
        assert_eq!(age(7, 10), 3);
        assert_eq!(age(u32::MAX, 2), 3);
        assert_eq!(age(10, 7), 0);
        assert_eq!(age(2, u32::MAX), 0);
    }
}
