//! An open file: attributes, extended attributes, release.

use crate::dir::Dir;
use crate::error::Cause;
use crate::metadata::{FileTimes, Metadata, SetAttributes};
use crate::shared::Shared;
use ext4::{InodeRef, ReadMode, SetXattrMode};
use std::ffi::{OsStr, OsString};
use std::fs::Permissions;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// The access mode of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub read: bool,
    pub write: bool,
    pub append: bool,
    pub reads: ReadMode,
}

/// An open file, as [`std::fs::File`]. It keeps its volume mounted. A file without a name (its last
/// one was removed, or [`Dir::create_unnamed_file`] made it) keeps its contents until its last
/// handle is dropped, which frees its space.
///
/// If [`File::create`] truncated old contents, writeback of the new contents starts when the file
/// is dropped. It completes before the journal commits by itself, so that a crash after that does
/// not leave an empty file.
///
/// [`File::sync_all`] reports errors of earlier writeback until the data is on the device.
///
/// ```
/// use sluicefs::{File, FormatOptions, Volume};
/// use std::io::{Read, Seek, SeekFrom, Write};
/// # fn main() -> std::io::Result<()> {
/// let volume = Volume::format("mem:64MiB", FormatOptions::new())?;
/// let mut file = File::create_new(&volume, "data")?;
/// file.write_all(b"0123456789")?;
/// file.write_all_at(b"xx", 3)?;
/// file.seek(SeekFrom::Start(2))?;
/// let mut four = [0; 4];
/// file.read_exact(&mut four)?;
/// assert_eq!(&four, b"2xx5");
/// file.sync_all()?;
/// # Ok(())
/// # }
/// ```
pub struct File {
    // Declared before `shared`, and so dropped before it: the last `Shared` unmounts the volume.
    pub(super) inode: InodeRef,
    /// Declared after `inode`, and so dropped after it.
    deletion: DeletionOnDrop,
    pub(super) access: Access,
    /// Offset of the next `Read` or `Write`. The lock is held during the I/O, so that the streams
    /// of several threads do not overlap.
    pub(super) position: Mutex<u64>,
    /// Path of the directory through which the file was opened, for messages.
    pub(super) from: Arc<Path>,
    /// Path of the file, relative to `from`.
    pub(super) name: Box<OsStr>,
    pub(super) shared: Arc<Shared>,
}

pub(super) type Result<T> = std::result::Result<T, Cause>;

impl File {
    /// `name` is relative to the directory `from`, which is used for messages only.
    pub(crate) fn new(
        shared: Arc<Shared>,
        inode: InodeRef,
        from: Arc<Path>,
        name: &Path,
        access: Access,
    ) -> File {
        File {
            inode,
            deletion: DeletionOnDrop(None),
            access,
            position: Mutex::new(0),
            from,
            name: name.as_os_str().into(),
            shared,
        }
    }

    /// The path by which the file was opened. A later rename does not change it. The last component
    /// for a file that was made without a name is `#` and its inode number, as Linux shows it; no
    /// such name exists.
    pub fn path(&self) -> PathBuf {
        self.from.join(&*self.name)
    }

    pub(crate) fn inode(&self) -> &InodeRef {
        &self.inode
    }

    pub(crate) fn is_on(&self, volume: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, volume)
    }

    pub(super) fn ctx<T, E: Into<Cause>>(
        &self,
        op: &'static str,
        result: std::result::Result<T, E>,
    ) -> io::Result<T> {
        result.map_err(|e| e.into().at(op, self.path()))
    }

    pub(super) fn readable(&self) -> Result<()> {
        match self.access.read {
            true => Ok(()),
            false => Err(Cause::NotOpenFor("reading")),
        }
    }

    pub(super) fn writable(&self) -> Result<()> {
        match self.access.write {
            true => Ok(()),
            false => Err(Cause::NotOpenFor("writing")),
        }
    }

    /// Metadata, as stat(2) returns it.
    ///
    /// # Errors
    /// None. The return type is that of std.
    pub fn metadata(&self) -> io::Result<Metadata> {
        Ok(Metadata(self.inode.attr()))
    }

    /// Adds a name for the file, as linkat(2) does for an open file. `path` is relative to `dir`
    /// unless it is absolute. For a file that was made without a name
    /// ([`Dir::create_unnamed_file`]) this is the first one: the file appears with all of its
    /// contents. A sync of the file makes the name durable, too.
    ///
    /// # Errors
    /// `AlreadyExists`: no name is replaced. `NotFound` if the file has lost its last name, or was
    /// made with [`crate::OpenOptions::linkable`] set to `false`. `CrossesDevices` if `dir` is on
    /// another volume. Otherwise as linkat(2).
    pub fn link_to(&self, dir: &Dir, path: impl AsRef<Path>) -> io::Result<()> {
        if !self.is_on(dir.shared()) {
            return Err(io::ErrorKind::CrossesDevices.into());
        }
        dir.link(&self.inode, path.as_ref())
    }

    /// Sets the permission bits.
    ///
    /// # Errors
    /// As fchmod(2).
    pub fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        self.set_attributes(&SetAttributes::new().mode(permissions.mode()))
    }

    /// Sets access and modification times.
    ///
    /// # Errors
    /// As futimens(2).
    pub fn set_times(&self, times: FileTimes) -> io::Result<()> {
        self.set_attributes(&SetAttributes::new().times(times))
    }

    /// Sets several attributes in one step.
    ///
    /// # Errors
    /// The errors of setting each attribute.
    pub fn set_attributes(&self, attributes: &SetAttributes) -> io::Result<()> {
        let done = self.shared.fs.set_attr(&self.inode, &attributes.0);
        self.ctx("change attributes of", done).map(|_| ())
    }

    /// Value of an extended attribute, by its full name ("user.origin"); `None` if it does not
    /// exist.
    ///
    /// # Errors
    /// Damage and device errors.
    pub fn get_xattr(&self, name: impl AsRef<OsStr>) -> io::Result<Option<Vec<u8>>> {
        self.ctx(
            "read an attribute of",
            self.shared.get_xattr(&self.inode, name.as_ref()),
        )
    }

    /// Full names of the extended attributes.
    ///
    /// # Errors
    /// Damage and device errors.
    pub fn list_xattrs(&self) -> io::Result<Vec<OsString>> {
        self.ctx("list attributes of", self.shared.list_xattrs(&self.inode))
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// As setxattr(2).
    pub fn set_xattr(&self, name: impl AsRef<OsStr>, value: &[u8]) -> io::Result<()> {
        let name = name.as_ref().as_bytes();
        let fs = &self.shared.fs;
        let done = fs.set_xattr(&self.inode, name, value, SetXattrMode::Any);
        self.ctx("set an attribute of", done)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// As removexattr(2).
    pub fn remove_xattr(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        let done = self
            .shared
            .fs
            .remove_xattr(&self.inode, name.as_ref().as_bytes());
        self.ctx("remove an attribute of", done)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if self.access.write {
            self.shared.fs.release(&self.inode);
        }
        if self.inode.is_unlinked() {
            self.deletion.0 = Some(self.shared.clone());
        }
    }
}

/// Deletes files without names and users when it is dropped.
struct DeletionOnDrop(Option<Arc<Shared>>);

impl Drop for DeletionOnDrop {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            shared.fs.delete_unlinked();
        }
    }
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File")
            .field("path", &self.path())
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}
