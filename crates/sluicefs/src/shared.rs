//! State that all handles of a volume share.

use block::Queue;
use ext4::{Error, Fs, InodeRef};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

/// Owner and umask of new inodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defaults {
    pub umask: u16,
    pub uid: u32,
    pub gid: u32,
}

/// The mounted file system. The last handle that is dropped unmounts it.
pub(crate) struct Shared {
    pub fs: Arc<Fs>,
    pub defaults: Defaults,
    pub queue: Arc<Queue>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // `Volume::close` returns the error; here nobody can receive it.
        if let Err(e) = self.fs.unmount() {
            tracing::error!(device = self.queue.name(), "unmount failed: {e}");
        }
    }
}

impl Shared {
    /// Value of an extended attribute; `None` if the inode does not have it.
    pub fn get_xattr(&self, inode: &InodeRef, name: &OsStr) -> Result<Option<Vec<u8>>, Error> {
        match self.fs.get_xattr(inode, name.as_bytes()) {
            Ok(value) => Ok(Some(value)),
            Err(Error::NoAttribute) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Full names of the extended attributes of an inode.
    pub fn list_xattrs(&self, inode: &InodeRef) -> Result<Vec<OsString>, Error> {
        let names = self.fs.list_xattr(inode)?;
        Ok(names.into_iter().map(OsString::from_vec).collect())
    }
}
