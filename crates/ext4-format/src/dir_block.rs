//! Directory blocks as a whole: initialisation, and the checksum record at the end.
//!
//! Callers reach all of this through [`dir_entry`](crate::dir_entry).

use crate::bytes::{get_u32, put_u32, saturating_u32};
use crate::checksum::{Seed, compare, crc32c};
use crate::dir_record::{put_record, rec_len_for, set_rec_len};
use crate::error::{FormatError, Result};
use crate::inode::FileType;
use units::Ino;

/// The size of the checksum record at the end of a block.
pub const TAIL_SIZE: usize = 12;
const TAIL_FILE_TYPE: u8 = 0xde;

/// The bytes of a block that records of files may use: all but the tail.
#[must_use]
pub fn usable_len(block: &[u8]) -> usize {
    if has_tail(block) {
        block.len().saturating_sub(TAIL_SIZE)
    } else {
        block.len()
    }
}

fn tail(block: &[u8]) -> Option<[u8; TAIL_SIZE]> {
    block.last_chunk::<TAIL_SIZE>().copied()
}

/// Returns whether the block ends in a checksum record.
#[must_use]
pub fn has_tail(block: &[u8]) -> bool {
    tail(block)
        .is_some_and(|tail| tail.starts_with(&[0, 0, 0, 0, TAIL_SIZE as u8, 0, 0, TAIL_FILE_TYPE]))
}

/// Writes an empty checksum record at the block's end.
pub fn init_tail(block: &mut [u8]) {
    if let Some(tail) = block.last_chunk_mut::<TAIL_SIZE>() {
        *tail = [
            0,
            0,
            0,
            0,
            TAIL_SIZE as u8,
            0,
            0,
            TAIL_FILE_TYPE,
            0,
            0,
            0,
            0,
        ];
    }
}

fn compute(seed: Seed, block: &[u8]) -> u32 {
    let covered = block.len().saturating_sub(TAIL_SIZE);
    crc32c(seed, block.get(..covered).unwrap_or_default())
}

/// Verifies the checksum of a leaf or linear directory block. Hash tree nodes have another: see
/// [`htree`](crate::htree).
///
/// `seed` is the directory's inode's; `place` is the block's number, for the error.
///
/// # Errors
///
/// `MissingTail` or `Checksum`.
pub fn verify_checksum(seed: Option<Seed>, block: &[u8], place: u64) -> Result<()> {
    let Some(seed) = seed else { return Ok(()) };
    if !has_tail(block) {
        return Err(FormatError::MissingTail {
            structure: "directory block",
            place,
        });
    }
    let stored = get_u32(block, block.len().saturating_sub(4)).unwrap_or(0);
    compare("directory block", place, stored, compute(seed, block))
}

/// Writes the checksum of a leaf or linear directory block. Nothing changes without a seed, nor in
/// a block without a tail (from before checksums were turned on).
pub fn update_checksum(seed: Option<Seed>, block: &mut [u8]) {
    let Some(seed) = seed.filter(|_| has_tail(block)) else {
        return;
    };
    let (checksum, at) = (compute(seed, block), block.len().saturating_sub(4));
    let _ = put_u32(block, at, checksum);
}

/// Whether a new directory block gets a checksum record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tail {
    /// The volume has metadata checksums.
    Checksum,
    /// It has none.
    None,
}

impl Tail {
    /// Returns the tail of a directory with this checksum seed.
    #[must_use]
    pub fn for_seed(seed: Option<Seed>) -> Tail {
        if seed.is_some() {
            Tail::Checksum
        } else {
            Tail::None
        }
    }

    pub(crate) fn len(self) -> u32 {
        if self == Tail::Checksum {
            TAIL_SIZE as u32
        } else {
            0
        }
    }
}

/// Makes `block` a directory block without entries.
pub fn init_empty(block: &mut [u8], tail: Tail) {
    block.fill(0);
    let usable = saturating_u32(block.len()).saturating_sub(tail.len());
    let _ = set_rec_len(block, 0, usable);
    if tail == Tail::Checksum {
        init_tail(block);
    }
}

/// Makes `block` the first block of a new directory, with `.` and `..` only.
pub fn init_dot_dotdot(block: &mut [u8], ino: Ino, parent: Ino, tail: Tail) {
    block.fill(0);
    let usable = saturating_u32(block.len()).saturating_sub(tail.len());
    let dot_len = rec_len_for(1);
    let directory = Some(FileType::Directory);
    let _ = put_record(block, 0, (ino, dot_len), b".", directory);
    let _ = put_record(
        block,
        dot_len,
        (parent, usable.saturating_sub(dot_len)),
        b"..",
        directory,
    );
    if tail == Tail::Checksum {
        init_tail(block);
    }
}
