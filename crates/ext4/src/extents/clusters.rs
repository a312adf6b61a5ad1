//! Clusters of a file (`bigalloc`): which blocks of a file share a cluster of the volume.
//!
//! Extents map blocks, and the allocator gives and frees clusters. Here is the one place that knows
//! when a block of a file needs a new cluster, and when a cluster has no block of the file any
//! more. Without `bigalloc` a cluster is a block, so each block of a hole needs one, and each
//! unmapped block is free: the functions return at once, and no cluster is promised here.
//!
//! The blocks of a cluster of a file have the same places in one cluster of the volume. So a block
//! has its place as soon as another block of its cluster is mapped, or waits for its record.
//! `Promised::clusters` has the clusters of a file that have pages but no mapped block:
//!
//! ```text
//!            promise_clusters          pick_blocks             insert_picked (bitmap, map)
//!   no block ───────────────▶ promised ───────────▶ picked ─────────────────────────────▶ mapped
//!      ▲                          │                    │                                      │
//!      ├──────────────────────────┴────────────────────┘                                      │
//!      │   settle_clusters: none of its pages waits any more                                  │
//!      └──────────────────────────────────────────────────────────────────────────────────────┘
//!          remove: its last mapped block
//! ```
//!
//! Invariants:
//! - A page in a hole waits only while its cluster is promised, picked or mapped. A mapped cluster
//!   has no promise: its blocks need no other cluster.
//! - One reservation of the allocator belongs to each promised or picked cluster. The pages have
//!   none of their own, and no delalloc tag. `insert_picked` consumes it.
//! - A picked cluster belongs to the file's cluster and not to the range of pages that is being
//!   written: a failed write leaves it, because another range may have landed in it.
//! - The map and this table change together, under the exclusive lock of `i_block`.
//! - Before a part of a cluster is unmapped, the pages of its other part have landed
//!   (`Fs::land_shared_clusters` in `file_io`). So no page waits in a cluster that becomes free.
//!
//! *Reuse before the commit.* A freed cluster is available only after the transaction that freed it
//! has committed. That does not hold for blocks that are unmapped from a cluster that stays: the
//! file may write there again at once. So a write into a mapped cluster first commits the
//! transaction that unmapped such blocks ([`Fs::commit_unmapped_parts`]).

use super::node::View;
use super::store::Reader;
use super::tree::Nodes;
use super::{Map, MapMut, Root, lookup_from, root_of};
use crate::alloc::{BlockRun, Claim};
use crate::state::{FileIo, Promised};
use crate::{Fs, Inode, InodeDamage, Result};
use ext4_format::extent::Extent;
use jbd2::Tid;
use smallvec::SmallVec;
use std::ops::Range;
use units::{ClusterSize, FileBlock, FileCluster, FsBlock, PageIndex, Span, page};

/// The places of new blocks of a file.
enum Site {
    /// Their cluster is mapped or picked.
    Given(BlockRun),
    /// The first so many blocks need new clusters.
    New(u32),
}

/// Returns the first mapped block of `blocks`, and its place.
fn first_mapped<S: Nodes>(
    store: &S,
    root: &View<'_>,
    blocks: Range<FileBlock>,
) -> Result<Option<(FileBlock, FsBlock)>> {
    let mut at = blocks.start;
    while at < blocks.end {
        match lookup_from(store, root, at)? {
            Map::Mapped { start, .. } => return Ok(Some((at, start))),
            Map::Hole { len } => at = at.saturating_add(len),
        }
    }
    Ok(None)
}

/// Returns the first block of the volume's cluster that a cluster of the file is mapped to.
///
/// # Errors
/// `CorruptInode` if the cluster cannot be there: data would be written to it before the bitmap is
/// looked at.
fn mapped_cluster(
    fs: &Fs,
    inode: &Inode,
    root: &View<'_>,
    cluster: FileCluster,
) -> Result<Option<FsBlock>> {
    let size = fs.geo.cluster();
    let store = Reader { fs, inode };
    let Some((file_block, block)) = first_mapped(&store, root, size.file_blocks(cluster))? else {
        return Ok(None);
    };
    let start = size.start_of(block);
    if !size.is_aligned(file_block, block) || !store.on_volume(start, size.blocks()) {
        return Err(InodeDamage::ClusterPlace { file_block, block }.of(inode.ino));
    }
    Ok(Some(start))
}

/// Calls `with` with the root of the tree, whose lock is held meanwhile.
fn with_tree<R>(fs: &Fs, inode: &Inode, with: impl FnOnce(&View<'_>) -> Result<R>) -> Result<R> {
    let i_block = inode.i_block.read();
    let found = root_of(inode, &i_block).and_then(|root| match root {
        Root::Tree(view) => with(&view),
        Root::BlockMap => Err(InodeDamage::BlockMapWithClusters.of(inode.ino)),
    });
    fs.witness("extents_clusters", inode.ino, found)
}

/// Returns the place of file block `at`, which is not mapped, if another block of its cluster is.
pub(super) fn place_of(fs: &Fs, inode: &Inode, at: FileBlock) -> Result<Option<FsBlock>> {
    let size = fs.geo.cluster();
    if size.is_block() {
        return Ok(None);
    }
    with_tree(fs, inode, |root| {
        let start = mapped_cluster(fs, inode, root, size.of_file(at))?;
        Ok(start.map(|start| start + u64::from(size.within(at))))
    })
}

/// Returns the clusters of `run`, which is picked for file blocks from `block` on, that are not
/// recorded in the bitmaps yet. The caller holds `i_block` exclusively.
pub(super) fn picked(
    fs: &Fs,
    inode: &Inode,
    block: FileBlock,
    run: BlockRun,
) -> SmallVec<[BlockRun; 1]> {
    let size = fs.geo.cluster();
    let mut found = SmallVec::new();
    if size.is_block() {
        found.push(run);
        return found;
    }
    let Some(io) = inode.data.io() else {
        return found;
    };
    let promised = io.nodes.lock();
    let clusters = size.touching(block..block + run.len);
    for place in promised
        .clusters
        .range(clusters)
        .filter_map(|(_, place)| *place)
    {
        match found.last_mut() {
            Some(BlockRun { start, len }) if *start + u64::from(*len) == place => {
                *len += size.blocks();
            }
            _ => found.push(BlockRun {
                start: place,
                len: size.blocks(),
            }),
        }
    }
    found
}

/// The clusters of [`picked`] are mapped and recorded. The caller holds `i_block` exclusively.
pub(super) fn recorded(fs: &Fs, inode: &Inode, block: FileBlock, run: BlockRun) {
    let size = fs.geo.cluster();
    if size.is_block() {
        return;
    }
    if let Some(io) = inode.data.io() {
        let mut promised = io.nodes.lock();
        for cluster in size.touching(block..block + run.len).numbers() {
            if promised.clusters.get(&cluster).is_some_and(Option::is_some) {
                promised.clusters.remove(&cluster);
            }
        }
    }
}

/// A removal of mapped blocks: finds the clusters that become free.
pub(super) struct Removal<'a> {
    fs: &'a Fs,
    inode: &'a Inode,
    range: Range<FileBlock>,
    tid: Tid,
    /// The lowest cluster that was freed.
    freed: Option<FileCluster>,
}

impl<'a> Removal<'a> {
    pub fn new(fs: &'a Fs, inode: &'a Inode, range: Range<FileBlock>, tid: Tid) -> Removal<'a> {
        Removal {
            fs,
            inode,
            range,
            tid,
            freed: None,
        }
    }

    /// Returns the clusters of an extent that was removed from `map`, without those of which a
    /// block is mapped, and without those that were returned for an extent behind it. Extents are
    /// removed from the end on.
    pub fn clusters_of(
        &mut self,
        map: &MapMut<'_, '_, '_>,
        extent: &Extent,
    ) -> Result<Option<BlockRun>> {
        let size = self.fs.geo.cluster();
        let (start, len) = (extent.start, extent.len);
        if size.is_block() {
            return Ok(Some(BlockRun { start, len }));
        }
        let misplaced = |file_block, block| {
            let damage = InodeDamage::ClusterPlace { file_block, block };
            Err(damage.of(self.inode.ino))
        };
        if !size.is_aligned(extent.file_block, start) {
            return misplaced(extent.file_block, start);
        }
        let mut clusters = size.touching(extent.file_block..extent.end());
        if let Some(freed) = self.freed {
            clusters.end = clusters.end.min(freed);
        }
        for edge in size.shared_edges(extent.file_block..extent.end()) {
            if !clusters.contains(&edge) {
                continue;
            }
            let Some((file_block, block)) = map.first_mapped(size.file_blocks(edge))? else {
                continue;
            };
            if size.start_of(block) != place_in(size, extent, edge) {
                return misplaced(file_block, block);
            }
            if !self.range.contains(&file_block) {
                self.fs.unmapped_parts.note(self.tid);
            }
            match edge == clusters.start {
                true => clusters.start = edge + 1,
                false => clusters.end = edge,
            }
        }
        if clusters.is_empty() {
            return Ok(None);
        }
        self.freed = Some(clusters.start);
        Ok(Some(BlockRun {
            start: place_in(size, extent, clusters.start),
            len: size.blocks_in(clusters.length()) as u32,
        }))
    }
}

/// Returns the place of a cluster of an extent.
fn place_in(size: ClusterSize, extent: &Extent, cluster: FileCluster) -> FsBlock {
    let skip = cluster - size.of_file(extent.file_block);
    size.start_of(extent.start) + size.blocks_in(skip.into())
}

impl MapMut<'_, '_, '_> {
    /// Returns the first mapped block of `blocks`, and its place.
    fn first_mapped(&self, blocks: Range<FileBlock>) -> Result<Option<(FileBlock, FsBlock)>> {
        match self {
            MapMut::Tree(tree) => first_mapped(tree.store, &View::new(tree.root, None)?, blocks),
            MapMut::BlockMap(_) => Ok(None),
        }
    }
}

/// Promises the clusters that new blocks of the hole `hole` need. `io` is the inode's.
///
/// # Errors
/// `NoSpace`, and nothing has changed; the errors of a damaged map, and those of a commit.
pub(super) fn promise(
    fs: &Fs,
    inode: &Inode,
    io: &FileIo,
    hole: Range<FileBlock>,
    claim: Claim,
) -> Result<()> {
    let size = fs.geo.cluster();
    let clusters = size.touching(hole.clone());
    let mut mapped: SmallVec<[FileCluster; 2]> = SmallVec::new();
    with_tree(fs, inode, |root| {
        for edge in size.shared_edges(hole) {
            if mapped_cluster(fs, inode, root, edge)?.is_some() {
                mapped.push(edge);
            }
        }
        let needs = |cluster: &FileCluster| !mapped.contains(cluster);
        let clusters = clusters.numbers().filter(needs);
        add_promises(fs, &mut io.nodes.lock(), clusters, claim)
    })?;
    match mapped.is_empty() {
        true => Ok(()),
        false => fs.commit_unmapped_parts(),
    }
}

/// Promises those of `clusters` that are not promised yet.
fn add_promises(
    fs: &Fs,
    promised: &mut Promised,
    clusters: impl Iterator<Item = FileCluster>,
    claim: Claim,
) -> Result<()> {
    let is_new = |cluster: &FileCluster| !promised.clusters.contains_key(cluster);
    let new: SmallVec<[FileCluster; 4]> = clusters.filter(is_new).collect();
    fs.groups.reserve_for(new.len() as u64, claim)?;
    promised
        .clusters
        .extend(new.into_iter().map(|new| (new, None)));
    Ok(())
}

impl Fs {
    /// Picks blocks for 1 to `want` file blocks of a hole, from `block` on. `pick` gives 1 to as
    /// many blocks as it is asked for; a block whose cluster has its place is not asked for. The
    /// caller has promised them, and holds the inode's `writeback_lock`.
    ///
    /// # Errors
    /// Those of `pick`, and of a damaged map.
    pub(crate) fn pick_blocks(
        &self,
        inode: &Inode,
        block: FileBlock,
        want: u32,
        pick: impl FnOnce(u32) -> Result<BlockRun>,
    ) -> Result<BlockRun> {
        let size = self.geo.cluster();
        if size.is_block() {
            return pick(want);
        }
        let io = inode.data.make_io();
        let want = match self.site(inode, &io, block, want)? {
            Site::Given(run) => return Ok(run),
            Site::New(want) => want,
        };
        // They are promised, unless an earlier removal has failed half-way.
        let clusters = size.touching(block..block + want).numbers();
        add_promises(self, &mut io.nodes.lock(), clusters, Claim::Margin)?;
        let within = size.within(block);
        let picked = pick(within + want)?;
        let run = BlockRun {
            start: picked.start + u64::from(within),
            len: want.min(picked.len - within),
        };
        let mut promised = io.nodes.lock();
        let mut place = picked.start;
        for cluster in size.touching(block..block + run.len).numbers() {
            promised.clusters.insert(cluster, Some(place));
            place += u64::from(size.blocks());
        }
        Ok(run)
    }

    /// Makes the blocks of [`Fs::pick_blocks`] available again, if they belong to the caller. Those
    /// in clusters belong to their promise.
    pub(crate) fn unpick_blocks(&self, run: BlockRun) {
        if self.geo.cluster().is_block() {
            self.groups.unpick(run);
        }
    }

    fn site(&self, inode: &Inode, io: &FileIo, block: FileBlock, want: u32) -> Result<Site> {
        let size = self.geo.cluster();
        let clusters = size.touching(block..block.saturating_add(want));
        let first = clusters.start;
        with_tree(self, inode, |root| {
            let mapped = mapped_cluster(self, inode, root, first)?;
            let mut end = block.saturating_add(want);
            if let Some(last) = clusters.last().filter(|last| *last > first)
                && size.file_blocks(last).end > end
                && mapped_cluster(self, inode, root, last)?.is_some()
            {
                end = size.file_blocks(last).start;
            }
            let promised = io.nodes.lock();
            let picked = |cluster| promised.clusters.get(&cluster).copied().flatten();
            if let Some(place) = mapped.or_else(|| picked(first)) {
                let within = size.within(block);
                return Ok(Site::Given(BlockRun {
                    start: place + u64::from(within),
                    len: want.min(size.blocks() - within),
                }));
            }
            let mut behind = promised
                .clusters
                .range(first + 1..clusters.end.max(first + 1));
            if let Some((picked, _)) = behind.find(|(_, place)| place.is_some()) {
                end = end.min(size.file_blocks(*picked).start);
            }
            Ok(Site::New(end - block))
        })
    }

    /// Releases the promises of clusters among `pages` in which no page waits. It is called after
    /// pages were dropped. The caller holds the inode's lock exclusively, or is its only user.
    pub(crate) fn settle_clusters(&self, inode: &Inode, pages: Range<PageIndex>) {
        let size = self.geo.cluster();
        if size.is_block() {
            return;
        }
        let Some(io) = inode.data.io() else { return };
        let mapping = &inode.mapping;
        let waits = |cluster| mapping.has_unlanded_in(page::of_blocks(size.file_blocks(cluster)));
        let mut promised = io.nodes.lock();
        let all = promised.clusters.range(size.touching(page::blocks(pages)));
        let settled: Vec<_> = all
            .filter(|(cluster, _)| !waits(**cluster))
            .map(|(cluster, place)| (*cluster, *place))
            .collect();
        for (cluster, place) in &settled {
            promised.clusters.remove(cluster);
            if let Some(start) = *place {
                let len = size.blocks();
                self.groups.unpick(BlockRun { start, len });
            }
        }
        self.groups.unreserve(settled.len() as u64);
    }

    /// Commits the newest transaction that has unmapped a part of a cluster, if it has not
    /// committed. Called with no handle held, before such blocks may be written again.
    fn commit_unmapped_parts(&self) -> Result<()> {
        if let Some(tid) = self.unmapped_parts.newest() {
            self.journal.commit(tid)?;
            self.unmapped_parts.forget(tid);
        }
        Ok(())
    }
}
