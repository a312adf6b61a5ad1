//! The block map of ext2 and ext3: 32-bit block numbers, in `i_block` and in indirect blocks.
//!
//! ```text
//! i_block:  12 direct | single | double | triple
//!                          │       │        └▶ block of doubles
//!                          │       └▶ block of singles
//!                          └▶ block of pointers ─▶ data
//! ```
//!
//! Pointer 0 is a hole, at every level. An indirect block has neither a header nor a checksum, so
//! a reader checks each pointer when it follows it.

use crate::bytes::{get_u32, put_u32};
use crate::i_block::I_BLOCK_SIZE;
use units::FileBlock;

/// Data blocks that `i_block` points to directly.
pub const DIRECT: u32 = 12;
/// The most indirect blocks between `i_block` and a data block.
pub const MAX_LEVELS: u8 = 3;
/// Bytes of a pointer.
const POINTER: u32 = 4;

/// Returns the pointers in a block.
#[must_use]
pub const fn pointers(block_size: u32) -> u32 {
    block_size / POINTER
}

/// Returns the number of file blocks that a pointer covers which has `levels` indirect blocks below
/// it.
#[must_use]
pub fn covered(block_size: u32, levels: u8) -> u64 {
    u64::from(pointers(block_size)).saturating_pow(u32::from(levels))
}

/// Returns the number of file blocks that a block map can address.
#[must_use]
pub fn max_blocks(block_size: u32) -> u64 {
    let indirect = (1..=MAX_LEVELS).map(|levels| covered(block_size, levels));
    indirect.fold(u64::from(DIRECT), u64::saturating_add)
}

/// Returns the number of indirect blocks of a file that has `blocks` blocks and no holes.
#[must_use]
pub fn indirect_blocks(blocks: u64, block_size: u32) -> u64 {
    let below_root = |root: usize| {
        let (levels, first) = root_pointer(root, block_size);
        let blocks = blocks
            .saturating_sub(first)
            .min(covered(block_size, levels));
        (1..=levels)
            .map(|level| blocks.div_ceil(covered(block_size, level).max(1)))
            .sum::<u64>()
    };
    (DIRECT as usize..ROOTS).map(below_root).sum()
}

/// The way from `i_block` to a file block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// The pointer in `i_block`.
    pub root: usize,
    slots: [u32; MAX_LEVELS as usize],
    levels: u8,
}

impl Path {
    /// Returns the path to a file block; `None` if a block map cannot address it.
    #[must_use]
    pub fn to(block: FileBlock, block_size: u32) -> Option<Path> {
        let mut rest = u64::from(block.0);
        if rest < u64::from(DIRECT) {
            return Some(Path {
                root: block.0 as usize,
                slots: [0; MAX_LEVELS as usize],
                levels: 0,
            });
        }
        rest -= u64::from(DIRECT);
        for levels in 1..=MAX_LEVELS {
            let whole = covered(block_size, levels);
            if rest >= whole {
                rest -= whole;
                continue;
            }
            let per_block = u64::from(pointers(block_size));
            let mut slots = [0; MAX_LEVELS as usize];
            for (slot, below) in slots.iter_mut().zip((0..levels).rev()) {
                *slot = (rest / covered(block_size, below) % per_block.max(1)) as u32;
            }
            return Some(Path {
                root: DIRECT as usize + usize::from(levels) - 1,
                slots,
                levels,
            });
        }
        None
    }

    /// Returns the first file block that the indirect block at `depth` of the path to `block`
    /// covers, and the number of file blocks. The one next to `i_block` has depth 1; at depth
    /// `levels() + 1` is the block itself.
    #[must_use]
    pub fn covered_by(&self, depth: u8, block: FileBlock, block_size: u32) -> (u64, u64) {
        let block = u64::from(block.0);
        let (_, first) = root_pointer(self.root, block_size);
        let below = self.levels.saturating_add(1).saturating_sub(depth);
        let len = covered(block_size, below).max(1);
        (block.saturating_sub(block.saturating_sub(first) % len), len)
    }

    /// Returns the number of indirect blocks on the path.
    #[must_use]
    pub fn levels(&self) -> u8 {
        self.levels
    }

    /// Returns the pointers in the indirect blocks, from the one next to `i_block` to the lowest;
    /// none for a direct block.
    #[must_use]
    pub fn slots(&self) -> &[u32] {
        self.slots
            .get(..usize::from(self.levels))
            .unwrap_or_default()
    }
}

/// Returns the number of indirect blocks below a pointer of `i_block`, and its first file block.
#[must_use]
pub fn root_pointer(root: usize, block_size: u32) -> (u8, u64) {
    let Some(levels) = root.checked_sub(DIRECT as usize) else {
        return (0, root as u64);
    };
    let levels = (levels as u8).saturating_add(1).min(MAX_LEVELS);
    let before = (1..levels).map(|below| covered(block_size, below));
    (levels, before.fold(u64::from(DIRECT), u64::saturating_add))
}

/// Returns the number of pointers in `i_block`.
pub const ROOTS: usize = I_BLOCK_SIZE / POINTER as usize;

/// Returns the pointer in a slot of `i_block` or of an indirect block; 0 beyond the end.
#[must_use]
pub fn get(bytes: &[u8], slot: usize) -> u32 {
    slot.checked_mul(POINTER as usize)
        .and_then(|at| get_u32(bytes, at))
        .unwrap_or(0)
}

/// Stores a pointer in a slot of `i_block` or of an indirect block. Nothing is stored beyond the
/// end.
pub fn put(bytes: &mut [u8], slot: usize, pointer: u32) {
    if let Some(at) = slot.checked_mul(POINTER as usize) {
        let _ = put_u32(bytes, at, pointer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(block: u64, block_size: u32) -> (usize, Vec<u32>) {
        let path = Path::to(FileBlock(block as u32), block_size).unwrap();
        (path.root, path.slots().to_vec())
    }

    #[test]
    fn each_level_begins_where_the_one_above_it_ends() {
        for size in [1024, 2048, 4096] {
            let n = u64::from(size / 4);
            assert_eq!(slots(11, size), (11, vec![]));
            assert_eq!(slots(12, size), (12, vec![0]));
            assert_eq!(slots(11 + n, size), (12, vec![size / 4 - 1]));
            assert_eq!(slots(12 + n, size), (13, vec![0, 0]));
            assert_eq!(slots(12 + n + n * n - 1, size).1, [size / 4 - 1; 2]);
            assert_eq!(slots(12 + n + n * n, size), (14, vec![0, 0, 0]));
            assert_eq!(slots(12 + n + n * n + n + 1, size), (14, vec![0, 1, 1]));
            for root in 0..ROOTS {
                let (levels, first) = root_pointer(root, size);
                let path = Path::to(FileBlock(first as u32), size).unwrap();
                assert_eq!((path.root, path.levels()), (root, levels));
            }
        }
    }

    #[test]
    fn indirect_blocks_cover_whole_ranges() {
        let block = FileBlock(12 + 256 + 65_536 + 65_536 + 300);
        let path = Path::to(block, 1024).unwrap();
        let first = 12 + 256 + 65_536;
        assert_eq!(path.covered_by(1, block, 1024), (first, 16_777_216));
        assert_eq!(path.covered_by(2, block, 1024), (first + 65_536, 65_536));
        assert_eq!(path.covered_by(3, block, 1024), (first + 65_536 + 256, 256));
        assert_eq!(path.covered_by(4, block, 1024), (block.0.into(), 1));
        let direct = Path::to(FileBlock(3), 1024).unwrap();
        assert_eq!(direct.covered_by(1, FileBlock(3), 1024), (3, 1));
    }

    #[test]
    fn blocks_beyond_the_last_one_have_no_path() {
        let end = max_blocks(1024);
        assert_eq!(end, 12 + 256 + 65_536 + 16_777_216);
        assert_eq!(slots(end - 1, 1024), (14, vec![255; 3]));
        assert_eq!(Path::to(FileBlock(end as u32), 1024), None);
        assert!(max_blocks(4096) < u64::from(u32::MAX));
    }

    #[test]
    fn pointers_outside_of_the_bytes_are_holes() {
        let mut bytes = [0; 60];
        put(&mut bytes, 14, 0x0102_0304);
        put(&mut bytes, 15, 7);
        assert_eq!((get(&bytes, 14), get(&bytes, 15)), (0x0102_0304, 0));
        assert_eq!(get(&bytes, usize::MAX), 0);
    }
}
