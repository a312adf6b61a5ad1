//! New inodes: files, directories, devices, and unnamed files.

use super::{
    Change, LinkChange, NewInode, check_may_change, check_new_name, check_subdirectory_fits,
    update_directory_inode,
};
use crate::directory::{self, Place};
use crate::orphan::{self, ORPHAN_CREDITS};
use crate::removal::NAMESPACE_BLOCKS;
use crate::state::decode_rdev;
use crate::xattr;
use crate::{Error, FirstLink, Fs, Inode, InodeDamage, InodeRef, Result};
use ext4_format::inode::{FileType, InodeFlags, InodeMode};
use jbd2::Handle;
use std::sync::Arc;
use sync::RwLockUpgradableReadGuard;
use units::Ino;

/// Credits for the allocation of an inode and for undoing it, without its entry.
const NEW_INODE_CREDITS: u32 = ORPHAN_CREDITS + 4;

/// The attributes of a directory that a new inode inherits.
pub(super) struct ParentAttributes {
    ino: Ino,
    flags: InodeFlags,
    /// The group of a directory with the set-group-ID bit.
    set_gid: Option<u32>,
    /// Whether the directory has extended attributes; one may be a default ACL.
    has_xattrs: bool,
    projid: u32,
}

impl ParentAttributes {
    /// Returns the attributes of a directory that the caller has locked.
    pub fn of(dir: &Inode) -> ParentAttributes {
        let has_xattrs = dir.has_xattrs();
        dir.fields(|fields| ParentAttributes {
            ino: dir.ino,
            flags: fields.flags,
            set_gid: (fields.mode.0 & InodeMode::SET_GID != 0).then_some(fields.gid),
            has_xattrs,
            projid: fields.projid,
        })
    }
    /// Returns the credits that [`Fs::make_inode`] needs in `dir`, which the caller has locked.
    pub fn credits(&self, fs: &Fs, dir: &Inode) -> Result<u32> {
        Ok(match self.has_xattrs {
            true => NEW_INODE_CREDITS + xattr::credits_to_inherit(fs, dir)?,
            false => NEW_INODE_CREDITS,
        })
    }
}

/// The result of [`Fs::find_or_create`].
pub enum Opened {
    /// The name existed.
    Found(InodeRef),
    /// The name and the inode are new.
    Created(InodeRef),
}

/// A request to create a named inode.
#[derive(Clone, Copy)]
pub(super) struct CreateRequest<'n> {
    pub name: &'n [u8],
    pub kind: FileType,
    pub new: NewInode,
    /// Credits for the content of the inode.
    pub credits: u32,
}

impl<'n> CreateRequest<'n> {
    /// Returns a request for an inode that has no content in blocks.
    pub fn without_blocks(name: &'n [u8], kind: FileType, new: NewInode) -> CreateRequest<'n> {
        CreateRequest {
            name,
            kind,
            new,
            credits: 0,
        }
    }
}

/// The state of a name in a directory.
enum NameState {
    /// The name refers to this inode.
    Taken(Ino),
    /// The name can be added at this place.
    Free(Place),
}

/// Looks up a name to be created in a directory that the caller has locked. As on Linux, an
/// existing name is returned even if the directory must not be changed.
fn find_new_name(fs: &Fs, dir: &Inode, name: &[u8]) -> Result<NameState> {
    let may = check_may_change(dir, Change::Add);
    if let Err(error @ (Error::NotDirectory | Error::NotFound)) = may {
        return Err(error);
    }
    if fs.is_read_only() {
        // Directories that cannot be changed are read only.
        let found = directory::lookup(fs, dir, name)?;
        return found.map_or(Err(Error::ReadOnly), |(ino, _)| Ok(NameState::Taken(ino)));
    }
    let place = directory::find(fs, dir, name)?;
    match place.ino() {
        Some(ino) => Ok(NameState::Taken(ino)),
        None => may.map(|()| NameState::Free(place)),
    }
}

impl Fs {
    /// Creates a regular file, FIFO, socket or device.
    ///
    /// # Errors
    ///
    /// `Exists`; `NotFound` for a removed directory; `NotPermitted` for an immutable one;
    /// `NoSpace`; `Invalid` for a directory or a symbolic link, and for an unknown type.
    pub fn create(&self, dir: &InodeRef, name: &[u8], new: NewInode) -> Result<InodeRef> {
        let kind = match new.mode & !InodeMode::PERMISSIONS {
            0 => Some(FileType::Regular),
            _ => InodeMode(new.mode).file_type(),
        };
        let kind = kind.filter(|kind| !matches!(kind, FileType::Directory | FileType::Symlink));
        let kind = kind.ok_or(Error::Invalid(
            "the type is not a regular file, FIFO, socket or device",
        ))?;
        self.create_with(
            dir,
            CreateRequest::without_blocks(name, kind, new),
            |_, _, inode| {
                if matches!(kind, FileType::CharDevice | FileType::BlockDevice) {
                    *inode.i_block.write() = decode_rdev(new.rdev).encode();
                }
                Ok(())
            },
        )
    }

    /// Returns the inode that `name` in `dir` refers to, of any type, or else a new regular file.
    /// The directory is searched only once.
    ///
    /// # Errors
    ///
    /// The errors of [`Fs::lookup`] and [`Fs::create`], but `Exists` only for "." and "..".
    pub fn find_or_create(&self, dir: &InodeRef, name: &[u8], new: NewInode) -> Result<Opened> {
        check_new_name(name)?;
        self.with_space(NAMESPACE_BLOCKS, || {
            self.find_or_create_once(dir, name, new)
        })
    }

    fn find_or_create_once(&self, dir: &InodeRef, name: &[u8], new: NewInode) -> Result<Opened> {
        let made = {
            // An upgradable lock lets look-ups run concurrently and excludes changes, so the place
            // stays valid until the upgrade.
            let shared = dir.lock.upgradable_read();
            let place = match find_new_name(self, dir, name)? {
                NameState::Taken(ino) => {
                    let inode = self.named_inode(ino)?;
                    inode.parent.set(dir.ino);
                    return Ok(Opened::Found(inode));
                }
                NameState::Free(place) => place,
            };
            self.check_writable()?;
            let _exclusive = RwLockUpgradableReadGuard::upgrade(shared);
            let request = CreateRequest::without_blocks(name, FileType::Regular, new);
            self.create_at(dir, &place, request, |_, _, _| Ok(()))
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
    /// The errors of [`Fs::create`]; `TooManyLinks` if the parent cannot have another subdirectory.
    pub fn mkdir(&self, dir: &InodeRef, name: &[u8], new: NewInode) -> Result<InodeRef> {
        let parent = dir.ino;
        let request = CreateRequest {
            credits: directory::INIT_CREDITS,
            ..CreateRequest::without_blocks(name, FileType::Directory, new)
        };
        self.create_with(dir, request, |fs, handle, inode| {
            directory::init(fs, handle, inode, parent)?;
            inode.set_links(2);
            Ok(())
        })
    }

    /// Creates an unnamed regular file (O_TMPFILE). It inherits from `dir` what a file that is
    /// created there inherits. [`Fs::link`] gives it a name, in any directory, if `first_link`
    /// allows that. Until then it is an orphan: it is deleted after its last use, also after a
    /// crash, even if its contents were made durable.
    ///
    /// # Errors
    ///
    /// `NotFound` for a removed directory; `NotPermitted` for an immutable one; `NoSpace`.
    pub fn tmpfile(
        &self,
        dir: &InodeRef,
        new: NewInode,
        first_link: FirstLink,
    ) -> Result<InodeRef> {
        self.check_writable()?;
        let inode = self.with_space(NAMESPACE_BLOCKS, || self.tmpfile_once(dir, new))?;
        inode.set_first_link(first_link);
        Ok(inode)
    }

    fn tmpfile_once(&self, dir: &InodeRef, new: NewInode) -> Result<InodeRef> {
        let made = {
            let _shared = dir.lock.read();
            check_may_change(dir, Change::AddUnnamed)?;
            let parent = ParentAttributes::of(dir);
            let handle = self.journal.start(parent.credits(self, dir)?)?;
            let made = self.make_inode(&handle, dir, &parent, FileType::Regular, new);
            made.inspect(|inode| {
                inode.set_links(0);
                inode.mark_dirty(self, &handle);
                orphan::add(self, &handle, inode);
            })
        };
        if made.is_err() {
            self.delete_unlinked();
        }
        made
    }

    /// Creates an inode and its name. `fill` writes the content of the inode.
    pub(super) fn create_with(
        &self,
        dir: &InodeRef,
        request: CreateRequest<'_>,
        fill: impl Fn(&Fs, &Handle<'_>, &Arc<Inode>) -> Result<()>,
    ) -> Result<InodeRef> {
        self.check_writable()?;
        check_new_name(request.name)?;
        self.with_space(NAMESPACE_BLOCKS, || {
            let made = {
                let _exclusive = dir.lock.write();
                match find_new_name(self, dir, request.name)? {
                    NameState::Taken(_) => return Err(Error::Exists),
                    NameState::Free(place) => self.create_at(dir, &place, request, &fill),
                }
            };
            if made.is_err() {
                self.delete_unlinked();
            }
            made
        })
    }

    /// Creates an inode and its name at a free place. The caller has locked the directory. After an
    /// error it calls [`Fs::delete_unlinked`] without the lock.
    fn create_at(
        &self,
        dir: &InodeRef,
        place: &Place,
        request: CreateRequest<'_>,
        fill: impl FnOnce(&Fs, &Handle<'_>, &Arc<Inode>) -> Result<()>,
    ) -> Result<InodeRef> {
        let CreateRequest { name, kind, .. } = request;
        if kind == FileType::Directory {
            check_subdirectory_fits(self, dir)?;
        }
        let parent = ParentAttributes::of(dir);
        let credits = request.credits + place.add_credits() + parent.credits(self, dir)?;
        let handle = self.journal.start(credits)?;
        let inode = self.make_inode(&handle, dir, &parent, kind, request.new)?;
        let done = fill(self, &handle, &inode)
            .and_then(|()| self.add_entry(&handle, dir, place, name, &inode, kind));
        match done {
            Ok(()) => Ok(inode),
            Err(error) => {
                self.orphan_new_inode(&handle, &inode);
                Err(error)
            }
        }
    }

    /// Adds a new inode to its directory.
    fn add_entry(
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
            FileType::Directory => LinkChange::Increment,
            _ => LinkChange::Keep,
        };
        update_directory_inode(self, handle, dir, self.now(), links);
        Ok(())
    }

    /// Allocates an inode with the attributes that it inherits. An error has changed nothing, or
    /// has left an orphan for [`Fs::delete_unlinked`].
    pub(super) fn make_inode(
        &self,
        handle: &Handle<'_>,
        dir: &InodeRef,
        parent: &ParentAttributes,
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
        let ino = self.groups.alloc_inode(handle, parent.ino, kind)?;
        if self.inodes.get(ino).is_some() {
            // The inode is in use, so its bit in the bitmap stays set.
            return Err(InodeDamage::FreeInBitmap.of(ino));
        }
        let flags = InodeFlags::empty();
        let made = self.new_inode(handle, ino, mode.0, new.uid, gid, flags);
        let inode = match made {
            Ok(inode) => inode,
            Err(error) => {
                self.groups.free_inode(handle, ino, kind)?;
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
            self.orphan_new_inode(handle, &inode);
            return Err(error);
        }
        Ok(inode)
    }
}
