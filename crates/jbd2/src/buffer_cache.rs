//! The cache of metadata blocks.
//!
//! The cache is sharded by block number; a look-up takes one shard's lock for reading. Concurrent
//! misses of one block read it once: the first thread puts a loading buffer into the map and the
//! others wait for it. The shrinker is a clock over the shards. It evicts buffers to which only the
//! map refers and which were not used since its last visit.
//!
//! Invariant: a buffer's `Arc` is cloned from the map under its shard's lock, or from another
//! clone. So under the write lock, a buffer with one reference is not in use.

use crate::buffer::{self, Load};
use crate::{Buffer, JournalError, Overlay};
use block::{Bio, BufMut, Class, EndIo, IoError, Payload, Queue, Reason};
use cache::{Budget, Kind, Shrinker};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::Arc;
use sync::atomic::{AtomicUsize, Ordering};
use sync::{Condvar, Mutex, Rank, RwLock};
use units::FsBlock;

const SHARDS: usize = 64;
/// Runs of 32 neighbours share a shard. They are often read at once, are adjacent in memory then,
/// and are evicted together, so that whole pages of memory become free.
const RUN_BITS: u32 = 5;
/// Most blocks of one read of a prefetch.
const MAX_PREFETCH_RUN: usize = 256;

type BlockMap = FxHashMap<FsBlock, Arc<Buffer>>;

struct Shard {
    map: RwLock<BlockMap>,
    /// Prevents lost wake-ups.
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

/// The buffers in memory, by block.
pub(crate) struct BufferCache {
    queue: Arc<Queue>,
    block_size: u32,
    budget: Arc<Budget>,
    /// Blocks whose newest content is in an unrecovered log (read-only volumes).
    overlay: Overlay,
    shards: Vec<Shard>,
    /// The next shard of the shrinker's clock.
    hand: AtomicUsize,
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
        map.insert(block, buffer.clone());
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
        let mut map = self.shard(buffer.block()).map.write();
        if map
            .get(&buffer.block())
            .is_some_and(|cached| Arc::ptr_eq(cached, buffer))
        {
            map.remove(&buffer.block());
        }
    }

    /// Returns a block's buffer, from the cache or the device.
    pub fn get(&self, block: FsBlock) -> Result<Arc<Buffer>, JournalError> {
        loop {
            if let Some(buffer) = self.lookup(block) {
                if self.wait_loaded(&buffer) {
                    buffer.touch();
                    return Ok(buffer);
                }
                // Another thread's read failed. Read again, to return the error of this read.
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

    /// Starts to read those of `blocks` that are not cached.
    pub fn prefetch(self: &Arc<Self>, blocks: &[FsBlock]) {
        let mut missing: Vec<FsBlock> = blocks
            .iter()
            .copied()
            .filter(|block| !self.overlay.contains(*block))
            .filter(|&block| self.lookup(block).is_none())
            .filter(|&block| {
                // A read beyond the end of the device would fail.
                let end = block
                    .checked_add(1)
                    .and_then(|next| next.checked_offset(self.block_size));
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
        let offset = run[0].block().offset(self.block_size);
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
            // A later `get` reads the block again and returns the error.
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
        // The first of two rounds spares buffers that were used since the last visit.
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
