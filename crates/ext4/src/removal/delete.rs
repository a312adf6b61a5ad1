//! Deleting unlinked inodes.

use crate::{Fs, Inode, Result, orphan, xattr};
use ext4_format::inode::{FileType, InodeFields};
use std::sync::Arc;
use units::{FileBlock, PageIndex};

impl Fs {
    /// Deletes the unlinked inodes without users. Called with no lock and no handle held.
    pub fn delete_unlinked(&self) {
        self.budget.make_room();
        while self.delete_next_unlinked() {}
    }

    /// As [`Fs::delete_unlinked`], for a thread that no caller waits for: it is slowed while the
    /// journal is nearly full.
    pub fn delete_unlinked_slowed(&self) {
        self.budget.make_room();
        while self.delete_next_unlinked() {
            self.journal.pause();
        }
    }

    /// Deletes an unlinked inode, unless it is used again. Returns whether one was queued.
    fn delete_next_unlinked(&self) -> bool {
        let (inode, _deletion) = {
            let mut unlinked = self.unlinked.lock();
            let Some(inode) = unlinked.pop() else {
                return false;
            };
            (inode, self.deletions.begin())
        };
        // It may have a user or a name again. Dropping that reference queues it again.
        if self.is_read_only() || inode.links() > 0 || !self.inodes.retire(inode.ino, &inode) {
            return true;
        }
        if let Err(error) = self.delete_inode(&inode) {
            // It stays on the orphan list, and the next mount or e2fsck deletes it. A part of its
            // blocks may be freed.
            self.blame_half_done("delete_inode", inode.ino, &error);
            tracing::error!("inode {}: could not be deleted: {error}", inode.ino);
        }
        true
    }

    /// Frees an inode's blocks, attributes and number. The caller is its only user.
    pub(crate) fn delete_inode(&self, inode: &Arc<Inode>) -> Result<()> {
        self.bdi.forget(inode);
        inode.wait_readahead();
        self.drop_pages(inode, PageIndex::FIRST..PageIndex::END);
        let kind = inode.kind();
        if has_extents(inode) {
            self.free_blocks(inode, FileBlock::FIRST..FileBlock::END)?;
        }
        let handle = self
            .journal
            .start(orphan::ORPHAN_CREDITS + xattr::XATTR_CREDITS + 4)?;
        xattr::release_block(self, &handle, inode)?;
        orphan::del(self, &handle, inode)?;
        inode.clear_deleted(self.now());
        inode.mark_dirty(self, &handle);
        // Before the number can be allocated again. Orphan recovery deletes inodes that are in the
        // table.
        self.inodes.remove(inode.ino);
        self.groups.free_inode(&handle, inode.ino, kind)
    }
}

/// Whether an extent tree maps the inode's blocks: not for devices, FIFOs, sockets and fast
/// symbolic links.
fn has_extents(inode: &Inode) -> bool {
    match inode.kind() {
        FileType::Regular | FileType::Directory => true,
        FileType::Symlink => !inode.fields(InodeFields::is_fast_symlink),
        _ => false,
    }
}
