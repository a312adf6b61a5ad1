//! Adding and removing names of existing inodes: link, unlink, rmdir.

use super::locks::{lock_victim, wait_until_unlocked};
use super::{
    Change, LinkChange, Unlink, check_may_change, check_may_rename, check_new_name, check_old_name,
    contains_itself, update_directory_inode,
};
use crate::directory::{self, CHANGE_CREDITS, Place};
use crate::orphan::{self, ORPHAN_CREDITS};
use crate::removal::NAMESPACE_BLOCKS;
use crate::{Error, FirstLink, Fs, InodeRef, Result};
use ext4_format::inode::{FileType, LINK_MAX};

impl Fs {
    /// Adds a name for `inode`. An unnamed file ([`Fs::tmpfile`]) gets its first one, and is no
    /// orphan any more: both are in one transaction.
    ///
    /// # Errors
    ///
    /// `Exists`; `NotPermitted` for a directory, and for immutable and append-only files;
    /// `TooManyLinks` above 65,000 links; `NotFound` if the directory was removed, and for an inode
    /// that has lost its last name or may not get a first one ([`FirstLink`]); `NoSpace`.
    pub fn link(&self, inode: &InodeRef, dir: &InodeRef, name: &[u8]) -> Result<()> {
        self.check_writable()?;
        check_new_name(name)?;
        self.with_space(NAMESPACE_BLOCKS, || self.link_once(inode, dir, name))
    }

    fn link_once(&self, inode: &InodeRef, dir: &InodeRef, name: &[u8]) -> Result<()> {
        let kind = inode.kind();
        if kind == FileType::Directory {
            return Err(Error::NotPermitted);
        }
        let _exclusive = dir.lock.write();
        check_may_change(dir, Change::Add)?;
        let place = directory::find(self, dir, name)?;
        if place.ino().is_some() {
            return Err(Error::Exists);
        }
        let _inode_exclusive = inode.lock.write();
        check_may_rename(inode)?;
        let links = inode.links();
        if links >= LINK_MAX {
            return Err(Error::TooManyLinks);
        }
        let unnamed = links == 0;
        if unnamed && inode.first_link() == FirstLink::Refused {
            return Err(Error::NotFound);
        }
        let handle = self
            .journal
            .start(place.add_credits() + 2 * ORPHAN_CREDITS + 2)?;
        if unnamed {
            orphan::del(self, &handle, inode)?;
        }
        if let Err(error) = directory::add(self, &handle, dir, &place, name, (inode.ino, kind)) {
            if unnamed {
                orphan::add(self, &handle, inode);
            }
            return Err(error);
        }
        let now = self.now();
        inode.change_names(|f| {
            f.links_count += 1;
            f.ctime = now;
        });
        if unnamed {
            // As on Linux, it gets no other name after it has lost this one.
            inode.set_first_link(FirstLink::Refused);
        }
        inode.parent.set(dir.ino);
        inode.mark_dirty(self, &handle);
        update_directory_inode(self, &handle, dir, now, LinkChange::Keep);
        Ok(())
    }

    /// Removes a name of an inode that is not a directory. The inode is deleted when it has no name
    /// and no user.
    ///
    /// # Errors
    ///
    /// `NotFound`, `IsDirectory`, `NotPermitted` for immutable and append-only files and
    /// directories.
    pub fn unlink(&self, dir: &InodeRef, name: &[u8]) -> Result<()> {
        check_old_name(name)?;
        self.remove_name(dir, name, Removal::File)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    ///
    /// `NotFound`, `NotDirectory`, `NotEmpty`; `NotPermitted` as for [`Fs::unlink`].
    pub fn rmdir(&self, dir: &InodeRef, name: &[u8]) -> Result<()> {
        if name == b".." {
            return Err(Error::NotEmpty);
        }
        check_old_name(name)?;
        self.remove_name(dir, name, Removal::Directory)
    }

    fn remove_name(&self, dir: &InodeRef, name: &[u8], removal: Removal) -> Result<()> {
        self.check_writable()?;
        while let Some(busy) = self.try_remove_name(dir, name, removal)? {
            wait_until_unlocked(&busy);
        }
        self.delete_unlinked();
        self.journal.pause();
        Ok(())
    }

    /// Removes a name. If a directory's lock is busy, returns that directory and changes nothing.
    fn try_remove_name(
        &self,
        dir: &InodeRef,
        name: &[u8],
        removal: Removal,
    ) -> Result<Option<InodeRef>> {
        let _exclusive = dir.lock.write();
        check_may_change(dir, Change::Remove)?;
        let place = directory::find(self, dir, name)?;
        let victim = self.named_inode(place.ino().ok_or(Error::NotFound)?)?;
        match (victim.kind(), removal) {
            (FileType::Directory, Removal::File) => return Err(Error::IsDirectory),
            (FileType::Directory, Removal::Directory) => {}
            (_, Removal::Directory) => return Err(Error::NotDirectory),
            (_, Removal::File) => {}
        }
        check_may_rename(&victim)?;
        if victim.ino == dir.ino {
            return Err(self.blame("remove_name", dir.ino, contains_itself(dir.ino)));
        }
        let Some(_victim_exclusive) = lock_victim(&victim) else {
            return Ok(Some(victim.clone()));
        };
        let mut links = LinkChange::Keep;
        if removal == Removal::Directory {
            if !directory::is_empty(self, &victim)? {
                return Err(Error::NotEmpty);
            }
            links = LinkChange::Decrement;
        }
        let credits = CHANGE_CREDITS + ORPHAN_CREDITS + 2;
        // Only where many such handles fit a transaction of a small log.
        if let Some(more) = self.credits_to_delete(&victim)
            && credits + more <= self.journal.max_credits() / 2
        {
            self.remove_and_delete(dir, &place, &victim, credits + more)?;
            return Ok(None);
        }
        let handle = self.journal.start(credits)?;
        let now = self.now();
        let unlink = Unlink::begin(self, &handle, &victim);
        if let Err(error) = directory::remove(self, &handle, dir, &place) {
            unlink.undo(self, &handle)?;
            return Err(error);
        }
        unlink.finish(self, &handle, now);
        update_directory_inode(self, &handle, dir, now, links);
        Ok(None)
    }

    /// Removes the last name of an inode of which the caller is the only user, and deletes the
    /// inode, in one transaction: it never is an orphan. The caller holds both locks.
    pub(crate) fn remove_and_delete(
        &self,
        dir: &InodeRef,
        place: &Place,
        victim: &InodeRef,
        credits: u32,
    ) -> Result<()> {
        let handle = self.journal.start(credits)?;
        let now = self.now();
        directory::remove(self, &handle, dir, place)?;
        update_directory_inode(self, &handle, dir, now, LinkChange::Keep);
        // Before it leaves the table: a thread that looks for this number loads it again.
        victim.set_links(0);
        victim.mark_dirty(self, &handle);
        if self.inodes.doom(victim) {
            let deleted = self.delete_at_once(&handle, victim);
            drop(handle);
            if !deleted {
                self.delete_orphan(victim);
            }
            return Ok(());
        }
        // Another thread uses it by now.
        orphan::add(self, &handle, victim);
        Unlink {
            inode: victim,
            left: 0,
        }
        .finish(self, &handle, now);
        Ok(())
    }
}

/// The kind of inode whose name is removed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Removal {
    File,
    Directory,
}
