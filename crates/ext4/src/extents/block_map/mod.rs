//! The block map of ext2 and ext3.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | look-ups |
//! | `change` | mapping and unmapping blocks |
//! | `promise` | indirect blocks reserved for pages that are not recorded yet |
//!
//! `i_block` has 12 pointers to data blocks, and one each to a tree of indirect blocks with one,
//! two and three levels ([`ext4_format::block_map`] draws it). A pointer of 0 is a hole that is as
//! large as what the pointer covers. All blocks that are mapped hold data: there is no unwritten
//! state.
//!
//! Indirect blocks have neither a header nor a checksum, so damage shows only in pointers. Each one
//! is checked when it is followed. A walk goes down at most three levels, so a loop of indirect
//! blocks ends it, too.

mod change;
mod promise;
#[cfg(test)]
mod tests;

pub(super) use crate::state::NodeKey;
pub(super) use change::BlockMap;
pub(super) use promise::add_missing;

use super::Map;
use super::tree::Nodes;
use crate::{InodeDamage, Result};
use ext4_format::block_map::{self, Path};
use ext4_format::extent::{Extent, ExtentState};
use units::{FileBlock, FsBlock};

/// Looks up the mapping of a file block in the map with this `i_block`.
pub(super) fn lookup<S: Nodes>(
    store: &S,
    i_block: &[u8; 60],
    block_size: u32,
    block: FileBlock,
) -> Result<Map> {
    let Some(path) = Path::to(block, block_size) else {
        return Ok(hole(FileBlock::END - block));
    };
    let mut levels = path.levels();
    let mut pointer = block_map::get(i_block, path.root);
    let mut bytes = None;
    let mut slot = path.root as u32;
    for at in path.slots() {
        if pointer == 0 {
            return Ok(rest_of_hole(&path, levels, block_size, block));
        }
        let parent = check(store, block, pointer, levels)?;
        levels -= 1;
        slot = *at;
        let parent = store.get_indirect(parent)?;
        pointer = block_map::get(bytes.insert(store.bytes(&parent)), slot as usize);
    }
    // The run goes on in the same block of pointers.
    let (pointers, end) = match &bytes {
        Some(bytes) => (&bytes[..], block_map::pointers(block_size)),
        None => (&i_block[..], block_map::DIRECT),
    };
    let following = (slot..end).map(|at| block_map::get(pointers, at as usize));
    if pointer == 0 {
        let len = following.take_while(|pointer| *pointer == 0).count() as u32;
        let is_last = slot + len == block_map::DIRECT
            && bytes.is_none()
            && (path.root + len as usize..block_map::ROOTS)
                .all(|root| block_map::get(i_block, root) == 0);
        return Ok(match is_last {
            true => hole(FileBlock::END - block),
            false => hole(len),
        });
    }
    let run = following
        .zip(u64::from(pointer)..)
        .take_while(|(found, expected)| u64::from(*found) == *expected);
    let len = run.count() as u32;
    let start = FsBlock(pointer.into());
    if !store.on_volume(start, len) {
        // The damage may be behind the block that is looked up.
        let start = check(store, block, pointer, 0)?;
        return Ok(mapped(start, 1));
    }
    Ok(mapped(start, len))
}

/// Returns the most blocks that one change can map from a file block on: those of its block of
/// pointers.
pub(super) fn most_at(block: FileBlock, block_size: u32) -> u32 {
    let Some(path) = Path::to(block, block_size) else {
        return 1;
    };
    match path.slots().last() {
        Some(slot) => block_map::pointers(block_size) - slot,
        None => block_map::DIRECT - block.0,
    }
}

/// Returns the number of contiguous runs of a map without indirect blocks; `None` for another.
pub(super) fn runs_of_root(i_block: &[u8; 60]) -> Option<usize> {
    let direct = block_map::DIRECT as usize;
    let is_alone = (direct..block_map::ROOTS).all(|root| block_map::get(i_block, root) == 0);
    let pointers = (0..direct).map(|slot| block_map::get(i_block, slot));
    let mut last = 0;
    let begins = pointers.filter(|pointer| {
        let continues = last != 0 && *pointer == last + 1;
        last = *pointer;
        *pointer != 0 && !continues
    });
    let runs = begins.count();
    is_alone.then_some(runs)
}

/// Adds the run that begins at `from`, or nothing for a hole, to `runs`. Returns the end of the run
/// or hole.
pub(super) fn next_run<S: Nodes>(
    store: &S,
    i_block: &[u8; 60],
    block_size: u32,
    from: FileBlock,
    runs: &mut Vec<Extent>,
) -> Result<FileBlock> {
    match lookup(store, i_block, block_size, from)? {
        Map::Hole { len } => Ok(from.saturating_add(len)),
        Map::Mapped { start, len, state } => {
            runs.push(Extent {
                file_block: from,
                len,
                state,
                start,
            });
            Ok(from.saturating_add(len))
        }
    }
}

/// Returns the rest of the hole that a pointer of 0 leaves, with `levels` indirect blocks below it.
fn rest_of_hole(path: &Path, levels: u8, block_size: u32, block: FileBlock) -> Map {
    let (all, first) = block_map::root_pointer(path.root, block_size);
    let whole = block_map::covered(block_size, levels);
    let within = (u64::from(block.0) - first.min(u64::from(block.0))) % whole.max(1);
    let is_last = levels == all && all == block_map::MAX_LEVELS;
    let most = u64::from(FileBlock::END - block);
    hole(match is_last {
        true => most as u32,
        false => (whole - within).min(most) as u32,
    })
}

fn hole(len: u32) -> Map {
    Map::Hole { len: len.max(1) }
}

fn mapped(start: FsBlock, len: u32) -> Map {
    Map::Mapped {
        start,
        len,
        state: ExtentState::Written,
    }
}

/// Checks a pointer on the way to a file block. `levels` is the number of indirect blocks from it
/// on, 0 for a data block.
fn check<S: Nodes>(store: &S, block: FileBlock, pointer: u32, levels: u8) -> Result<FsBlock> {
    let place = FsBlock(pointer.into());
    if store.on_volume(place, 1) {
        return Ok(place);
    }
    let damage = match levels {
        0 => InodeDamage::MappedBlock {
            file_block: block,
            block: place,
        },
        _ => InodeDamage::IndirectBlock {
            file_block: block,
            block: place,
        },
    };
    Err(damage.of(store.ino()))
}
