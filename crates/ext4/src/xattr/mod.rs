//! Extended attributes, in the inode and in a block of their own, and POSIX ACLs in ext4's form.

use crate::{Fs, Inode, InodeRef, Result};
use jbd2::Handle;
use std::sync::Arc;

/// Whether setting an attribute may create or replace it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetXattrMode {
    /// Either.
    #[default]
    Any,
    /// It must not exist.
    Create,
    /// It must exist.
    Replace,
}

impl Fs {
    /// Value of the attribute with the full name `name` ("user.x"). ACLs come in Linux's xattr form.
    pub fn get_xattr(&self, inode: &InodeRef, name: &[u8]) -> Result<Vec<u8>> {
        let _ = (inode, name);
        todo!()
    }
    /// Full names of all attributes.
    pub fn list_xattr(&self, inode: &InodeRef) -> Result<Vec<Vec<u8>>> {
        let _ = inode;
        todo!()
    }
    /// Sets one; an access ACL changes the mode bits with it.
    pub fn set_xattr(
        &self,
        inode: &InodeRef,
        name: &[u8],
        value: &[u8],
        mode: SetXattrMode,
    ) -> Result<()> {
        let _ = (inode, name, value, mode);
        todo!()
    }
    /// Removes one.
    pub fn remove_xattr(&self, inode: &InodeRef, name: &[u8]) -> Result<()> {
        let _ = (inode, name);
        todo!()
    }
}

/// Credits of [`inherit_acl`] and of setting an attribute.
pub(crate) const XATTR_CREDITS: u32 = 8;

/// Gives a new inode its parent's default ACL, or applies the umask where there is none. Part of create's handle;
/// called with no lock of `inode` held.
pub(crate) fn inherit_acl(
    fs: &Fs,
    handle: &Handle<'_>,
    dir: &Inode,
    inode: &Arc<Inode>,
    umask: u16,
) -> Result<()> {
    let _ = (fs, handle, dir, inode, umask);
    todo!()
}
/// chmod: brings an access ACL in line with new permission bits.
pub(crate) fn chmod_acl(fs: &Fs, handle: &Handle<'_>, inode: &Arc<Inode>, mode: u16) -> Result<()> {
    let _ = (fs, handle, inode, mode);
    todo!()
}
/// The inode is being deleted: drops its reference to a (possibly shared) attribute block.
pub(crate) fn release_block(fs: &Fs, handle: &Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
    let _ = (fs, handle, inode);
    todo!()
}
