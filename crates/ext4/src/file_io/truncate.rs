//! Changing a file's size, and freeing blocks.

use crate::extents::{self, ExtentState, Map};
use crate::removal::ANY_BLOCKS;
use crate::{Error, Fs, Inode, InodeRef, Result, WriteMode, orphan};
use block::{BufMut, PAGE_SIZE};
use ext4_format::inode::FileType;
use jbd2::Handle;
use std::sync::Arc;
use sync::MutexGuard;
use sync::atomic::Ordering;
use units::{PageIndex, page};

impl Fs {
    /// Sets the size in bytes: cuts the file off, or extends it by a hole.
    pub fn truncate(&self, inode: &InodeRef, size: u64) -> Result<()> {
        self.check_writable()?;
        match inode.kind() {
            FileType::Regular => {}
            FileType::Directory => return Err(Error::IsDirectory),
            _ => return Err(Error::Invalid("only regular files can be truncated")),
        }
        if size > self.geo.max_file_size() {
            return Err(Error::FileTooLarge);
        }
        self.with_space(ANY_BLOCKS, || self.truncate_once(inode, size))
    }

    fn truncate_once(&self, inode: &InodeRef, size: u64) -> Result<()> {
        let _exclusive = inode.lock.write();
        inode.data.readahead.quiesce();
        let old = inode.begin_write(WriteMode::Anywhere)?;
        if size >= old {
            self.zero_tail(inode, size)?;
            return self.grow_to(inode, Some(size));
        }
        // The bytes behind the new end in its page must read as zeroes if the file grows again.
        let tail = page::within(size);
        if tail > 0 {
            self.zero_in_page(inode, PageIndex::of(size), tail..PAGE_SIZE)?;
        }
        // Held until the tail is logged, so that no thread writes it in place.
        let lock = inode.data.writeback_lock.lock();
        self.wait_writeback(inode);
        if size == 0 {
            self.note_truncated(inode);
        }
        self.cut_to(inode, size, lock)
    }

    /// Zeroes the bytes behind the end in the last block, before the file grows to `size`. On the
    /// device they are zero already, unless another system wrote there.
    pub(crate) fn zero_tail(&self, inode: &Arc<Inode>, size: u64) -> Result<()> {
        let old = inode.size();
        if size <= old || page::within(old) == 0 {
            return Ok(());
        }
        self.zero_in_page(inode, PageIndex::of(old), page::within(old)..PAGE_SIZE)?;
        if inode.data.stale_tail.swap(false, Ordering::Relaxed) {
            let lock = inode.data.writeback_lock.lock();
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
    fn log_tail(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        size: u64,
        _lock: &MutexGuard<'_, PageIndex>,
    ) -> Result<()> {
        let page = PageIndex::of(size);
        // A block that cannot be written in place must not go through the log.
        if page::within(size) == 0 || inode.data.write_failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let Some(content) = inode.data.mapping.get(page) else {
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

    /// Sets the size and frees the blocks behind it, in as many transactions as it takes. The inode
    /// is an orphan from the first to the last of them: after a crash in between the next mount
    /// completes the truncation. The first transaction has the zeroes behind the end, too.
    fn cut_to(&self, inode: &Arc<Inode>, size: u64, lock: MutexGuard<'_, PageIndex>) -> Result<()> {
        let pages = PageIndex::after(size)..PageIndex::END;
        let blocks = page::blocks(pages.clone());
        let handle = self.journal.start(self.step_credits())?;
        inode.cut(size, self.now());
        let done = self
            .log_tail(&handle, inode, size, &lock)
            .and_then(|()| extents::remove(self, &handle, inode, blocks.clone()));
        inode.mark_dirty(self, &handle);
        self.forget_pages(inode, pages, &lock);
        inode.grow(self, &handle, 0);
        let end = done?;
        if end <= blocks.start {
            return Ok(());
        }
        orphan::add(self, &handle, inode)?;
        drop((handle, lock));
        self.free_blocks(inode, blocks.start..end)?;
        let handle = self.journal.start(orphan::ORPHAN_CREDITS)?;
        orphan::del(self, &handle, inode)
    }

    /// Completes a truncation that a crash interrupted: frees the blocks behind `size`.
    pub(crate) fn truncate_blocks(&self, inode: &InodeRef, size: u64) -> Result<()> {
        let _exclusive = inode.lock.write();
        let pages = PageIndex::after(size)..PageIndex::END;
        self.drop_pages(inode, pages.clone());
        self.free_blocks(inode, page::blocks(pages))?;
        let handle = self.journal.start(orphan::ORPHAN_CREDITS)?;
        orphan::del(self, &handle, inode)
    }
}
