//! Reading directories ahead.
//!
//! The reader of a directory without a usable tree gets its blocks in windows (`linear`). Leaves of
//! a tree are read in the order of hashes, and lie in the order in which they were split. So a
//! small directory is read at once, and of a larger one the neighbours of the next leaves are read
//! with them: they are needed before the directory ends.

use super::block::Dir;
use units::FileBlock;

/// Bytes that are read at once of a directory that is larger than the limit of one read. They
/// begin at a multiple of this number.
const WINDOW: u32 = 256 << 10;
/// Neighbours are read of directories that take at most the memory budget divided by this. In a
/// smaller cache they would be evicted before they are needed.
const MEMORY_PART: u64 = 16;

/// A reader starts with the directory: reads it ahead, and others near it.
pub(super) fn begin(dir: &Dir<'_>) {
    let Ok(first) = dir.locate(FileBlock(0)) else {
        return;
    };
    let journal = &dir.fs.journal;
    if !journal.is_cached(first) {
        let mut blocks = dir.fs.directories_near(dir.inode);
        blocks.push(first);
        journal.prefetch(&blocks);
    }
    if dir.blocks > 1 && dir.blocks <= journal.read_ahead_limit() {
        dir.prefetch((0..dir.blocks).map(FileBlock));
    }
}

/// Reads leaves of a tree ahead, which are needed in this order.
pub(super) fn leaves(dir: &Dir<'_>, leaves: impl Iterator<Item = FileBlock>) {
    let leaves: Vec<FileBlock> = leaves.filter(|leaf| is_missing(dir, *leaf)).collect();
    let bytes = u64::from(dir.blocks) << dir.fs.geo.block_bits;
    if bytes > dir.fs.budget.limit() / MEMORY_PART {
        return dir.prefetch(leaves.into_iter());
    }
    let window = WINDOW / dir.fs.geo.block_size;
    let size = dir.fs.journal.read_ahead_limit().min(window);
    let mut windows: Vec<u32> = leaves.iter().map(|leaf| leaf.0 / size).collect();
    windows.sort_unstable();
    windows.dedup();
    let blocks = windows.into_iter().flat_map(|window| {
        let start = window * size;
        start..dir.blocks.min(start.saturating_add(size))
    });
    dir.prefetch(blocks.map(FileBlock));
}

fn is_missing(dir: &Dir<'_>, at: FileBlock) -> bool {
    dir.locate(at)
        .is_ok_and(|block| !dir.fs.journal.is_cached(block))
}
