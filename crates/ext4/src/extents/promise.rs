//! Reservation ("promise") of the nodes that a file's tree may need for its unlanded pages. A page
//! is unlanded from the time it becomes dirty until its write has completed and is recorded in the
//! tree. The nodes are reserved before a write is acknowledged, so that recording it cannot fail
//! with `NoSpace`.
//!
//! Pages in holes and in unwritten extents change the tree when they are recorded. They are
//! recorded in any order and in runs of any length, so each page may be one change. Before such a
//! page becomes dirty, the file's reservation is raised to [`worst_case`] of the present tree, for
//! all unlanded pages and this one. A change that needs a node takes it from the reservation. After
//! pages are recorded, the nodes that the other pages cannot need are released.
//!
//! ```text
//!                Changes::promise (up to worst_case)         Fs::alloc_node
//!   unpromised ─────────────────────────────────▶ reserved ────────────────▶ a node of the tree
//!       ▲                                            │
//!       └────────────────────────────────────────────┘
//!          Fs::settle_nodes: pages were recorded or dropped, or a `Changes` was dropped
//! ```
//!
//! Invariant: the reservation covers the nodes that the unlanded pages can need in the present
//! tree. It holds because `worst_case` is a bound for every order of changes, and therefore also
//! for the changes that remain after the first ones. It requires these rules:
//!
//! - A change that can add nodes while pages are unlanded (fallocate, punching holes) reserves for
//!   one more change beforehand.
//! - The number of pages is read before or together with the tree, never after it: a page leaves
//!   the count after its change of the tree.
//! - No level of a tree is removed while pages are unlanded: the next change could need it again.
//! - The reservation is not lowered while a [`Changes`] of the file exists, because a page counts
//!   only once it is dirty.

use super::node::View;
use super::store::Reader;
use super::{Root, block_map, clusters, root_of};
use crate::alloc::Claim;
use crate::state::FileIo;
use crate::{Fs, Inode, Result};
use ext4_format::extent::{self, ExtentState, MAX_DEPTH};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use units::{FileBlock, FileCluster, Span, page};

/// The most entries that one change adds to a leaf: it splits an extent in three.
const ENTRIES_PER_CHANGE: u64 = 2;

/// The properties of a tree that [`worst_case`] depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    depth: u16,
    /// Entries of the root.
    entries: u64,
    /// The number of entries that the root has room for.
    root_max: u64,
    /// The number of entries that any other node has room for.
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
            inserts_only: root.depth() == 0
                && !extents.any(|extent| extent.state == ExtentState::Unwritten),
        }
    }
}

/// Returns the most nodes that `changes` changes of a tree can need, in any order.
///
/// A change splits at most one node on each level below the root. An existing node may be full, so
/// its next change splits it. A split in the middle leaves two half-full nodes; each is split again
/// only after half a node of new entries. A split at the end of the tree leaves a full node and an
/// almost empty one, which is split again only after a whole node of new entries. So a level with
/// `n` nodes that gets `e` new entries in `c` changes has at most
/// `min(c, n + e / half + e / whole + 2)` splits. Each split adds an entry to the level above.
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
    // A full root moves its entries to a new node below it.
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

/// A period in which a caller changes a file's tree or makes its pages dirty. The file's node
/// reservation is not lowered meanwhile. The caller holds the inode's lock exclusively, or is the
/// only user of the inode.
pub(crate) struct Changes<'a> {
    fs: &'a Fs,
    inode: &'a Arc<Inode>,
    io: Arc<FileIo>,
    /// With `bigalloc`, the range of the clusters that were promised.
    clusters: Cell<(FileCluster, FileCluster)>,
}

impl<'a> Changes<'a> {
    /// Begins the period; it ends at the drop.
    pub fn begin(fs: &'a Fs, inode: &'a Arc<Inode>) -> Changes<'a> {
        let io = inode.data.make_io();
        io.nodes.lock().users += 1;
        let none = (FileCluster(0), FileCluster(0));
        Changes {
            fs,
            inode,
            io,
            clusters: Cell::new(none),
        }
    }

    /// With `bigalloc`: promises the clusters that new blocks of the hole `hole` need, before its
    /// pages become dirty or its blocks are picked. They are released at the drop if nothing waits
    /// in them.
    ///
    /// # Errors
    /// `NoSpace`, and nothing has changed; the errors of a damaged map, and those of a commit.
    pub fn promise_clusters(&self, hole: Range<FileBlock>, claim: Claim) -> Result<()> {
        let clusters = self.fs.geo.cluster().touching(hole.clone());
        let (start, end) = self.clusters.get();
        // Before the commit, which may fail with clusters promised.
        self.clusters.set(match start < end {
            true => (start.min(clusters.start), end.max(clusters.end)),
            false => (clusters.start, clusters.end),
        });
        clusters::promise(self.fs, self.inode, &self.io, hole, claim)
    }

    /// Reserves the nodes that the unlanded pages and new pages in `blocks` can need.
    ///
    /// # Errors
    /// `NoSpace`, and nothing has changed; the errors of a damaged map.
    pub fn promise_pages(&self, blocks: Range<FileBlock>, claim: Claim) -> Result<()> {
        let root = self.inode.i_block.read();
        match root_of(self.inode, &root)? {
            Root::Tree(view) => self.promise_nodes(&view, blocks.length(), claim),
            Root::BlockMap => self.promise_indirect(&root, blocks, claim),
        }
    }

    /// Reserves the nodes that the unlanded pages and `more` changes of mapped blocks can need.
    /// Such changes of a block map need none.
    ///
    /// # Errors
    /// `NoSpace`, and nothing has changed; the errors of a damaged map.
    pub fn promise(&self, more: u64, claim: Claim) -> Result<()> {
        let root = self.inode.i_block.read();
        match root_of(self.inode, &root)? {
            Root::Tree(view) => self.promise_nodes(&view, more, claim),
            Root::BlockMap => Ok(()),
        }
    }

    fn promise_indirect(
        &self,
        i_block: &[u8; 60],
        blocks: Range<FileBlock>,
        claim: Claim,
    ) -> Result<()> {
        let (fs, inode) = (self.fs, self.inode);
        let store = Reader { fs, inode };
        // Changes of the map have the lock of `i_block` exclusively, so the set does not change.
        let mut missing = BTreeSet::new();
        let promised = std::mem::take(&mut self.io.nodes.lock().indirect);
        let size = fs.geo.block_size;
        let found = block_map::add_missing(&store, i_block, size, blocks, &promised, &mut missing);
        let mut state = self.io.nodes.lock();
        state.indirect = promised;
        found?;
        if !missing.is_empty() {
            fs.groups.reserve_nodes(missing.len() as u64, claim)?;
            state.nodes += missing.len() as u32;
            state.indirect.append(&mut missing);
        }
        Ok(())
    }

    fn promise_nodes(&self, view: &View<'_>, more: u64, claim: Claim) -> Result<()> {
        let shape = Shape::of(view, self.fs.geo.block_size);
        let waiting = self.inode.mapping.unlanded_pages();
        let wanted = worst_case(shape, waiting + more);
        let mut state = self.io.nodes.lock();
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
            let mut state = self.io.nodes.lock();
            state.users -= 1;
            state.users == 0 && state.nodes > 0
        };
        let (start, end) = self.clusters.get();
        if let Some(last) = (start..end).last() {
            let size = self.fs.geo.cluster();
            let blocks = size.file_blocks(start).start..size.file_blocks(last).end;
            self.fs.settle_clusters(self.inode, page::of_blocks(blocks));
        }
        // Otherwise `settle_nodes` is called when the pages are recorded.
        if last && self.inode.mapping.unlanded_pages() == 0 {
            self.fs.settle_nodes(self.inode);
        }
    }
}

impl Fs {
    /// Returns whether the root has room for all unlanded pages and new pages in the hole `blocks`.
    /// Then no node needs to be reserved.
    pub(crate) fn root_has_room(&self, inode: &Inode, blocks: Range<FileBlock>) -> Result<bool> {
        let root = inode.i_block.read();
        Ok(match root_of(inode, &root)? {
            Root::Tree(view) => {
                let shape = Shape::of(&view, self.geo.block_size);
                let waiting = inode.mapping.unlanded_pages();
                worst_case(shape, waiting + blocks.length()) == 0
            }
            Root::BlockMap => blocks.end.0 <= ext4_format::block_map::DIRECT,
        })
    }

    /// Releases the reserved nodes that the unlanded pages cannot need. It is called after pages of
    /// `inode` were recorded or dropped.
    pub(crate) fn settle_nodes(&self, inode: &Inode) {
        let Some(io) = inode.data.io() else {
            return;
        };
        if io.nodes.lock().nodes == 0 {
            return;
        }
        let root = inode.i_block.read();
        let waiting = inode.mapping.unlanded_pages();
        let wanted = match waiting {
            0 => 0,
            // No page can be recorded in a damaged tree, so the reservation stays.
            _ => match root_of(inode, &root) {
                Ok(Root::Tree(view)) => worst_case(Shape::of(&view, self.geo.block_size), waiting),
                // The set of indirect blocks is exact.
                Ok(Root::BlockMap) | Err(_) => u64::MAX,
            },
        };
        let mut state = io.nodes.lock();
        let spare = u64::from(state.nodes).saturating_sub(wanted);
        if state.users == 0 && spare > 0 {
            state.nodes -= spare as u32;
            // A part of a set is never spare.
            state.indirect.clear();
            self.groups.unreserve_nodes(spare);
        }
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
    fn large_files_need_few_nodes() {
        assert!(worst_case(shape(0, 0, true), 100_000) < 100_000 / 100);
        assert!(worst_case(shape(1, 4, false), 10_000) < 10_000 / 50);
        // The leaves of a fragmented file are full: a change needs a leaf and a node above it.
        assert_eq!(worst_case(shape(2, 1, false), 1), 2);
    }
}
