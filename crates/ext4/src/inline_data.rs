//! Contents that are in the inode (`inline_data`): of small files, directories and symbolic links.
//!
//! Volumes with the feature are only read. The caller holds the inode's lock.

use crate::xattr::Attributes;
use crate::{Fs, Inode, InodeDamage, Result};
use ext4_format::inline_data;
use ext4_format::inode::InodeFlags;
use ext4_format::xattr::INDEX_SYSTEM;

/// Returns whether the contents of an inode are in the inode.
pub(crate) fn is_inline(inode: &Inode) -> bool {
    inode.flags().contains(InodeFlags::INLINE_DATA)
}

/// The two places of contents.
pub(crate) struct Places {
    pub i_block: [u8; 60],
    pub attribute: Vec<u8>,
}

/// Returns the contents of both places.
pub(crate) fn places(fs: &Fs, inode: &Inode) -> Result<Places> {
    let attributes = match inode.has_xattrs() {
        true => Attributes::read(fs, inode)?,
        false => Attributes::default(),
    };
    let attribute = attributes.get(INDEX_SYSTEM, inline_data::ATTRIBUTE);
    Ok(Places {
        i_block: *inode.i_block.read(),
        attribute: attribute.unwrap_or_default().to_vec(),
    })
}

/// Returns the contents of a file or symbolic link.
///
/// # Errors
/// `CorruptInode` if they are shorter than the inode's size.
pub(crate) fn contents(fs: &Fs, inode: &Inode) -> Result<Vec<u8>> {
    let Places { i_block, attribute } = places(fs, inode)?;
    let size = inode.size();
    inline_data::contents(&i_block, &attribute, size).ok_or_else(|| {
        let have = (i_block.len() + attribute.len()) as u64;
        let error = InodeDamage::InlineSize { size, have }.of(inode.ino);
        fs.blame("inline_data", inode.ino, error)
    })
}
