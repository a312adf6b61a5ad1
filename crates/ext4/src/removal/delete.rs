//! Deleting unlinked inodes.

use super::blocks::drop_clean_pages;
use crate::inline_data::is_inline;
use crate::{Error, Fs, Inode, InodeRef, Result, extents, orphan, xattr};
use ext4_format::inode::{FileType, InodeFields};
use jbd2::Handle;
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
        let Some((inode, _deletion)) = self.unlinked.pop() else {
            return false;
        };
        // It may have a user or a name again. Dropping that reference queues it again.
        if self.is_read_only() || inode.links() > 0 || !self.inodes.retire(inode.ino, &inode) {
            return true;
        }
        self.delete_orphan(&inode);
        true
    }

    /// Frees an inode's blocks, attributes and number. The caller is its only user.
    pub(crate) fn delete_inode(&self, inode: &Arc<Inode>) -> Result<()> {
        self.bdi.forget(inode);
        inode.wait_readahead();
        self.drop_pages(inode, PageIndex::FIRST..PageIndex::END);
        if has_extents(inode) {
            self.free_blocks(inode, FileBlock::FIRST..FileBlock::END)?;
        }
        xattr::release_values(self, inode)?;
        let credits = orphan::ORPHAN_CREDITS + xattr::XATTR_CREDITS + 4;
        let handle = self.journal.start(credits)?;
        xattr::release(self, &handle, inode)?;
        orphan::del(self, &handle, inode)?;
        self.free_number(&handle, inode)
    }

    fn free_number(&self, handle: &Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
        inode.clear_deleted(self.now());
        inode.mark_dirty(self, handle);
        // Before the number can be allocated again. Orphan recovery deletes inodes that are in the
        // table.
        self.inodes.remove(inode.ino);
        self.groups.free_inode(handle, inode.ino, inode.kind())
    }

    /// Returns the credits with which the handle that removes the inode's last name can delete the
    /// inode, too; `None` if it cannot, because the inode has other users, many blocks, or anything
    /// in flight. The caller holds the inode's lock exclusively, so only other users can change
    /// that.
    pub(crate) fn credits_to_delete(&self, inode: &InodeRef) -> Option<u32> {
        let is_simple = inode.links() == 1
            && xattr::nothing_to_release(self, inode)
            && inode.orphan_place().is_none()
            && inode.pins.count() == 1
            && !inode.is_dir()
            && inode.is_at_rest();
        // The number, and a place on the orphan list if the deletion fails.
        let number = orphan::ORPHAN_CREDITS + 2;
        match is_simple.then(|| has_extents(inode))? {
            false => Some(number),
            true => match extents::entries_of_root(inode)? {
                0 => Some(number),
                _ => Some(number + extents::REMOVE_CREDITS),
            },
        }
    }

    /// Deletes an inode as a part of the handle that has removed its last name and has the credits
    /// of [`Fs::credits_to_delete`]. The inode has no links and no other user. Returns `false` if
    /// the deletion failed or has to wait: the inode is an orphan then, and [`Fs::delete_orphan`]
    /// continues without the handle.
    pub(crate) fn delete_at_once(&self, handle: &Handle<'_>, inode: &Arc<Inode>) -> bool {
        self.bdi.forget(inode);
        let has_blocks = has_extents(inode) && extents::entries_of_root(inode) != Some(0);
        // A user that has gone since the credits were asked for may have left reads in flight. To
        // wait for them is not allowed with a handle.
        let is_at_rest = inode.is_at_rest();
        if is_at_rest {
            drop_clean_pages(inode, PageIndex::FIRST..PageIndex::END);
        }
        let is_freed = || {
            let mut left = FileBlock::FIRST..FileBlock::END;
            extents::remove(self, handle, inode, &mut left).is_ok() && left.is_empty()
        };
        if is_at_rest && (!has_blocks || is_freed()) {
            if let Err(error) = self.free_number(handle, inode) {
                self.note_not_deleted(inode, &error);
            }
            return true;
        }
        orphan::add(self, handle, inode);
        false
    }

    /// Deletes an orphan that no thread can pin any more.
    pub(crate) fn delete_orphan(&self, inode: &Arc<Inode>) {
        if let Err(error) = self.delete_inode(inode) {
            self.note_not_deleted(inode, &error);
        }
    }

    /// The inode stays on the orphan list, and the next mount or e2fsck deletes it. A part of its
    /// blocks may be freed.
    fn note_not_deleted(&self, inode: &Inode, error: &Error) {
        self.blame_half_done("delete_inode", inode.ino, error);
        tracing::error!("inode {}: could not be deleted: {error}", inode.ino);
    }
}

/// Whether an extent tree maps the inode's blocks: not for devices, FIFOs, sockets and fast
/// symbolic links, and not where the contents are in the inode.
fn has_extents(inode: &Inode) -> bool {
    match inode.kind() {
        FileType::Regular | FileType::Directory => !is_inline(inode),
        FileType::Symlink => !is_inline(inode) && !inode.fields(InodeFields::is_fast_symlink),
        _ => false,
    }
}
