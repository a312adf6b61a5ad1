//! The B+tree itself: descending, and replacing entries with the splits, growth and shrinking that
//! this brings.
//!
//! It works over [`Nodes`], which the journal provides ([`super::store`]) and tests replace, so
//! that trees with tiny nodes show every depth.
//!
//! Invariants, checked while descending and kept by every change:
//! - a node is one level lower than its parent says, so a path has at most 6 nodes;
//! - a node other than the root starts where its parent's entry says and ends where the next entry
//!   starts: the ranges of siblings are disjoint, so that a walk meets each node once;
//! - extents are not empty, lie on the volume and do not overlap.
//!
//! All changes are [`Tree::splice`] of a leaf. Where the entries do not fit:
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
//! New nodes are allocated before anything is changed: running out of space changes nothing.
//! `promise` counts on what is drawn here when it says how many nodes changes can need.

use super::node::{self, Raw, Raws, View};
use crate::{Error, Result};
use block::Buf;
use ext4_format::extent::{Extent, MAX_DEPTH};
use ext4_format::types::Ino;
use smallvec::SmallVec;

/// The end of the file blocks' range.
pub(super) const END: u64 = 1 << 32;

/// Where nodes other than the root are read.
pub(super) trait Nodes {
    /// A node in memory.
    type Node: Clone;
    /// The node in `block`, verified.
    fn get(&self, block: u64, depth: u16) -> Result<Self::Node>;
    /// Its content.
    fn bytes(&self, node: &Self::Node) -> Buf;
    /// Whether these blocks can be data's.
    fn on_volume(&self, start: u64, len: u32) -> bool;
    /// For errors.
    fn ino(&self) -> Ino;

    /// The error for a tree that contradicts itself.
    fn corrupt(&self, what: &'static str) -> Error {
        Error::CorruptInode {
            ino: self.ino().0,
            what,
        }
    }
    /// An extent of a node that may have been changed since it was verified as a whole.
    fn check(&self, extent: Extent) -> Result<Extent> {
        if extent.is_valid() && self.on_volume(extent.start, extent.len) {
            Ok(extent)
        } else {
            Err(self.corrupt("an extent is outside of the volume"))
        }
    }
    /// The child that entry `at` of `parent` points to, whose range ends at `end`; and that of the
    /// child.
    fn child(&self, parent: &View<'_>, at: usize, end: u64) -> Result<(u64, Self::Node, u64)> {
        let raw = parent
            .raw(at)
            .ok_or_else(|| self.corrupt("an extent node is empty"))?;
        let end = parent.key(at + 1).map_or(end, u64::from);
        let block = node::unpack_child(raw);
        if !self.on_volume(block, 1) {
            return Err(self.corrupt("an extent node is outside of the volume"));
        }
        // `View::new` has seen to a parent's depth of at least 1 by the time it has children.
        let depth = parent.depth().saturating_sub(1);
        Ok((block, self.get(block, depth)?, end))
    }
    /// The view of a child that should cover `key..end`.
    fn view<'b>(&self, bytes: &'b Buf, depth: u16, key: u32, end: u64) -> Result<View<'b>> {
        let view = View::new(bytes, Some(depth))?;
        let Some(last) = view.len().checked_sub(1) else {
            return Ok(view);
        };
        let last_end = match depth {
            0 => view.extent(last).map(|extent| extent.end()),
            _ => view.key(last).map(|key| u64::from(key) + 1),
        };
        if view.key(0) != Some(key) || last_end.is_none_or(|last_end| last_end > end) {
            return Err(self.corrupt("an extent node is not where its parent says"));
        }
        Ok(view)
    }
}

/// Where nodes are changed.
pub(super) trait NodesMut: Nodes {
    /// Changes a node.
    fn modify(&self, node: &Self::Node, change: impl FnOnce(&mut [u8]));
    /// A new node of zeroes, near the volume's block `goal`.
    fn create(&self, goal: u64) -> Result<(u64, Self::Node)>;
    /// Frees a node.
    fn release(&self, block: u64) -> Result<()>;
}

/// A node on the way to a leaf.
pub(super) struct Level<N> {
    /// `None` for the root.
    node: Option<(u64, N)>,
    depth: u16,
    entries: usize,
    max: usize,
    /// Above leaves, the entry that was followed.
    slot: usize,
}

/// The way to a leaf.
pub(super) struct Path<N> {
    levels: SmallVec<[Level<N>; 6]>,
    /// In the leaf, how many extents start at or before the block searched.
    pub at: usize,
    /// The last of these.
    pub prev: Option<Extent>,
    /// The extent after it in the same leaf.
    pub next: Option<Extent>,
    /// Where the leaf's range ends.
    pub end: u64,
}

impl<N: Clone> Path<N> {
    /// The extents of the leaf.
    pub fn leaf_entries<S: Nodes<Node = N>>(
        &self,
        store: &S,
        root: &[u8; 60],
    ) -> Result<SmallVec<[Extent; 16]>> {
        let Some(leaf) = self.levels.last() else {
            return Ok(SmallVec::new());
        };
        let raws = leaf.entries(store, root)?;
        raws.iter()
            .map(|raw| store.check(node::unpack(raw)))
            .collect()
    }
}

impl<N: Clone> Level<N> {
    /// The node's entries now.
    fn entries<S: Nodes<Node = N>>(
        &self,
        store: &S,
        root: &[u8; 60],
    ) -> Result<SmallVec<[Raw; 8]>> {
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
            return Err(store.corrupt("an extent node changed while it was used"));
        }
        Ok(view.raws().into())
    }
}

/// The way to the leaf whose range contains `block`.
pub(super) fn descend<S: Nodes>(store: &S, root: &[u8; 60], block: u32) -> Result<Path<S::Node>> {
    let mut view = View::new(root, None)?;
    let mut bytes;
    let mut path = Path {
        levels: SmallVec::new(),
        at: 0,
        prev: None,
        next: None,
        end: END,
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
        let key = view.key(slot).unwrap_or(0);
        path.end = end;
        bytes = store.bytes(&next);
        node = Some((child, next));
        view = store.view(&bytes, depth - 1, key, end)?;
    }
}

/// The tree of an inode, to be changed.
pub(super) struct Tree<'a, S: NodesMut> {
    pub store: &'a S,
    pub root: &'a mut [u8; 60],
}

impl<S: NodesMut> Tree<'_, S> {
    /// The way to the leaf whose range contains `block`.
    pub fn descend(&self, block: u32) -> Result<Path<S::Node>> {
        descend(self.store, self.root, block)
    }

    /// The extents of the path's leaf.
    pub fn leaf_entries(&self, path: &Path<S::Node>) -> Result<SmallVec<[Extent; 16]>> {
        path.leaf_entries(self.store, self.root)
    }

    /// Replaces `old` extents from `at` on in the path's leaf by `new`. The path is stale
    /// afterwards.
    pub fn splice(
        &mut self,
        mut path: Path<S::Node>,
        at: usize,
        old: usize,
        new: &[Extent],
        goal: u64,
    ) -> Result<()> {
        let spare = self.allocate(&path, old, new.len(), goal)?;
        let new: Raws = new.iter().map(node::pack).collect();
        let leaf = path.levels.len() - 1;
        self.splice_level(&mut path, leaf, at, old, new, spare)
    }

    /// The nodes that replacing `old` entries of the leaf by `new` takes.
    fn allocate(
        &self,
        path: &Path<S::Node>,
        old: usize,
        new: usize,
        goal: u64,
    ) -> Result<Spare<S::Node>> {
        let mut need = 0;
        let (mut old, mut new) = (old, new);
        for level in path.levels.iter().rev() {
            if level.entries + new <= level.max + old {
                break;
            }
            if level.max < 2 + new.saturating_sub(old) {
                // Where even an empty pair of nodes could not take them, some header lies.
                return Err(self.store.corrupt("an extent node has no room"));
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
            return self.empty_level(path, at_level, spare);
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
        let is_append = at + old == level.entries && path.end == END;
        let mut all = level.entries(self.store, self.root)?;
        all.drain(at..at + old);
        all.insert_many(at, new);
        let first = node::key(&all[0]);
        let Some((right_block, right)) = spare.pop() else {
            return Err(self
                .store
                .corrupt("an extent node changed while it was used"));
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

    /// The last entry of a level goes: a node is freed, a root becomes an empty leaf.
    fn empty_level(
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

    /// Lets the entries above say that the node at `at_level` starts at `key`.
    fn set_keys(&mut self, path: &Path<S::Node>, at_level: usize, key: u32) {
        for level in path.levels[..at_level].iter().rev() {
            self.modify(level, |bytes| node::set_key(bytes, level.slot, key));
            if level.slot > 0 {
                break;
            }
        }
    }

    /// Takes levels away while the root's only child fits into it.
    pub fn collapse(&mut self) -> Result<()> {
        loop {
            let view = View::new(self.root, None)?;
            if view.depth() == 0 || view.len() != 1 {
                return Ok(());
            }
            let (block, child, end) = self.store.child(&view, 0, END)?;
            let bytes = self.store.bytes(&child);
            let key = view.key(0).unwrap_or(0);
            let child = self.store.view(&bytes, view.depth() - 1, key, end)?;
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

    fn first_key(&self, level: &Level<S::Node>) -> Result<u32> {
        let key = match &level.node {
            None => View::new(self.root, Some(level.depth))?.key(0),
            Some((_, node)) => View::new(&self.store.bytes(node), Some(level.depth))?.key(0),
        };
        key.ok_or_else(|| self.store.corrupt("an extent node is empty"))
    }
}

/// Allocated nodes that are not in the tree yet.
type Spare<N> = SmallVec<[(u64, N); 6]>;

fn count_of(bytes: &[u8]) -> usize {
    usize::from(u16::from_le_bytes([bytes[2], bytes[3]]))
}
