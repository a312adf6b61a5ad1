//! Names: look up, create, link, unlink, rename.
//!
//! A change goes in four steps, and only the last one changes anything:
//!
//! 1. Lock the directories (exclusive), see that they are alive and may be changed.
//! 2. Find the names and the inodes that they refer to; decide; lock the victims. No handle is held
//!    while a lock is waited for, and no lock of a directory is waited for while another's is held
//!    (see `locks`): damaged volumes whose directories form circles cannot dead-lock us.
//! 3. Start a handle with credits for what was found.
//! 4. Change. What can fail comes first and is undone if a later step fails, so that a handle never
//!    ends half-done.
//!
//! An inode that loses its last name becomes an orphan in the same handle. Its blocks are freed
//! when its last user is gone: [`Fs::delete_unlinked`] is called at the end of everything that may
//! drop one, without locks or handle.
//!
//! Permissions are not checked here (FUSE's `default_permissions` does); the immutable and
//! append-only flags are.

mod create;
mod link;
mod locks;
mod rename;
mod symlink;

pub use create::Opened;

use crate::{DirEntry, Error, Fs, Inode, InodeRef, Result, directory};
use ext4_format::dir_entry::NAME_MAX;
use ext4_format::features::RoCompatFeatures;
use ext4_format::inode::{FileType, InodeFlags, LINK_MAX, Timestamp};
use jbd2::Handle;
use std::sync::Arc;

/// What a new inode is to be.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewInode {
    /// Type and permission bits; the umask has been applied by the caller unless a default ACL
    /// decides.
    pub mode: u16,
    /// The umask, applied where the parent has no default ACL.
    pub umask: u16,
    /// Owner.
    pub uid: u32,
    /// Group (a set-group-ID parent overrides it).
    pub gid: u32,
    /// Device number for device files.
    pub rdev: u32,
}

/// How to rename.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RenameFlags {
    /// Replace an existing target.
    #[default]
    Replace,
    /// Fail if the target exists.
    NoReplace,
    /// Exchange the two.
    Exchange,
    /// Leave a whiteout behind, a character device 0:0 that belongs to `uid` and `gid`: for union
    /// mounts.
    #[allow(missing_docs)]
    Whiteout { replace: bool, uid: u32, gid: u32 },
}

impl RenameFlags {
    /// Whether an existing target may go.
    fn replaces(self) -> bool {
        match self {
            RenameFlags::Replace | RenameFlags::Exchange => true,
            RenameFlags::NoReplace => false,
            RenameFlags::Whiteout { replace, .. } => replace,
        }
    }
}

impl Fs {
    /// The inode that `name` in `dir` refers to; "." and ".." too.
    ///
    /// # Errors
    ///
    /// `NotFound`, `NotDirectory`, `NameTooLong`, or what reading the directory or the inode meets.
    pub fn lookup(&self, dir: &InodeRef, name: &[u8]) -> Result<InodeRef> {
        if name.len() > NAME_MAX {
            return Err(Error::NameTooLong);
        }
        // The inode is pinned before the lock goes: it cannot be deleted in between.
        let _shared = dir.lock.read();
        check_directory(dir)?;
        match directory::lookup(self, dir, name)? {
            Some((ino, _)) => {
                let inode = self.named_inode(ino.0)?;
                if !matches!(name, b"." | b"..") {
                    inode.parent.set(dir.ino);
                }
                Ok(inode)
            }
            None => Err(Error::NotFound),
        }
    }

    /// Reads a directory, "." and ".." included; see [`DirEntry::next`]. The entry that `each`
    /// refuses is not taken. `each` may use the volume, and change this directory: no lock is held
    /// while it runs.
    ///
    /// # Errors
    ///
    /// `NotDirectory`, `NotFound` for a removed directory, or the place of damage; entries before
    /// it have been given out.
    pub fn read_dir(
        &self,
        dir: &InodeRef,
        pos: u64,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        check_directory(dir)?;
        directory::read(self, dir, pos, each)
    }

    /// The inode of the directory's "..".
    pub fn parent(&self, dir: &InodeRef) -> Result<InodeRef> {
        self.lookup(dir, b"..")
    }

    /// A creation failed: its inode becomes an orphan, which goes when its last user does.
    fn give_back(&self, handle: &Handle<'_>, inode: &Arc<Inode>) {
        inode.set_links(0);
        inode.mark_dirty(self, handle);
        if let Err(error) = crate::orphan::add(self, handle, inode) {
            // It has no name and no link: e2fsck frees it.
            tracing::error!("inode {}: could not be given back: {error}", inode.ino);
        }
    }
}

/// Refuses what is not a directory.
fn check_directory(dir: &Inode) -> Result<()> {
    if dir.is_dir() {
        Ok(())
    } else {
        Err(Error::NotDirectory)
    }
}

/// Refuses what cannot be a new name: "." and "..", which exist, and what no directory may hold.
fn check_new_name(name: &[u8]) -> Result<()> {
    match name {
        b"" => Err(Error::NotFound),
        b"." | b".." => Err(Error::Exists),
        _ => check_bytes(name),
    }
}

/// Refuses what cannot be the name of something that is removed or renamed.
fn check_old_name(name: &[u8]) -> Result<()> {
    match name {
        b"" => Err(Error::NotFound),
        b"." | b".." => Err(Error::Invalid("the name is \".\" or \"..\"")),
        _ => check_bytes(name),
    }
}

fn check_bytes(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    if name.iter().any(|&byte| byte == 0 || byte == b'/') {
        return Err(Error::Invalid("the name has a slash or a NUL"));
    }
    Ok(())
}

/// What a directory is to undergo.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    /// Names come.
    Add,
    /// Names go, or come to mean something else.
    Remove,
}

/// A directory, locked exclusively, that the caller will change: alive, and its flags allow it.
fn check_may_change(dir: &Inode, change: Change) -> Result<()> {
    check_directory(dir)?;
    let (flags, links) = dir.fields(|f| (f.flags, f.links_count));
    // It was removed while somebody still held it.
    if links == 0 {
        return Err(Error::NotFound);
    }
    let append = change == Change::Remove && flags.contains(InodeFlags::APPEND);
    if append || flags.contains(InodeFlags::IMMUTABLE) {
        return Err(Error::NotPermitted);
    }
    Ok(())
}

/// An inode that is to lose or change a name, or to get another.
fn check_may_rename(inode: &Inode) -> Result<()> {
    let flags = inode.flags();
    if flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
        return Err(Error::NotPermitted);
    }
    Ok(())
}

/// Whether a directory's link count may stop counting (1: "many").
fn counts_to_many(fs: &Fs, flags: InodeFlags) -> bool {
    fs.geo.ro_compat.contains(RoCompatFeatures::DIR_NLINK) && flags.contains(InodeFlags::INDEX)
}

/// Refuses one more subdirectory in a directory that is full of them.
fn check_subdirectory_fits(fs: &Fs, dir: &Inode) -> Result<()> {
    let (flags, links) = dir.fields(|f| (f.flags, f.links_count));
    if links >= LINK_MAX && !counts_to_many(fs, flags) {
        return Err(Error::TooManyLinks);
    }
    Ok(())
}

/// What a change does to the number of a directory's subdirectories.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Links {
    Keep,
    More,
    Fewer,
}

/// A directory's entries changed: its times, and its link count, which says 1 once there were
/// 65,000 subdirectories (`dir_nlink`; the kernel's `ext4_inc_count` and `ext4_dec_count`).
fn touch_directory(fs: &Fs, handle: &Handle<'_>, dir: &Arc<Inode>, now: Timestamp, links: Links) {
    dir.change_fields(|fields| {
        fields.mtime = now;
        fields.ctime = now;
        match links {
            Links::Keep => {}
            Links::More => {
                let many = counts_to_many(fs, fields.flags);
                fields.links_count = fields.links_count.saturating_add(1);
                if many && (fields.links_count > LINK_MAX || fields.links_count == 2) {
                    fields.links_count = 1;
                }
            }
            Links::Fewer if fields.links_count > 2 => fields.links_count -= 1,
            Links::Fewer => {}
        }
    });
    dir.mark_dirty(fs, handle);
}

/// A name that is about to go, of an inode that is locked.
struct Unlink<'a> {
    inode: &'a Arc<Inode>,
    /// Links that stay.
    left: u16,
}

impl<'a> Unlink<'a> {
    /// Records the inode as an orphan if this is its last name. An error has changed nothing.
    fn begin(fs: &Fs, handle: &Handle<'_>, inode: &'a Arc<Inode>) -> Result<Unlink<'a>> {
        // A directory has one name; its other links are its own "." and its subdirectories' "..".
        let left = match inode.is_dir() {
            true => 0,
            false => inode.links().saturating_sub(1),
        };
        if left == 0 {
            crate::orphan::add(fs, handle, inode)?;
        }
        Ok(Unlink { inode, left })
    }
    /// The name is gone.
    fn finish(self, fs: &Fs, handle: &Handle<'_>, now: Timestamp) {
        self.inode.change_fields(|f| {
            f.links_count = self.left;
            f.ctime = now;
        });
        self.inode.parent.forget();
        self.inode.mark_dirty(fs, handle);
    }
    /// The name stays after all.
    fn undo(self, fs: &Fs, handle: &Handle<'_>) -> Result<()> {
        match self.left {
            0 => crate::orphan::del(fs, handle, self.inode),
            _ => Ok(()),
        }
    }
}

/// The type that an entry or, where volumes do not record types, the inode says.
fn kind_of(fs: &Fs, place: &directory::Place) -> Result<Option<FileType>> {
    match (place.ino(), place.kind()) {
        (None, _) => Ok(None),
        (Some(_), Some(kind)) => Ok(Some(kind)),
        (Some(ino), None) => Ok(Some(fs.named_inode(ino.0)?.kind())),
    }
}
