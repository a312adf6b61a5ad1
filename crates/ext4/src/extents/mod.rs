//! The map of a file: it maps file blocks to volume blocks, by an extent tree or by the block map
//! of ext2 and ext3. [`root_of`] is the one place that decides which of the two a file has.
//!
//! The root is in [`Inode::i_block`]. Its lock guards the whole map: shared for look-ups,
//! exclusive for changes. A change runs under a journal handle, and the lock is taken after the
//! handle is started. The order of locks is handle → `i_block` → `meta`. Nodes below the root are
//! metadata blocks of the journal. Their checksum is updated when their transaction commits and
//! verified when they are read from the device.
//!
//! | file | what it holds |
//! |---|---|
//! | `node` | entries of one node, in place |
//! | `tree` | paths, and replacing entries with splits, growth and shrinking; the invariants |
//! | `change` | insert, convert and remove as replacements of entries in a leaf |
//! | `walk` | all extents of a range |
//! | `store` | nodes in the journal's blocks |
//! | `block_map` | the block map of ext2 and ext3 |
//! | `clusters` | which blocks share a cluster (`bigalloc`) |
//! | `metadata_block` | new blocks of directories and symbolic links |
//! | `new_node` | the blocks of new nodes |
//! | `promise` | nodes reserved for pages that are not recorded in the tree yet |
//!
//! A damaged tree gives an error that names the inode or the block. Every walk has a bound, because
//! the ranges of nodes nest and levels count down.

mod block_map;
mod change;
#[cfg(test)]
mod cluster_tests;
mod clusters;
mod metadata_block;
mod new_node;
mod node;
mod promise;
mod store;
#[cfg(test)]
mod tests;
mod tree;
#[cfg(test)]
mod volume_tests;
mod walk;

use crate::alloc::BlockRun;
use crate::{Error, Fs, Inode, InodeDamage, Result};
use block_map::BlockMap;
pub(crate) use ext4_format::extent::ExtentState;
use ext4_format::extent::{EXTENT_MAGIC, Extent};
use ext4_format::features::IncompatFeatures;
use ext4_format::inode::{FileType, InodeFlags};
use jbd2::{Handle, JournalError};
pub(crate) use metadata_block::add_metadata_block;
use node::View;
pub(crate) use promise::Changes;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;
use store::{Reader, Writer};
use tree::{Nodes, Tree};
use units::{FileBlock, FsBlock, Span, page};
pub(crate) use walk::count_in;

/// The result of [`lookup`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Map {
    /// The file block is allocated.
    Mapped {
        /// The volume block of the file block.
        start: FsBlock,
        /// The number of file blocks from there on that are mapped contiguously.
        len: u32,
        /// Whether the blocks hold data.
        state: ExtentState,
    },
    /// The file block is not allocated.
    Hole {
        /// At least this many file blocks are not allocated. Never 0; `u32::MAX` - block if no
        /// extent follows.
        len: u32,
    },
}

/// The most blocks in a written extent.
pub(crate) const MAX_LEN: u32 = ext4_format::extent::MAX_WRITTEN_LEN;
/// The most blocks in an unwritten extent.
pub(crate) const MAX_UNWRITTEN_LEN: u32 = ext4_format::extent::MAX_UNWRITTEN_LEN;

/// Credits that [`insert_picked`] may use for the map, and [`convert`] for a range in one extent.
///
/// The worst case is a full path of depth 4 that grows: 5 nodes changed, 5 split off and 1 below
/// the root. The 6 new blocks each need a bitmap and a descriptor block. The inode's block is the
/// 24th.
pub(crate) const INSERT_CREDITS: u32 = 24;
/// Credits that [`remove`] needs to make progress. It may cut an extent in two, which is an
/// insertion. The run that it frees may lie in two groups, with a bitmap and a descriptor block
/// each.
pub(crate) const REMOVE_CREDITS: u32 = 32;

/// Credits that [`remove`] keeps for one step, in addition to those for the groups of the freed
/// extents: the nodes on a path, and the bitmaps and descriptor blocks of nodes that become empty.
const STEP_CREDITS: u32 = 18;
const _: () = assert!(STEP_CREDITS + 4 < REMOVE_CREDITS && INSERT_CREDITS + 8 <= REMOVE_CREDITS);
/// The most extents that one call of [`remove`] removes. It bounds the time that a handle is open.
const REMOVE_EXTENTS: usize = 4096;
/// The most extents that one call of [`convert`] converts, for the same reason.
const CONVERT_EXTENTS: usize = 4096;
/// The most journaled blocks that one call of [`remove`] frees: each needs a revoke record.
const REMOVE_JOURNALED: u64 = 4096;

/// The two kinds of maps.
enum Root<'a> {
    /// The root of an extent tree.
    Tree(View<'a>),
    /// The pointers of a block map.
    BlockMap,
}

/// Returns what the `i_block` of an inode is.
fn root_of<'a>(inode: &Inode, root: &'a [u8; 60]) -> Result<Root<'a>> {
    match View::new(root, None) {
        // A block map could start with the same bytes only if block 4 was a data block, and block
        // 4 never is.
        Ok(view) if view.depth() == 0 && view.max() == 4 => Ok(Root::Tree(view)),
        view => {
            if inode.flags().contains(InodeFlags::EXTENTS) {
                return view.map(Root::Tree);
            }
            // The same holds for the depth, which would be the high half of a pointer.
            if root.starts_with(&EXTENT_MAGIC.to_le_bytes()) && view.is_ok_and(|v| v.max() == 4) {
                return Err(InodeDamage::NoExtentsFlag.of(inode.ino));
            }
            Ok(Root::BlockMap)
        }
    }
}

/// Looks up the mapping of `block`. It takes the shared lock of the tree.
pub(crate) fn lookup(fs: &Fs, inode: &Inode, block: FileBlock) -> Result<Map> {
    let root = inode.i_block.read();
    let store = Reader { fs, inode };
    let found = root_of(inode, &root).and_then(|kind| match kind {
        Root::Tree(view) => lookup_from(&store, &view, block),
        Root::BlockMap => block_map::lookup(&store, &root, fs.geo.block_size, block),
    });
    fs.witness("extents_lookup", inode.ino, found)
}

/// [`lookup`] from a root on. In a tree of depth 0 it searches 4 entries and does not use the
/// journal.
fn lookup_from<S: Nodes>(store: &S, root: &View<'_>, block: FileBlock) -> Result<Map> {
    let (mut view, mut end, mut bytes) = (*root, FileBlock::END, None);
    while view.depth() > 0 {
        let rank = view.rank(block);
        let Some(slot) = rank.checked_sub(1) else {
            // Only a root can start after the block.
            return Ok(hole(block, view.key(0).unwrap_or(end)));
        };
        let (place, child, child_end) = store.child(&view, slot, end)?;
        let (depth, key) = (view.depth() - 1, view.key(slot).unwrap_or_default());
        end = child_end;
        let bytes = bytes.insert(store.bytes(&child));
        view = store.view(place, bytes, depth, key, end)?;
    }
    let rank = view.rank(block);
    if let Some(extent) = rank.checked_sub(1).and_then(|at| view.extent(at))
        && extent.contains(block)
    {
        let extent = store.check(extent)?;
        let skip = block - extent.file_block;
        return Ok(Map::Mapped {
            start: extent.start + u64::from(skip),
            len: extent.len - skip,
            state: extent.state,
        });
    }
    Ok(hole(block, view.key(rank).unwrap_or(end)))
}

/// Returns a hole from `block` to `end`.
fn hole(block: FileBlock, end: FileBlock) -> Map {
    let len = end.checked_sub(block).unwrap_or(0);
    Map::Hole { len: len.max(1) }
}

/// Maps the hole `block..block + run.len` to the picked blocks `run` and records their clusters in
/// the bitmaps, those that are not recorded yet. It merges the extent with its neighbours if
/// possible, updates the inode's block count and marks the inode dirty. Returns how many pages of
/// the range had a promise of a block.
///
/// The run has at most 32,768 blocks (32,767 for unwritten). New nodes are placed near it.
///
/// # Errors
/// `CorruptInode` if a block of the range is mapped; `NoSpace`. An error has changed nothing, and
/// the blocks are still picked.
pub(crate) fn insert_picked(
    fs: &Fs,
    handle: &Handle<'_>,
    inode: &Arc<Inode>,
    block: FileBlock,
    run: BlockRun,
    state: ExtentState,
) -> Result<u64> {
    let changed = modify(fs, handle, inode, |map, _| {
        let picked = clusters::picked(fs, inode, block, run);
        map.insert(block, run, state)?;
        let mut taken = 0;
        for run in picked {
            // Only a damaged bitmap makes this fail, and then the map must not be committed.
            fs.groups.record(handle, run).inspect_err(|error| {
                let error = JournalError::Aborted(error.to_string());
                fs.journal.abort(&error);
            })?;
            taken += i64::from(run.len);
        }
        clusters::recorded(fs, inode, block, run);
        let pages = page::of_blocks(block..block + run.len);
        Ok(inode.place_pages(sectors(fs, taken), pages))
    });
    fs.witness("extents_insert", inode.ino, changed)
}

/// Converts the mapped blocks of a range of file blocks to `state`, as far as one handle allows. It
/// splits extents at the ends of the range and merges extents with their neighbours. Holes stay.
/// Returns the file block at which it stopped: the range's end if all is done. The caller continues
/// from there with another handle.
///
/// Each extent takes [`INSERT_CREDITS`]. The handle is extended as needed, and `keep` credits are
/// left for the caller. At least one extent is converted. An error has converted nothing: behind
/// the first extent it ends the call, and the next call meets it.
pub(crate) fn convert(
    fs: &Fs,
    handle: &Handle<'_>,
    inode: &Arc<Inode>,
    range: Range<FileBlock>,
    state: ExtentState,
    keep: u32,
) -> Result<FileBlock> {
    modify(fs, handle, inode, |map, _| {
        let MapMut::Tree(mut tree) = map else {
            return Err(Error::Internal("a block map has no unwritten blocks"));
        };
        let wanted = INSERT_CREDITS + keep;
        let mut from = range.start;
        for nth in 0..CONVERT_EXTENTS {
            from = match tree.convert_first(from..range.end, state) {
                Ok(next) => next,
                Err(error) if nth == 0 => return Err(error),
                Err(_) => break,
            };
            let has_credits = || handle.credits() >= wanted || handle.extend(INSERT_CREDITS);
            if from >= range.end || !has_credits() {
                break;
            }
        }
        let stop = from.min(range.end);
        // The node reservation of other waiting pages assumes the present depth. The pages that
        // were converted to written do not count: their change is done.
        let own = match state {
            ExtentState::Unwritten => 0,
            ExtentState::Written => (range.start..stop).length(),
        };
        if inode.mapping.unlanded_pages() <= own {
            tree.collapse()?;
        }
        Ok(stop)
    })
}

/// Unmaps the file blocks of `left` from its end backwards, as far as the handle's credits allow,
/// and frees the clusters of which no block is mapped any more. `left` is then the part that is
/// left for another handle, also after an error.
///
/// With [`REMOVE_CREDITS`] it removes at least one extent. The tree is consistent at every stop.
/// Blocks of directories, symbolic links and values of attributes get revoke records.
pub(crate) fn remove(
    fs: &Fs,
    handle: &Handle<'_>,
    inode: &Arc<Inode>,
    left: &mut Range<FileBlock>,
) -> Result<()> {
    let journaled = inode.kind() != FileType::Regular
        || inode
            .flags()
            .intersects(InodeFlags::JOURNAL_DATA | InodeFlags::EA_INODE);
    let budget = handle.credits();
    let mut groups: SmallVec<[u64; 16]> = SmallVec::new();
    let mut extents = 0;
    let mut blocks = 0u64;
    // Returns whether one more extent may be removed. The groups of all removed extents count in
    // addition to the credits left, because a bitmap can enter the transaction after it changes. An
    // error of the device ends the removal before the extent is unmapped.
    let mut may_remove = |extent: &Extent| -> Result<bool> {
        let (start, len) = (extent.start, extent.len);
        fs.groups.read_bitmaps(BlockRun { start, len })?;
        let per_group = u64::from(fs.geo.blocks_per_group.max(1));
        let last = extent.start.0 + u64::from(extent.len) - 1;
        for block in [extent.start.0, last] {
            let group = block.saturating_sub(fs.geo.first_data_block) / per_group;
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
        extents += 1;
        blocks += u64::from(extent.len);
        let cost = (2 * groups.len() as u32).saturating_add(STEP_CREDITS + 4);
        Ok(cost <= budget
            && handle.credits() >= STEP_CREDITS + 4
            && extents < REMOVE_EXTENTS
            && !(journaled && blocks >= REMOVE_JOURNALED))
    };
    let mapping = &inode.mapping;
    let waits = |blocks: Range<FileBlock>| mapping.has_unlanded_in(page::of_blocks(blocks));
    let mut removal = clusters::Removal::new(fs, inode, left.clone(), handle.tid());
    modify(fs, handle, inode, |mut map, taken| {
        let mut has_credits = true;
        while has_credits && left.start < left.end {
            let mut may_remove = |extent: &Extent| {
                has_credits = may_remove(extent)?;
                Ok(has_credits)
            };
            let (extents, end) = match &mut map {
                MapMut::Tree(tree) => {
                    let removed = tree.remove_last(left, &mut may_remove)?;
                    (removed.extents, removed.end)
                }
                MapMut::BlockMap(map) => {
                    let removed = map.remove_last(left, &mut may_remove, &waits)?;
                    (removed.runs, removed.end)
                }
            };
            has_credits &= handle.credits() >= STEP_CREDITS + 4;
            left.end = end;
            for extent in extents {
                let blocks = extent.start..extent.start + u64::from(extent.len);
                handle.forget_data(blocks.clone());
                if journaled {
                    blocks.numbers().for_each(|block| handle.forget(block));
                }
                if let Some(run) = removal.clusters_of(&map, &extent)? {
                    *taken -= i64::from(run.len);
                    fs.groups
                        .free(handle, run)
                        .inspect_err(|e| fs.blame_half_done("extents_remove", inode.ino, e))?;
                }
            }
        }
        if let MapMut::Tree(tree) = &mut map
            && mapping.unlanded_pages() == 0
        {
            tree.collapse()?;
        }
        Ok(())
    })
}

/// Returns the number of extents of a map that is the root alone; `None` for another, and for a
/// damaged one. One handle with [`REMOVE_CREDITS`] removes all of them from a tree.
pub(crate) fn entries_of_root(inode: &Inode) -> Option<usize> {
    let root = inode.i_block.read();
    match root_of(inode, &root).ok()? {
        Root::Tree(view) => (view.depth() == 0).then(|| view.len()),
        Root::BlockMap => block_map::runs_of_root(&root),
    }
}

/// Returns the most blocks that one call of [`insert_picked`] can map from `block` on.
pub(crate) fn most_at(fs: &Fs, inode: &Inode, block: FileBlock) -> u32 {
    match inode.flags().contains(InodeFlags::EXTENTS) {
        true => MAX_LEN,
        false => block_map::most_at(block, fs.geo.block_size),
    }
}

/// Returns whether an inode has a block map, which has no unwritten blocks, or gets one when its
/// contents leave the inode.
pub(crate) fn has_block_map(fs: &Fs, inode: &Inode) -> bool {
    let flags = inode.flags();
    match flags.contains(InodeFlags::INLINE_DATA) {
        true => !fs.geo.incompat.contains(IncompatFeatures::EXTENTS),
        false => !flags.contains(InodeFlags::EXTENTS),
    }
}

/// A map that can be changed.
enum MapMut<'m, 'w, 'j> {
    Tree(Tree<'m, Writer<'w, 'j>>),
    BlockMap(BlockMap<'m, Writer<'w, 'j>>),
}

impl MapMut<'_, '_, '_> {
    /// Maps the hole `block..block + run.len` to `run`.
    fn insert(self, file_block: FileBlock, run: BlockRun, state: ExtentState) -> Result<()> {
        let extent = Extent {
            file_block,
            len: run.len,
            state,
            start: run.start,
        };
        match self {
            MapMut::Tree(mut tree) => tree.insert(extent),
            MapMut::BlockMap(mut map) => map.insert(extent),
        }
    }
}

/// Runs `change` on the map under the exclusive lock and updates the inode's block count.
///
/// `change` stores in its second argument how many blocks of clusters it has taken or freed, also
/// if it fails. The clusters of nodes are counted here.
fn modify<R>(
    fs: &Fs,
    handle: &Handle<'_>,
    inode: &Arc<Inode>,
    change: impl FnOnce(MapMut<'_, '_, '_>, &mut i64) -> Result<R>,
) -> Result<R> {
    let store = Writer::new(fs, handle, inode);
    let mut root = inode.i_block.write();
    let is_tree = matches!(root_of(inode, &root)?, Root::Tree(_));
    let cluster = fs.geo.cluster();
    if !is_tree && !cluster.is_block() {
        return Err(InodeDamage::BlockMapWithClusters.of(inode.ino));
    }
    let map = match is_tree {
        true => MapMut::Tree(Tree {
            store: &store,
            root: &mut root,
        }),
        false => MapMut::BlockMap(BlockMap {
            store: &store,
            i_block: &mut root,
            block_size: fs.geo.block_size,
        }),
    };
    let mut taken = 0;
    let result = change(map, &mut taken);
    let blocks = taken + store.nodes.get() * i64::from(cluster.blocks());
    if blocks != 0 {
        inode.add_sectors(sectors(fs, blocks));
    }
    drop(root);
    inode.mark_dirty(fs, handle);
    result
}

/// Blocks in units of 512 bytes.
fn sectors(fs: &Fs, blocks: i64) -> i64 {
    blocks.saturating_mul(i64::from(fs.geo.block_size / 512))
}

/// Gives an inode without blocks an empty map: a tree where the volume has the feature, else a
/// block map.
pub(crate) fn make_empty(fs: &Fs, inode: &Inode) {
    let (flag, i_block) = new_map(fs, None);
    *inode.i_block.write() = i_block;
    inode.insert_flags(flag);
}

/// Returns the map of a new inode that has no block, or `first` as its only one, and the flag of
/// that kind of map.
pub(crate) fn new_map(fs: &Fs, first: Option<FsBlock>) -> (InodeFlags, [u8; 60]) {
    let mut i_block = [0; 60];
    if fs.geo.incompat.contains(IncompatFeatures::EXTENTS) {
        let extent = first.map(|start| Extent {
            file_block: FileBlock::FIRST,
            len: 1,
            state: ExtentState::Written,
            start,
        });
        node::fill(&mut i_block, 0, extent.as_ref().map(node::pack).as_slice());
        return (InodeFlags::EXTENTS, i_block);
    }
    // A volume without extents has block numbers of 32 bits.
    let number = first.map_or(0, |block| block.0 as u32);
    i_block[..4].copy_from_slice(&number.to_le_bytes());
    (InodeFlags::empty(), i_block)
}

/// Returns the root of an empty tree.
#[cfg(test)]
fn empty_root() -> [u8; 60] {
    let mut root = [0; 60];
    node::fill(&mut root, 0, &[]);
    root
}
