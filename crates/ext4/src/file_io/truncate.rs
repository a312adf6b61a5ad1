//! Changing a file's size, freeing blocks, and deleting inodes that nobody names any more.

use crate::extents::{self, Map};
use crate::state::ANY_BLOCKS;
use crate::{Error, Fs, Inode, InodeRef, Result, orphan, xattr};
use block::{BufMut, PAGE_SIZE};
use ext4_format::inode::{FileType, InodeFields};
use ext4_format::types::FileBlock;
use jbd2::Handle;
use std::ops::Range;
use std::sync::Arc;
use sync::MutexGuard;
use sync::atomic::Ordering;

const PAGE: u64 = PAGE_SIZE as u64;
/// File blocks end here.
const END: u64 = 1 << 32;

impl Fs {
    /// Sets the size in bytes: cuts the file off, or lets it end in a hole.
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
        let old = inode.begin_write(false)?;
        if size >= old {
            self.zero_tail(inode, size)?;
            return self.grow_to(inode, size, false);
        }
        // What follows the new end in its page must read as zeroes if the file grows again.
        let tail = (size % PAGE) as usize;
        if tail > 0 {
            self.zero_in_page(inode, size / PAGE, tail..PAGE_SIZE)?;
        }
        // Held until the tail is logged: nothing writes it in place meanwhile.
        let lock = inode.data.writeback_lock.lock();
        self.wait_writeback(inode);
        if size == 0 {
            self.note_truncated(inode);
        }
        self.cut_to(inode, size, lock)
    }

    /// Before the file grows to `size`: what lies behind its end in its last block reads as zeroes.
    /// On the device it is zero already, unless another system left something there.
    pub(crate) fn zero_tail(&self, inode: &Arc<Inode>, size: u64) -> Result<()> {
        let old = inode.size();
        if size <= old || old.is_multiple_of(PAGE) {
            return Ok(());
        }
        self.zero_in_page(inode, old / PAGE, (old % PAGE) as usize..PAGE_SIZE)?;
        if inode.data.stale_tail.swap(false, Ordering::Relaxed) {
            let lock = inode.data.writeback_lock.lock();
            self.wait_writeback(inode);
            let handle = self.journal.start(2)?;
            self.log_tail(&handle, inode, old, &lock)?;
            inode.mark_dirty(self, &handle);
        }
        Ok(())
    }

    /// Logs the page that holds the end of a file of `size` bytes, where its block is in use on the
    /// device, with zeroes behind the end: they are durable with the transaction. The page stays
    /// dirty. `_lock` proves that nothing writes it in place; the caller has waited for writeback.
    /// Uses a credit.
    fn log_tail(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        size: u64,
        _lock: &MutexGuard<'_, u32>,
    ) -> Result<()> {
        let page = size / PAGE;
        // A place that cannot be written is not entrusted to the log.
        if size.is_multiple_of(PAGE) || inode.data.write_failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let Some(content) = inode.data.mapping.get(page) else {
            return Ok(());
        };
        let block = FileBlock(u32::try_from(page).map_err(|_| Error::FileTooLarge)?);
        if let Map::Mapped {
            start,
            unwritten: false,
            ..
        } = extents::lookup(self, inode, block)?
        {
            // A copy: the page is going to be logged again as it is, and each content of a block is
            // counted once.
            handle.log_data(start.0, BufMut::copy_of(&content).freeze());
        }
        Ok(())
    }

    /// Removes pages of whatever state, after writeback in flight has ended; their reservations are
    /// given back.
    pub(crate) fn drop_pages(&self, inode: &Arc<Inode>, pages: Range<u64>) {
        let lock = inode.data.writeback_lock.lock();
        self.wait_writeback(inode);
        self.forget_pages(inode, pages, &lock);
    }

    /// Removes pages, none of which is under writeback, as `_lock` proves; their reservations are
    /// given back. Where the file lives on, the caller has the handle that also frees their blocks,
    /// and has marked the inode dirty under it: an fsync or sync that finds the pages gone then
    /// commits that transaction.
    pub(super) fn forget_pages(
        &self,
        inode: &Arc<Inode>,
        pages: Range<u64>,
        _lock: &MutexGuard<'_, u32>,
    ) {
        let removed = inode.data.mapping.remove(pages);
        self.bdi.sub_dirty(removed.dirty);
        self.groups.unreserve(removed.delalloc);
        self.settle_nodes(inode);
        self.unlanded_files.settle(inode);
        *inode.data.goal.lock() = None;
    }

    /// Credits of one step of a removal of blocks: an eighth of a transaction, so that steps share
    /// transactions on a small log, too.
    fn cut_credits(&self) -> u32 {
        let least = extents::REMOVE_CREDITS + orphan::ORPHAN_CREDITS + 2;
        (self.journal.max_credits() / 8).clamp(least, CUT_CREDITS)
    }

    /// Sets the size and frees the blocks behind it, in as many transactions as it takes. The inode
    /// is an orphan from the first to the last of them, so that a crash in between is completed at
    /// the next mount. The first has the zeroes behind the end, too.
    fn cut_to(&self, inode: &Arc<Inode>, size: u64, lock: MutexGuard<'_, u32>) -> Result<()> {
        let range = size.div_ceil(PAGE)..END;
        let handle = self.journal.start(self.cut_credits())?;
        inode.cut(size, self.now());
        let done = self
            .log_tail(&handle, inode, size, &lock)
            .and_then(|()| extents::remove(self, &handle, inode, range.clone()));
        inode.mark_dirty(self, &handle);
        self.forget_pages(inode, range.start..u64::MAX, &lock);
        inode.grow(self, &handle, 0);
        let end = done?;
        if end <= range.start {
            return Ok(());
        }
        orphan::add(self, &handle, inode)?;
        drop((handle, lock));
        self.cut(inode, range.start..end)?;
        let handle = self.journal.start(orphan::ORPHAN_CREDITS)?;
        orphan::del(self, &handle, inode)
    }

    /// Removes the pages of `range` and frees their blocks, in as many transactions as it takes.
    pub(super) fn cut_pages(&self, inode: &Arc<Inode>, range: Range<u64>) -> Result<()> {
        let lock = inode.data.writeback_lock.lock();
        self.wait_writeback(inode);
        let mut end = range.end;
        while end > range.start {
            let handle = self.journal.start(self.cut_credits())?;
            let removed = extents::remove(self, &handle, inode, range.start..end);
            inode.mark_dirty(self, &handle);
            let next = removed?;
            self.forget_pages(inode, next..end, &lock);
            // The size on disk may have waited for these pages.
            inode.grow(self, &handle, 0);
            end = next;
        }
        Ok(())
    }

    /// Frees the blocks of `range`, in as many transactions as it takes.
    pub(crate) fn cut(&self, inode: &Arc<Inode>, range: Range<u64>) -> Result<()> {
        let mut end = range.end;
        while end > range.start {
            let handle = self.journal.start(self.cut_credits())?;
            let removed = extents::remove(self, &handle, inode, range.start..end);
            inode.mark_dirty(self, &handle);
            end = removed?;
        }
        Ok(())
    }

    /// Completes a truncation that a crash interrupted: frees what lies beyond `size`.
    pub(crate) fn truncate_blocks(&self, inode: &InodeRef, size: u64) -> Result<()> {
        let _exclusive = inode.lock.write();
        self.drop_pages(inode, size.div_ceil(PAGE)..u64::MAX);
        self.cut(inode, size.div_ceil(PAGE)..END)?;
        let handle = self.journal.start(orphan::ORPHAN_CREDITS)?;
        orphan::del(self, &handle, inode)
    }

    /// Deletes the unlinked inodes whose last user is gone. Called with no lock and no handle held.
    pub fn delete_unlinked(&self) {
        self.budget.make_room();
        loop {
            let (inode, _deletion) = {
                let mut unlinked = self.unlinked.lock();
                let Some(inode) = unlinked.pop() else {
                    return;
                };
                (inode, self.deletions.begin())
            };
            // Somebody may have it again, or have given it a name; dropping that reference queues
            // it once more.
            if self.is_read_only() || inode.links() > 0 || !self.inodes.retire(inode.ino.0, &inode)
            {
                continue;
            }
            if let Err(error) = self.delete_inode(&inode) {
                // It stays on the orphan list, and the next mount or e2fsck deletes it. What it had
                // may be half gone.
                self.blame_half_done("delete_inode", inode.ino, &error);
                tracing::error!("inode {}: could not be deleted: {error}", inode.ino);
            }
        }
    }

    /// Frees an inode's blocks, attributes and number. Nobody else uses it.
    pub(crate) fn delete_inode(&self, inode: &Arc<Inode>) -> Result<()> {
        self.bdi.forget(inode);
        inode.data.readahead.quiesce();
        self.drop_pages(inode, 0..u64::MAX);
        let directory = inode.kind() == FileType::Directory;
        if has_extents(inode) {
            self.cut(inode, 0..END)?;
        }
        let handle = self
            .journal
            .start(orphan::ORPHAN_CREDITS + xattr::XATTR_CREDITS + 4)?;
        xattr::release_block(self, &handle, inode)?;
        orphan::del(self, &handle, inode)?;
        inode.clear_deleted(self.now());
        inode.mark_dirty(self, &handle);
        // Orphan recovery deletes inodes that it has just loaded; before the number can be given
        // out again.
        self.inodes.remove(inode.ino.0);
        self.groups.free_inode(&handle, inode.ino, directory)
    }
}

/// Credits of one step of a truncation at most.
const CUT_CREDITS: u32 = 256;

/// Whether the inode's blocks are mapped by an extent tree: not for devices, FIFOs, sockets and
/// fast symbolic links.
fn has_extents(inode: &Inode) -> bool {
    match inode.kind() {
        FileType::Regular | FileType::Directory => true,
        FileType::Symlink => !inode.fields(InodeFields::is_fast_symlink),
        _ => false,
    }
}
