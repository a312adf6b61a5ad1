//! Rename: replace, refuse to replace, exchange, whiteout.
//!
//! ```text
//!                      source                target               changes other than the entries
//!   same directory     any                   none                 times
//!   same directory     any                   same kind            target loses a link (a directory: is empty, parent − 1)
//!   other directory    file                  none or file         as above; no volume-wide lock
//!   other directory    directory             none or empty dir.   ".." of the source, link counts of both parents;
//!                                                                 under `rename_lock`, after the walk to the root
//!   with a whiteout    any                   as above              as above; the old name is a character device 0:0
//!   exchange           any                   any                  ".." and link counts where directories change parents
//! ```
//!
//! Many programs save a file by writing a new file and renaming it over the old one, without an
//! fsync. They expect to find one of the two after a crash (the kernel's mount option
//! `auto_da_alloc`). So the data of a file is written before the file replaces another one. No
//! commit is needed, because the commit of the rename also covers the data. If the data cannot be
//! written, the rename fails.
//!
//! A directory must not become its own descendant. The walk from the new parent to the root checks
//! that. `rename_lock` keeps the ancestors of both directories unchanged during the walk and the
//! rename. A rename of a file does not need the lock.

use super::create::ParentAttributes;
use super::locks::{InodeGuard, lock_two, lock_victim, wait_until_unlocked};
use super::{
    Change, LinkChange, NewInode, RenameFlags, Unlink, check_directory, check_may_change,
    check_may_rename, check_old_name, check_subdirectory_fits, contains_itself, kind_of,
    update_directory_inode,
};
use crate::directory::{self, CHANGE_CREDITS, Place};
use crate::orphan::ORPHAN_CREDITS;
use crate::removal::NAMESPACE_BLOCKS;
use crate::state::decode_rdev;
use crate::{Error, Fs, Inode, InodeDamage, InodeRef, Result};
use ext4_format::inode::{FileType, Timestamp};
use jbd2::Handle;
use std::sync::Arc;
use units::Ino;

/// A name in a directory.
#[derive(Clone, Copy)]
struct Name<'a> {
    dir: &'a InodeRef,
    name: &'a [u8],
}

/// The reason to try a rename again.
enum Retry {
    /// The lock of this directory is busy.
    Busy(InodeRef),
    /// A directory changes its parent, so `rename_lock` is needed.
    MovesDirectory,
    /// This file replaces another one, and its data has not been written.
    Unwritten(InodeRef),
}

/// The result of one attempt.
type Attempt = std::result::Result<(), Retry>;

/// Whether the caller holds `Fs::rename_lock`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RenameLock {
    Held,
    NotHeld,
}

/// The result of the checks: all parts of the change.
struct Move<'a> {
    from: Name<'a>,
    to: Name<'a>,
    /// Whether source and target exchange their names.
    exchange: bool,
    source_place: Place,
    target_place: Place,
    source: InodeRef,
    target: Option<InodeRef>,
    /// The inode that the old name will refer to.
    whiteout: Option<InodeRef>,
    /// The place of ".." in the source, if it changes its parent.
    source_parent: Option<Place>,
    /// The place of ".." in the target, if it changes its parent.
    target_parent: Option<Place>,
}

impl Fs {
    /// Renames a file or a directory.
    ///
    /// With [`RenameFlags::Replace`] an existing target of the same kind is removed; a directory
    /// must be empty. If both names refer to the same inode, nothing changes.
    ///
    /// # Errors
    ///
    /// `NotFound`; `Exists` if the target exists and may not be replaced; `NotDirectory`,
    /// `IsDirectory` and `NotEmpty` for a target that cannot be replaced; `Invalid` for a directory
    /// that would become its own descendant; `TooManyLinks`; `NotPermitted` for immutable and
    /// append-only inodes; `NoSpace`; `Io` if the data of a file that replaces another one cannot
    /// be written.
    pub fn rename(
        &self,
        from: &InodeRef,
        from_name: &[u8],
        to: &InodeRef,
        to_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        self.check_writable()?;
        check_old_name(from_name)?;
        match check_old_name(to_name) {
            Err(Error::Invalid(_)) if !flags.replaces() && to_name.len() <= 2 => {
                return Err(Error::Exists);
            }
            checked => checked?,
        }
        let from = Name {
            dir: from,
            name: from_name,
        };
        let to = Name {
            dir: to,
            name: to_name,
        };
        self.with_space(NAMESPACE_BLOCKS, || self.rename_once(from, to, flags))
    }

    fn rename_once(&self, from: Name<'_>, to: Name<'_>, flags: RenameFlags) -> Result<()> {
        let mut moves_directory = false;
        // The file whose data has been written. Data written to it later is not waited for: a
        // writer could delay the rename without end.
        let mut written = None;
        loop {
            let attempt = {
                let (_guard, lock) = match moves_directory {
                    true => (Some(self.rename_lock.lock()), RenameLock::Held),
                    false => (None, RenameLock::NotHeld),
                };
                self.try_rename(from, to, flags, lock, written)?
            };
            match attempt {
                Ok(()) => break,
                Err(Retry::Busy(inode)) => wait_until_unlocked(&inode),
                Err(Retry::MovesDirectory) => moves_directory = true,
                Err(Retry::Unwritten(inode)) => {
                    self.write_back(&inode)?;
                    written = Some(inode.ino);
                }
            }
        }
        self.delete_unlinked();
        Ok(())
    }

    /// Renames if it need not wait after the directories are locked. The data of the file `written`
    /// has been written.
    fn try_rename(
        &self,
        from: Name<'_>,
        to: Name<'_>,
        flags: RenameFlags,
        rename_lock: RenameLock,
        written: Option<Ino>,
    ) -> Result<Attempt> {
        let same_dir = from.dir.ino == to.dir.ino;
        let _exclusive = lock_two(from.dir, to.dir);
        check_may_change(from.dir, Change::Remove)?;
        check_directory(to.dir)?;
        let source_place = directory::find(self, from.dir, from.name)?;
        let source_ino = source_place.ino().ok_or(Error::NotFound)?;
        let target_place = directory::find(self, to.dir, to.name)?;
        let replaces = match (flags, target_place.ino()) {
            (RenameFlags::Exchange, None) => return Err(Error::NotFound),
            (_, Some(_)) if !flags.replaces() => return Err(Error::Exists),
            (_, target) => target,
        };
        let change = match replaces {
            Some(_) => Change::Remove,
            None => Change::Add,
        };
        check_may_change(to.dir, change)?;
        // As in the kernel, no name of an encrypted directory is changed without the key.
        from.dir.check_not_encrypted()?;
        to.dir.check_not_encrypted()?;
        let source_kind = kind_of(self, &source_place)?;
        let target_kind = kind_of(self, &target_place)?;
        let source_is_dir = source_kind == Some(FileType::Directory);
        let target_is_dir = target_kind == Some(FileType::Directory);
        let exchange = flags == RenameFlags::Exchange;
        let moves_directory = !same_dir && (source_is_dir || (exchange && target_is_dir));
        if moves_directory && rename_lock == RenameLock::NotHeld {
            return Ok(Err(Retry::MovesDirectory));
        }
        if replaces == Some(source_ino) {
            return Ok(Ok(()));
        }
        let source = self.named_inode(source_ino)?;
        let target = replaces.map(|ino| self.named_inode(ino)).transpose()?;
        check_entry_kind(&source, source_kind, &source_place)?;
        check_may_rename(&source)?;
        if let Some(target) = &target {
            check_entry_kind(target, target_kind, &target_place)?;
            check_may_rename(target)?;
        }
        let needs_data = written != Some(source_ino) && target.is_some() && !source_is_dir;
        if needs_data && source.has_unlanded() {
            return Ok(Err(Retry::Unwritten(source)));
        }
        if !same_dir {
            if source_is_dir && self.is_within(to.dir, source.ino)? {
                return Err(Error::Invalid("a directory cannot move into itself"));
            }
            if let Some(target) = &target
                && target_is_dir
                && rename_lock == RenameLock::Held
                && self.is_within(from.dir, target.ino)?
            {
                // A target that contains the source is not empty. In an exchange it would move into
                // itself.
                return Err(match exchange {
                    true => Error::Invalid("a directory cannot move into itself"),
                    false => Error::NotEmpty,
                });
            }
        }
        if !exchange && target.is_some() {
            match (source_is_dir, target_is_dir) {
                (true, false) => return Err(Error::NotDirectory),
                (false, true) => return Err(Error::IsDirectory),
                _ => {}
            }
        }
        if !same_dir {
            if source_is_dir && !target_is_dir {
                check_subdirectory_fits(self, to.dir)?;
            }
            if exchange && target_is_dir && !source_is_dir {
                check_subdirectory_fits(self, from.dir)?;
            }
        }

        // Lock the inodes that lose a name, or whose ".." changes.
        let source_moves = !same_dir && source_is_dir;
        let target_moves = !same_dir && target_is_dir && exchange;
        let locked = [from.dir.ino, to.dir.ino];
        let source_guard;
        if source_moves {
            source_guard = self.lock_moved(&source, &locked)?;
            if source_guard.is_none() {
                return Ok(Err(Retry::Busy(source.clone())));
            }
        }
        let target_guard;
        if let Some(target) = &target
            && (target_moves || !exchange)
        {
            target_guard = self.lock_moved(target, &locked)?;
            if target_guard.is_none() {
                return Ok(Err(Retry::Busy(target.clone())));
            }
            if !exchange && target_is_dir && !directory::is_empty(self, target)? {
                return Err(Error::NotEmpty);
            }
        }
        let parent_of = |inode: &InodeRef, parent: Ino| -> Result<Place> {
            let place = directory::find_parent(self, inode)?;
            let damage = match place.ino() {
                Some(found) if found == parent => return Ok(place),
                Some(found) => InodeDamage::WrongParent {
                    found,
                    expected: parent,
                },
                None => InodeDamage::NoParent,
            };
            Err(damage.at(inode.ino, place.block()))
        };
        let source_parent = source_moves.then(|| parent_of(&source, from.dir.ino));
        let target_parent = match &target {
            Some(target) if target_moves => Some(parent_of(target, to.dir.ino)?),
            _ => None,
        };
        let mut change = Move {
            whiteout: None,
            from,
            to,
            exchange,
            source_parent: source_parent.transpose()?,
            target_parent,
            source_place,
            target_place,
            source: source.clone(),
            target: target.clone(),
        };
        let mut credits =
            change.target_place.add_credits() + 4 * CHANGE_CREDITS + ORPHAN_CREDITS + 4;
        let whiteout = match flags {
            RenameFlags::Whiteout { uid, gid, .. } => {
                Some((ParentAttributes::of(from.dir), uid, gid))
            }
            _ => None,
        };
        if let Some((parent, ..)) = &whiteout {
            credits += parent.credits(self, from.dir)?;
        }
        let handle = self.journal.start(credits)?;
        let now = self.now();
        if exchange {
            self.exchange(&handle, &change)?;
        } else {
            change.whiteout = whiteout
                .map(|(parent, uid, gid)| self.make_whiteout(&handle, from.dir, &parent, uid, gid))
                .transpose()?;
            let replaced = self.replace(&handle, &change, now);
            if let (Err(_), Some(whiteout)) = (&replaced, &change.whiteout) {
                self.orphan_new_inode(&handle, whiteout);
            }
            replaced?;
        }
        self.finish_rename(&handle, &change, now)?;
        Ok(Ok(()))
    }

    /// Exchanges the inodes of two entries.
    fn exchange(&self, handle: &Handle<'_>, change: &Move<'_>) -> Result<()> {
        let Some(target) = &change.target else {
            return Err(Error::NotFound);
        };
        let (from, to) = (change.from.dir, change.to.dir);
        let old = (change.source.ino, change.source.kind());
        let new = (target.ino, target.kind());
        directory::set_target(self, handle, from, &change.source_place, new)?;
        if let Err(error) = directory::set_target(self, handle, to, &change.target_place, old) {
            directory::set_target(self, handle, from, &change.source_place, old)?;
            return Err(error);
        }
        Ok(())
    }

    /// Gives the source the new name and removes the old one.
    fn replace(&self, handle: &Handle<'_>, change: &Move<'_>, now: Timestamp) -> Result<()> {
        let to = change.to;
        let entry = (change.source.ino, change.source.kind());
        let Some(target) = &change.target else {
            let place = &change.target_place;
            directory::add(self, handle, to.dir, place, to.name, entry)?;
            let removed = self.remove_old_name(handle, change);
            if removed.is_err() {
                let place = directory::find(self, to.dir, to.name)?;
                directory::remove(self, handle, to.dir, &place)?;
            }
            return removed;
        };
        let unlink = Unlink::begin(self, handle, target);
        let place = &change.target_place;
        let done = directory::set_target(self, handle, to.dir, place, entry)
            .and_then(|()| self.remove_old_name_at(handle, change, &change.source_place));
        match done {
            Ok(()) => {
                unlink.finish(self, handle, now);
                Ok(())
            }
            Err(error) => {
                let old = (target.ino, target.kind());
                directory::set_target(self, handle, to.dir, place, old)?;
                unlink.undo(self, handle)?;
                Err(error)
            }
        }
    }

    /// Removes the old name after the new one was added. The addition may have moved the old entry.
    fn remove_old_name(&self, handle: &Handle<'_>, change: &Move<'_>) -> Result<()> {
        let from = change.from;
        let moved = from.dir.ino == change.to.dir.ino && !change.target_place.is_stable();
        if !moved {
            return self.remove_old_name_at(handle, change, &change.source_place);
        }
        let place = directory::find(self, from.dir, from.name)?;
        self.remove_old_name_at(handle, change, &place)
    }

    /// Removes the old name at `place`, or makes it refer to the whiteout.
    fn remove_old_name_at(
        &self,
        handle: &Handle<'_>,
        change: &Move<'_>,
        place: &Place,
    ) -> Result<()> {
        let dir = change.from.dir;
        match &change.whiteout {
            Some(whiteout) => {
                let entry = (whiteout.ino, FileType::CharDevice);
                directory::set_target(self, handle, dir, place, entry)
            }
            None => directory::remove(self, handle, dir, place),
        }
    }

    /// Creates a character device 0:0. A union mount takes it as a removed name.
    fn make_whiteout(
        &self,
        handle: &Handle<'_>,
        dir: &InodeRef,
        parent: &ParentAttributes,
        uid: u32,
        gid: u32,
    ) -> Result<InodeRef> {
        let new = NewInode {
            uid,
            gid,
            ..NewInode::default()
        };
        let inode = self.make_inode(handle, dir, parent, FileType::CharDevice, new)?;
        *inode.i_block.write() = decode_rdev(0).encode();
        inode.mark_dirty(self, handle);
        Ok(inode)
    }

    /// Updates ".." of moved directories, link counts and times.
    fn finish_rename(&self, handle: &Handle<'_>, change: &Move<'_>, now: Timestamp) -> Result<()> {
        let (from, to) = (change.from.dir, change.to.dir);
        let directory = FileType::Directory;
        if let Some(place) = &change.source_parent {
            directory::set_target(self, handle, &change.source, place, (to.ino, directory))?;
        }
        if let (Some(place), Some(target)) = (&change.target_parent, &change.target) {
            directory::set_target(self, handle, target, place, (from.ino, directory))?;
        }
        let is_dir = |inode: &InodeRef| inode.kind() == directory;
        let source_is_dir = is_dir(&change.source);
        let target_is_dir = change.target.as_ref().is_some_and(is_dir);
        // The change of the number of subdirectories of each parent.
        let (mut from_gains, mut to_gains) = (0, 0);
        if source_is_dir {
            from_gains -= 1;
            to_gains += 1;
        }
        if target_is_dir {
            to_gains -= 1;
            from_gains += i32::from(change.exchange);
        }
        if from.ino == to.ino {
            let gains = from_gains + to_gains;
            update_directory_inode(self, handle, from, now, link_change(gains));
        } else {
            update_directory_inode(self, handle, from, now, link_change(from_gains));
            update_directory_inode(self, handle, to, now, link_change(to_gains));
        }
        change.source.parent.set(to.ino);
        rename_inode(self, handle, &change.source, now);
        if let Some(target) = change.target.as_ref().filter(|_| change.exchange) {
            target.parent.set(from.ino);
            rename_inode(self, handle, target, now);
        }
        Ok(())
    }

    /// Locks an inode that moves or is replaced, while the directories `locked` are locked; `None`
    /// if its lock is busy.
    fn lock_moved<'a>(
        &self,
        inode: &'a InodeRef,
        locked: &[Ino],
    ) -> Result<Option<InodeGuard<'a>>> {
        if locked.contains(&inode.ino) {
            return Err(self.blame("rename", inode.ino, contains_itself(inode.ino)));
        }
        Ok(lock_victim(inode))
    }
}

/// Returns the change of a directory's link count for a change of its number of subdirectories.
fn link_change(gains: i32) -> LinkChange {
    match gains {
        0 => LinkChange::Keep,
        1.. => LinkChange::Increment,
        _ => LinkChange::Decrement,
    }
}

/// Updates the ctime of a renamed inode.
fn rename_inode(fs: &Fs, handle: &Handle<'_>, inode: &Arc<Inode>, now: Timestamp) {
    inode.change_names(|fields| fields.ctime = now);
    inode.mark_dirty(fs, handle);
}

/// Checks that the type of an entry, which earlier checks used, is that of its inode.
fn check_entry_kind(inode: &Inode, entry: Option<FileType>, place: &Place) -> Result<()> {
    match entry {
        Some(entry) if (entry == FileType::Directory) != inode.is_dir() => {
            let damage = InodeDamage::EntryType {
                entry,
                inode: inode.kind(),
            };
            Err(damage.at(inode.ino, place.block()))
        }
        _ => Ok(()),
    }
}
