//! The part of an inode whose meaning depends on the inode.

/// The size of `i_block` in bytes: a block map, an extent root, a short symlink or a device number.
pub const I_BLOCK_SIZE: usize = 60;
