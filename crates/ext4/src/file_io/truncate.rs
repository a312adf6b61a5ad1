//! Changing a file's size.

use crate::extents;
use crate::inline_data::is_inline;
use crate::removal::ANY_BLOCKS;
use crate::{Error, Fs, Inode, InodeRef, Result, WriteMode, orphan};
use ext4_format::inode::FileType;
use std::sync::Arc;
use sync::MutexGuard;
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
        if size > self.max_size_of(inode) {
            return Err(Error::FileTooLarge);
        }
        self.with_space(ANY_BLOCKS, || self.truncate_once(inode, size))
    }

    fn truncate_once(&self, inode: &InodeRef, size: u64) -> Result<()> {
        let _exclusive = inode.lock.write();
        inode.wait_readahead();
        let old = self.begin_write(inode, WriteMode::Anywhere)?;
        if self.truncate_in_inode(inode, size)? {
            return Ok(());
        }
        let blocks = page::blocks(self.page_size.index_after(size)..PageIndex::END);
        // fallocate may have put blocks behind the end. A file that grows keeps them.
        if size > old || (size == old && extents::count_in(self, inode, blocks)? == 0) {
            self.zero_tail(inode, size)?;
            return self.grow_to(inode, Some(size));
        }
        self.land_shared_clusters(inode, self.page_size.index_after(size)..PageIndex::END)?;
        // The bytes behind the new end in its page must read as zeroes if the file grows again.
        let tail = self.page_size.within(size);
        if tail > 0 {
            let last = self.page_size.index_of(size);
            self.zero_in_page(inode, last, tail..self.page_size.as_usize())?;
        }
        // Held until the tail is logged, so that no thread writes it in place.
        let io = inode.data.make_io();
        let lock = io.writeback_lock.lock();
        self.wait_writeback(inode);
        if size == 0 {
            self.note_truncated(inode);
        }
        self.cut_to(inode, size, lock)
    }

    /// Sets the size and frees the blocks behind it, in as many transactions as it takes. The inode
    /// is an orphan from the first to the last of them: after a crash in between the next mount
    /// completes the truncation. The first transaction has the zeroes behind the end, too.
    fn cut_to(&self, inode: &Arc<Inode>, size: u64, lock: MutexGuard<'_, PageIndex>) -> Result<()> {
        let pages = self.page_size.index_after(size)..PageIndex::END;
        let blocks = page::blocks(pages.clone());
        let handle = self.journal.start(self.step_credits())?;
        inode.cut(size, self.now());
        let mut left = blocks;
        let done = self
            .log_tail(&handle, inode, size, &lock)
            .and_then(|()| extents::remove(self, &handle, inode, &mut left));
        inode.mark_dirty(self, &handle);
        self.forget_pages(inode, pages, &lock);
        inode.grow(self, &handle, 0);
        if done.is_ok() && left.is_empty() {
            return Ok(());
        }
        // Also after an error: the next mount completes the truncation.
        orphan::add(self, &handle, inode);
        done?;
        drop((handle, lock));
        self.free_blocks(inode, left)?;
        self.end_truncation(inode)
    }

    /// The truncation has freed all blocks. An inode without links stays an orphan: it is to be
    /// deleted. The caller holds the inode's lock, so its link count does not become or leave 0.
    fn end_truncation(&self, inode: &Arc<Inode>) -> Result<()> {
        if inode.links() == 0 {
            return Ok(());
        }
        let handle = self.journal.start(orphan::ORPHAN_CREDITS)?;
        orphan::del(self, &handle, inode)
    }

    /// Raises the size to `end`, if there is one, and sets the times.
    pub(super) fn grow_to(&self, inode: &Arc<Inode>, end: Option<u64>) -> Result<()> {
        let handle = self.journal.start(2)?;
        inode.set_mtime(self.now());
        inode.grow(self, &handle, end.unwrap_or(0));
        Ok(())
    }

    /// Completes a truncation that a crash interrupted: frees the blocks behind `size`.
    pub(crate) fn truncate_blocks(&self, inode: &InodeRef, size: u64) -> Result<()> {
        let _exclusive = inode.lock.write();
        let pages = self.page_size.index_after(size)..PageIndex::END;
        self.drop_pages(inode, pages.clone());
        if !is_inline(inode) {
            self.free_blocks(inode, page::blocks(pages))?;
        }
        self.end_truncation(inode)
    }
}
