//! Symbolic links: a short target lives in `i_block`, a longer one in the file's first block.

use crate::error::{FormatError, Result};
use crate::inode::{I_BLOCK_SIZE, InodeFields};

/// The longest target that fits in `i_block`, in bytes: one less than its size, for a final zero.
pub const MAX_FAST_TARGET: usize = I_BLOCK_SIZE - 1;

/// Returns the target of a fast symlink.
///
/// # Errors
///
/// `OutOfRange` if the inode's size does not fit in `i_block` or the target is empty.
pub fn fast_target(inode: &InodeFields) -> Result<&[u8]> {
    let error = FormatError::OutOfRange {
        structure: "symlink",
        field: "i_size",
        value: inode.size,
    };
    let len = usize::try_from(inode.size)
        .ok()
        .filter(|len| (1..=MAX_FAST_TARGET).contains(len));
    len.and_then(|len| inode.i_block.get(..len)).ok_or(error)
}

/// Returns the ciphertext of an encrypted target, from the contents of the link: its length in two
/// bytes, then itself. `None` if the length is 0 or larger than the contents.
#[must_use]
pub fn encrypted_target(contents: &[u8]) -> Option<&[u8]> {
    let (len, rest) = contents.split_first_chunk::<2>()?;
    let len = usize::from(u16::from_le_bytes(*len));
    rest.get(..len).filter(|target| !target.is_empty())
}

/// The `i_block` of a fast symlink to `target`, or `None` if it is too long for one.
#[must_use]
pub fn fast_i_block(target: &[u8]) -> Option<[u8; I_BLOCK_SIZE]> {
    if target.is_empty() || target.len() > MAX_FAST_TARGET {
        return None;
    }
    let mut i_block = [0; I_BLOCK_SIZE];
    i_block.get_mut(..target.len())?.copy_from_slice(target);
    Some(i_block)
}
