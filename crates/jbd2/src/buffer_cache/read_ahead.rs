//! Blocks that are read before a thread needs them.
//!
//! A buffer that was read ahead is *unused* until its first use. Unused buffers take at most a part
//! of the memory budget ([`PART`]). A read-ahead that would exceed it first evicts the unused
//! buffers that are older than half of them. Then it reads as many blocks as the part has room for,
//! the first ones. So a wrong guess costs a bounded part of the memory, and buffers in use are
//! evicted only as by any other read: the oldest ones, when the budget is exceeded.

use super::{ADDED_PER_TICK, BufferCache, LEAST_AGE, age};
use crate::Buffer;
use crate::buffer::{self, Load};
use block::{Bio, Buf, BufMut, Class, EndIo, IoError, Payload, Reason};
use smallvec::SmallVec;
use std::sync::Arc;
use sync::atomic::{AtomicU64, Ordering};
use units::FsBlock;

/// Most bytes of one read.
const MAX_RUN: u32 = 1 << 20;
/// Unused buffers take at most the memory budget divided by this.
const PART: u64 = 8;
/// Unused buffers that are allowed under any memory budget.
const LEAST_UNUSED: u64 = 64;
/// A caller should read this part of the unused buffers at once at most, because several read.
const READERS: u64 = 8;
/// Blocks that may always be read at once. With fewer it could not be seen that more are used.
const LEAST_AT_ONCE: u64 = 8;
/// The counts of used buffers and of those read in vain are halved when their sum reaches this.
const JUDGED: u64 = 1024;

/// The buffers that were read ahead.
#[derive(Default)]
pub(super) struct Unused {
    /// Unused buffers in the cache.
    count: AtomicU64,
    /// Recent first uses.
    used: AtomicU64,
    /// Recent evictions of unused buffers.
    in_vain: AtomicU64,
}

impl Unused {
    fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
    /// Counts the first use of a buffer that was read ahead.
    pub(super) fn note_used(&self, buffer: &Buffer) {
        if buffer.end_read_ahead() {
            self.count.fetch_sub(1, Ordering::Relaxed);
            self.judge(&self.used);
        }
    }
    /// Counts a buffer that leaves the cache, if it is unused.
    pub(super) fn note_removed(&self, buffer: &Buffer) {
        if buffer.end_read_ahead() {
            self.count.fetch_sub(1, Ordering::Relaxed);
            self.judge(&self.in_vain);
        }
    }
    fn judge(&self, outcome: &AtomicU64) {
        outcome.fetch_add(1, Ordering::Relaxed);
        let (used, in_vain) = self.outcomes();
        if used + in_vain >= JUDGED {
            self.used.store(used / 2, Ordering::Relaxed);
            self.in_vain.store(in_vain / 2, Ordering::Relaxed);
        }
    }
    fn outcomes(&self) -> (u64, u64) {
        let used = self.used.load(Ordering::Relaxed);
        (used, self.in_vain.load(Ordering::Relaxed))
    }
    /// Returns the part of `most` that is read without being in vain, as a power of two.
    fn limit(&self, most: u64) -> u64 {
        let (used, in_vain) = self.outcomes();
        // A few evictions say nothing.
        let wrong = in_vain.saturating_sub(used / 8).saturating_sub(JUDGED / 16);
        let most = most * (used + 1) / (used + 1 + 4 * wrong);
        1 << most.max(LEAST_AT_ONCE).ilog2()
    }
}

impl BufferCache {
    /// Returns whether a block is cached or being read.
    pub fn has(&self, block: FsBlock) -> bool {
        self.shard(block).map.read().contains_key(&block)
    }

    /// Returns the content of a block if it is cached. This does not count as a use.
    pub fn peek(&self, block: FsBlock) -> Option<Buf> {
        let buffer = self.lookup(block)?;
        (buffer.load_state() == Load::Ready).then(|| buffer.data())
    }

    /// Returns the most unused buffers.
    fn most_unused(&self) -> u64 {
        (self.budget.limit() / PART / buffer::cost(self.block_size)).max(LEAST_UNUSED)
    }

    /// Returns the most blocks of one read.
    fn max_run(&self) -> usize {
        (MAX_RUN / self.block_size) as usize
    }

    /// Returns the most blocks that a caller should read ahead at once: a power of two.
    pub fn ahead_limit(&self) -> u32 {
        let most = (self.most_unused() / READERS).min(self.max_run() as u64);
        self.ahead.limit(most) as u32
    }

    /// Starts to read those of `blocks` that are not cached. Blocks beyond the device are left out,
    /// and so are the last ones if too many buffers are unused.
    pub fn prefetch(self: &Arc<Self>, blocks: &[FsBlock], reason: Reason) {
        let mut missing: Vec<FsBlock> = blocks
            .iter()
            .copied()
            .filter(|block| !self.overlay.contains(*block))
            .filter(|&block| !self.has(block))
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
        missing.truncate(self.room_ahead(missing.len() as u64) as usize);
        self.budget.make_room();
        let mut bios = Vec::new();
        let mut run: Vec<Arc<Buffer>> = Vec::new();
        for block in missing {
            let Some(buffer) = self.insert_loading(block) else {
                continue;
            };
            buffer.begin_read_ahead();
            self.ahead.count.fetch_add(1, Ordering::Relaxed);
            let adjacent = run.last().is_none_or(|last| last.block() + 1 == block);
            if !adjacent || run.len() == self.max_run() {
                bios.push(self.prefetch_bio(std::mem::take(&mut run), reason));
            }
            run.push(buffer);
        }
        if !run.is_empty() {
            bios.push(self.prefetch_bio(run, reason));
        }
        if !bios.is_empty() {
            self.queue.submit_batch(&mut bios);
        }
    }

    /// Returns how many of `want` blocks may be read ahead now.
    fn room_ahead(&self, want: u64) -> u64 {
        let most = self.most_unused();
        if self.ahead.count() + want > most {
            let now = self.time();
            let least_age = ((most / 2 / ADDED_PER_TICK) as u32).max(LEAST_AGE);
            let stale = |buffer: &Buffer| {
                buffer.is_read_ahead()
                    && buffer.load_state() == Load::Ready
                    && age(buffer.last_use(), now) >= least_age
            };
            for shard in &self.shards {
                shard.evict(u64::MAX, stale, &self.ahead);
            }
        }
        want.min(most.saturating_sub(self.ahead.count()))
    }

    fn prefetch_bio(self: &Arc<Self>, run: Vec<Arc<Buffer>>, reason: Reason) -> Bio {
        let size = self.block_size as usize;
        let offset = run[0].block().offset(self.block_size);
        let bufs: SmallVec<[BufMut; 1]> = run.iter().map(|_| BufMut::scratch(size)).collect();
        let end = Arc::new(PrefetchRun {
            cache: self.clone(),
            run,
        });
        Bio::read(offset, bufs, Class::Metadata, reason, end, 0)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_in_vain_reduce_the_limit_and_uses_raise_it_again() {
        let unused = Unused::default();
        let outcomes = |outcome: &AtomicU64, count| (0..count).for_each(|_| unused.judge(outcome));
        assert_eq!(unused.limit(256), 256);
        outcomes(&unused.used, 600);
        assert_eq!(unused.limit(256), 256);
        outcomes(&unused.in_vain, 2000);
        assert_eq!(unused.limit(256), LEAST_AT_ONCE);
        outcomes(&unused.used, 20 * JUDGED);
        assert_eq!(unused.limit(256), 256);
    }
}
