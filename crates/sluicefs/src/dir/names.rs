//! Names in directories: create, link, remove, rename.

use super::handle::{Dir, Result};
use super::new_node::{NewNode, SpecialFile};
use crate::error::Cause;
use crate::path::{Last, LastLink, Parent, Special};
use ext4::{Error, FileType, InodeRef, RenameFlags};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl Dir {
    /// Creates a directory and opens it.
    ///
    /// # Errors
    /// `AlreadyExists`, and otherwise as mkdir(2).
    pub fn create_dir(&self, path: impl AsRef<Path>) -> io::Result<Dir> {
        self.create_dir_with(path, NewNode::new())
    }

    /// Creates a directory with a mode and owner, and opens it.
    ///
    /// # Errors
    /// As [`Dir::create_dir`].
    pub fn create_dir_with(&self, path: impl AsRef<Path>, new: NewNode) -> io::Result<Dir> {
        let path = path.as_ref();
        let created = self.parent(path).and_then(|parent| {
            let name = entry_name(&parent, Error::Exists)?;
            let new = new.inode(self.defaults(), FileType::Directory, 0o777);
            Ok(self.fs().mkdir(&parent.dir, name, new)?)
        });
        let inode = self.ctx("create directory", path, created)?;
        Ok(self.child(path, inode))
    }

    /// Creates a symbolic link at `link` that points to `target`.
    ///
    /// # Errors
    /// `AlreadyExists`, and otherwise as symlink(2).
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
        self.symlink_with(target, link, NewNode::new())
    }

    /// Creates a symbolic link with the given owner.
    ///
    /// # Errors
    /// As [`Dir::symlink`].
    pub fn symlink_with(
        &self,
        target: impl AsRef<Path>,
        link: impl AsRef<Path>,
        new: NewNode,
    ) -> io::Result<()> {
        let path = link.as_ref();
        let created = self.parent(path).and_then(|parent| {
            let name = entry_name(&parent, Error::Exists)?;
            must_be_file(&parent)?;
            let new = new.inode(self.defaults(), FileType::Symlink, 0o777);
            let target = target.as_ref().as_os_str().as_bytes();
            if target.is_empty() {
                return Err(Error::NotFound.into());
            }
            self.fs().symlink(&parent.dir, name, target, new)?;
            Ok(())
        });
        self.ctx("create symbolic link", path, created)
    }

    /// Creates a named pipe, socket or device file.
    ///
    /// # Errors
    /// `AlreadyExists`, and otherwise as mknod(2).
    pub fn create_special(
        &self,
        path: impl AsRef<Path>,
        special: SpecialFile,
        new: NewNode,
    ) -> io::Result<()> {
        let path = path.as_ref();
        let created = self.parent(path).and_then(|parent| {
            let name = entry_name(&parent, Error::Exists)?;
            must_be_file(&parent)?;
            let mut new = new.inode(self.defaults(), special.kind(), 0o666);
            new.rdev = special.rdev().ok_or(Cause::Invalid(
                "the device number is larger than 4095:1048575, the limit of ext4",
            ))?;
            self.fs().create(&parent.dir, name, new)?;
            Ok(())
        });
        self.ctx("create", path, created)
    }

    /// Creates a hard link. If `original` is a symbolic link, the new link is to the link itself.
    ///
    /// # Errors
    /// As link(2).
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
        let path = link.as_ref();
        let inode = self
            .find(original.as_ref(), LastLink::Keep)
            .map_err(|cause| cause.at("link", self.full(original.as_ref())))?;
        self.link(&inode, path)
    }

    /// Adds a name for an inode of this volume.
    pub(crate) fn link(&self, inode: &InodeRef, path: &Path) -> io::Result<()> {
        let created = self.parent(path).and_then(|parent| {
            let name = entry_name(&parent, Error::Exists)?;
            must_be_file(&parent)?;
            Ok(self.fs().link(inode, &parent.dir, name)?)
        });
        self.ctx("create link", path, created)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `InvalidInput` if `path` is not a symbolic link.
    pub fn read_link(&self, path: impl AsRef<Path>) -> io::Result<PathBuf> {
        let path = path.as_ref();
        let target = self
            .find(path, LastLink::Keep)
            .and_then(|inode| match inode.kind() {
                FileType::Symlink => {
                    let target = self.fs().readlink(&inode)?;
                    self.fs().note_access(&inode);
                    Ok(target)
                }
                _ => Err(Cause::Invalid("not a symbolic link")),
            });
        let target = self.ctx("read link", path, target)?;
        Ok(PathBuf::from(OsString::from_vec(target)))
    }

    /// Removes a name of a file that is not a directory. The file is deleted when it has no names
    /// left and nobody has it open.
    ///
    /// # Errors
    /// As unlink(2).
    pub fn remove_file(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        let done = self.parent(path).and_then(|parent| {
            let name = entry_name(&parent, Error::IsDirectory)?;
            if parent.wants_dir {
                return Err(Error::NotDirectory.into());
            }
            Ok(self.fs().unlink(&parent.dir, name)?)
        });
        self.ctx("remove", path, done)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `DirectoryNotEmpty`, and otherwise as rmdir(2).
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        let done = self.parent(path).and_then(|parent| {
            let name = match &parent.last {
                Last::Name(name) => name,
                Last::This(Special::Root) => {
                    return Err(Cause::Busy("the root of the volume cannot be removed"));
                }
                Last::This(Special::Dot) => return Err(Cause::Invalid("the path ends in .")),
                Last::This(Special::DotDot) => return Err(Error::NotEmpty.into()),
            };
            Ok(self.fs().rmdir(&parent.dir, name)?)
        });
        self.ctx("remove directory", path, done)
    }

    /// Renames. An existing target is replaced atomically.
    ///
    /// # Errors
    /// As rename(2).
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        self.rename_with(from, self, to, RenameFlags::Replace)
    }

    /// Renames to a path in another directory. `flags` chooses whether an existing target is
    /// replaced, kept or exchanged.
    ///
    /// # Errors
    /// As renameat2(2); `CrossesDevices` if the directories are on different volumes.
    pub fn rename_with(
        &self,
        from: impl AsRef<Path>,
        to_dir: &Dir,
        to: impl AsRef<Path>,
        flags: RenameFlags,
    ) -> io::Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        if !Arc::ptr_eq(self.shared(), to_dir.shared()) {
            return Err(io::ErrorKind::CrossesDevices.into());
        }
        const ROOT: Cause = Cause::Busy("the root, . and .. cannot be renamed");
        let source = self.parent(from).and_then(|source| match source.last {
            Last::Name(_) => Ok(source),
            Last::This(_) => Err(ROOT),
        });
        let source = self.ctx("rename", from, source)?;
        let done = to_dir.parent(to).and_then(|target| {
            let (Last::Name(old), Last::Name(new)) = (&source.last, &target.last) else {
                return Err(ROOT);
            };
            if source.wants_dir || target.wants_dir {
                let inode = self.fs().lookup(&source.dir, old)?;
                if inode.kind() != FileType::Directory {
                    return Err(Error::NotDirectory.into());
                }
            }
            let fs = self.fs();
            Ok(fs.rename(&source.dir, old, &target.dir, new, flags)?)
        });
        done.map_err(|cause| cause.at("rename to", to_dir.full(to)))
    }
}

/// The last component of a path; the error `special` if it is not a name.
fn entry_name<'p>(parent: &'p Parent<'_>, special: Error) -> Result<&'p [u8]> {
    match &parent.last {
        Last::Name(name) => Ok(name),
        Last::This(_) => Err(special.into()),
    }
}

/// Refuses a path with a trailing slash: only directories can be created there.
fn must_be_file(parent: &Parent<'_>) -> Result<()> {
    if parent.wants_dir {
        return Err(Error::NotFound.into());
    }
    Ok(())
}
