//! An open directory, and path lookup from it.

use crate::error::Cause;
use crate::path::{LastLink, Parent, canonical, find, walk_parent};
use crate::shared::{Defaults, Shared};
use ext4::{Error, FileType, Fs, InodeRef};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) type Result<T> = std::result::Result<T, Cause>;

/// An open directory. Relative paths start there, absolute paths at the root of the volume.
///
/// A handle is the fastest way to use many files of one directory: their paths are not resolved
/// from the root.
///
/// ```
/// use sluicefs::{FormatOptions, Volume};
/// use std::io::Write;
/// # fn main() -> std::io::Result<()> {
/// let volume = Volume::format("mem:64MiB", FormatOptions::new())?;
/// let dir = volume.create_dir("/many")?;
/// for i in 0..100 {
///     dir.create_new_file(format!("f{i}"))?.write_all(b"contents")?;
/// }
/// assert_eq!(volume.read_dir("/many")?.count(), 100);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Dir {
    // Declared before `shared`, and so dropped before it: the last `Shared` unmounts the volume.
    inode: InodeRef,
    path: Arc<Path>,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Dir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Dir").field(&self.path).finish()
    }
}

impl Dir {
    pub(crate) fn new(shared: Arc<Shared>, inode: InodeRef, path: Arc<Path>) -> Dir {
        Dir {
            inode,
            path,
            shared,
        }
    }
    pub(crate) fn fs(&self) -> &Fs {
        &self.shared.fs
    }
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
    pub(crate) fn inode(&self) -> &InodeRef {
        &self.inode
    }
    pub(crate) fn path_arc(&self) -> &Arc<Path> {
        &self.path
    }
    pub(crate) fn defaults(&self) -> Defaults {
        self.shared.defaults
    }
    /// The path for messages.
    pub(crate) fn full(&self, path: &Path) -> PathBuf {
        self.path.join(path)
    }

    pub(super) fn ctx<T>(&self, op: &'static str, path: &Path, result: Result<T>) -> io::Result<T> {
        result.map_err(|cause| cause.at(op, self.full(path)))
    }

    pub(crate) fn find(&self, path: &Path, last: LastLink) -> Result<InodeRef> {
        find(self.fs(), &self.inode, path.as_os_str().as_bytes(), last)
    }

    pub(super) fn parent<'p>(&self, path: &'p Path) -> Result<Parent<'p>> {
        walk_parent(self.fs(), &self.inode, path.as_os_str().as_bytes())
    }

    /// The path by which the directory was opened, from the root of the volume.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a directory.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`.
    pub fn open_dir(&self, path: impl AsRef<Path>) -> io::Result<Dir> {
        let path = path.as_ref();
        let inode = self.ctx("open", path, self.find_dir(path))?;
        Ok(self.child(path, inode))
    }

    fn find_dir(&self, path: &Path) -> Result<InodeRef> {
        let inode = self.find(path, LastLink::Follow)?;
        match inode.kind() {
            FileType::Directory => Ok(inode),
            _ => Err(Error::NotDirectory.into()),
        }
    }

    pub(super) fn child(&self, path: &Path, inode: InodeRef) -> Dir {
        Dir::new(self.shared.clone(), inode, Arc::from(self.full(path)))
    }

    /// The path from the root without symbolic links, `.` and `..`.
    ///
    /// # Errors
    /// `NotFound`, and the errors of path resolution.
    pub fn canonicalize(&self, path: impl AsRef<Path>) -> io::Result<PathBuf> {
        let full = self.full(path.as_ref());
        let root = self.fs().root().map_err(Cause::from);
        let found = root.and_then(|root| canonical(self.fs(), &root, full.as_os_str().as_bytes()));
        match found {
            Ok(bytes) => Ok(PathBuf::from(OsString::from_vec(bytes))),
            Err(cause) => Err(cause.at("find", full)),
        }
    }
}
