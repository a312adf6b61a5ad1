//! The blocks of file data that are in the log and not home (`crate::data`).

use crate::Buffer;
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
    pub fn hold(&self, block: FsBlock, content: &Buf, budget: &Arc<Budget>) -> Arc<Buffer> {
        let mut blocks = self.blocks.write();
        let buffer = blocks
            .entry(block)
            .or_insert_with(|| Arc::new(Buffer::of_data(block, content.clone(), budget)))
            .clone();
        self.count.store(blocks.len(), Ordering::Release);
        buffer
    }

    /// Returns the first held block of a range and its content.
    pub fn first(&self, range: Range<FsBlock>) -> Option<(FsBlock, Buf)> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let blocks = self.blocks.read();
        let (&block, buffer) = blocks.range(range).next()?;
        Some((block, buffer.data()))
    }

    /// Removes the blocks of a range.
    pub fn take(&self, range: Range<FsBlock>) -> Vec<Arc<Buffer>> {
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
