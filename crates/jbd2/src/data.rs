//! File data in the log (data journalling of small writes).
//!
//! A small synchronous write may put its data into the journal, as ordinary jbd2 blocks that every
//! recovery replays. One write of the log then makes data and metadata durable. The checkpoint
//! writes the data home. Until then the block is *held*: the newest copy is in the log.
//!
//! Rules for a held block:
//! - A reader takes the copy from here, not from the device ([`Journal::data_in_log`]).
//! - A writer writes it through the log again, never in place. The checkpoint, or the replay after
//!   a crash, would overwrite newer bytes with the older copy.
//! - The caller that frees it calls [`Handle::forget_data`], which revokes it like a metadata
//!   block.
//!
//! ```text
//!              log_data              commit                 checkpoint
//!   not held ───────────▶ held, running ───────▶ held, committed ───────────▶ not held
//!       ▲                    │  ▲                   │ │
//!       │                    │  └──── log_data ─────┘ │
//!       └──── forget_data ───┴────────────────────────┘
//! ```
//!
//! A block stays held until the checkpoint releases its newest copy. `checkpoint.rs` shows the
//! states of a block of the log. The buffers are those of metadata blocks, in a map of their own.

use crate::{Buffer, Handle, Journal};
use block::Buf;
use cache::Budget;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use sync::atomic::{AtomicUsize, Ordering};
use sync::{Rank, RwLock};
use units::FsBlock;

/// The held blocks.
pub(crate) struct HeldData {
    blocks: RwLock<BTreeMap<FsBlock, Arc<Buffer>>>,
    /// The size of `blocks`, readable without the lock. It is 0 most of the time.
    count: AtomicUsize,
}

impl Default for HeldData {
    fn default() -> HeldData {
        HeldData {
            blocks: Rank::HeldData.rw_lock(BTreeMap::new()),
            count: AtomicUsize::new(0),
        }
    }
}

impl HeldData {
    /// Returns the buffer of a block and makes the block held.
    fn hold(&self, block: FsBlock, content: &Buf, budget: &Arc<Budget>) -> Arc<Buffer> {
        let mut blocks = self.blocks.write();
        let buffer = blocks
            .entry(block)
            .or_insert_with(|| Arc::new(Buffer::of_data(block, content.clone(), budget)))
            .clone();
        self.count.store(blocks.len(), Ordering::Release);
        buffer
    }

    /// Returns the first held block of a range and its content.
    fn first(&self, range: Range<FsBlock>) -> Option<(FsBlock, Buf)> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let blocks = self.blocks.read();
        let (&block, buffer) = blocks.range(range).next()?;
        Some((block, buffer.data()))
    }

    /// Removes the blocks of a range.
    fn take(&self, range: Range<FsBlock>) -> Vec<Arc<Buffer>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut blocks = self.blocks.write();
        let found: Vec<FsBlock> = blocks.range(range).map(|(&block, _)| block).collect();
        let taken = found.iter().filter_map(|block| blocks.remove(block));
        let taken = taken.collect();
        self.count.store(blocks.len(), Ordering::Release);
        taken
    }

    /// Removes a buffer whose newest committed copy is home, unless the running or a closed
    /// transaction has it.
    pub fn release(&self, buffer: Arc<Buffer>) {
        let mut blocks = self.blocks.write();
        let same = |held: &Arc<Buffer>| Arc::ptr_eq(held, &buffer);
        // The two references are the map's and `buffer`. Others are only cloned under the lock.
        if blocks.get(&buffer.block()).is_some_and(same) && Arc::strong_count(&buffer) == 2 {
            blocks.remove(&buffer.block());
            self.count.store(blocks.len(), Ordering::Release);
        }
    }
}

impl Journal {
    /// Returns the first held block of `blocks` and its content. Call this before a read from the
    /// device: a block that is not held stays so until it is logged.
    #[inline]
    pub fn held_data(&self, blocks: Range<FsBlock>) -> Option<(FsBlock, Buf)> {
        self.held.first(blocks)
    }
}

impl Handle<'_> {
    /// Replaces the content of a data block as part of the transaction. Uses a credit like
    /// [`Handle::modify`].
    ///
    /// No write in place may be in flight, and `content` must not be the buffer that the block has
    /// already.
    pub fn log_data(&self, block: FsBlock, content: Buf) {
        let journal = self.journal();
        let buffer = journal.held.hold(block, &content, &journal.budget);
        if buffer.replace(self.tid(), content) {
            self.joined(&buffer);
        }
    }

    /// Revokes the held blocks of a range of data blocks that were freed.
    pub fn forget_data(&self, blocks: Range<FsBlock>) {
        for buffer in self.journal().held.take(blocks) {
            self.revoked(&buffer);
        }
    }
}
