//! Removing pages and freeing blocks of an inode.

use crate::{Fs, Inode, Result, extents, orphan};
use jbd2::Handle;
use std::ops::Range;
use std::sync::Arc;
use sync::MutexGuard;
use units::{FileBlock, PageIndex, page};

/// Credits of one step of a removal at most.
const STEP_CREDITS: u32 = 256;

impl Fs {
    /// Removes pages in any state, after writeback in flight has ended, and returns their
    /// reservations. The caller holds the inode's lock exclusively, or is its only user.
    pub(crate) fn drop_pages(&self, inode: &Arc<Inode>, pages: Range<PageIndex>) {
        if inode.is_at_rest() {
            return drop_clean_pages(inode, pages);
        }
        let io = inode.data.make_io();
        let lock = io.writeback_lock.lock();
        self.wait_writeback(inode);
        self.forget_pages(inode, pages, &lock);
    }

    /// Removes pages and returns their reservations. None of them is under writeback, as `_lock`
    /// proves. Unless the inode is deleted, the caller has the handle that frees their blocks, and
    /// has marked the inode dirty under it: an fsync that finds the pages gone then commits that
    /// transaction.
    pub(crate) fn forget_pages(
        &self,
        inode: &Arc<Inode>,
        pages: Range<PageIndex>,
        _lock: &MutexGuard<'_, PageIndex>,
    ) {
        let removed = inode.mapping.remove(pages.clone());
        self.bdi.sub_dirty(removed.dirty);
        self.groups.unreserve(removed.delalloc);
        self.settle_clusters(inode, pages);
        self.settle_nodes(inode);
        self.unlanded_files.settle(inode);
        if let Some(io) = inode.data.io() {
            *io.goal.lock() = None;
        }
    }

    /// Credits of one step of a removal of blocks: an eighth of a transaction, so that steps share
    /// transactions on a small log, too.
    pub(crate) fn step_credits(&self) -> u32 {
        let least = extents::REMOVE_CREDITS + orphan::ORPHAN_CREDITS + 2;
        (self.journal.max_credits() / 8).clamp(least, STEP_CREDITS)
    }

    /// Removes `pages` and frees their blocks, in as many transactions as it takes.
    pub(crate) fn free_with_pages(
        &self,
        inode: &Arc<Inode>,
        pages: Range<PageIndex>,
    ) -> Result<()> {
        let io = inode.data.make_io();
        let lock = io.writeback_lock.lock();
        self.wait_writeback(inode);
        self.free_in_steps(inode, page::blocks(pages), |handle, freed| {
            self.forget_pages(inode, page::of_blocks(freed), &lock);
            // The size on disk may have waited for these pages.
            inode.grow(self, handle, 0);
        })
    }

    /// Frees the blocks of `range`, in as many transactions as it takes.
    pub(crate) fn free_blocks(&self, inode: &Arc<Inode>, range: Range<FileBlock>) -> Result<()> {
        self.free_in_steps(inode, range, |_, _| ())
    }

    /// Frees the blocks of `range` from its end on, a step for each transaction. Calls `freed` with
    /// the handle and the range of each step.
    fn free_in_steps(
        &self,
        inode: &Arc<Inode>,
        range: Range<FileBlock>,
        freed: impl Fn(&Handle<'_>, Range<FileBlock>),
    ) -> Result<()> {
        let mut left = range;
        while !left.is_empty() {
            let handle = self.journal.start(self.step_credits())?;
            let end = left.end;
            let removed = extents::remove(self, &handle, inode, &mut left);
            inode.mark_dirty(self, &handle);
            // Also after an error: a page whose block is unmapped has no promise.
            freed(&handle, left.end..end);
            removed?;
        }
        Ok(())
    }
}

/// Removes the pages of an inode that is at rest. No thread gathers any, as none is dirty, so this
/// needs no lock.
pub(super) fn drop_clean_pages(inode: &Inode, pages: Range<PageIndex>) {
    if inode.mapping.pages() > 0 {
        inode.mapping.remove(pages);
    }
}
