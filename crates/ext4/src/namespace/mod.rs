//! Names: look up, create, link, unlink, rename.
//!
//! A change has four steps, and only the last one changes anything:
//!
//! 1. Lock the directories (exclusive). Check that they are not removed and may be changed.
//! 2. Find the names and their inodes, check the operation, lock the inodes that lose a name. No
//!    handle is held while a lock is waited for. No lock of a directory is waited for while another
//!    inode's lock is held (see `locks`), so directories of a damaged volume that form a cycle
//!    cannot cause a deadlock.
//! 3. Start a handle with the credits that the change needs.
//! 4. Change. The steps that can fail come first. If a later step fails, they are undone, so a
//!    handle never contains a part of a change.
//!
//! An inode that loses its last name becomes an orphan in the same handle. Its blocks are freed
//! when its last user is gone. Every operation that can drop the last user calls
//! [`Fs::delete_unlinked`] at its end, without locks and without a handle.
//!
//! The immutable and append-only flags are checked here. Permissions are not: FUSE's
//! `default_permissions` checks them.

mod ancestors;
mod create;
mod link;
mod locks;
mod lookup;
mod rename;
mod replay;
mod symlink;

pub use create::Opened;
pub use lookup::CachedPath;

use crate::{DirEntry, Error, Fs, Inode, InodeDamage, InodeRef, Result, directory};
use ext4_format::dir_entry::NAME_MAX;
use ext4_format::features::RoCompatFeatures;
use ext4_format::inode::{FileType, InodeFlags, LINK_MAX, Timestamp};
use jbd2::Handle;
use std::sync::Arc;

/// The attributes of a new inode.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewInode {
    /// Type and permission bits, before the umask.
    pub mode: u16,
    /// The umask. It is not applied if the parent has a default ACL.
    pub umask: u16,
    /// Owner.
    pub uid: u32,
    /// Group. The group of a set-group-ID parent overrides it.
    pub gid: u32,
    /// Device number of a device file.
    pub rdev: u32,
}

/// The variants of a rename.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RenameFlags {
    /// Replace an existing target.
    #[default]
    Replace,
    /// Fail if the target exists.
    NoReplace,
    /// Exchange the two names.
    Exchange,
    /// Put a whiteout at the old name, for union mounts: a character device 0:0 with this owner and
    /// group.
    #[allow(missing_docs)]
    Whiteout { replace: bool, uid: u32, gid: u32 },
}

impl RenameFlags {
    /// Returns whether an existing target may be replaced.
    fn replaces(self) -> bool {
        match self {
            RenameFlags::Replace | RenameFlags::Exchange => true,
            RenameFlags::NoReplace => false,
            RenameFlags::Whiteout { replace, .. } => replace,
        }
    }
}

impl Fs {
    /// Reads a directory, "." and ".." included, from position `pos` on: 0 or a [`DirEntry::next`].
    /// It stops when `each` returns false; that entry does not count as read. `each` may use the
    /// volume and change this directory, because no lock is held while it runs.
    ///
    /// # Errors
    ///
    /// `NotDirectory`; `NotFound` for a removed directory; `Corrupt…` with the damaged block.
    /// `each` has been called with the entries before it.
    pub fn read_dir(
        &self,
        dir: &InodeRef,
        pos: u64,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        directory::read(self, dir, pos, each)
    }

    /// Returns the inode of the directory's "..".
    pub fn parent(&self, dir: &InodeRef) -> Result<InodeRef> {
        self.lookup(dir, b"..")
    }

    /// Makes the inode of a failed creation an orphan. It is deleted when its last user is gone.
    fn orphan_new_inode(&self, handle: &Handle<'_>, inode: &Arc<Inode>) {
        inode.set_links(0);
        inode.mark_dirty(self, handle);
        crate::orphan::add(self, handle, inode);
    }
}

/// Checks that an inode is a directory.
fn check_directory(dir: &Inode) -> Result<()> {
    if dir.is_dir() {
        Ok(())
    } else {
        Err(Error::NotDirectory)
    }
}

/// The error of a directory that has an entry for itself, other than ".".
fn contains_itself(ino: units::Ino) -> Error {
    InodeDamage::ContainsItself.of(ino)
}

/// Checks that a name can be a new one: not "." or "..", which exist, and valid.
fn check_new_name(name: &[u8]) -> Result<()> {
    match name {
        b"" => Err(Error::NotFound),
        b"." | b".." => Err(Error::Exists),
        _ => check_name_bytes(name),
    }
}

/// Checks that a name can be removed or renamed: not "." or "..", and valid.
fn check_old_name(name: &[u8]) -> Result<()> {
    match name {
        b"" => Err(Error::NotFound),
        b"." | b".." => Err(Error::Invalid("the name is \".\" or \"..\"")),
        _ => check_name_bytes(name),
    }
}

fn check_name_bytes(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    if name.iter().any(|&byte| byte == 0 || byte == b'/') {
        return Err(Error::Invalid("the name has a slash or a NUL"));
    }
    Ok(())
}

/// The kind of change to a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    /// Names are added.
    Add,
    /// An inode without a name is created.
    AddUnnamed,
    /// Names are removed, or refer to another inode.
    Remove,
}

/// Checks that a directory is not removed and that its flags allow the change. The caller holds its
/// lock.
fn check_may_change(dir: &Inode, change: Change) -> Result<()> {
    check_directory(dir)?;
    let (flags, links) = dir.fields(|f| (f.flags, f.links_count));
    // The directory was removed, but it still has a user.
    if links == 0 {
        return Err(Error::NotFound);
    }
    let append = change == Change::Remove && flags.contains(InodeFlags::APPEND);
    if append || flags.contains(InodeFlags::IMMUTABLE) {
        return Err(Error::NotPermitted);
    }
    match change {
        Change::Add => directory::check_may_add(dir),
        // Its contents would be encrypted.
        Change::AddUnnamed => dir.check_not_encrypted(),
        Change::Remove => Ok(()),
    }
}

/// Checks that an inode's flags allow a name of it to be added, changed or removed.
fn check_may_rename(inode: &Inode) -> Result<()> {
    let flags = inode.flags();
    if flags.intersects(InodeFlags::PROTECTING) {
        return Err(Error::NotPermitted);
    }
    Ok(())
}

/// Returns whether a directory may have more subdirectories than its link count can express. The
/// count is then 1.
fn may_exceed_link_max(fs: &Fs, flags: InodeFlags) -> bool {
    fs.geo.ro_compat.contains(RoCompatFeatures::DIR_NLINK) && flags.contains(InodeFlags::INDEX)
}

/// Checks that a directory can have one more subdirectory.
fn check_subdirectory_fits(fs: &Fs, dir: &Inode) -> Result<()> {
    let (flags, links) = dir.fields(|f| (f.flags, f.links_count));
    if links >= LINK_MAX && !may_exceed_link_max(fs, flags) {
        return Err(Error::TooManyLinks);
    }
    Ok(())
}

/// The change of a directory's link count.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LinkChange {
    Keep,
    Increment,
    Decrement,
}

/// Updates a directory's times, version and link count after a change of its entries. The link
/// count becomes 1 when there are 65,000 subdirectories (`dir_nlink`; the kernel's `ext4_inc_count`
/// and `ext4_dec_count`).
fn update_directory_inode(
    fs: &Fs,
    handle: &Handle<'_>,
    dir: &Arc<Inode>,
    now: Timestamp,
    links: LinkChange,
) {
    dir.change_fields(|fields| {
        fields.mtime = now;
        fields.ctime = now;
        // As the kernel does. Inode::names_version returns it.
        fields.version = fields.version.wrapping_add(1);
        match links {
            LinkChange::Keep => {}
            LinkChange::Increment => {
                let many = may_exceed_link_max(fs, fields.flags);
                fields.links_count = fields.links_count.saturating_add(1);
                if many && (fields.links_count > LINK_MAX || fields.links_count == 2) {
                    fields.links_count = 1;
                }
            }
            LinkChange::Decrement if fields.links_count > 2 => fields.links_count -= 1,
            LinkChange::Decrement => {}
        }
    });
    dir.mark_dirty(fs, handle);
}

/// The removal of a name. The caller holds the inode's lock.
struct Unlink<'a> {
    inode: &'a Arc<Inode>,
    /// The link count after the removal.
    left: u16,
}

impl<'a> Unlink<'a> {
    /// Records the inode as an orphan if this is its last name.
    fn begin(fs: &Fs, handle: &Handle<'_>, inode: &'a Arc<Inode>) -> Unlink<'a> {
        // A directory has one name. Its other links are its "." and its subdirectories' "..".
        let left = match inode.is_dir() {
            true => 0,
            false => inode.links().saturating_sub(1),
        };
        if left == 0 {
            crate::orphan::add(fs, handle, inode);
        }
        Unlink { inode, left }
    }
    /// Updates the inode after its name was removed.
    fn finish(self, fs: &Fs, handle: &Handle<'_>, now: Timestamp) {
        self.inode.parent.forget();
        self.inode.change_names(|f| {
            f.links_count = self.left;
            f.ctime = now;
        });
        self.inode.mark_dirty(fs, handle);
    }
    /// Undoes [`Unlink::begin`]: the name was not removed.
    fn undo(self, fs: &Fs, handle: &Handle<'_>) -> Result<()> {
        match self.left {
            0 => crate::orphan::del(fs, handle, self.inode),
            _ => Ok(()),
        }
    }
}

/// Returns the type of a place's entry. If the volume does not record types, the inode gives it.
fn kind_of(fs: &Fs, place: &directory::Place) -> Result<Option<FileType>> {
    match (place.ino(), place.kind()) {
        (None, _) => Ok(None),
        (Some(_), Some(kind)) => Ok(Some(kind)),
        (Some(ino), None) => Ok(Some(fs.named_inode(ino)?.kind())),
    }
}
