//! Contents of files that are in the log and not home yet.
//!
//! A small synchronous write may carry its data in the journal, as ordinary jbd2 blocks that any
//! recovery replays: one write of the log then makes data and metadata durable together. The
//! checkpoint writes the data home with everything else. Until then the block is *held*: the log's
//! copy is the newest, and
//!
//! - whoever reads the block takes the copy from here, not from the device
//!   ([`Journal::data_in_log`]);
//! - whoever writes the block does so through the log again, never in place: the checkpoint, or the
//!   replay after a crash, would put the older copy over the newer bytes;
//! - whoever frees the block says so ([`Handle::forget_data`]): it is revoked, as a metadata block
//!   is.
//!
//! ```text
//!              log_data              commit                 checkpoint
//!   not held ───────────▶ held, running ───────▶ held, committed ───────────▶ not held
//!       ▲                    │  ▲                   │ │
//!       │                    │  └──── log_data ─────┘ │
//!       └──── forget_data ───┴────────────────────────┘
//! ```
//!
//! A block stays held as long as any transaction of the log has it: until the checkpoint releases
//! its newest copy (see `checkpoint.rs` for the states of a block of the log).
//!
//! The buffers are those of metadata blocks, kept in a map of their own: there they stay for as
//! long as they are held.

use crate::{Buffer, Handle, Journal};
use block::Buf;
use cache::Budget;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use sync::atomic::{AtomicUsize, Ordering};
use sync::{Rank, RwLock};

/// The held blocks.
pub(crate) struct HeldData {
    blocks: RwLock<BTreeMap<u64, Arc<Buffer>>>,
    /// Their number, readable without the lock: mostly there are none.
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
    /// The buffer of a block, which is held from now on.
    fn hold(&self, block: u64, content: &Buf, budget: &Arc<Budget>) -> Arc<Buffer> {
        let mut blocks = self.blocks.write();
        let buffer = blocks
            .entry(block)
            .or_insert_with(|| Arc::new(Buffer::of_data(block, content.clone(), budget)))
            .clone();
        self.count.store(blocks.len(), Ordering::Release);
        buffer
    }

    /// The first held block of a range, with its content.
    fn first(&self, range: Range<u64>) -> Option<(u64, Buf)> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let blocks = self.blocks.read();
        let (&block, buffer) = blocks.range(range).next()?;
        Some((block, buffer.data()))
    }

    /// Lets go of the blocks of a range.
    fn take(&self, range: Range<u64>) -> Vec<Arc<Buffer>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut blocks = self.blocks.write();
        let found: Vec<u64> = blocks.range(range).map(|(&block, _)| block).collect();
        let taken = found.iter().filter_map(|block| blocks.remove(block));
        let taken = taken.collect();
        self.count.store(blocks.len(), Ordering::Release);
        taken
    }

    /// The checkpoint released a buffer: its newest committed copy is home, and no committed
    /// transaction of the log has it. Lets go of it, unless the running or a closed transaction has
    /// it.
    pub fn release(&self, buffer: Arc<Buffer>) {
        let mut blocks = self.blocks.write();
        let same = |held: &Arc<Buffer>| Arc::ptr_eq(held, &buffer);
        // The map's reference and ours. More are made under the lock only.
        if blocks.get(&buffer.block()).is_some_and(same) && Arc::strong_count(&buffer) == 2 {
            blocks.remove(&buffer.block());
            self.count.store(blocks.len(), Ordering::Release);
        }
    }
}

impl Journal {
    /// The first block of `blocks` whose newest content is in the log and not on the device, with
    /// that content. Ask before reading from the device: a block that is not held stays so as long
    /// as nobody logs it.
    #[inline]
    pub fn held_data(&self, blocks: Range<u64>) -> Option<(u64, Buf)> {
        self.held.first(blocks)
    }
}

impl Handle<'_> {
    /// Makes `content` the content of a block that holds a file's data, as part of the transaction.
    /// Uses a credit, as [`Handle::modify`]. The block must not be being written in place.
    /// `content` is not what the block has already.
    pub fn log_data(&self, block: u64, content: Buf) {
        let journal = self.journal();
        let buffer = journal.held.hold(block, &content, &journal.budget);
        if buffer.replace(self.tid(), content) {
            self.joined(&buffer);
        }
    }

    /// The blocks of a range, which held data, were freed: where the log has copies of them, these
    /// are void.
    pub fn forget_data(&self, blocks: Range<u64>) {
        for buffer in self.journal().held.take(blocks) {
            self.revoked(&buffer);
        }
    }
}
