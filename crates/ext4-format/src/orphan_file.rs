//! Blocks of the orphan file: inode numbers of files that are unlinked but open, or being
//! truncated.
//!
//! Each block is an array of 32-bit slots (0 is free) and an 8-byte tail of magic and checksum.

use crate::bytes::{get_u32, put_u32};
use crate::checksum::{Seed, compare};
use crate::error::{FormatError, Result};
use units::{FsBlock, Ino};

/// The magic number in the tail.
pub const ORPHAN_MAGIC: u32 = 0x0b10_ca04;
const TAIL: usize = 8;
const SLOT: usize = 4;

/// Returns the number of slots in a block of `block_size` bytes.
#[must_use]
pub fn slots_per_block(block_size: usize) -> usize {
    block_size.saturating_sub(TAIL) / SLOT
}

fn truncated(have: usize) -> FormatError {
    FormatError::Truncated {
        structure: "orphan file block",
        need: (TAIL + SLOT) as u64,
        have: have as u64,
    }
}

fn tail_offset(block: &[u8]) -> Result<usize> {
    if block.len() < TAIL + SLOT {
        Err(truncated(block.len()))
    } else {
        Ok(block.len().saturating_sub(TAIL))
    }
}

/// Checks the magic and the checksum of a block that lies at `place` on the volume.
///
/// `seed` is the orphan file's inode's.
///
/// # Errors
///
/// `BadMagic`, `Checksum` or `Truncated`.
pub fn verify(seed: Option<Seed>, block: &[u8], place: FsBlock) -> Result<()> {
    let tail = tail_offset(block)?;
    let found = get_u32(block, tail).ok_or_else(|| truncated(block.len()))?;
    if found != ORPHAN_MAGIC {
        return Err(FormatError::BadMagic {
            structure: "orphan file block",
            expected: ORPHAN_MAGIC,
            found,
        });
    }
    let Some(seed) = seed else { return Ok(()) };
    let stored = get_u32(block, tail.saturating_add(4)).ok_or_else(|| truncated(block.len()))?;
    compare(
        "orphan file block",
        place.0,
        stored,
        compute(seed, block, place)?,
    )
}

fn compute(seed: Seed, block: &[u8], place: FsBlock) -> Result<u32> {
    let slots = block.get(..tail_offset(block)?).unwrap_or_default();
    Ok(seed.extend(&place.0.to_le_bytes()).extend(slots).0)
}

/// Writes the checksum of a block that lies at `place`. Without a seed nothing changes.
///
/// # Errors
///
/// `Truncated`.
pub fn update_checksum(seed: Option<Seed>, block: &mut [u8], place: FsBlock) -> Result<()> {
    let Some(seed) = seed else { return Ok(()) };
    let checksum = compute(seed, block, place)?;
    let (have, offset) = (block.len(), tail_offset(block)?.saturating_add(4));
    put_u32(block, offset, checksum).ok_or_else(|| truncated(have))
}

/// Makes `block` an empty orphan block; the checksum is left to [`update_checksum`].
///
/// # Errors
///
/// `Truncated`.
pub fn init(block: &mut [u8]) -> Result<()> {
    let (have, tail) = (block.len(), tail_offset(block)?);
    block.fill(0);
    put_u32(block, tail, ORPHAN_MAGIC).ok_or_else(|| truncated(have))
}

/// Returns the slots in use, as slot number and inode.
pub fn slots(block: &[u8]) -> impl Iterator<Item = (usize, Ino)> + '_ {
    let slots = block
        .get(..tail_offset(block).unwrap_or(0))
        .unwrap_or_default();
    let inodes = slots
        .chunks_exact(SLOT)
        .map(|slot| get_u32(slot, 0).unwrap_or(0));
    inodes
        .enumerate()
        .filter(|(_, ino)| *ino != 0)
        .map(|(slot, ino)| (slot, Ino(ino)))
}

/// Returns the first free slot, if any.
#[must_use]
pub fn free_slot(block: &[u8]) -> Option<usize> {
    let slots = block.get(..tail_offset(block).ok()?)?;
    slots.chunks_exact(SLOT).position(|slot| slot == [0; SLOT])
}

/// Writes `ino` into `slot`; `None` frees the slot.
///
/// # Errors
///
/// `OutOfRange` for a slot that the block does not have.
pub fn set_slot(block: &mut [u8], slot: usize, ino: Option<Ino>) -> Result<()> {
    let error = FormatError::OutOfRange {
        structure: "orphan file block",
        field: "slot",
        value: slot as u64,
    };
    if slot >= slots_per_block(block.len()) {
        return Err(error);
    }
    put_u32(block, slot.saturating_mul(SLOT), ino.map_or(0, |ino| ino.0)).ok_or(error)
}
