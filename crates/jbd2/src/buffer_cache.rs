//! The cache of metadata blocks.
//!
//! Sharded by block number; a look-up takes one shard's lock for reading. Concurrent misses of one
//! block read it once: the first puts a loading buffer into the map and the others wait for it. The
//! shrinker is a clock over the shards that takes buffers which nobody but the map holds and which
//! were not used since its last visit.
//!
//! Invariants:
//! - A clone of a buffer's `Arc` is made from the map under its shard's lock, or from another
//!   clone. One reference under the write lock therefore means that nobody uses the buffer.

use crate::buffer::{self, Load};
use crate::{Buffer, JournalError, Overlay};
use block::{Bio, BufMut, Class, EndIo, IoError, Payload, Queue, Reason};
use cache::{Budget, Kind, Shrinker};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::Arc;
use sync::atomic::{AtomicUsize, Ordering};
use sync::{Condvar, Mutex, Rank, RwLock};

const SHARDS: usize = 64;
/// Runs of 32 neighbours share a shard. They are often read at once, lie side by side in memory
/// then, and are evicted together, so that memory becomes free in pieces that can be given back.
const RUN_BITS: u32 = 5;
/// Bytes that a buffer takes beside its content, roughly (its fields, its reference counts, its
/// slot in the map).
pub(crate) const OVERHEAD_BYTES: u64 = 192;
/// Most blocks that one read of a prefetch covers.
const MAX_PREFETCH_RUN: usize = 256;

type BlockMap = FxHashMap<u64, Arc<Buffer>>;

struct Shard {
    map: RwLock<BlockMap>,
    /// Held while a waiter looks at a load state, so that no wake-up is lost.
    waiting: Mutex<()>,
    /// Signalled when a load ends.
    loaded: Condvar,
}

impl Default for Shard {
    fn default() -> Shard {
        Shard {
            map: Rank::BufferMap.rw_lock(BlockMap::default()),
            waiting: Rank::BufferWaiting.mutex(()),
            loaded: Condvar::new(),
        }
    }
}

/// See the module's head.
pub(crate) struct BufferCache {
    queue: Arc<Queue>,
    block_size: u32,
    budget: Arc<Budget>,
    /// What an unrecovered log would have put in place of the device's blocks (read-only volumes).
    overlay: Overlay,
    shards: Vec<Shard>,
    /// The shard that the shrinker visits next.
    hand: AtomicUsize,
}

impl BufferCache {
    /// An empty cache, registered with the budget.
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
        });
        let weak = Arc::downgrade(&cache);
        budget.register(weak);
        cache
    }

    fn shard(&self, block: u64) -> &Shard {
        &self.shards[(block >> RUN_BITS) as usize % SHARDS]
    }

    /// A block's buffer if it is cached, whether loaded or not.
    fn lookup(&self, block: u64) -> Option<Arc<Buffer>> {
        self.shard(block).map.read().get(&block).cloned()
    }
    /// Waits until a buffer is not being read; whether it has its content.
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
    /// Puts a loading buffer into the map; `None` where there is one already.
    fn insert_loading(&self, block: u64) -> Option<Arc<Buffer>> {
        let mut map = self.shard(block).map.write();
        if map.contains_key(&block) {
            return None;
        }
        let buffer = Arc::new(Buffer::loading(block, self.block_size, &self.budget));
        map.insert(block, buffer.clone());
        Some(buffer)
    }
    /// Ends a load and wakes who waits for it.
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
        let mut map = self.shard(buffer.block()).map.write();
        if map
            .get(&buffer.block())
            .is_some_and(|cached| Arc::ptr_eq(cached, buffer))
        {
            map.remove(&buffer.block());
        }
    }

    /// A block's buffer, read from the device if need be.
    pub fn get(&self, block: u64) -> Result<Arc<Buffer>, JournalError> {
        loop {
            if let Some(buffer) = self.lookup(block) {
                if self.wait_loaded(&buffer) {
                    buffer.touch();
                    return Ok(buffer);
                }
                // Somebody else's read failed; the next one is ours, and its error too.
                continue;
            }
            self.budget.make_room();
            let Some(buffer) = self.insert_loading(block) else {
                continue;
            };
            return match self.read(block) {
                Ok(data) => {
                    self.finish_load(&buffer, Some(data));
                    Ok(buffer)
                }
                Err(error) => {
                    self.finish_load(&buffer, None);
                    Err(error)
                }
            };
        }
    }
    /// What an unrecovered log holds.
    pub fn overlay(&self) -> &Overlay {
        &self.overlay
    }
    fn read(&self, block: u64) -> Result<block::Buf, JournalError> {
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
        let offset = block.checked_mul(size as u64).ok_or(bad)?;
        let mut bufs =
            self.queue
                .read(offset, size, size, Class::Metadata, Reason::MetadataRead)?;
        bufs.pop().ok_or(bad.into())
    }

    /// A block's buffer for content that is about to be made: nothing is read. It may hold anything
    /// yet.
    pub fn get_or_create(&self, block: u64) -> Arc<Buffer> {
        loop {
            if let Some(buffer) = self.lookup(block) {
                // A read under way would put the device's bytes over the new ones.
                if self.wait_loaded(&buffer) {
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
            map.insert(block, buffer.clone());
            return buffer;
        }
    }

    /// Drops a block from the cache, whoever still holds it; its buffer, if it was cached and
    /// loaded.
    pub fn remove(&self, block: u64) -> Option<Arc<Buffer>> {
        loop {
            let buffer = self.lookup(block)?;
            if !self.wait_loaded(&buffer) {
                continue;
            }
            self.remove_same(&buffer);
            return Some(buffer);
        }
    }

    /// Starts reading what of `blocks` is not cached.
    pub fn prefetch(self: &Arc<Self>, blocks: &[u64]) {
        let mut missing: Vec<u64> = blocks
            .iter()
            .copied()
            .filter(|block| !self.overlay.contains(*block))
            .filter(|&block| self.lookup(block).is_none())
            .filter(|&block| {
                // Reading ahead beyond the device could only fail.
                let end = block
                    .checked_add(1)
                    .and_then(|next| next.checked_mul(u64::from(self.block_size)));
                end.is_some_and(|end| end <= self.queue.capacity())
            })
            .collect();
        if missing.is_empty() {
            return;
        }
        missing.sort_unstable();
        missing.dedup();
        self.budget.make_room();
        let mut bios = Vec::new();
        let mut run: Vec<Arc<Buffer>> = Vec::new();
        for block in missing {
            let Some(buffer) = self.insert_loading(block) else {
                continue;
            };
            let adjacent = run.last().is_none_or(|last| last.block() + 1 == block);
            if !adjacent || run.len() == MAX_PREFETCH_RUN {
                bios.push(self.prefetch_bio(std::mem::take(&mut run)));
            }
            run.push(buffer);
        }
        if !run.is_empty() {
            bios.push(self.prefetch_bio(run));
        }
        if !bios.is_empty() {
            self.queue.submit_batch(&mut bios);
        }
    }
    fn prefetch_bio(self: &Arc<Self>, run: Vec<Arc<Buffer>>) -> Bio {
        let size = self.block_size as usize;
        let offset = run[0].block() * size as u64;
        let bufs: SmallVec<[BufMut; 1]> = run.iter().map(|_| BufMut::scratch(size)).collect();
        let end = Arc::new(PrefetchRun {
            cache: self.clone(),
            run,
        });
        Bio::read(offset, bufs, Class::Metadata, Reason::Readahead, end, 0)
    }
}

/// Adjacent blocks that one bio reads.
struct PrefetchRun {
    cache: Arc<BufferCache>,
    run: Vec<Arc<Buffer>>,
}
impl EndIo for PrefetchRun {
    fn end_io(&self, _tag: u64, payload: Payload, result: Result<(), IoError>) {
        let mut bufs = match (result, payload) {
            (Ok(()), Payload::Read(bufs)) if bufs.len() == self.run.len() => Some(bufs.into_iter()),
            // Whoever wants a block reads it again and gets the error.
            _ => None,
        };
        for buffer in &self.run {
            let data = bufs.as_mut().and_then(Iterator::next).map(BufMut::freeze);
            self.cache.finish_load(buffer, data);
        }
    }
}

impl Shrinker for BufferCache {
    fn kind(&self) -> Kind {
        Kind::Metadata
    }

    fn shrink(&self, want: u64) -> u64 {
        let cost = buffer::cost(self.block_size);
        let mut freed = 0;
        // Two rounds: the first spares what was used since the last visit.
        for _ in 0..2 * SHARDS {
            if freed >= want {
                break;
            }
            let hand = self.hand.fetch_add(1, Ordering::Relaxed) % SHARDS;
            let Some(mut map) = self.shards[hand].map.try_write() else {
                continue;
            };
            map.retain(|_, buffer| {
                let keep =
                    freed >= want || Arc::strong_count(buffer) > 1 || buffer.take_referenced();
                if !keep {
                    freed += cost;
                }
                keep
            });
        }
        freed
    }
}
