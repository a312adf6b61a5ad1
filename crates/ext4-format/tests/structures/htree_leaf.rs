//! Leaves of hash tree directories: ordinary directory blocks that hold one range of hashes.
//!
//! A full leaf is split at the middle of its bytes in hash order. If names of one hash lie on both
//! sides, the new leaf's entry gets the collision bit: a search then looks in both.

use ext4_format::dir_entry::{self, Tail};
use ext4_format::error::{FormatError, Result};
use ext4_format::inode::FileType;
use units::Ino;

/// An entry taken out of its block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafEntry {
    /// The name's hash.
    pub hash: u32,
    /// The inode.
    pub ino: Ino,
    /// The file's type as the entry has it.
    pub file_type: Option<FileType>,
    /// The name.
    pub name: Vec<u8>,
}

impl LeafEntry {
    /// The bytes that the entry's record needs.
    #[must_use]
    pub fn rec_len(&self) -> u32 {
        dir_entry::rec_len_for(self.name.len())
    }
}

/// Takes the entries of a block but `.` and `..`, in order of their hashes.
///
/// # Errors
///
/// The first corruption.
pub fn collect(
    block: &[u8],
    inodes_count: u32,
    hash_of: impl Fn(&[u8]) -> u32,
) -> Result<Vec<LeafEntry>> {
    let mut taken = Vec::new();
    for entry in dir_entry::entries(block, inodes_count) {
        let entry = entry?;
        if entry.is_dot_or_dotdot() {
            continue;
        }
        taken.push(LeafEntry {
            hash: hash_of(entry.name),
            ino: entry.ino,
            file_type: entry.file_type,
            name: entry.name.to_vec(),
        });
    }
    taken.sort_by_key(|entry| entry.hash);
    Ok(taken)
}

/// Overwrites `block` with a leaf of these entries. The checksum is left to
/// [`dir_entry::update_checksum`].
///
/// # Errors
///
/// `NoRoom` if they do not fit; nothing is changed then.
pub fn fill(block: &mut [u8], entries: &[LeafEntry], tail: Tail) -> Result<()> {
    let need = entries.iter().fold(0u64, |sum, entry| {
        sum.saturating_add(u64::from(entry.rec_len()))
    });
    let reserved = if tail == Tail::Checksum {
        dir_entry::TAIL_SIZE
    } else {
        0
    };
    let have = block.len().saturating_sub(reserved) as u64;
    let no_room = FormatError::NoRoom {
        structure: "directory leaf",
        need,
        have,
    };
    if need > have {
        return Err(no_room);
    }
    dir_entry::init_empty(block, tail);
    for entry in entries {
        dir_entry::insert(block, &entry.name, entry.ino, entry.file_type)?;
    }
    Ok(())
}

/// Splits the entries of `full` between it and `fresh`, the upper hashes going to `fresh`, and
/// returns the hash under which `fresh` must be entered in the parent node, collision bit included.
///
/// A new name goes to `fresh` if its hash is not below the returned one, else to `full`.
///
/// # Errors
///
/// `NoRoom` if `full` has fewer than two entries, or the first corruption. Nothing is changed then.
pub fn split(
    full: &mut [u8],
    fresh: &mut [u8],
    inodes_count: u32,
    tail: Tail,
    hash_of: impl Fn(&[u8]) -> u32,
) -> Result<u32> {
    let entries = collect(full, inodes_count, hash_of)?;
    let (at, hash) = split_point(&entries).ok_or(FormatError::NoRoom {
        structure: "directory leaf",
        need: 2,
        have: entries.len() as u64,
    })?;
    let (lower, upper) = entries.split_at(at.min(entries.len()));
    fill(fresh, upper, tail)?;
    fill(full, lower, tail)?;
    Ok(hash)
}

/// Returns the split point of entries that are sorted by hash: the index of the first entry of the
/// upper part, and the hash of that part, with the collision bit if the lower part ends with the
/// same hash.
#[must_use]
pub fn split_point(entries: &[LeafEntry]) -> Option<(usize, u32)> {
    let total = entries.iter().fold(0u64, |sum, entry| {
        sum.saturating_add(u64::from(entry.rec_len()))
    });
    let mut before = 0u64;
    let mut at = 0usize;
    for entry in entries {
        if before.saturating_mul(2) >= total {
            break;
        }
        before = before.saturating_add(u64::from(entry.rec_len()));
        at = at.saturating_add(1);
    }
    // Both parts keep at least one entry.
    let at = at.min(entries.len().checked_sub(1)?);
    let lower = entries.get(at.checked_sub(1)?)?;
    let upper = entries.get(at)?;
    Some((at, upper.hash | u32::from(lower.hash == upper.hash)))
}
