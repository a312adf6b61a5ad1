//! POSIX ACLs. They are stored as attributes in ext4's compact form.
//!
//! An access ACL that is equivalent to the mode is not stored. Otherwise its owner, mask (or group)
//! and other entries equal the mode's three classes. [`set_access`], [`chmod_acl`] and
//! [`inherit_acl`] change the ACL and the mode together.

use super::attribute::Attribute;
use super::store::{self, Attributes};
use super::{SetXattrMode, update_ctime, value_inode};
use crate::{Fs, Inode, Result};
use ext4_format::acl::Acl;
use ext4_format::inode::{FileType, InodeMode};
use ext4_format::xattr::{INDEX_POSIX_ACL_ACCESS, INDEX_POSIX_ACL_DEFAULT};
use jbd2::Handle;
use std::sync::Arc;

/// Reads an inode's ACL, if it has one. The caller's lock excludes changes of attributes.
fn read(fs: &Fs, inode: &Inode, index: u8) -> Result<Option<Acl>> {
    if !inode.has_xattrs() {
        return Ok(None);
    }
    match Attributes::read(fs, inode)?.get(fs, inode, (index, b""))? {
        Some(value) => Ok(Some(Acl::from_disk(&value)?)),
        None => Ok(None),
    }
}

/// Returns the length of an inode's ACL, in bytes, if it may be the value in an inode. Other
/// volumes need no credits for it: the length is 0 there.
pub(super) fn stored_len(fs: &Fs, inode: &Inode, index: u8) -> Result<usize> {
    if !value_inode::is_used(fs) || !inode.has_xattrs() {
        return Ok(0);
    }
    let attributes = Attributes::read(fs, inode)?;
    let mut acls = attributes.iter().filter(|acl| acl.is(index, b""));
    Ok(acls.next().map_or(0, Attribute::len))
}

/// Stores an ACL; `None` removes it.
fn write(
    fs: &Fs,
    handle: &Handle<'_>,
    inode: &Arc<Inode>,
    index: u8,
    acl: Option<&Acl>,
) -> Result<bool> {
    let value = acl.map(Acl::to_disk);
    let (name, mode) = ((index, &b""[..]), SetXattrMode::Any);
    store::change(fs, handle, inode, name, value.as_deref(), mode)
}

/// Sets the access ACL and the permission bits that are equivalent to it. An ACL that has no more
/// than these bits is not stored. `None` removes the ACL and keeps the mode.
pub(crate) fn set_access(
    fs: &Fs,
    handle: &Handle<'_>,
    inode: &Arc<Inode>,
    acl: Option<Acl>,
) -> Result<bool> {
    let permissions = acl.as_ref().map(|acl| acl.equiv_mode().0);
    let stored = acl.filter(|acl| !acl.equiv_mode().1);
    let mut changed = write(fs, handle, inode, INDEX_POSIX_ACL_ACCESS, stored.as_ref())?;
    if let Some(permissions) = permissions {
        inode.change_fields(|f| {
            let mode = InodeMode((f.mode.0 & !0o777) | permissions);
            changed |= mode != f.mode;
            f.mode = mode;
        });
    }
    Ok(changed)
}

/// Sets a directory's default ACL; `None` removes it.
pub(crate) fn set_default(
    fs: &Fs,
    handle: &Handle<'_>,
    inode: &Arc<Inode>,
    acl: Option<&Acl>,
) -> Result<bool> {
    write(fs, handle, inode, INDEX_POSIX_ACL_DEFAULT, acl)
}

/// Applies the parent's default ACL to a new inode, or the umask if there is no default ACL. It
/// runs in the handle of the creation. The caller holds the lock of `dir` and none of `inode`.
pub(crate) fn inherit_acl(
    fs: &Fs,
    handle: &Handle<'_>,
    dir: &Inode,
    inode: &Arc<Inode>,
    umask: u16,
) -> Result<()> {
    let kind = inode.kind();
    if kind == FileType::Symlink {
        return Ok(());
    }
    let Some(default) = read(fs, dir, INDEX_POSIX_ACL_DEFAULT)? else {
        inode.change_fields(|f| f.mode.0 &= !(umask & 0o777));
        return Ok(());
    };
    let mode = inode.mode();
    let inherited = default.inherit(mode.0, kind);
    if let Some(default) = &inherited.default {
        write(fs, handle, inode, INDEX_POSIX_ACL_DEFAULT, Some(default))?;
    }
    if let Some(access) = &inherited.access {
        write(fs, handle, inode, INDEX_POSIX_ACL_ACCESS, Some(access))?;
    }
    inode.set_mode(InodeMode(inherited.mode));
    inode.mark_dirty(fs, handle);
    Ok(())
}

/// Updates an access ACL for new permission bits (chmod). The caller holds the inode's lock
/// exclusively and sets the mode.
pub(crate) fn chmod_acl(fs: &Fs, handle: &Handle<'_>, inode: &Arc<Inode>, mode: u16) -> Result<()> {
    let Some(mut acl) = read(fs, inode, INDEX_POSIX_ACL_ACCESS)? else {
        return Ok(());
    };
    acl.chmod(mode);
    write(fs, handle, inode, INDEX_POSIX_ACL_ACCESS, Some(&acl))?;
    update_ctime(fs, handle, inode);
    Ok(())
}
