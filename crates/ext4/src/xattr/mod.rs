//! Extended attributes, in the inode and in a block of their own, and POSIX ACLs in ext4's form.
//!
//! | file | what it holds |
//! |---|---|
//! | `store` | reading and changing the attributes of an inode: which one is where |
//! | `block` | the block with attributes, which inodes share |
//! | `attribute` | one attribute |
//! | `value_inode` | values in inodes of their own (`ea_inode`) |
//! | `inline_value` | the attribute with a part of the inode's contents |
//! | `acl` | access and default ACLs: their relation to the mode, inheritance |
//!
//! The operations on them are in `attributes::extended`.

mod acl;
mod attribute;
mod block;
mod inline_value;
mod store;
mod value_inode;

pub(crate) use acl::{chmod_acl, inherit_acl, set_access, set_default};
pub(crate) use inline_value::BesideInline;
pub(crate) use store::{Attributes, change};

use crate::{Fs, Inode, Result};
use ext4_format::xattr::{INDEX_POSIX_ACL_ACCESS, INDEX_POSIX_ACL_DEFAULT};
use jbd2::Handle;
use std::sync::Arc;

/// Whether setting an attribute may create or replace it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetXattrMode {
    /// Create or replace.
    #[default]
    Any,
    /// The attribute must not exist.
    Create,
    /// The attribute must exist.
    Replace,
}

/// Updates the ctime of an inode whose attributes changed.
pub(crate) fn update_ctime(fs: &Fs, handle: &Handle<'_>, inode: &Arc<Inode>) {
    inode.set_ctime(fs.now());
    inode.mark_dirty(fs, handle);
}

/// Credits for [`inherit_acl`] and for [`change`] without values in inodes: the old block and a new
/// one, a bitmap and a descriptor block for each, the inode, the super block.
pub(crate) const XATTR_CREDITS: u32 = 8;

/// Returns the credits for [`change`] to a value of `len` bytes. The caller's lock excludes changes
/// of attributes.
pub(crate) fn credits(fs: &Fs, inode: &Inode, len: usize) -> Result<u32> {
    if !value_inode::is_used(fs) {
        return Ok(XATTR_CREDITS);
    }
    let moved = match inode.has_xattrs() {
        true => store::moved_credits(fs, inode)?,
        false => 0,
    };
    // The old value may lose its last reference, and the new one gets its first.
    Ok(XATTR_CREDITS.saturating_add(moved + value_inode::credits(fs, 2, len)))
}

/// Returns the credits for [`chmod_acl`]. The caller's lock excludes changes of attributes.
pub(crate) fn credits_to_chmod(fs: &Fs, inode: &Inode) -> Result<u32> {
    let len = acl::stored_len(fs, inode, INDEX_POSIX_ACL_ACCESS)?;
    credits(fs, inode, len)
}

/// Returns the credits for [`inherit_acl`] from `dir`, which the caller has locked.
pub(crate) fn credits_to_inherit(fs: &Fs, dir: &Inode) -> Result<u32> {
    // The new inode gets a default ACL and an access ACL.
    let len = acl::stored_len(fs, dir, INDEX_POSIX_ACL_DEFAULT)?;
    Ok(XATTR_CREDITS + 2 * value_inode::credits(fs, usize::from(len > 0), len))
}

/// Returns whether values may be in inodes of their own on this volume.
pub(crate) fn has_value_inodes(fs: &Fs) -> bool {
    value_inode::is_used(fs)
}

/// Returns whether an inode has no attributes that its deletion has to release.
pub(crate) fn nothing_to_release(fs: &Fs, inode: &Inode) -> bool {
    inode.xattr_block().0 == 0 && !(value_inode::is_used(fs) && store::may_have_values(inode))
}

/// Drops the references of an inode, which is being deleted, to values in inodes, in handles of its
/// own. The inode is an orphan, so after a crash the next mount continues.
pub(crate) fn release_values(fs: &Fs, inode: &Arc<Inode>) -> Result<()> {
    store::release_values(fs, inode)
}

/// Drops the reference of an inode, which is being deleted, to its attribute block, after
/// [`release_values`]. It needs [`XATTR_CREDITS`].
pub(crate) fn release(fs: &Fs, handle: &Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
    block::release(fs, handle, inode)
}
