//! Reads of many blocks for a scan, past the cache.
//!
//! The newest content of a block is that of its buffer, if the cache has one. Without a buffer it
//! is that of the device: the running transaction, the commit and the checkpoint set refer to each
//! of their buffers, so the cache has a buffer for each block that is not home.
//!
//! Algorithm:
//! 1. Look up all blocks. Keep the buffers that are found, and the count of changed buffers that
//!    left the shard of each other block.
//! 2. Read the blocks without a loaded buffer from the device, several requests at once.
//! 3. Look up these blocks again. The content of a block is that of its buffer now. Without a
//!    loaded buffer it is the bytes that were read, if the count of step 1 has not changed.
//!    Otherwise repeat from step 1 for this block, and read it into the cache in the end.
//!
//! Why the bytes are the newest content, and not a mix of two: a checkpoint writes a block during
//! step 2 only if a transaction has changed its buffer. A block without a buffer at step 1 was home
//! then. It had a changed buffer later only if that is still cached at step 3, and then the bytes
//! are not used, or if it left the map meanwhile, and then the count has changed. The same is true
//! of a block whose buffer was loading at step 1: nothing changes a buffer before it is loaded.

use super::BufferCache;
use crate::buffer::Load;
use crate::{Buffer, JournalError};
use block::{Bio, Buf, BufMut, Class, Completion, IoError, Reason};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;
use sync::atomic::Ordering;
use units::FsBlock;

/// Bytes between two wanted blocks that are read, too, instead of starting another request.
const MAX_GAP: u32 = 64 << 10;
/// Rounds of the algorithm before a block is read into the cache.
const ROUNDS: usize = 3;

/// A look at the map.
struct Look {
    buffer: Option<Arc<Buffer>>,
    changed_removed: u64,
}

impl Look {
    /// Returns the content, unless there is no buffer or its content is being read.
    fn content(&self) -> Option<Buf> {
        let buffer = self.buffer.as_ref()?;
        (buffer.load_state() == Load::Ready).then(|| buffer.data())
    }
}

impl BufferCache {
    /// See [`crate::Journal::read_uncached`].
    pub fn read_uncached(&self, blocks: &[FsBlock]) -> Vec<Result<Buf, JournalError>> {
        debug_assert!(blocks.is_sorted());
        let mut contents: Vec<Option<Result<Buf, JournalError>>> = vec![None; blocks.len()];
        for _ in 0..ROUNDS {
            let missing = (0..blocks.len()).filter(|&at| contents[at].is_none());
            let looks: Vec<(usize, Look)> = missing.map(|at| (at, self.look(blocks[at]))).collect();
            let (cached, rest): (Vec<_>, Vec<_>) = looks
                .into_iter()
                .map(|(at, look)| (at, look.content(), look))
                .partition(|(_, content, _)| content.is_some());
            for (at, content, _) in cached {
                contents[at] = content.map(Ok);
            }
            if rest.is_empty() {
                break;
            }
            let wanted: Vec<FsBlock> = rest.iter().map(|(at, ..)| blocks[*at]).collect();
            let read = self.read_from_device(&wanted);
            for ((at, _, before), bytes) in rest.into_iter().zip(read) {
                contents[at] = self.newest(blocks[at], &before, bytes);
            }
        }
        let contents = contents.into_iter().zip(blocks);
        contents
            .map(|(content, &block)| {
                content.unwrap_or_else(|| self.get(block).map(|buffer| buffer.data()))
            })
            .collect()
    }

    fn look(&self, block: FsBlock) -> Look {
        let shard = self.shard(block);
        let map = shard.map.read();
        Look {
            buffer: map.get(&block).cloned(),
            changed_removed: shard.changed_removed.load(Ordering::Relaxed),
        }
    }

    /// Step 3. Returns `None` if the bytes may be older than the newest content.
    fn newest(
        &self,
        block: FsBlock,
        before: &Look,
        bytes: Result<Buf, JournalError>,
    ) -> Option<Result<Buf, JournalError>> {
        // It has been loaded meanwhile.
        if let Some(content) = before.content() {
            return Some(Ok(content));
        }
        let now = self.look(block);
        if now.changed_removed != before.changed_removed {
            return None;
        }
        Some(now.content().map_or(bytes, Ok))
    }

    /// Reads ascending blocks from the device, or from the log of a volume that is not recovered.
    fn read_from_device(&self, blocks: &[FsBlock]) -> Vec<Result<Buf, JournalError>> {
        let mut contents = Vec::with_capacity(blocks.len());
        for part in blocks.chunk_by(|a, b| self.overlay.contains(*a) == self.overlay.contains(*b)) {
            if self.overlay.contains(part[0]) {
                contents.extend(part.iter().map(|block| self.read(*block)));
                continue;
            }
            match self.read_runs(part) {
                Some(read) => contents.extend(read.into_iter().map(Ok)),
                // One of the requests failed. Only its bad blocks have an error.
                None => contents.extend(part.iter().map(|block| self.read(*block))),
            }
        }
        contents
    }

    /// Reads ascending blocks, neighbours in one request. Returns `None` after an error.
    fn read_runs(&self, blocks: &[FsBlock]) -> Option<Vec<Buf>> {
        let done = Completion::new();
        let mut runs: Vec<Range<FsBlock>> = Vec::new();
        let gap = u64::from(MAX_GAP / self.block_size);
        for &block in blocks {
            let end = block.checked_add(1)?;
            match runs.last_mut() {
                Some(run) if block.0 - run.end.0 <= gap => run.end = end,
                _ => runs.push(block..end),
            }
        }
        done.expect(runs.len());
        let mut bios: Vec<Bio> = (0..)
            .zip(&runs)
            .map(|(tag, run)| self.run_bio(run, &done, tag))
            .collect::<Option<_>>()?;
        let read: Result<(), IoError> = self.queue.submit_and_wait(&mut bios, &done);
        read.ok()?;
        let mut contents = Vec::with_capacity(blocks.len());
        let mut rest = blocks.iter().peekable();
        for (run, (_, bufs)) in runs.iter().zip(done.take_reads()) {
            for (offset, buf) in (0..).zip(bufs) {
                if rest
                    .next_if(|block| **block == run.start + offset)
                    .is_some()
                {
                    contents.push(buf.freeze());
                }
            }
        }
        (contents.len() == blocks.len()).then_some(contents)
    }

    /// The reason is readahead: the latency of large reads says nothing about that of a read that a
    /// thread waits for, by which background writes are throttled.
    fn run_bio(&self, run: &Range<FsBlock>, done: &Arc<Completion>, tag: u64) -> Option<Bio> {
        let size = self.block_size as usize;
        let offset = run.start.checked_offset(self.block_size)?;
        let bufs: SmallVec<[BufMut; 1]> = (run.start.0..run.end.0)
            .map(|_| BufMut::scratch(size))
            .collect();
        let end = done.clone();
        Some(Bio::read(
            offset,
            bufs,
            Class::Metadata,
            Reason::Readahead,
            end,
            tag,
        ))
    }
}

#[cfg(test)]
mod tests;
