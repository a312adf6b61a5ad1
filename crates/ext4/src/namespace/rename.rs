//! Renames: replace, refuse to replace, exchange.
//!
//! ```text
//!                      source                target               what changes beside the entries
//!   same directory     any                   none                 times
//!   same directory     any                   same kind            target loses a link (a directory: is empty, parent − 1)
//!   other directory    file                  none or file         as above; no volume-wide lock
//!   other directory    directory             none or empty dir.   ".." of the source, link counts of both parents;
//!                                                                 under `rename_lock`, after the walk to the root
//!   with a whiteout    any                   as above              as above; the old name is a character device 0:0
//!   exchange           any                   any                  ".." and link counts where directories change parents
//! ```
//!
//! Programs that save by writing a new file and renaming it over the old one expect to find one of
//! the two after a crash, even without an fsync (the kernel's mount option `auto_da_alloc`). So a
//! file lands before it takes another's place: the data, not a commit, which covers both then. What
//! cannot be written replaces nothing.
//!
//! `rename_lock` keeps the shape of the tree above both directories, so that the walk from the new
//! parent to the root, which shows that a directory does not become its own descendant, stays true.
//! Files cannot do that: they go without.

use super::create::Parent;
use super::locks::{Guard, lock_two, lock_victim, wait_for};
use super::{
    Change, Links, NewInode, RenameFlags, Unlink, check_may_change, check_may_rename,
    check_old_name, check_subdirectory_fits, kind_of, touch_directory,
};
use crate::directory::{self, CHANGE_CREDITS, Place};
use crate::orphan::ORPHAN_CREDITS;
use crate::state::NAMESPACE_BLOCKS;
use crate::state::decode_rdev;
use crate::{Error, Fs, Inode, InodeRef, Result};
use ext4_format::inode::{FileType, Timestamp};
use ext4_format::types::Ino;
use jbd2::Handle;
use std::sync::Arc;

/// A name in a directory.
#[derive(Clone, Copy)]
struct Name<'a> {
    dir: &'a InodeRef,
    name: &'a [u8],
}

/// Why an attempt has to be made again.
enum Retry {
    /// This inode's lock has to be waited for.
    Busy(InodeRef),
    /// A directory changes its parent: the lock for such renames is needed.
    MovesDirectory,
    /// This file is about to take another's place and has data that has not landed.
    Unlanded(InodeRef),
}

/// One attempt: done, or to be made again.
type Attempt = std::result::Result<(), Retry>;

/// Everything that is known when the change begins.
struct Move<'a> {
    from: Name<'a>,
    to: Name<'a>,
    source_place: Place,
    target_place: Place,
    source: InodeRef,
    target: Option<InodeRef>,
    /// What the old name is to be.
    whiteout: Option<InodeRef>,
    /// ".." of directories that change their parent.
    source_parent: Option<Place>,
    target_parent: Option<Place>,
}

impl Fs {
    /// Renames. With [`RenameFlags::Replace`] a target of the same kind goes (a directory only if
    /// it is empty); both names of one file stay as they are.
    ///
    /// # Errors
    ///
    /// `NotFound`; `Exists` where nothing may be replaced; `NotDirectory`, `IsDirectory` and
    /// `NotEmpty` for targets that cannot be replaced; `Invalid` for a directory that would become
    /// its own descendant; `TooManyLinks`; `NotPermitted` for immutable and append-only inodes;
    /// `NoSpace`; `Io` where data of a file that replaces another cannot be written.
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
        // The file whose data has landed: what is written into it meanwhile is not waited for again
        // and again.
        let mut landed = None;
        loop {
            let attempt = {
                let shape = moves_directory.then(|| self.rename_lock.lock());
                self.try_rename(from, to, flags, shape.is_some(), landed)?
            };
            match attempt {
                Ok(()) => break,
                Err(Retry::Busy(inode)) => wait_for(&inode),
                Err(Retry::MovesDirectory) => moves_directory = true,
                Err(Retry::Unlanded(inode)) => {
                    self.write_back(&inode)?;
                    landed = Some(inode.ino);
                }
            }
        }
        self.delete_unlinked();
        Ok(())
    }

    /// Renames if no lock has to be waited for once the directories are locked. `shape_locked`:
    /// `rename_lock` is held. `landed`: the file whose data has.
    fn try_rename(
        &self,
        from: Name<'_>,
        to: Name<'_>,
        flags: RenameFlags,
        shape_locked: bool,
        landed: Option<Ino>,
    ) -> Result<Attempt> {
        let same_dir = from.dir.ino == to.dir.ino;
        let _exclusive = lock_two(from.dir, to.dir);
        check_may_change(from.dir, Change::Remove)?;
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
        let source_is_dir = kind_of(self, &source_place)? == Some(FileType::Directory);
        let target_is_dir = kind_of(self, &target_place)? == Some(FileType::Directory);
        let exchange = flags == RenameFlags::Exchange;
        if !same_dir && !shape_locked && (source_is_dir || (exchange && target_is_dir)) {
            return Ok(Err(Retry::MovesDirectory));
        }
        if replaces == Some(source_ino) {
            return Ok(Ok(()));
        }
        let source = self.named_inode(source_ino.0)?;
        let target = replaces.map(|ino| self.named_inode(ino.0)).transpose()?;
        check_entry_kind(&source, source_is_dir)?;
        check_may_rename(&source)?;
        if let Some(target) = &target {
            check_entry_kind(target, target_is_dir)?;
            check_may_rename(target)?;
        }
        let waits = landed != Some(source_ino) && target.is_some() && !source_is_dir;
        if waits && source.has_unlanded() {
            return Ok(Err(Retry::Unlanded(source)));
        }
        if !same_dir {
            if source_is_dir && self.is_within(to.dir, source.ino)? {
                return Err(Error::Invalid("a directory cannot move into itself"));
            }
            if let Some(target) = target.as_ref().filter(|_| target_is_dir && shape_locked)
                && self.is_within(from.dir, target.ino)?
            {
                // A target that contains the source is not empty; exchanged, it would move into
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

        // Locks of what loses its name, or has its ".." changed.
        let source_moves = !same_dir && source_is_dir;
        let target_moves = !same_dir && target_is_dir && exchange;
        let locked = [from.dir.ino, to.dir.ino];
        let Some(_source_exclusive) = lock_moved(&source, source_moves, &locked)? else {
            return Ok(Err(Retry::Busy(source.clone())));
        };
        let mut _target_exclusive = None;
        if let Some(target) = &target
            && (target_moves || !exchange)
        {
            let Some(guard) = lock_moved(target, true, &locked)? else {
                return Ok(Err(Retry::Busy(target.clone())));
            };
            _target_exclusive = guard;
            if !exchange && target_is_dir && !directory::is_empty(self, target)? {
                return Err(Error::NotEmpty);
            }
        }
        let parent_of = |inode: &InodeRef, parent: Ino| -> Result<Place> {
            let place = directory::find_parent(self, inode)?;
            match place.ino() == Some(parent) {
                true => Ok(place),
                false => Err(Error::CorruptInode {
                    ino: inode.ino.0,
                    what: "\"..\" is not the directory's parent",
                }),
            }
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
            RenameFlags::Whiteout { uid, gid, .. } => Some((Parent::of(from.dir), uid, gid)),
            _ => None,
        };
        if let Some((parent, ..)) = &whiteout {
            credits += parent.credits();
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
                self.give_back(&handle, whiteout);
            }
            replaced?;
        }
        self.finish_rename(&handle, &change, exchange, now)?;
        Ok(Ok(()))
    }

    /// Lets two entries swap their inodes.
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

    /// Gives the source the target's name and takes its own.
    fn replace(&self, handle: &Handle<'_>, change: &Move<'_>, now: Timestamp) -> Result<()> {
        let to = change.to;
        let entry = (change.source.ino, change.source.kind());
        let Some(target) = &change.target else {
            let place = &change.target_place;
            directory::add(self, handle, to.dir, place, to.name, entry)?;
            let removed = self.remove_source(handle, change);
            if removed.is_err() {
                let place = directory::find(self, to.dir, to.name)?;
                directory::remove(self, handle, to.dir, &place)?;
            }
            return removed;
        };
        let unlink = Unlink::begin(self, handle, target)?;
        let place = &change.target_place;
        let done = directory::set_target(self, handle, to.dir, place, entry)
            .and_then(|()| self.vacate(handle, change, &change.source_place));
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

    /// Removes the old name after the new one was added, which may have moved it.
    fn remove_source(&self, handle: &Handle<'_>, change: &Move<'_>) -> Result<()> {
        let from = change.from;
        let moved = from.dir.ino == change.to.dir.ino && !change.target_place.is_stable();
        if !moved {
            return self.vacate(handle, change, &change.source_place);
        }
        let place = directory::find(self, from.dir, from.name)?;
        self.vacate(handle, change, &place)
    }

    /// Takes the old name, at `place`, away from the source.
    fn vacate(&self, handle: &Handle<'_>, change: &Move<'_>, place: &Place) -> Result<()> {
        let dir = change.from.dir;
        match &change.whiteout {
            Some(whiteout) => {
                let entry = (whiteout.ino, FileType::CharDevice);
                directory::set_target(self, handle, dir, place, entry)
            }
            None => directory::remove(self, handle, dir, place),
        }
    }

    /// A character device 0:0, which tells a union mount that the name is gone.
    fn make_whiteout(
        &self,
        handle: &Handle<'_>,
        dir: &InodeRef,
        parent: &Parent,
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

    /// ".." of moved directories, link counts and times.
    fn finish_rename(
        &self,
        handle: &Handle<'_>,
        change: &Move<'_>,
        exchange: bool,
        now: Timestamp,
    ) -> Result<()> {
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
        // Subdirectories that each parent gains, less those that it loses.
        let (mut from_gains, mut to_gains) = (0, 0);
        if source_is_dir {
            from_gains -= 1;
            to_gains += 1;
        }
        if target_is_dir {
            to_gains -= 1;
            from_gains += i32::from(exchange);
        }
        if from.ino == to.ino {
            let gains = from_gains + to_gains;
            touch_directory(self, handle, from, now, links(gains));
        } else {
            touch_directory(self, handle, from, now, links(from_gains));
            touch_directory(self, handle, to, now, links(to_gains));
        }
        touch(self, handle, &change.source, now);
        change.source.parent.set(to.ino);
        if let Some(target) = change.target.as_ref().filter(|_| exchange) {
            target.parent.set(from.ino);
            touch(self, handle, target, now);
        }
        Ok(())
    }

    /// Whether `dir` is `ancestor` or lies below it. Under `rename_lock`, which keeps ".." of all
    /// directories as they are.
    fn is_within(&self, dir: &InodeRef, ancestor: Ino) -> Result<bool> {
        let mut at = dir.clone();
        // Brent's algorithm: a circle of ".." on a damaged volume is noticed when the walk meets
        // the marked directory.
        let (mut marked, mut steps, mut limit) = (at.ino, 0u64, 1u64);
        loop {
            if at.ino == ancestor {
                return Ok(true);
            }
            if at.ino == Ino::ROOT {
                return Ok(false);
            }
            let parent = directory::find_parent(self, &at)?.ino();
            at = self.named_inode(parent.ok_or(Error::NotFound)?.0)?;
            if at.ino == marked {
                return Err(Error::CorruptInode {
                    ino: dir.ino.0,
                    what: "the directories above lead in circles",
                });
            }
            steps += 1;
            if steps == limit {
                (marked, steps, limit) = (at.ino, 0, limit * 2);
            }
        }
    }
}

/// How a number of subdirectories gained changes a link count.
fn links(gains: i32) -> Links {
    match gains {
        0 => Links::Keep,
        1.. => Links::More,
        _ => Links::Fewer,
    }
}

/// An inode was renamed.
fn touch(fs: &Fs, handle: &Handle<'_>, inode: &Arc<Inode>, now: Timestamp) {
    inode.set_ctime(now);
    inode.mark_dirty(fs, handle);
}

/// An entry says of what kind its inode is; decisions were made on that.
fn check_entry_kind(inode: &Inode, is_dir: bool) -> Result<()> {
    if (inode.kind() == FileType::Directory) == is_dir {
        return Ok(());
    }
    Err(Error::CorruptInode {
        ino: inode.ino.0,
        what: "the directory entry has another type than the inode",
    })
}

/// Locks an inode that moves or goes, beside the directories that are `locked`; outer `None`: it is
/// busy.
fn lock_moved<'a>(
    inode: &'a InodeRef,
    needed: bool,
    locked: &[Ino],
) -> Result<Option<Option<Guard<'a>>>> {
    if !needed {
        return Ok(Some(None));
    }
    if locked.contains(&inode.ino) {
        return Err(Error::CorruptInode {
            ino: inode.ino.0,
            what: "the directory contains itself",
        });
    }
    Ok(lock_victim(inode).map(Some))
}
