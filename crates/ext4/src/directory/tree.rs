//! Look-ups in hash trees: a descent from the root to the leaf of a hash, then the next leaves if
//! names with this hash continue there.
//!
//! A path holds one node per level and the index of the entry followed in it. [`Path::advance`]
//! moves to the next leaf in hash order: it goes up to the first level with a next entry, takes
//! that entry, and goes down along first entries.

use super::block::{BlockKind, Dir};
use super::hash::{self, Root};
use super::names::Wanted;
use super::{Leaf, Place, Slot};
use crate::{Error, InodeDamage, Result};
use ext4_format::error::FormatError;
use ext4_format::htree::{self, NodeKind};
use jbd2::Buffer;
use smallvec::SmallVec;
use std::sync::Arc;
use units::FileBlock;

/// A node on the path to a leaf.
#[derive(Clone)]
pub(super) struct Frame {
    pub buffer: Arc<Buffer>,
    /// The index of the entry that the path follows.
    pub index: usize,
}

/// A path to a leaf.
#[derive(Clone, Default)]
pub(super) struct Path {
    /// The nodes from the root to the lowest one; empty for a directory without a tree.
    pub frames: SmallVec<[Frame; 3]>,
    /// The hash of the next leaf, with the collision bit; `None` at the last leaf.
    pub next: Option<u32>,
}

/// Returns the kind of the node at `level`; the root has level 0.
pub(super) fn node_kind(level: usize) -> NodeKind {
    if level == 0 {
        NodeKind::Root
    } else {
        NodeKind::Interior
    }
}

impl Path {
    /// Returns the number of levels.
    pub fn len(&self) -> usize {
        self.frames.len()
    }
    /// Returns whether the directory has no tree.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Returns the path from `root` to the first leaf that may have `hash`, and that leaf's block.
    pub fn descend(dir: &Dir<'_>, root: Root, hash: u32) -> Result<(Path, FileBlock)> {
        let mut path = Path::default();
        let (mut buffer, mut data) = (root.buffer, root.data);
        loop {
            let kind = node_kind(path.frames.len());
            let node = htree::open_node(&data, kind).map_err(|e| dir.corrupt(&buffer, e))?;
            let index = node.search(hash);
            if let Some(next) = node.entry(index + 1) {
                path.next = Some(next.hash);
            }
            let child = child_of(dir, &buffer, node.entry(index))?;
            path.frames.push(Frame { buffer, index });
            if path.frames.len() > usize::from(root.levels) {
                return Ok((path, child));
            }
            buffer = dir.get(child, BlockKind::Node(NodeKind::Interior))?;
            data = buffer.data();
        }
    }

    /// Returns the hash of the leaf after the path's leaf.
    fn next_hash(&self, dir: &Dir<'_>) -> Result<Option<u32>> {
        for (level, frame) in self.frames.iter().enumerate().rev() {
            let data = frame.buffer.data();
            let node = htree::open_node(&data, node_kind(level))
                .map_err(|e| dir.corrupt(&frame.buffer, e))?;
            if let Some(entry) = node.entry(frame.index.saturating_add(1)) {
                return Ok(Some(entry.hash));
            }
        }
        Ok(None)
    }

    /// Moves to the next leaf in hash order and returns its block; `None` after the last leaf.
    pub fn advance(&mut self, dir: &Dir<'_>) -> Result<Option<FileBlock>> {
        let depth = self.frames.len();
        while let Some(mut frame) = self.frames.pop() {
            frame.index = frame.index.saturating_add(1);
            let entry = {
                let data = frame.buffer.data();
                htree::open_node(&data, node_kind(self.frames.len()))
                    .map_err(|e| dir.corrupt(&frame.buffer, e))?
                    .entry(frame.index)
            };
            if entry.is_none() {
                continue;
            }
            let mut child = child_of(dir, &frame.buffer, entry)?;
            self.frames.push(frame);
            while self.frames.len() < depth {
                let buffer = dir.get(child, BlockKind::Node(NodeKind::Interior))?;
                let first = htree::open_node(&buffer.data(), NodeKind::Interior)
                    .map_err(|e| dir.corrupt(&buffer, e))?
                    .entry(0);
                child = child_of(dir, &buffer, first)?;
                self.frames.push(Frame { buffer, index: 0 });
            }
            self.next = self.next_hash(dir)?;
            return Ok(Some(child));
        }
        Ok(None)
    }

    /// Returns the blocks of the next leaves in the path's lowest node, `count` at most.
    pub fn following(&self, count: usize) -> SmallVec<[FileBlock; 32]> {
        let Some(frame) = self.frames.last() else {
            return SmallVec::new();
        };
        let data = frame.buffer.data();
        let Ok(node) = htree::open_node(&data, node_kind(self.frames.len().saturating_sub(1)))
        else {
            return SmallVec::new();
        };
        (1..=count)
            .map_while(|step| node.entry(frame.index.saturating_add(step)))
            .map(|entry| entry.block)
            .collect()
    }
}

/// Returns the block of a child. Block 0, the root, cannot be a child.
fn child_of(dir: &Dir<'_>, buffer: &Buffer, entry: Option<htree::DxEntry>) -> Result<FileBlock> {
    match entry {
        Some(entry) if entry.block.0 != 0 => Ok(entry.block),
        _ => Err(dir.corrupt(
            buffer,
            FormatError::OutOfRange {
                structure: "htree node",
                field: "block",
                value: 0,
            },
        )),
    }
}

/// Returns the error for a tree with a cycle: more leaves were visited than exist.
pub(super) fn cycle_error(dir: &Dir<'_>) -> Error {
    let error = InodeDamage::IndexCycle.of(dir.inode.ino);
    dir.fs.blame("directory_index", dir.inode.ino, error)
}

/// Finds a name in a hashed directory; `None` if the directory has no tree with a known hash.
///
/// A new name goes to the first leaf of its hash, because look-ups start there.
pub(super) fn find(dir: &Dir<'_>, wanted: &Wanted<'_>) -> Result<Option<Place>> {
    let Some(root) = hash::root(dir)? else {
        return Ok(None);
    };
    let hash = wanted.hash(dir, root.version);
    let (mut path, mut leaf_at) = Path::descend(dir, root, hash)?;
    let mut first = None;
    for _ in 0..dir.blocks {
        let leaf = dir.get(leaf_at, BlockKind::Leaf)?;
        let slot = probe(dir, &leaf, wanted)?;
        let continues = match slot {
            Slot::Entry { .. } => false,
            _ => path.next.is_some_and(|next| htree::continues(next, hash)),
        };
        let next = continues.then(|| path.clone());
        let here = Leaf {
            path,
            buffer: leaf,
            file_block: leaf_at,
        };
        let here = Place::in_block(here, slot);
        let Some(mut next) = next else {
            return Ok(Some(match (first, slot) {
                (Some(first), Slot::Room { .. } | Slot::Full { .. }) => first,
                _ => here,
            }));
        };
        let Some(next_at) = next.advance(dir)? else {
            return Err(cycle_error(dir));
        };
        first.get_or_insert(here);
        (path, leaf_at) = (next, next_at);
    }
    Err(cycle_error(dir))
}

/// Looks for a name in a leaf.
pub(super) fn probe(dir: &Dir<'_>, leaf: &Arc<Buffer>, wanted: &Wanted<'_>) -> Result<Slot> {
    let probed = wanted.probe(dir, &leaf.data());
    probed.map_err(|e| dir.corrupt(leaf, e))
}
