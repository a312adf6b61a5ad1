//! Metadata, owners, times and extended attributes by path.

use super::handle::Dir;
use crate::error::Cause;
use crate::metadata::{FileTimes, Metadata, SetAttributes};
use crate::path::{LastLink, attr};
use ext4::{Error, SetXattrMode};
use std::ffi::{OsStr, OsString};
use std::fs::Permissions;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

impl Dir {
    /// Metadata, as stat(2) returns it. Symbolic links are followed.
    ///
    /// # Errors
    /// As stat(2).
    pub fn metadata(&self, path: impl AsRef<Path>) -> io::Result<Metadata> {
        self.stat(path.as_ref(), LastLink::Follow)
    }

    /// Metadata, as lstat(2) returns it. Symbolic links are not followed.
    ///
    /// # Errors
    /// As lstat(2).
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> io::Result<Metadata> {
        self.stat(path.as_ref(), LastLink::Keep)
    }

    fn stat(&self, path: &Path, last: LastLink) -> io::Result<Metadata> {
        let bytes = path.as_os_str().as_bytes();
        let attr = attr(self.fs(), self.inode(), bytes, last);
        Ok(Metadata(self.ctx("stat", path, attr)?))
    }

    /// Returns whether `path` exists. A dangling symbolic link does not.
    ///
    /// # Errors
    /// Damage and device errors, if they prevent an answer.
    pub fn try_exists(&self, path: impl AsRef<Path>) -> io::Result<bool> {
        match self.find(path.as_ref(), LastLink::Follow) {
            Ok(_) => Ok(true),
            Err(Cause::Fs(Error::NotFound | Error::NotDirectory)) => Ok(false),
            Err(cause) => self.ctx("find", path.as_ref(), Err(cause)),
        }
    }

    /// Returns whether `path` exists; `false` after an error. See [`Dir::try_exists`].
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.try_exists(path).unwrap_or(false)
    }

    /// Sets several attributes in one step. Symbolic links are followed.
    ///
    /// # Errors
    /// The errors of setting each attribute.
    pub fn set_attributes(
        &self,
        path: impl AsRef<Path>,
        attributes: &SetAttributes,
    ) -> io::Result<()> {
        self.change(path.as_ref(), LastLink::Follow, attributes)
    }

    /// Sets several attributes in one step. Symbolic links are not followed.
    ///
    /// # Errors
    /// The errors of setting each attribute.
    pub fn set_symlink_attributes(
        &self,
        path: impl AsRef<Path>,
        attributes: &SetAttributes,
    ) -> io::Result<()> {
        self.change(path.as_ref(), LastLink::Keep, attributes)
    }

    fn change(&self, path: &Path, last: LastLink, attributes: &SetAttributes) -> io::Result<()> {
        let done = self
            .find(path, last)
            .and_then(|inode| Ok(self.fs().set_attr(&inode, &attributes.0)?));
        self.ctx("change attributes of", path, done).map(|_| ())
    }

    /// Sets the permission bits.
    ///
    /// # Errors
    /// As chmod(2).
    pub fn set_permissions(
        &self,
        path: impl AsRef<Path>,
        permissions: Permissions,
    ) -> io::Result<()> {
        self.set_attributes(path, &SetAttributes::new().mode(permissions.mode()))
    }

    /// Sets access and modification times.
    ///
    /// # Errors
    /// As utimensat(2).
    pub fn set_times(&self, path: impl AsRef<Path>, times: FileTimes) -> io::Result<()> {
        self.set_attributes(path, &SetAttributes::new().times(times))
    }

    /// Sets user and group; `None` keeps one unchanged. As with chown(2), set-user-id bits of
    /// executables are cleared.
    ///
    /// # Errors
    /// As chown(2).
    pub fn chown(
        &self,
        path: impl AsRef<Path>,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> io::Result<()> {
        self.set_attributes(path, &ownership(uid, gid))
    }

    /// Sets user and group. Symbolic links are not followed.
    ///
    /// # Errors
    /// As lchown(2).
    pub fn lchown(
        &self,
        path: impl AsRef<Path>,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> io::Result<()> {
        self.set_symlink_attributes(path, &ownership(uid, gid))
    }

    /// Value of an extended attribute, by its full name ("user.origin"); `None` if it does not
    /// exist.
    ///
    /// # Errors
    /// As getxattr(2).
    pub fn get_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
    ) -> io::Result<Option<Vec<u8>>> {
        self.xattr_of(path.as_ref(), LastLink::Follow, name.as_ref())
    }

    /// Value of an extended attribute of a symbolic link itself.
    ///
    /// # Errors
    /// As lgetxattr(2).
    pub fn get_symlink_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
    ) -> io::Result<Option<Vec<u8>>> {
        self.xattr_of(path.as_ref(), LastLink::Keep, name.as_ref())
    }

    fn xattr_of(&self, path: &Path, last: LastLink, name: &OsStr) -> io::Result<Option<Vec<u8>>> {
        let value = self
            .find(path, last)
            .and_then(|inode| Ok(self.shared().get_xattr(&inode, name)?));
        self.ctx("read an attribute of", path, value)
    }

    /// Full names of the extended attributes.
    ///
    /// # Errors
    /// As listxattr(2).
    pub fn list_xattrs(&self, path: impl AsRef<Path>) -> io::Result<Vec<OsString>> {
        self.xattrs_of(path.as_ref(), LastLink::Follow)
    }

    /// Full names of the extended attributes of a symbolic link itself.
    ///
    /// # Errors
    /// As llistxattr(2).
    pub fn list_symlink_xattrs(&self, path: impl AsRef<Path>) -> io::Result<Vec<OsString>> {
        self.xattrs_of(path.as_ref(), LastLink::Keep)
    }

    fn xattrs_of(&self, path: &Path, last: LastLink) -> io::Result<Vec<OsString>> {
        let names = self
            .find(path, last)
            .and_then(|inode| Ok(self.shared().list_xattrs(&inode)?));
        self.ctx("list attributes of", path, names)
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// As setxattr(2).
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: &[u8],
    ) -> io::Result<()> {
        let name = name.as_ref();
        self.put_xattr(path.as_ref(), LastLink::Follow, name, value)
    }

    /// Sets an extended attribute of a symbolic link itself.
    ///
    /// # Errors
    /// As lsetxattr(2).
    pub fn set_symlink_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: &[u8],
    ) -> io::Result<()> {
        let name = name.as_ref();
        self.put_xattr(path.as_ref(), LastLink::Keep, name, value)
    }

    fn put_xattr(&self, path: &Path, last: LastLink, name: &OsStr, value: &[u8]) -> io::Result<()> {
        let done = self.find(path, last).and_then(|inode| {
            let fs = self.fs();
            Ok(fs.set_xattr(&inode, name.as_bytes(), value, SetXattrMode::Any)?)
        });
        self.ctx("set an attribute of", path, done)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// As removexattr(2).
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> io::Result<()> {
        let path = path.as_ref();
        let done = self
            .find(path, LastLink::Follow)
            .and_then(|inode| Ok(self.fs().remove_xattr(&inode, name.as_ref().as_bytes())?));
        self.ctx("remove an attribute of", path, done)
    }
}

fn ownership(uid: Option<u32>, gid: Option<u32>) -> SetAttributes {
    let mut attributes = SetAttributes::new();
    attributes.0.uid = uid;
    attributes.0.gid = gid;
    attributes
}
