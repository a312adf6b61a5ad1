//! Changes of a block map: mapping a hole, and unmapping from the end backwards.
//!
//! A change stays within one block of pointers, so it changes at most that block, the blocks above
//! it, and `i_block`. New indirect blocks are allocated before anything is changed, so `NoSpace`
//! changes nothing. An indirect block without pointers is freed, unless pages wait that it may have
//! to map: their promises were used for it ([`super::promise`]).

use super::{NodeKey, check};
use crate::extents::tree::{Extents, NodesMut};
use crate::{Error, InodeDamage, Result};
use ext4_format::block_map::{self, Path};
use ext4_format::extent::{Extent, ExtentState};
use smallvec::SmallVec;
use std::ops::Range;
use units::{FileBlock, FsBlock};

/// The map of an inode that the caller has locked exclusively.
pub(in crate::extents) struct BlockMap<'a, S: NodesMut> {
    pub store: &'a S,
    pub i_block: &'a mut [u8; 60],
    pub block_size: u32,
}

/// The result of [`BlockMap::remove_last`].
#[derive(Default)]
pub(in crate::extents) struct Removed {
    /// Runs that were unmapped, the last one first. The caller frees their blocks.
    pub runs: Extents,
    /// The end of the range that is left to remove.
    pub end: FileBlock,
}

/// Indirect blocks that were allocated, and their places on the volume.
type NewBlocks<N> = SmallVec<[(FsBlock, N); 3]>;

/// An indirect block on a path, or `i_block`.
struct Place<N> {
    /// `None`: `i_block`.
    node: Option<(FsBlock, N)>,
    /// The pointer that the path follows.
    slot: usize,
    /// The first file block that the node covers, and the end.
    covers: Range<u64>,
}

impl<S: NodesMut> BlockMap<'_, S> {
    fn pointer(&self, place: &Place<S::Node>) -> u32 {
        match &place.node {
            Some((_, node)) => block_map::get(&self.store.bytes(node), place.slot),
            None => block_map::get(self.i_block, place.slot),
        }
    }

    fn set_pointer(&mut self, place: &Place<S::Node>, pointer: u32) {
        match &place.node {
            Some((_, node)) => self
                .store
                .modify_indirect(node, |bytes| block_map::put(bytes, place.slot, pointer)),
            None => block_map::put(self.i_block, place.slot, pointer),
        }
    }

    /// Returns the places on the path to a file block, as far as they exist. The last one has the
    /// pointer to the block, or a pointer of 0 above it.
    fn descend(&self, path: &Path, block: FileBlock) -> Result<SmallVec<[Place<S::Node>; 4]>> {
        let mut places = SmallVec::new();
        places.push(Place {
            node: None,
            slot: path.root,
            covers: 0..u64::from(u32::MAX) + 1,
        });
        for (depth, slot) in (1..).zip(path.slots()) {
            let Some(pointer) = places.last().map(|place| self.pointer(place)) else {
                break;
            };
            if pointer == 0 {
                break;
            }
            let levels = path.levels() + 1 - depth;
            let parent = check(self.store, block, pointer, levels)?;
            let (first, len) = path.covered_by(depth, block, self.block_size);
            places.push(Place {
                node: Some((parent, self.store.get_indirect(parent)?)),
                slot: *slot as usize,
                covers: first..first + len,
            });
        }
        Ok(places)
    }

    /// Maps a hole. The extent is within one block of pointers ([`super::most_at`]).
    pub fn insert(&mut self, extent: Extent) -> Result<()> {
        let block = extent.file_block;
        let Some(path) = Path::to(block, self.block_size) else {
            return Err(Error::FileTooLarge);
        };
        let Ok(start) = u32::try_from(extent.start.0) else {
            return Err(Error::Unsupported(format!(
                "block {} has more than 32 bits, which a block map cannot address",
                extent.start
            )));
        };
        let fits = extent.len <= super::most_at(block, self.block_size)
            && extent.state == ExtentState::Written
            && start.checked_add(extent.len).is_some()
            && self.store.on_volume(extent.start, extent.len);
        if !fits {
            return Err(Error::Internal("a run does not fit into a block map"));
        }
        let mut places = self.descend(&path, block)?;
        if places.len() > usize::from(path.levels())
            && let Some(leaf) = places.last()
            && self.has_pointer(leaf, extent.len)
        {
            let damage = InodeDamage::MappedTwice {
                first: block,
                last: extent.last(),
            };
            return Err(self.store.corrupt(damage, None));
        }
        let new = self.create_missing(&path, &extent, places.len())?;
        for (depth, (node_block, node)) in (places.len()..).zip(new) {
            if let Some(parent) = places.last() {
                self.set_pointer(parent, node_block.0 as u32);
            }
            let slot = path.slots().get(depth - 1).copied().unwrap_or_default();
            places.push(Place {
                node: Some((node_block, node)),
                slot: slot as usize,
                covers: 0..0,
            });
        }
        let pointers: Vec<u32> = (start..start + extent.len).collect();
        if let Some(leaf) = places.last() {
            self.set_run(leaf, &pointers);
        }
        Ok(())
    }

    /// Returns whether one of `len` pointers from the place's slot on is not 0.
    fn has_pointer(&self, place: &Place<S::Node>, len: u32) -> bool {
        let slots = place.slot..place.slot + len as usize;
        match &place.node {
            Some((_, node)) => {
                let bytes = self.store.bytes(node);
                slots
                    .into_iter()
                    .any(|slot| block_map::get(&bytes, slot) != 0)
            }
            None => slots
                .into_iter()
                .any(|slot| block_map::get(self.i_block, slot) != 0),
        }
    }

    /// Allocates the indirect blocks of the path to an extent, from this depth on. An error has
    /// allocated nothing.
    fn create_missing(
        &self,
        path: &Path,
        extent: &Extent,
        from: usize,
    ) -> Result<NewBlocks<S::Node>> {
        let mut new = NewBlocks::new();
        for depth in from..=usize::from(path.levels()) {
            let key = NodeKey::on(path, depth as u8, extent.file_block, self.block_size);
            match self.store.create_indirect(extent.start, key) {
                Ok(created) => new.push(created),
                Err(error) => {
                    for (block, _) in new {
                        self.store.release(block)?;
                    }
                    return Err(error);
                }
            }
        }
        Ok(new)
    }

    /// Stores pointers from the place's slot on.
    fn set_run(&mut self, place: &Place<S::Node>, pointers: &[u32]) {
        let put = |bytes: &mut [u8]| {
            for (slot, pointer) in (place.slot..).zip(pointers) {
                block_map::put(bytes, slot, *pointer);
            }
        };
        match &place.node {
            Some((_, node)) => self.store.modify_indirect(node, put),
            None => put(self.i_block),
        }
    }

    /// Unmaps the last blocks of a range: runs of one block of pointers, or a hole that a pointer
    /// of 0 leaves.
    ///
    /// It calls `may_remove` with each run before the removal and stops when that returns false.
    /// The first run is removed in any case. An error of `may_remove` has changed nothing. `waits`
    /// returns whether pages of a range of file blocks wait to be recorded.
    pub fn remove_last(
        &mut self,
        range: &Range<FileBlock>,
        may_remove: &mut dyn FnMut(&Extent) -> Result<bool>,
        waits: &dyn Fn(Range<FileBlock>) -> bool,
    ) -> Result<Removed> {
        let mut removed = Removed {
            end: range.start,
            ..Removed::default()
        };
        let most = block_map::max_blocks(self.block_size);
        let end = u64::from(range.end.0).min(most);
        let Some(last) = end
            .checked_sub(1)
            .filter(|last| *last >= u64::from(range.start.0))
        else {
            return Ok(removed);
        };
        let last = FileBlock(last as u32);
        let Some(path) = Path::to(last, self.block_size) else {
            return Ok(removed);
        };
        let places = self.descend(&path, last)?;
        let Some(leaf) = places.last() else {
            return Ok(removed);
        };
        if places.len() <= usize::from(path.levels()) {
            // All that the pointer covers is a hole.
            let depth = places.len() as u8;
            let (first, _) = path.covered_by(depth, last, self.block_size);
            removed.end = FileBlock(first.max(u64::from(range.start.0)) as u32);
            return self.release_empty(places, range, waits).map(|()| removed);
        }
        let first_slot = match &leaf.node {
            Some(_) => 0,
            None => leaf.slot - last.0 as usize,
        };
        let least = leaf
            .slot
            .saturating_sub((last.0 - range.start.0) as usize)
            .max(first_slot);
        let bytes: SmallVec<[u32; 16]> = match &leaf.node {
            Some((_, node)) => {
                let bytes = self.store.bytes(node);
                (least..=leaf.slot)
                    .map(|slot| block_map::get(&bytes, slot))
                    .collect()
            }
            None => (least..=leaf.slot)
                .map(|slot| block_map::get(self.i_block, slot))
                .collect(),
        };
        let first = last.0 - (leaf.slot - least) as u32;
        let mut left = bytes.len();
        removed.end = FileBlock(first);
        while let Some(run) = last_run(&bytes[..left], first) {
            if !self.store.on_volume(run.start, run.len) {
                check(self.store, run.file_block, bytes[left - 1], 0)?;
                return Err(Error::Internal("a run of a block map is not on the volume"));
            }
            let may = may_remove(&run)?;
            if !may && !removed.runs.is_empty() {
                removed.end = run.end();
                break;
            }
            left = (run.file_block.0 - first) as usize;
            removed.end = run.file_block;
            removed.runs.push(run);
            if !may {
                break;
            }
            removed.end = FileBlock(first);
        }
        let zeroes: SmallVec<[u32; 16]> = bytes[left..].iter().map(|_| 0).collect();
        let cleared = Place {
            node: leaf.node.clone(),
            slot: least + left,
            covers: 0..0,
        };
        if !removed.runs.is_empty() {
            self.set_run(&cleared, &zeroes);
        }
        self.release_empty(places, range, waits).map(|()| removed)
    }

    /// Frees the indirect blocks at the end of a path that have no pointers.
    fn release_empty(
        &mut self,
        mut places: SmallVec<[Place<S::Node>; 4]>,
        range: &Range<FileBlock>,
        waits: &dyn Fn(Range<FileBlock>) -> bool,
    ) -> Result<()> {
        while let Some(place) = places.pop() {
            let Some((block, node)) = place.node else {
                break;
            };
            let is_empty = self.store.bytes(&node).iter().all(|byte| *byte == 0);
            let end = place.covers.end.min(u64::from(u32::MAX));
            let (first, end) = (FileBlock(place.covers.start as u32), FileBlock(end as u32));
            // The pages of the range itself are dropped with its blocks.
            if !is_empty
                || waits(first..end.min(range.start.max(first)))
                || waits(first.max(range.end.min(end))..end)
            {
                break;
            }
            if let Some(parent) = places.last() {
                self.set_pointer(parent, 0);
            }
            drop(node);
            self.store.release(block)?;
        }
        Ok(())
    }
}

/// Returns the last contiguous run of pointers, the first of which maps file block `first`.
fn last_run(pointers: &[u32], first: u32) -> Option<Extent> {
    let end = pointers.iter().rposition(|pointer| *pointer != 0)?;
    let mut start = end;
    while let Some(before) = start.checked_sub(1)
        && pointers[before] != 0
        && pointers[before].checked_add(1) == Some(pointers[start])
    {
        start = before;
    }
    Some(Extent {
        file_block: FileBlock(first + start as u32),
        len: (end - start) as u32 + 1,
        state: ExtentState::Written,
        start: FsBlock(pointers[start].into()),
    })
}
