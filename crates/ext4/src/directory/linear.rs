//! Directories without a usable hash tree. A look-up may read all blocks.

use super::block::{BlockKind, Dir};
use super::names::Wanted;
use super::tree::{Path, probe};
use super::{Leaf, Place, Slot};
use crate::{InodeDamage, Result};
use ext4_format::dir_entry;
use ext4_format::htree::NodeKind;
use jbd2::Buffer;
use std::sync::Arc;
use units::FileBlock;

impl Leaf {
    fn linear(buffer: Arc<Buffer>, file_block: FileBlock) -> Leaf {
        Leaf {
            path: Path::default(),
            buffer,
            file_block,
        }
    }
}

/// Blocks of the first window that is read ahead.
const FIRST_WINDOW: u32 = 16;
/// Blocks of a window at most.
const LARGEST_WINDOW: u32 = 256;

/// Finds a name, or else the first room for it.
pub(super) fn find(dir: &Dir<'_>, wanted: &Wanted<'_>) -> Result<Place> {
    let mut room = None;
    let mut last = None;
    for at in (0..dir.blocks).map(FileBlock) {
        read_ahead(dir, at);
        let Some(leaf) = dir.get_if_leaf(at)? else {
            continue;
        };
        let slot = probe(dir, &leaf, wanted)?;
        let place = Place::in_block(Leaf::linear(leaf, at), slot);
        match slot {
            Slot::Entry { .. } => return Ok(place),
            Slot::Room { .. } if room.is_none() => room = Some(place),
            Slot::Room { .. } => {}
            Slot::Full { .. } => last = Some(place),
        }
    }
    room.or(last).ok_or_else(|| {
        let error = InodeDamage::NoLeaf { blocks: dir.blocks }.of(dir.inode.ino);
        dir.fs.blame("directory_find", dir.inode.ino, error)
    })
}

/// Returns block 0, which has "." and "..". The root of a hash tree has no other entry.
pub(super) fn first_block(dir: &Dir<'_>) -> Result<Arc<Buffer>> {
    let kind = if dir.has_index_flag {
        BlockKind::Node(NodeKind::Root)
    } else {
        BlockKind::Leaf
    };
    dir.get(FileBlock(0), kind)
}

/// Finds "..", which is always the second entry of the first block.
pub(super) fn find_parent(dir: &Dir<'_>) -> Result<Place> {
    let leaf = first_block(dir)?;
    let slot = probe(dir, &leaf, &Wanted::Name(b".."))?;
    match slot {
        Slot::Entry { .. } => Ok(Place::in_block(Leaf::linear(leaf, FileBlock(0)), slot)),
        _ => {
            let error = InodeDamage::NoParent.at(dir.inode.ino, Some(leaf.block()));
            Err(dir.fs.blame("directory_find_parent", dir.inode.ino, error))
        }
    }
}

/// Returns whether no block has an entry other than "." and "..".
pub(super) fn is_empty(dir: &Dir<'_>) -> Result<bool> {
    for at in (0..dir.blocks).map(FileBlock) {
        read_ahead(dir, at);
        let Some(leaf) = dir.get_if_leaf(at)? else {
            continue;
        };
        let empty = dir_entry::is_empty(&leaf.data(), dir.rules());
        if !empty.map_err(|e| dir.corrupt(&leaf, e))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Prefetches the next blocks of a sequential walk that is at block `at`: at the start of a window
/// this one and the next. Windows double up to [`LARGEST_WINDOW`] blocks.
pub(super) fn read_ahead(dir: &Dir<'_>, at: FileBlock) {
    if dir.blocks > 1 && is_window_start(at.0) {
        let end = window_end(window_end(at.0)).min(dir.blocks);
        dir.prefetch((at.0..end).map(FileBlock));
    }
}

fn is_window_start(at: u32) -> bool {
    match at {
        0 => true,
        1..LARGEST_WINDOW => at >= FIRST_WINDOW && at.is_power_of_two(),
        _ => at.is_multiple_of(LARGEST_WINDOW),
    }
}

/// Returns the end of the window that starts at `at`.
fn window_end(at: u32) -> u32 {
    at.saturating_add(at.clamp(FIRST_WINDOW, LARGEST_WINDOW))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_follow_one_another_and_double() {
        let ends = std::iter::successors(Some(0), |at| Some(window_end(*at)));
        let expected = [0, 16, 32, 64, 128, 256, 512, 768];
        assert_eq!(ends.take(expected.len()).collect::<Vec<_>>(), expected);
        let starts: Vec<u32> = (0..=768).filter(|at| is_window_start(*at)).collect();
        assert_eq!(starts, expected);
    }
}
