//! Inline data: the contents of a small file, directory or symbolic link in its inode.
//!
//! ```text
//! file, link:  i_block: bytes 0 to 59        system.data: the bytes from 60 on
//! directory:   i_block: parent:u32 records…  system.data: more records
//! ```
//!
//! `system.data` is an extended attribute in the inode. It is there even while it is empty. The
//! records of a directory are those of a directory block without "." and "..". They fill the 56
//! bytes, and the attribute, exactly; none crosses from one to the other.

use crate::bytes::get_u32;
use crate::i_block::I_BLOCK_SIZE;
use units::Ino;

/// The name of the attribute without its prefix, which is [`crate::xattr::INDEX_SYSTEM`].
pub const ATTRIBUTE: &[u8] = b"data";
/// Bytes of a directory's `i_block` before the records.
const PARENT: usize = 4;

/// Returns the contents of a file or link of `size` bytes; `None` if both places have fewer.
#[must_use]
pub fn contents(i_block: &[u8; I_BLOCK_SIZE], attribute: &[u8], size: u64) -> Option<Vec<u8>> {
    let size = usize::try_from(size).ok()?;
    let mut bytes = [i_block, attribute].concat();
    if bytes.len() < size {
        return None;
    }
    bytes.truncate(size);
    Some(bytes)
}

/// Returns the parent of a directory.
#[must_use]
pub fn parent(i_block: &[u8; I_BLOCK_SIZE]) -> Ino {
    Ino(get_u32(i_block, 0).unwrap_or(0))
}

/// Returns the records in the `i_block` of a directory.
#[must_use]
pub fn records(i_block: &[u8; I_BLOCK_SIZE]) -> &[u8] {
    i_block.get(PARENT..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_continue_in_the_attribute() {
        let i_block = [b'a'; I_BLOCK_SIZE];
        assert_eq!(contents(&i_block, b"", 3).unwrap(), b"aaa");
        let all = contents(&i_block, b"bcd", 62).unwrap();
        assert_eq!(&all[58..], b"aabc");
        assert_eq!(contents(&i_block, b"bcd", 64), None);
        assert_eq!(contents(&i_block, b"", u64::MAX), None);
    }
}
