//! POSIX ACLs: kept as attributes in ext4's compact form, and tied to the permission bits of the
//! mode.
//!
//! An access ACL that says no more than the mode is not stored. Otherwise its owner, mask (or
//! group) and other entries equal the mode's three classes, and whatever changes one changes the
//! other: [`set_access`], [`chmod_acl`], [`inherit_acl`].

use super::store::{self, Attributes};
use super::{SetXattrMode, changed};
use crate::{Fs, Inode, Result};
use ext4_format::acl::Acl;
use ext4_format::inode::{FileType, InodeMode};
use ext4_format::xattr::{INDEX_POSIX_ACL_ACCESS, INDEX_POSIX_ACL_DEFAULT};
use jbd2::Handle;
use std::sync::Arc;

/// An inode's ACL, if it has one. The caller keeps others from changing attributes meanwhile.
fn read(fs: &Fs, inode: &Inode, index: u8) -> Result<Option<Acl>> {
    if !Attributes::any(inode) {
        return Ok(None);
    }
    match Attributes::read(fs, inode)?.get(index, b"") {
        Some(value) => Ok(Some(Acl::from_disk(value)?)),
        None => Ok(None),
    }
}

/// Stores an ACL, or removes it.
fn write(
    fs: &Fs,
    handle: &Handle<'_>,
    inode: &Arc<Inode>,
    index: u8,
    acl: Option<&Acl>,
) -> Result<()> {
    let value = acl.map(Acl::to_disk);
    let (name, mode) = ((index, &b""[..]), SetXattrMode::Any);
    store::change(fs, handle, inode, name, value.as_deref(), mode)
}

/// Sets the access ACL and the permission bits that it stands for; one that says no more than these
/// is not stored. `None` removes it and leaves the mode.
pub(super) fn set_access(
    fs: &Fs,
    handle: &Handle<'_>,
    inode: &Arc<Inode>,
    acl: Option<Acl>,
) -> Result<()> {
    let permissions = acl.as_ref().map(|acl| acl.equiv_mode().0);
    let stored = acl.filter(|acl| !acl.equiv_mode().1);
    write(fs, handle, inode, INDEX_POSIX_ACL_ACCESS, stored.as_ref())?;
    if let Some(permissions) = permissions {
        inode.change_fields(|f| f.mode = InodeMode((f.mode.0 & !0o777) | permissions));
    }
    Ok(())
}

/// Sets a directory's default ACL; `None` removes it.
pub(super) fn set_default(
    fs: &Fs,
    handle: &Handle<'_>,
    inode: &Arc<Inode>,
    acl: Option<&Acl>,
) -> Result<()> {
    write(fs, handle, inode, INDEX_POSIX_ACL_DEFAULT, acl)
}

/// Gives a new inode its parent's default ACL, or applies the umask where there is none. Part of
/// create's handle; called with no lock of `inode` held and that of `dir` held by the caller.
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
    let inherited = default.inherit(mode.0, kind == FileType::Directory);
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

/// chmod: brings an access ACL in line with new permission bits. The caller holds the inode's lock
/// exclusively, and sets the mode itself.
pub(crate) fn chmod_acl(fs: &Fs, handle: &Handle<'_>, inode: &Arc<Inode>, mode: u16) -> Result<()> {
    let Some(mut acl) = read(fs, inode, INDEX_POSIX_ACL_ACCESS)? else {
        return Ok(());
    };
    acl.chmod(mode);
    write(fs, handle, inode, INDEX_POSIX_ACL_ACCESS, Some(&acl))?;
    changed(fs, handle, inode);
    Ok(())
}
