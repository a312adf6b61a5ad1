//! Names of fast commits: a mount replays them before the volume has other users.
//!
//! Link counts follow the names. The counts in fast commits are not used, so an inode has as many
//! links as names, also where a fast commit was written between the two.

use super::{LinkChange, update_directory_inode};
use crate::directory::{self, CHANGE_CREDITS, INIT_CREDITS};
use crate::removal::NAMESPACE_BLOCKS;
use crate::{Fs, InodeDamage, InodeRef, Result};

/// Checks that the names of an inode can be found and changed as the kernel does.
fn check_names(dir: &InodeRef) -> Result<()> {
    match dir.is_dir() {
        true => directory::check_may_add(dir),
        false => Err(InodeDamage::ReplayedParent.of(dir.ino)),
    }
}

impl Fs {
    /// Adds a name for an inode, unless the directory has the name. A new directory gets "." and
    /// "..".
    ///
    /// # Errors
    /// `CorruptInode` for a second name of a directory, or if `dir` is none; `Encrypted` or
    /// `IgnoresCase` by the directory's names; those of a create.
    pub(crate) fn replay_name(&self, dir: &InodeRef, name: &[u8], inode: &InodeRef) -> Result<()> {
        self.with_space(NAMESPACE_BLOCKS, || self.replay_name_once(dir, name, inode))
    }

    fn replay_name_once(&self, dir: &InodeRef, name: &[u8], inode: &InodeRef) -> Result<()> {
        check_names(dir)?;
        let _exclusive = dir.lock.write();
        let place = directory::find(self, dir, name)?;
        if place.ino().is_some() {
            return Ok(());
        }
        let is_dir = inode.is_dir();
        if is_dir && inode.links() > 0 {
            return Err(InodeDamage::ReplayedDirectory.of(inode.ino));
        }
        let init = if is_dir { INIT_CREDITS } else { 0 };
        let handle = self.journal.start(place.add_credits() + init + 4)?;
        if is_dir && inode.size() == 0 {
            directory::init(self, &handle, inode, dir.ino)?;
        }
        directory::add(self, &handle, dir, &place, name, (inode.ino, inode.kind()))?;
        let links = match is_dir {
            true => LinkChange::Increment,
            false => LinkChange::Keep,
        };
        let more = if is_dir { 2 } else { 1 };
        inode.change_fields(|fields| fields.links_count = fields.links_count.saturating_add(more));
        inode.parent.set(dir.ino);
        inode.mark_dirty(self, &handle);
        update_directory_inode(self, &handle, dir, self.now(), links);
        Ok(())
    }

    /// Removes a name, if it refers to the inode, and returns whether it did. The inode may have no
    /// name then.
    ///
    /// # Errors
    /// `CorruptInode` for a directory with entries, or if `dir` is none; `Encrypted` or
    /// `IgnoresCase` by the directory's names; those of an unlink.
    pub(crate) fn replay_removal(
        &self,
        dir: &InodeRef,
        name: &[u8],
        inode: &InodeRef,
    ) -> Result<bool> {
        check_names(dir)?;
        let _exclusive = dir.lock.write();
        let place = directory::find(self, dir, name)?;
        if place.ino() != Some(inode.ino) {
            return Ok(false);
        }
        let is_dir = inode.is_dir();
        if is_dir && !directory::is_empty(self, inode)? {
            return Err(InodeDamage::ReplayedRemoval.of(inode.ino));
        }
        let handle = self.journal.start(CHANGE_CREDITS + 4)?;
        directory::remove(self, &handle, dir, &place)?;
        inode.change_fields(|fields| {
            fields.links_count = match is_dir {
                true => 0,
                false => fields.links_count.saturating_sub(1),
            };
        });
        inode.parent.forget();
        inode.mark_dirty(self, &handle);
        let links = match is_dir {
            true => LinkChange::Decrement,
            false => LinkChange::Keep,
        };
        update_directory_inode(self, &handle, dir, self.now(), links);
        Ok(true)
    }
}
