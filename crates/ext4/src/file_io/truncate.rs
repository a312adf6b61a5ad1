//! Changing a file's size, freeing blocks, and deleting inodes that nobody names any more.

use crate::{Error, Fs, Inode, InodeRef, Result, extents, orphan, xattr};
use block::PAGE_SIZE;
use ext4_format::inode::FileType;
use std::ops::Range;
use std::sync::Arc;

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
        let _exclusive = inode.lock.write();
        inode.readahead.quiesce();
        inode.check_may_write(false)?;
        let old = inode.size();
        if size >= old {
            self.zero_tail(inode, size)?;
            return self.grow_to(inode, size, false);
        }
        // What follows the new end in its page must read as zeroes if the file grows again.
        self.zero_in_page(
            inode,
            size / PAGE,
            (size % PAGE) as usize..PAGE_SIZE * usize::from(!size.is_multiple_of(PAGE)),
        )?;
        let first = size.div_ceil(PAGE);
        self.drop_pages(inode, first..u64::MAX);
        if size == 0 {
            self.note_emptied(inode);
        }
        self.cut(inode, first..END, Some(size))
    }

    /// Before the file grows to `size`: what lies behind its end in its last block becomes zeroes, which it need not be on
    /// the device (a crash before the zeroes of an earlier truncation had landed, a mapping of another system).
    pub(crate) fn zero_tail(&self, inode: &Arc<Inode>, size: u64) -> Result<()> {
        let old = inode.size();
        if size <= old || old.is_multiple_of(PAGE) {
            return Ok(());
        }
        self.zero_in_page(inode, old / PAGE, (old % PAGE) as usize..PAGE_SIZE)
    }

    fn set_size(&self, inode: &Inode, size: u64) {
        let mut meta = inode.meta.lock();
        meta.size = size;
        meta.fields.size = size;
        let now = self.now();
        meta.fields.mtime = now;
        meta.fields.ctime = now;
    }

    /// Removes pages of whatever state, after writeback in flight has ended; their reservations are given back.
    pub(crate) fn drop_pages(&self, inode: &Arc<Inode>, pages: Range<u64>) {
        let _lock = inode.writeback_lock.lock();
        self.wait_writeback(inode);
        let removed = inode.mapping.remove(pages);
        self.bdi.sub_dirty(removed.dirty);
        self.groups.unreserve(removed.delalloc);
        self.dirty_files.settle(inode);
        *inode.goal.lock() = None;
    }

    /// Frees the blocks of `range`, in as many transactions as it takes; with `size`, the first of them sets the size
    /// and the inode is an orphan until the last, so that a crash in between is completed at the next mount.
    pub(crate) fn cut(
        &self,
        inode: &Arc<Inode>,
        range: Range<u64>,
        size: Option<u64>,
    ) -> Result<()> {
        let mut end = range.end;
        let mut first = true;
        loop {
            let credits = self.journal.max_credits().min(CUT_CREDITS);
            let handle = self.journal.start(credits)?;
            if let (true, Some(size)) = (first, size) {
                self.set_size(inode, size);
            }
            let removed = extents::remove(self, &handle, inode, range.start..end);
            inode.mark_dirty(self, &handle);
            end = removed?;
            let done = end <= range.start;
            if size.is_some() {
                if done && !first {
                    orphan::del(self, &handle, inode)?;
                } else if !done && first {
                    orphan::add(self, &handle, inode)?;
                }
            }
            first = false;
            if done {
                return Ok(());
            }
        }
    }

    /// Completes a truncation that a crash interrupted: frees what lies beyond `size`.
    pub(crate) fn truncate_blocks(&self, inode: &InodeRef, size: u64) -> Result<()> {
        let _exclusive = inode.lock.write();
        self.drop_pages(inode, size.div_ceil(PAGE)..u64::MAX);
        self.cut(inode, size.div_ceil(PAGE)..END, None)?;
        let handle = self.journal.start(orphan::ORPHAN_CREDITS)?;
        orphan::del(self, &handle, inode)
    }

    /// Deletes the unlinked inodes whose last user is gone. Called with no lock and no handle held.
    pub fn reap_doomed(&self) {
        self.budget.make_room();
        loop {
            let Some(inode) = self.doomed.lock().pop() else {
                return;
            };
            // Somebody may have it again, or have given it a name; dropping that reference queues it once more.
            if self.is_read_only()
                || inode.meta.lock().fields.links_count > 0
                || !self.inodes.retire(inode.ino.0, &inode)
            {
                continue;
            }
            if let Err(error) = self.delete_inode(&inode) {
                // It stays on the orphan list, and the next mount or e2fsck deletes it.
                tracing::error!("inode {}: could not be deleted: {error}", inode.ino);
            }
        }
    }

    /// Frees an inode's blocks, attributes and number. Nobody else uses it.
    pub(crate) fn delete_inode(&self, inode: &Arc<Inode>) -> Result<()> {
        self.bdi.forget(inode);
        inode.readahead.quiesce();
        self.drop_pages(inode, 0..u64::MAX);
        let directory = inode.kind() == FileType::Directory;
        if has_extents(inode) {
            self.cut(inode, 0..END, None)?;
        }
        let handle = self
            .journal
            .start(orphan::ORPHAN_CREDITS + xattr::XATTR_CREDITS + 4)?;
        xattr::release_block(self, &handle, inode)?;
        orphan::del(self, &handle, inode)?;
        {
            let mut meta = inode.meta.lock();
            meta.size = 0;
            meta.fields.size = 0;
            meta.fields.links_count = 0;
            meta.fields.dtime = u32::try_from(self.now().secs).unwrap_or(u32::MAX).max(1);
        }
        inode.mark_dirty(self, &handle);
        // Orphan recovery deletes inodes that it has just loaded; before the number can be given out again.
        self.inodes.remove(inode.ino.0);
        self.groups.free_inode(&handle, inode.ino, directory)
    }
}

/// Credits of one step of a truncation.
const CUT_CREDITS: u32 = 256;

/// Whether the inode's blocks are mapped by an extent tree: not for devices, FIFOs, sockets and fast symbolic links.
fn has_extents(inode: &Inode) -> bool {
    let meta = inode.meta.lock();
    match meta.fields.file_type() {
        Ok(FileType::Regular | FileType::Directory) => true,
        Ok(FileType::Symlink) => !meta.fields.is_fast_symlink(),
        _ => false,
    }
}
