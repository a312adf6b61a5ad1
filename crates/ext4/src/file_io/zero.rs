//! Zeroing parts of pages, and the bytes behind the end of a file.

use crate::extents::{self, ExtentState, Map};
use crate::{Fs, Inode, Result};
use block::BufMut;
use cache::Delalloc;
use jbd2::Handle;
use std::ops::Range;
use std::sync::Arc;
use sync::MutexGuard;
use sync::atomic::Ordering;
use units::PageIndex;

impl Fs {
    /// Zeroes bytes `range` of page `index` and keeps the rest of the page. A hole stays
    /// one. The caller holds the inode's lock exclusively.
    pub(super) fn zero_in_page(
        &self,
        inode: &Arc<Inode>,
        index: PageIndex,
        range: Range<usize>,
    ) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let zero = |bytes: &mut [u8]| bytes[range.clone()].fill(0);
        let before = match inode.mapping.modify(index, Delalloc::Keep, zero) {
            Some(before) => before,
            None => {
                if !matches!(
                    extents::lookup(self, inode, index.block())?,
                    Map::Mapped {
                        state: ExtentState::Written,
                        ..
                    }
                ) {
                    return Ok(());
                }
                let Some(mut buf) = self.page_for_update(inode, index, inode.size())? else {
                    return Ok(());
                };
                zero(buf.make_mut());
                inode.mapping.store_dirty(index, buf, Delalloc::Keep)
            }
        };
        self.bdi.add_dirty(u64::from(!before.dirty));
        self.note_dirty_pages(inode);
        Ok(())
    }

    /// Zeroes the bytes behind the end in the last block, before the file grows to `size`. On the
    /// device they are zero already, unless another system wrote there.
    pub(super) fn zero_tail(&self, inode: &Arc<Inode>, size: u64) -> Result<()> {
        let old = inode.size();
        let tail = self.page_size.within(old);
        if size <= old || tail == 0 {
            return Ok(());
        }
        let last = self.page_size.index_of(old);
        self.zero_in_page(inode, last, tail..self.page_size.as_usize())?;
        if inode.data.stale_tail.swap(false, Ordering::Relaxed) {
            let io = inode.data.make_io();
            let lock = io.writeback_lock.lock();
            self.wait_writeback(inode);
            let handle = self.journal.start(2)?;
            self.log_tail(&handle, inode, old, &lock)?;
            inode.mark_dirty(self, &handle);
        }
        Ok(())
    }

    /// Logs the last page of a file of `size` bytes, if its block is written on the device: the
    /// zeroes behind the end become durable with the transaction. The page stays dirty. `_lock`
    /// proves that no thread writes it in place; the caller has waited for writeback. Uses one
    /// credit.
    pub(super) fn log_tail(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        size: u64,
        _lock: &MutexGuard<'_, PageIndex>,
    ) -> Result<()> {
        let page = self.page_size.index_of(size);
        // A block that cannot be written in place must not go through the log.
        if self.page_size.within(size) == 0 || inode.data.write_failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let Some(content) = inode.mapping.get(page) else {
            return Ok(());
        };
        if let Map::Mapped {
            start,
            state: ExtentState::Written,
            ..
        } = extents::lookup(self, inode, page.block())?
        {
            // A copy: the page itself may be logged later, and each buffer is counted once.
            handle.log_data(start, BufMut::copy_of(&content).freeze());
        }
        Ok(())
    }
}
