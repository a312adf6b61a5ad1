//! Nodes that a file's tree may need for pages that have not landed: promised before a write is
//! acknowledged.
//!
//! Algorithm: pages of holes and of unwritten extents change the tree when they land, in any order
//! and in runs of any length, so each may be a change of its own. Before such a page becomes dirty
//! the file's promise is raised to [`worst_case`] of the tree as it is now, for all pages that have
//! not landed and this one. A change that needs a node takes it from the promise. When pages have
//! landed, what their rest cannot need goes back.
//!
//! ```text
//!                Changes::promise (up to worst_case)       Fs::promised_node
//!   unpromised ─────────────────────────────────▶ promised ────────────────▶ a node of the tree
//!       ▲                                            │
//!       └────────────────────────────────────────────┘
//!          Fs::settle_nodes: pages landed, were dropped, or a writer ended
//! ```
//!
//! Invariant: the promise is never below what the pages that have not landed can need of the tree
//! as it is. It holds because `worst_case` bounds every order of changes, and so also what is left
//! of them after the first ones. Therefore
//!
//! - every change of a tree that can add nodes while pages wait (fallocate, holes) promises one
//!   change more beforehand;
//! - the number of pages is read before or together with the tree, never after it: pages leave the
//!   count after their change of the tree;
//! - no level of a tree is taken away while pages wait, since the next change could need it again;
//! - while a [`Changes`] of a file exists its promise is not lowered, as a page is counted only
//!   when it is dirty.

use super::node::View;
use super::read_root;
use crate::alloc::Claim;
use crate::{Fs, Inode, Result};
use ext4_format::extent::{self, MAX_DEPTH};
use ext4_format::types::FsBlock;
use jbd2::Handle;
use std::sync::Arc;

/// Entries that one change adds to a leaf at most: an extent is cut in three.
const ENTRIES_PER_CHANGE: u64 = 2;

/// A tree as far as its worst case depends on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    depth: u16,
    /// Entries of the root.
    entries: u64,
    /// Entries that fit into the root, and into another node.
    root_max: u64,
    node_max: u64,
    /// Whether every change is an insertion, which adds one entry.
    inserts_only: bool,
}

impl Shape {
    pub fn of(root: &View<'_>, block_size: u32) -> Shape {
        let mut extents = (0..root.len()).filter_map(|at| root.extent(at));
        Shape {
            depth: root.depth(),
            entries: root.len() as u64,
            root_max: root.max() as u64,
            node_max: u64::from(extent::capacity(block_size as usize)),
            inserts_only: root.depth() == 0 && !extents.any(|extent| extent.unwritten),
        }
    }
}

/// Nodes that `changes` changes of a tree can need at most, whatever they are and in any order.
///
/// On each level below the root, a change splits one node at most. A node that exists may be full,
/// so that its next change splits it. A split in the middle leaves two nodes with half of the
/// entries, each of which takes half a node of new entries to be split again. A split at the end of
/// the tree leaves a full node, and a new one that takes a whole node of entries. So a level with
/// `n` nodes that gets `e` new entries in `c` changes has at most
/// `min(c, n + e / half + e / whole + 2)` splits, and each adds an entry to the level above.
pub(super) fn worst_case(shape: Shape, changes: u64) -> u64 {
    let half = (shape.node_max / 2).saturating_sub(2).max(1);
    let whole = shape.node_max.saturating_sub(3).max(1);
    let per_change = if shape.inserts_only {
        1
    } else {
        ENTRIES_PER_CHANGE
    };
    let (mut nodes, mut changes) = (0, changes);
    let mut added = changes.saturating_mul(per_change);
    for level in 0..shape.depth {
        let wide = shape
            .node_max
            .saturating_pow(u32::from(shape.depth - 1 - level));
        let present = shape.entries.saturating_mul(wide);
        let splits = present.saturating_add(added / half + added / whole + 2);
        changes = changes.min(splits);
        added = changes;
        nodes += changes;
    }
    // The root's entries go to a node below it when they become too many.
    let mut entries = shape.entries;
    let mut depth = shape.depth;
    while entries + added > shape.root_max && depth < MAX_DEPTH {
        changes = changes.min(added / half + added / whole);
        nodes += 1 + changes;
        added = changes;
        entries = 1;
        depth += 1;
    }
    nodes
}

/// Changes of a file that are about to be made, or whose pages are about to become dirty. The
/// caller holds the inode's lock exclusively, or else nobody else uses the inode.
pub(crate) struct Changes<'a> {
    fs: &'a Fs,
    inode: &'a Arc<Inode>,
}

impl<'a> Changes<'a> {
    /// Begins.
    pub fn begin(fs: &'a Fs, inode: &'a Arc<Inode>) -> Changes<'a> {
        inode.data.nodes.0.lock().users += 1;
        Changes { fs, inode }
    }

    /// Promises the nodes that `more` changes can need beside those of pages that have not landed.
    ///
    /// # Errors
    /// `NoSpace`, and nothing has changed; those of a damaged tree.
    pub fn promise(&self, more: u64, claim: Claim) -> Result<()> {
        let root = self.inode.i_block.read();
        let shape = Shape::of(&read_root(self.inode, &root)?, self.fs.geo.block_size);
        let waiting = self.inode.data.mapping.unlanded_pages();
        let wanted = worst_case(shape, waiting + more);
        let mut state = self.inode.data.nodes.0.lock();
        let missing = wanted.saturating_sub(state.nodes.into());
        if missing > 0 {
            self.fs.groups.reserve_nodes(missing, claim)?;
            state.nodes += missing as u32;
        }
        Ok(())
    }
}

impl Drop for Changes<'_> {
    fn drop(&mut self) {
        let last = {
            let mut state = self.inode.data.nodes.0.lock();
            state.users -= 1;
            state.users == 0 && state.nodes > 0
        };
        // Otherwise the promise is settled when the pages have landed.
        if last && self.inode.data.mapping.unlanded_pages() == 0 {
            self.fs.settle_nodes(self.inode);
        }
    }
}

impl Fs {
    /// Whether `more` new pages of holes need no promise of nodes: the root has room for all that
    /// have not landed.
    pub(crate) fn root_has_room(&self, inode: &Inode, more: u64) -> Result<bool> {
        let root = inode.i_block.read();
        let shape = Shape::of(&read_root(inode, &root)?, self.geo.block_size);
        let waiting = inode.data.mapping.unlanded_pages();
        Ok(worst_case(shape, waiting + more) == 0)
    }

    /// Pages of `inode` have landed or were dropped: gives back what the others cannot need.
    pub(crate) fn settle_nodes(&self, inode: &Inode) {
        if inode.data.nodes.0.lock().nodes == 0 {
            return;
        }
        let root = inode.i_block.read();
        let waiting = inode.data.mapping.unlanded_pages();
        let wanted = match waiting {
            0 => 0,
            // A damaged tree lets no page land either.
            _ => read_root(inode, &root).map_or(u64::MAX, |view| {
                worst_case(Shape::of(&view, self.geo.block_size), waiting)
            }),
        };
        let mut state = inode.data.nodes.0.lock();
        let spare = u64::from(state.nodes).saturating_sub(wanted);
        if state.users == 0 && spare > 0 {
            state.nodes -= spare as u32;
            self.groups.unreserve_nodes(spare);
        }
    }

    /// A block for a node of `inode`'s tree: one that is promised to the inode, or else one that
    /// nobody is promised. The caller holds `i_block` exclusively.
    pub(super) fn promised_node(
        &self,
        handle: &Handle<'_>,
        inode: &Inode,
        goal: FsBlock,
    ) -> Result<FsBlock> {
        let mut state = inode.data.nodes.0.lock();
        if state.nodes == 0 {
            drop(state);
            return self.groups.alloc_metadata_block(handle, goal);
        }
        state.nodes -= 1;
        drop(state);
        let block = self.groups.take_promised_block(handle, goal);
        if block.is_err() {
            inode.data.nodes.0.lock().nodes += 1;
        }
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(depth: u16, entries: u64, inserts_only: bool) -> Shape {
        Shape {
            depth,
            entries,
            root_max: 4,
            node_max: 340,
            inserts_only,
        }
    }

    #[test]
    fn small_files_need_no_nodes() {
        assert_eq!(worst_case(shape(0, 0, true), 4), 0);
        assert_eq!(worst_case(shape(0, 3, true), 1), 0);
        assert_eq!(worst_case(shape(0, 3, true), 2), 1);
        assert_eq!(worst_case(shape(0, 3, false), 1), 1);
    }

    #[test]
    fn large_files_need_few() {
        assert!(worst_case(shape(0, 0, true), 100_000) < 100_000 / 100);
        assert!(worst_case(shape(1, 4, false), 10_000) < 10_000 / 50);
        // Full leaves of a fragmented file: one for each change, and some above.
        assert_eq!(worst_case(shape(2, 1, false), 1), 2);
    }
}
