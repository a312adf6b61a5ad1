//! The names of directories whose names are encrypted, or ignore case: their bytes and hashes.

use crate::bytes::get;
use crate::dir_record::{HEADER, rec_len_for};
use crate::dirhash::DirHash;

/// The bytes that the names of a directory may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameBytes {
    /// All but a slash and NUL.
    Text,
    /// All: the names are encrypted.
    Any,
}

/// The rules for live records of a directory.
#[derive(Debug, Clone, Copy)]
pub struct RecordRules {
    /// The largest inode number.
    pub inodes_count: u32,
    /// The bytes of names.
    pub names: NameBytes,
}

/// The rules for a directory that is not encrypted.
impl From<u32> for RecordRules {
    fn from(inodes_count: u32) -> RecordRules {
        RecordRules {
            inodes_count,
            names: NameBytes::Text,
        }
    }
}

/// Returns the hash behind a name, which entries of encrypted directories have that also ignore
/// case. The name has `len` bytes and begins at byte `at`. `None` if the block ends before.
#[must_use]
pub fn stored_hash(block: &[u8], at: u32, len: usize) -> Option<DirHash> {
    let record = (at as usize).checked_sub(HEADER)?;
    let hash = record.checked_add(rec_len_for(len) as usize)?;
    let [a, b, c, d, e, f, g, h] = get::<8>(block, hash)?;
    Some(DirHash {
        major: u32::from_le_bytes([a, b, c, d]),
        minor: u32::from_le_bytes([e, f, g, h]),
    })
}
