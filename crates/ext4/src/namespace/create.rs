//! New inodes: files, directories, devices, and unnamed files.

use super::{
    Change, Links, NewInode, check_may_change, check_new_name, check_subdirectory_fits,
    touch_directory,
};
use crate::directory::{self, Place};
use crate::orphan::{self, ORPHAN_CREDITS};
use crate::state::NAMESPACE_BLOCKS;
use crate::state::decode_rdev;
use crate::xattr::{self, XATTR_CREDITS};
use crate::{Error, Fs, Inode, InodeRef, Result};
use ext4_format::inode::{FileType, InodeFlags, InodeMode};
use ext4_format::types::Ino;
use jbd2::Handle;
use std::sync::Arc;
use sync::RwLockUpgradableReadGuard;

/// What the allocation of an inode, and giving it back, may cost beside the entry.
const NEW_INODE_CREDITS: u32 = ORPHAN_CREDITS + 4;

/// What a new inode takes over from its directory.
pub(super) struct Parent {
    ino: Ino,
    flags: InodeFlags,
    set_gid: Option<u32>,
    /// It has attributes, among which a default ACL may be.
    has_xattrs: bool,
    projid: u32,
}

impl Parent {
    /// Looks at a directory, which the caller has locked.
    pub fn of(dir: &Inode) -> Parent {
        let has_xattrs = dir.has_xattrs();
        dir.fields(|fields| Parent {
            ino: dir.ino,
            flags: fields.flags,
            set_gid: (fields.mode.0 & InodeMode::SET_GID != 0).then_some(fields.gid),
            has_xattrs,
            projid: fields.projid,
        })
    }
    /// Blocks that [`Fs::make_inode`] may change.
    pub fn credits(&self) -> u32 {
        NEW_INODE_CREDITS + if self.has_xattrs { XATTR_CREDITS } else { 0 }
    }
}

/// What [`Fs::find_or_create`] has found or made.
pub enum Opened {
    /// It was there.
    Found(InodeRef),
    /// It is new.
    Created(InodeRef),
}

/// What is to be created.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'n> {
    pub name: &'n [u8],
    pub kind: FileType,
    pub new: NewInode,
    /// Blocks that its contents may change.
    pub credits: u32,
}

impl<'n> Wanted<'n> {
    /// Something without contents in blocks.
    pub fn plain(name: &'n [u8], kind: FileType, new: NewInode) -> Wanted<'n> {
        Wanted {
            name,
            kind,
            new,
            credits: 0,
        }
    }
}

/// Where a new name would go.
enum Spot {
    /// Somebody has it.
    Taken(Ino),
    Free(Place),
}

/// Looks for a new name's place in a directory that the caller has locked. What exists is reported
/// before what is forbidden, as Linux does; a removed directory has no names.
fn find_new(fs: &Fs, dir: &Inode, name: &[u8]) -> Result<Spot> {
    let may = check_may_change(dir, Change::Add);
    if let Err(error @ (Error::NotDirectory | Error::NotFound)) = may {
        return Err(error);
    }
    let place = directory::find(fs, dir, name)?;
    match place.ino() {
        Some(ino) => Ok(Spot::Taken(ino)),
        None => may.map(|()| Spot::Free(place)),
    }
}

impl Fs {
    /// Creates a regular file, FIFO, socket or device.
    ///
    /// # Errors
    ///
    /// `Exists`, `NotFound` for a removed directory, `NotPermitted` for an immutable one,
    /// `NoSpace`, `Invalid` for a type that needs a call of its own.
    pub fn create(&self, dir: &InodeRef, name: &[u8], new: NewInode) -> Result<InodeRef> {
        let kind = match new.mode & !InodeMode::PERMISSIONS {
            0 => Some(FileType::Regular),
            _ => InodeMode(new.mode).file_type(),
        };
        let kind = kind.filter(|kind| !matches!(kind, FileType::Directory | FileType::Symlink));
        let kind = kind.ok_or(Error::Invalid("not a type of file that create makes"))?;
        self.create_with(dir, Wanted::plain(name, kind, new), |_, _, inode| {
            if matches!(kind, FileType::CharDevice | FileType::BlockDevice) {
                *inode.i_block.write() = decode_rdev(new.rdev).encode();
            }
            Ok(())
        })
    }

    /// The inode that `name` in `dir` refers to, whatever it is, or else a new regular file. The
    /// directory is searched once: the new name goes to the place at which it was missing.
    ///
    /// # Errors
    ///
    /// As [`Fs::create`], but `Exists` only for "." and "..", and as [`Fs::lookup`].
    pub fn find_or_create(&self, dir: &InodeRef, name: &[u8], new: NewInode) -> Result<Opened> {
        check_new_name(name)?;
        self.with_space(NAMESPACE_BLOCKS, || {
            self.find_or_create_once(dir, name, new)
        })
    }

    fn find_or_create_once(&self, dir: &InodeRef, name: &[u8], new: NewInode) -> Result<Opened> {
        let made = {
            // Look-ups go on beside this; the place stays valid, since whoever would change the
            // directory waits.
            let shared = dir.lock.upgradable_read();
            let place = match find_new(self, dir, name)? {
                Spot::Taken(ino) => {
                    let inode = self.named_inode(ino.0)?;
                    inode.parent.set(dir.ino);
                    return Ok(Opened::Found(inode));
                }
                Spot::Free(place) => place,
            };
            self.check_writable()?;
            let _exclusive = RwLockUpgradableReadGuard::upgrade(shared);
            let wanted = Wanted::plain(name, FileType::Regular, new);
            self.create_at(dir, &place, wanted, |_, _, _| Ok(()))
        };
        if made.is_err() {
            self.delete_unlinked();
        }
        made.map(Opened::Created)
    }

    /// Creates a directory.
    ///
    /// # Errors
    ///
    /// As [`Fs::create`], and `TooManyLinks` where the parent cannot have another subdirectory.
    pub fn mkdir(&self, dir: &InodeRef, name: &[u8], new: NewInode) -> Result<InodeRef> {
        let parent = dir.ino;
        let wanted = Wanted {
            credits: directory::INIT_CREDITS,
            ..Wanted::plain(name, FileType::Directory, new)
        };
        self.create_with(dir, wanted, |fs, handle, inode| {
            directory::init(fs, handle, inode, parent)?;
            inode.set_links(2);
            Ok(())
        })
    }

    /// Creates an unnamed regular file (O_TMPFILE) in the group of `dir`; it is an orphan until
    /// linked.
    ///
    /// # Errors
    ///
    /// As [`Fs::create`].
    pub fn tmpfile(&self, dir: &InodeRef, new: NewInode) -> Result<InodeRef> {
        self.check_writable()?;
        self.with_space(NAMESPACE_BLOCKS, || self.tmpfile_once(dir, new))
    }

    fn tmpfile_once(&self, dir: &InodeRef, new: NewInode) -> Result<InodeRef> {
        let made = {
            let _shared = dir.lock.read();
            check_may_change(dir, Change::Add)?;
            let parent = Parent::of(dir);
            let handle = self.journal.start(parent.credits())?;
            let made = self.make_inode(&handle, dir, &parent, FileType::Regular, new);
            made.and_then(|inode| {
                inode.set_links(0);
                inode.mark_dirty(self, &handle);
                orphan::add(self, &handle, &inode)?;
                Ok(inode)
            })
        };
        if made.is_err() {
            self.delete_unlinked();
        }
        made
    }

    /// Creates an inode; `fill` gives it its contents.
    pub(super) fn create_with(
        &self,
        dir: &InodeRef,
        wanted: Wanted<'_>,
        fill: impl Fn(&Fs, &Handle<'_>, &Arc<Inode>) -> Result<()>,
    ) -> Result<InodeRef> {
        self.check_writable()?;
        check_new_name(wanted.name)?;
        self.with_space(NAMESPACE_BLOCKS, || {
            let made = {
                let _exclusive = dir.lock.write();
                match find_new(self, dir, wanted.name)? {
                    Spot::Taken(_) => return Err(Error::Exists),
                    Spot::Free(place) => self.create_at(dir, &place, wanted, &fill),
                }
            };
            if made.is_err() {
                self.delete_unlinked();
            }
            made
        })
    }

    /// Creates an inode under a name that is free. The caller has locked the directory, and reaps
    /// what an error leaves.
    fn create_at(
        &self,
        dir: &InodeRef,
        place: &Place,
        wanted: Wanted<'_>,
        fill: impl FnOnce(&Fs, &Handle<'_>, &Arc<Inode>) -> Result<()>,
    ) -> Result<InodeRef> {
        let Wanted { name, kind, .. } = wanted;
        if kind == FileType::Directory {
            check_subdirectory_fits(self, dir)?;
        }
        let parent = Parent::of(dir);
        let credits = wanted.credits + place.add_credits() + parent.credits();
        let handle = self.journal.start(credits)?;
        let inode = self.make_inode(&handle, dir, &parent, kind, wanted.new)?;
        let done = fill(self, &handle, &inode)
            .and_then(|()| self.enter(&handle, dir, place, name, &inode, kind));
        match done {
            Ok(()) => Ok(inode),
            Err(error) => {
                self.give_back(&handle, &inode);
                Err(error)
            }
        }
    }

    /// Enters a new inode into its directory.
    fn enter(
        &self,
        handle: &Handle<'_>,
        dir: &InodeRef,
        place: &Place,
        name: &[u8],
        inode: &InodeRef,
        kind: FileType,
    ) -> Result<()> {
        directory::add(self, handle, dir, place, name, (inode.ino, kind))?;
        inode.parent.set(dir.ino);
        inode.mark_dirty(self, handle);
        let links = match kind {
            FileType::Directory => Links::More,
            _ => Links::Keep,
        };
        touch_directory(self, handle, dir, self.now(), links);
        Ok(())
    }

    /// Allocates an inode and gives it what it inherits. An error has changed nothing, or left an
    /// orphan to be reaped.
    pub(super) fn make_inode(
        &self,
        handle: &Handle<'_>,
        dir: &InodeRef,
        parent: &Parent,
        kind: FileType,
        new: NewInode,
    ) -> Result<InodeRef> {
        let directory = kind == FileType::Directory;
        let mut permissions = new.mode & InodeMode::PERMISSIONS;
        if directory && parent.set_gid.is_some() {
            permissions |= InodeMode::SET_GID;
        }
        let masked = kind != FileType::Symlink;
        if masked && !parent.has_xattrs {
            permissions &= !new.umask;
        }
        let mode = InodeMode::new(kind, permissions);
        let gid = parent.set_gid.unwrap_or(new.gid);
        let ino = self.groups.alloc_inode(handle, parent.ino, directory)?;
        if self.inodes.get(ino.0).is_some() {
            // It stays marked as used, which it is.
            return Err(Error::CorruptInode {
                ino: ino.0,
                what: "it is in use, but its bitmap says that it is free",
            });
        }
        let made = self.new_inode(handle, ino, mode.0, new.uid, gid);
        let inode = match made {
            Ok(inode) => inode,
            Err(error) => {
                self.groups.free_inode(handle, ino, directory)?;
                return Err(error);
            }
        };
        let inherited = parent.flags.inherit(kind);
        if !inherited.is_empty() {
            inode.change_fields(|f| {
                f.flags |= inherited;
                if parent.flags.contains(InodeFlags::PROJINHERIT) {
                    f.projid = parent.projid;
                }
            });
        }
        if masked
            && parent.has_xattrs
            && let Err(error) = xattr::inherit_acl(self, handle, dir, &inode, new.umask)
        {
            self.give_back(handle, &inode);
            return Err(error);
        }
        Ok(inode)
    }
}
