//! The B+tree: descents, and replacing entries with splits, growth and shrinking.
//!
//! The tree uses nodes through [`Nodes`]. The journal implements it ([`super::store`]). Tests
//! implement it with tiny nodes, so that small trees have every depth.
//!
//! Invariants, checked by every descent and kept by every change:
//! - the depth of a node is one less than its parent's, so a path has at most 6 nodes;
//! - a node other than the root starts at the key of its entry in the parent and ends at the key of
//!   the next entry: the ranges of siblings are disjoint, so a walk visits each node once;
//! - extents are not empty, lie on the volume and do not overlap.
//!
//! All changes are [`Tree::splice`] of a leaf. If the entries do not fit:
//!
//! ```text
//! root full                           node full, change elsewhere            node full, change at the file's end
//!
//! [a b c d] + e                          [.. p ..]                               [.. p]
//!     ▼                                      ▼                                      ▼
//! [i]                                    [.. p q ..]                             [.. p q]
//!  └▶ [a b c d e]  one level deeper    half ┘  └ half, new                     full ┘  └ [new], so that files that grow
//!                                                                                        fill their nodes
//! ```
//!
//! New nodes are allocated before anything is changed, so `NoSpace` changes nothing. `promise`
//! relies on these splits when it computes how many nodes changes can need.

use super::node::{self, Raw, Raws, View};
use crate::state::NodeKey;
use crate::{Error, InodeDamage, Result};
use block::Buf;
use ext4_format::extent::{Extent, MAX_DEPTH};
use smallvec::SmallVec;
use units::{FileBlock, FsBlock, Ino};

/// Read access to the nodes other than the root.
pub(super) trait Nodes {
    /// A node in memory.
    type Node: Clone;
    /// Returns the verified node in `block`.
    fn get(&self, block: FsBlock, depth: u16) -> Result<Self::Node>;
    /// Returns the indirect block of a block map in `block`, which has nothing to be verified.
    fn get_indirect(&self, block: FsBlock) -> Result<Self::Node>;
    /// Returns the content of a node.
    fn bytes(&self, node: &Self::Node) -> Buf;
    /// Returns whether the blocks are on the volume and not the file system's own.
    fn on_volume(&self, start: FsBlock, len: u32) -> bool;
    /// Returns the inode of the tree, for errors.
    fn ino(&self) -> Ino;

    /// Returns the error for an inconsistent node in `block`; `None`: the root.
    fn corrupt(&self, damage: InodeDamage, block: Option<FsBlock>) -> Error {
        damage.at(self.ino(), block)
    }
    /// Checks an extent. The node may have changed since it was verified as a whole.
    fn check(&self, extent: Extent) -> Result<Extent> {
        if extent.is_valid() && self.on_volume(extent.start, extent.len) {
            Ok(extent)
        } else {
            let damage = InodeDamage::Extent {
                file_block: extent.file_block,
                start: extent.start,
                len: extent.len,
            };
            Err(damage.of(self.ino()))
        }
    }
    /// Returns the block, the node and the range's end of the child of entry `at` of `parent`. The
    /// range of `parent` ends at `end`.
    fn child(
        &self,
        parent: &View<'_>,
        at: usize,
        end: FileBlock,
    ) -> Result<(FsBlock, Self::Node, FileBlock)> {
        let empty = InodeDamage::NodeEmpty {
            depth: parent.depth(),
        };
        let raw = parent.raw(at).ok_or_else(|| empty.of(self.ino()))?;
        let end = parent.key(at + 1).unwrap_or(end);
        let block = node::unpack_child(raw);
        if !self.on_volume(block, 1) {
            return Err(InodeDamage::NodeBlock { block }.of(self.ino()));
        }
        // A parent has a depth of at least 1; `View::new` checked the depth.
        let depth = parent.depth().saturating_sub(1);
        Ok((block, self.get(block, depth)?, end))
    }
    /// Returns the view of a child in `block` that must cover `key..end`.
    fn view<'b>(
        &self,
        block: FsBlock,
        bytes: &'b Buf,
        depth: u16,
        key: FileBlock,
        end: FileBlock,
    ) -> Result<View<'b>> {
        let view = View::new(bytes, Some(depth))?;
        let Some(last) = view.len().checked_sub(1) else {
            return Ok(view);
        };
        let last_end = match depth {
            0 => view.extent(last).map(|extent| extent.end()),
            _ => view.key(last).and_then(|key| key.checked_add(1)),
        };
        if view.key(0) != Some(key) || last_end.is_none_or(|last_end| last_end > end) {
            let damage = InodeDamage::NodeRange {
                file_block: key,
                depth,
            };
            return Err(self.corrupt(damage, Some(block)));
        }
        Ok(view)
    }
}

/// Write access to the nodes other than the root.
pub(super) trait NodesMut: Nodes {
    /// Changes a node.
    fn modify(&self, node: &Self::Node, change: impl FnOnce(&mut [u8]));
    /// Allocates a node of zeroes, near the volume block `goal`.
    fn create(&self, goal: FsBlock) -> Result<(FsBlock, Self::Node)>;
    /// Changes an indirect block of a block map, which has no checksum.
    fn modify_indirect(&self, node: &Self::Node, change: impl FnOnce(&mut [u8]));
    /// Allocates an indirect block of zeroes, near the volume block `goal`.
    fn create_indirect(&self, goal: FsBlock, key: NodeKey) -> Result<(FsBlock, Self::Node)>;
    /// Frees a node or an indirect block.
    fn release(&self, block: FsBlock) -> Result<()>;
}

/// Extents of a leaf. A root has at most four.
pub(super) type Extents = SmallVec<[Extent; 4]>;

/// A node on the path to a leaf.
pub(super) struct Level<N> {
    /// `None` for the root.
    node: Option<(FsBlock, N)>,
    depth: u16,
    /// The number of entries.
    entries: usize,
    /// The number of entries that the node has room for.
    max: usize,
    /// The entry that the path follows; 0 in a leaf.
    slot: usize,
}

/// The path from the root to a leaf.
pub(super) struct Path<N> {
    /// At most 6; most trees have one or two.
    levels: SmallVec<[Level<N>; 2]>,
    /// The number of the leaf's extents that start at or before the searched block.
    pub at: usize,
    /// The last of these.
    pub prev: Option<Extent>,
    /// The extent after `prev` in the same leaf.
    pub next: Option<Extent>,
    /// The end of the leaf's range.
    pub end: FileBlock,
}

impl<N: Clone> Path<N> {
    /// Returns the block of the leaf; `None` if that is the root.
    pub fn leaf_block(&self) -> Option<FsBlock> {
        self.levels.last().and_then(Level::block)
    }
    /// Returns the extents of the leaf.
    pub fn leaf_entries<S: Nodes<Node = N>>(&self, store: &S, root: &[u8; 60]) -> Result<Extents> {
        let Some(leaf) = self.levels.last() else {
            return Ok(Extents::new());
        };
        leaf.with_entries(store, root, |raws| {
            let extents = raws.iter().map(node::unpack);
            extents.map(|extent| store.check(extent)).collect()
        })?
    }
}

impl<N: Clone> Level<N> {
    /// Returns the node's block; `None` for the root.
    fn block(&self) -> Option<FsBlock> {
        self.node.as_ref().map(|(block, _)| *block)
    }
    /// Calls `with` with the node's present entries.
    fn with_entries<S: Nodes<Node = N>, R>(
        &self,
        store: &S,
        root: &[u8; 60],
        with: impl FnOnce(&[Raw]) -> R,
    ) -> Result<R> {
        let bytes;
        let bytes: &[u8] = match &self.node {
            None => root,
            Some((_, node)) => {
                bytes = store.bytes(node);
                &bytes
            }
        };
        let view = View::new(bytes, Some(self.depth))?;
        if view.len() != self.entries {
            let damage = InodeDamage::NodeChanged {
                depth: self.depth,
                expected: self.entries as u32,
                found: view.len() as u32,
            };
            return Err(store.corrupt(damage, self.block()));
        }
        Ok(with(view.raws()))
    }
}

/// Returns the path to the leaf whose range contains `block`.
pub(super) fn descend<S: Nodes>(
    store: &S,
    root: &[u8; 60],
    block: FileBlock,
) -> Result<Path<S::Node>> {
    let mut view = View::new(root, None)?;
    let mut bytes;
    let mut path = Path {
        levels: SmallVec::new(),
        at: 0,
        prev: None,
        next: None,
        end: FileBlock::END,
    };
    let mut node = None;
    loop {
        let slot = view.rank(block).saturating_sub(1);
        let depth = view.depth();
        path.levels.push(Level {
            node,
            depth,
            entries: view.len(),
            max: view.max(),
            slot,
        });
        if depth == 0 {
            path.at = view.rank(block);
            let extent = |at: usize| view.extent(at).map(|e| store.check(e)).transpose();
            path.prev = path.at.checked_sub(1).map_or(Ok(None), extent)?;
            path.next = extent(path.at)?;
            return Ok(path);
        }
        let (child, next, end) = store.child(&view, slot, path.end)?;
        let key = view.key(slot).unwrap_or_default();
        path.end = end;
        bytes = store.bytes(&next);
        node = Some((child, next));
        view = store.view(child, &bytes, depth - 1, key, end)?;
    }
}

/// The tree of an inode, for changes.
pub(super) struct Tree<'a, S: NodesMut> {
    pub store: &'a S,
    pub root: &'a mut [u8; 60],
}

impl<S: NodesMut> Tree<'_, S> {
    /// Returns the path to the leaf whose range contains `block`.
    pub fn descend(&self, block: FileBlock) -> Result<Path<S::Node>> {
        descend(self.store, self.root, block)
    }

    /// Returns the extents of the path's leaf.
    pub fn leaf_entries(&self, path: &Path<S::Node>) -> Result<Extents> {
        path.leaf_entries(self.store, self.root)
    }

    /// Replaces `old` extents from index `at` on in the path's leaf by `new`. New nodes are placed
    /// near `goal`.
    pub fn splice(
        &mut self,
        mut path: Path<S::Node>,
        at: usize,
        old: usize,
        new: &[Extent],
        goal: FsBlock,
    ) -> Result<()> {
        let spare = self.allocate(&path, old, new.len(), goal)?;
        let new: Raws = new.iter().map(node::pack).collect();
        let leaf = path.levels.len() - 1;
        self.splice_level(&mut path, leaf, at, old, new, spare)
    }

    /// Allocates the nodes needed to replace `old` entries of the leaf by `new` entries.
    fn allocate(
        &self,
        path: &Path<S::Node>,
        old: usize,
        new: usize,
        goal: FsBlock,
    ) -> Result<Spare<S::Node>> {
        let mut need = 0;
        let (mut old, mut new) = (old, new);
        for level in path.levels.iter().rev() {
            if level.entries + new <= level.max + old {
                break;
            }
            if level.max < 2 + new.saturating_sub(old) {
                // Two empty nodes could not hold the entries, so a header is wrong.
                let damage = InodeDamage::NodeCapacity {
                    depth: level.depth,
                    most: level.max as u32,
                };
                return Err(self.store.corrupt(damage, level.block()));
            }
            if level.node.is_none() && level.depth >= MAX_DEPTH {
                return Err(Error::FileTooLarge);
            }
            need += 1;
            (old, new) = (0, 1);
        }
        let mut spare = Spare::new();
        for _ in 0..need {
            match self.store.create(goal) {
                Ok(node) => spare.push(node),
                Err(error) => {
                    for (block, _) in spare {
                        self.store.release(block)?;
                    }
                    return Err(error);
                }
            }
        }
        Ok(spare)
    }

    /// Replaces entries of one node of the path, and splits it with a node of `spare` if needed.
    fn splice_level(
        &mut self,
        path: &mut Path<S::Node>,
        at_level: usize,
        at: usize,
        old: usize,
        new: Raws,
        mut spare: Spare<S::Node>,
    ) -> Result<()> {
        let level = &path.levels[at_level];
        let count = (level.entries + new.len()).saturating_sub(old);
        if count == 0 {
            return self.remove_last_entry(path, at_level, spare);
        }
        if count <= level.max {
            self.modify(level, |bytes| node::splice(bytes, at, old, &new));
            if at == 0 {
                let first = match new.first() {
                    Some(raw) => node::key(raw),
                    None => self.first_key(level)?,
                };
                self.set_keys(path, at_level, first);
            }
            return Ok(());
        }
        let is_append = at + old == level.entries && path.end == FileBlock::END;
        let mut all = level.with_entries(self.store, self.root, Raws::from_slice)?;
        all.drain(at..at + old);
        all.insert_many(at, new);
        let first = node::key(&all[0]);
        let Some((right_block, right)) = spare.pop() else {
            return Err(Error::Internal(
                "a split of extent nodes needs more nodes than were allocated",
            ));
        };
        let depth = level.depth;
        if level.node.is_none() {
            self.store.modify(&right, |bytes| {
                node::fill(bytes, depth, &all);
            });
            node::fill(
                self.root,
                depth + 1,
                &[node::pack_index(first, right_block)],
            );
            return Ok(());
        }
        let middle = if is_append { level.max } else { all.len() / 2 };
        let (left, moved) = all.split_at(middle);
        self.store.modify(&right, |bytes| {
            node::fill(bytes, depth, moved);
        });
        self.modify(level, |bytes| node::splice(bytes, 0, count_of(bytes), left));
        if at == 0 {
            self.set_keys(path, at_level, first);
        }
        let index: Raws = [node::pack_index(node::key(&moved[0]), right_block)]
            .into_iter()
            .collect();
        let above = at_level - 1;
        let slot = path.levels[above].slot + 1;
        self.splice_level(path, above, slot, 0, index, spare)
    }

    /// Removes the last entry of a level: a node is freed, a root becomes an empty leaf.
    fn remove_last_entry(
        &mut self,
        path: &mut Path<S::Node>,
        at_level: usize,
        spare: Spare<S::Node>,
    ) -> Result<()> {
        let Some((block, _)) = &path.levels[at_level].node else {
            node::fill(self.root, 0, &[]);
            return Ok(());
        };
        let block = *block;
        let slot = path.levels[at_level - 1].slot;
        self.splice_level(path, at_level - 1, slot, 1, Raws::new(), spare)?;
        self.store.release(block)
    }

    /// Sets the start of the node at `at_level` to `key` in the levels above.
    fn set_keys(&mut self, path: &Path<S::Node>, at_level: usize, key: FileBlock) {
        for level in path.levels[..at_level].iter().rev() {
            self.modify(level, |bytes| node::set_key(bytes, level.slot, key));
            if level.slot > 0 {
                break;
            }
        }
    }

    /// Removes levels while the root has one child whose entries fit into the root.
    pub fn collapse(&mut self) -> Result<()> {
        loop {
            let view = View::new(self.root, None)?;
            if view.depth() == 0 || view.len() != 1 {
                return Ok(());
            }
            let (block, child, end) = self.store.child(&view, 0, FileBlock::END)?;
            let bytes = self.store.bytes(&child);
            let key = view.key(0).unwrap_or_default();
            let child = self.store.view(block, &bytes, view.depth() - 1, key, end)?;
            if child.len() > view.max() {
                return Ok(());
            }
            let (depth, entries): (_, Raws) =
                (child.depth(), child.raws().iter().copied().collect());
            node::fill(self.root, depth, &entries);
            self.store.release(block)?;
        }
    }

    fn modify(&mut self, level: &Level<S::Node>, change: impl FnOnce(&mut [u8])) {
        match &level.node {
            None => change(self.root),
            Some((_, node)) => self.store.modify(node, change),
        }
    }

    fn first_key(&self, level: &Level<S::Node>) -> Result<FileBlock> {
        let key = match &level.node {
            None => View::new(self.root, Some(level.depth))?.key(0),
            Some((_, node)) => View::new(&self.store.bytes(node), Some(level.depth))?.key(0),
        };
        let empty = InodeDamage::NodeEmpty { depth: level.depth };
        key.ok_or_else(|| self.store.corrupt(empty, level.block()))
    }
}

/// Allocated nodes that are not in the tree yet.
type Spare<N> = SmallVec<[(FsBlock, N); 1]>;

/// Returns the number of entries in a node's header.
fn count_of(bytes: &[u8]) -> usize {
    usize::from(u16::from_le_bytes([bytes[2], bytes[3]]))
}
