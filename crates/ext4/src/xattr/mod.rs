//! Extended attributes, in the inode and in a block of their own, and POSIX ACLs in ext4's form.
//!
//! | file | what it holds |
//! |---|---|
//! | `store` | reading and writing both places; blocks that inodes share |
//! | `value_inode` | values in inodes of their own |
//! | `inline_value` | the attribute with a part of the inode's contents |
//! | `acl` | access and default ACLs: their relation to the mode, inheritance |
//!
//! The operations on them are in `attributes::extended`. Volumes whose values may be in inodes of
//! their own (`ea_inode`) are only read.

mod acl;
mod inline_value;
mod store;
mod value_inode;

pub(crate) use acl::{chmod_acl, inherit_acl, set_access, set_default};
pub(crate) use inline_value::BesideInline;
pub(crate) use store::{Attributes, change};

use crate::{Fs, Inode, Result};
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

/// Credits for [`inherit_acl`] and [`change`]: the old block and a new one, a bitmap and a
/// descriptor block for each, the inode, the super block.
pub(crate) const XATTR_CREDITS: u32 = 8;

/// Drops the reference of an inode, which is being deleted, to its attribute block.
pub(crate) fn release_block(fs: &Fs, handle: &Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
    store::release(fs, handle, inode)
}
