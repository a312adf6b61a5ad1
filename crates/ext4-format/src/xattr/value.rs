//! Values in inodes of their own (`ea_inode`).
//!
//! Such an inode is a regular file with the value as its contents. Its times have other meanings:
//!
//! ```text
//!   i_atime     the hash of the value
//!   i_ctime     the number of references, upper 32 bits
//!   i_version   the number of references, lower 32 bits
//! ```
//!
//! An entry in an inode is a reference, and so is an entry in a block, however many inodes share
//! the block.

use super::{ENTRY, Xattr, XattrEntry, align4, entry_hash, name_hashes, space_for};
use crate::checksum::{Seed, crc32c};
use crate::inode::{InodeFields, Timestamp};
use units::Ino;

/// The place of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueInode {
    /// The inode with the value as its contents.
    pub ino: Ino,
    /// The size of the value in bytes.
    pub size: u32,
}

/// A value in an inode, as an entry refers to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredValue {
    /// The inode.
    pub place: ValueInode,
    /// The hash in the entry.
    pub entry_hash: u32,
}

impl StoredValue {
    /// Returns a reference to a value from an attribute of this name.
    #[must_use]
    pub fn new(place: ValueInode, name: &[u8], value_hash: u32) -> StoredValue {
        StoredValue {
            place,
            entry_hash: entry_hash(name, &value_hash.to_le_bytes()),
        }
    }
}

impl XattrEntry<'_> {
    /// Returns the hashes that a value in an inode may have, by the hash of the entry. There are
    /// two, because machines with signed `char` hashed names in another way.
    #[must_use]
    pub fn value_hashes(&self) -> [u32; 2] {
        name_hashes(self.name).map(|name| name.rotate_left(16) ^ self.hash)
    }
}

/// Returns the hash of a value, which its inode has. The seed is [`crate::Geometry::value_seed`].
#[must_use]
pub fn value_hash(seed: Seed, value: &[u8]) -> u32 {
    crc32c(seed, value)
}

/// Returns the number of references to a value, from the fields of its inode.
#[must_use]
pub fn value_inode_refs<B>(fields: &InodeFields<B>) -> u64 {
    let upper = u64::from(fields.ctime.secs as u32);
    (upper << 32) | (fields.version & u64::from(u32::MAX))
}

/// Sets the number of references to a value.
pub fn set_value_inode_refs<B>(fields: &mut InodeFields<B>, refs: u64) {
    fields.ctime = Timestamp {
        secs: (refs >> 32) as i64,
        nanos: 0,
    };
    fields.version = refs & u64::from(u32::MAX);
}

/// Returns whether a value goes to an inode of its own, because a block would have little room for
/// others beside it. The kernel has the same limit.
#[must_use]
pub fn wants_inode(value: &[u8], block_size: usize) -> bool {
    const SHORT_NAME: usize = 3;
    let beside = super::BLOCK_HEADER
        .saturating_add(4)
        .saturating_add(align4(ENTRY.saturating_add(SHORT_NAME)));
    space_for(b"", value).saturating_sub(ENTRY) > block_size.saturating_sub(beside)
}

/// Returns whether the values in a block leave room for entries of values that are in inodes. The
/// kernel has the same limit.
#[must_use]
pub fn leave_entries(attributes: &[Xattr<'_>], block_size: usize) -> bool {
    let values = attributes
        .iter()
        .map(|attribute| align4(attribute.value.len()));
    values.fold(0, usize::saturating_add) <= block_size - block_size / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_an_entry_gives_that_of_its_value() {
        for name in [&b"a"[..], b"name", "ünï".as_bytes()] {
            let place = ValueInode {
                ino: Ino(12),
                size: 5000,
            };
            let stored = StoredValue::new(place, name, 0x1234_5678);
            let entry = XattrEntry {
                offset: 4,
                index: 1,
                name,
                value: b"",
                value_inode: Some(place),
                hash: stored.entry_hash,
            };
            assert_eq!(entry.value_hashes()[0], 0x1234_5678);
        }
    }

    #[test]
    fn references_are_counted_in_two_fields() {
        let mut fields = InodeFields::default();
        for refs in [0, 1, u64::from(u32::MAX), 1 << 32, 0x1_2345_6789] {
            set_value_inode_refs(&mut fields, refs);
            assert_eq!(value_inode_refs(&fields), refs);
        }
    }

    #[test]
    fn values_beyond_the_room_of_a_block_want_an_inode() {
        for block in [1024, 2048, 4096] {
            assert!(!wants_inode(&vec![0; block - 56], block));
            assert!(wants_inode(&vec![0; block - 55], block));
        }
    }
}
