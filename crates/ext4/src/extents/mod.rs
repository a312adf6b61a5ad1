//! The extent tree: it maps file blocks to volume blocks.
//!
//! The root is in [`Inode::i_block`]. Its lock guards the whole tree: shared for look-ups,
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
//! | `store` | nodes in the journal's blocks |
//! | `promise` | nodes reserved for pages that are not recorded in the tree yet |
//!
//! A damaged tree gives an error that names the inode or the block. Every walk has a bound, because
//! the ranges of nodes nest and levels count down. [`read_root`] refuses files with the block map
//! of ext2 and ext3; support for it would be chosen there.

mod change;
mod node;
mod promise;
mod store;
#[cfg(test)]
mod tests;
mod tree;
#[cfg(test)]
mod volume_tests;

use crate::alloc::BlockRun;
use crate::{Error, Fs, Inode, InodeDamage, InodeRef, Result};
pub(crate) use ext4_format::extent::ExtentState;
use ext4_format::extent::{EXTENT_MAGIC, Extent};
use ext4_format::inode::{FileType, InodeFlags};
use jbd2::Handle;
use node::View;
pub(crate) use promise::Changes;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;
use store::{Reader, Writer};
use tree::{Nodes, Tree, descend};
use units::{FileBlock, FsBlock, Span};

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

/// Credits that [`insert`] may use, and [`convert`] for a range in one extent.
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

/// Checks that `i_block` is the root of an extent tree, and returns its view.
fn read_root<'a>(inode: &Inode, root: &'a [u8; 60]) -> Result<View<'a>> {
    match View::new(root, None) {
        // A block map could start with the same bytes only if block 4 was a data block, and block
        // 4 never is.
        Ok(view) if view.depth() == 0 && view.max() == 4 => Ok(view),
        view => {
            let flags = inode.flags();
            if flags.contains(InodeFlags::EXTENTS) {
                return view;
            }
            if root.starts_with(&EXTENT_MAGIC.to_le_bytes()) && view.is_ok() {
                return Err(InodeDamage::NoExtentsFlag.of(inode.ino));
            }
            Err(Error::Unsupported(format!(
                "inode {} has a block map of ext2 or ext3; convert the file to extents",
                inode.ino
            )))
        }
    }
}

/// Looks up the mapping of `block`. It takes the shared lock of the tree.
pub(crate) fn lookup(fs: &Fs, inode: &Inode, block: FileBlock) -> Result<Map> {
    let root = inode.i_block.read();
    let found =
        read_root(inode, &root).and_then(|view| lookup_from(&Reader { fs, inode }, &view, block));
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

/// Maps the hole `block..block + len` to the volume blocks from `start` on. It merges the extent
/// with its neighbours if possible, updates the inode's block count and marks the inode dirty.
///
/// `len` is at most 32,768 (32,767 for unwritten). New nodes are placed near `start`.
///
/// # Errors
/// `CorruptInode` if a block of the range is mapped; `NoSpace`. An error has changed nothing.
pub(crate) fn insert(
    fs: &Fs,
    handle: &Handle<'_>,
    inode: &Arc<Inode>,
    block: FileBlock,
    start: FsBlock,
    len: u32,
    state: ExtentState,
) -> Result<()> {
    let extent = Extent {
        file_block: block,
        len,
        state,
        start,
    };
    let changed = modify_tree(fs, handle, inode, i64::from(len), |tree, _| {
        tree.insert(extent)
    });
    fs.witness("extents_insert", inode.ino, changed)
}

/// Converts the mapped blocks of a range of file blocks to `state`, as far as one handle allows. It
/// splits extents at the ends of the range and merges extents with their neighbours. Holes stay.
/// Returns the file block at which it stopped: the range's end if all is done. The caller continues
/// from there with another handle.
///
/// Each extent takes [`INSERT_CREDITS`]. The handle is extended as needed, and `keep` credits are
/// left for the caller. At least one extent is converted.
pub(crate) fn convert(
    fs: &Fs,
    handle: &Handle<'_>,
    inode: &Arc<Inode>,
    range: Range<FileBlock>,
    state: ExtentState,
    keep: u32,
) -> Result<FileBlock> {
    modify_tree(fs, handle, inode, 0, |tree, _| {
        let wanted = INSERT_CREDITS + keep;
        let mut from = range.start;
        for _ in 0..CONVERT_EXTENTS {
            from = tree.convert_first(from..range.end, state)?;
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
        if inode.data.mapping.unlanded_pages() <= own {
            tree.collapse()?;
        }
        Ok(stop)
    })
}

/// Unmaps the file blocks of `range` from its end backwards and frees their blocks, as far as the
/// handle's credits allow. Returns the end of the part that is left for another handle: the range's
/// start if all is done.
///
/// With [`REMOVE_CREDITS`] it removes at least one extent. The tree is consistent at every stop.
/// Blocks of directories and symbolic links get revoke records.
pub(crate) fn remove(
    fs: &Fs,
    handle: &Handle<'_>,
    inode: &Arc<Inode>,
    range: Range<FileBlock>,
) -> Result<FileBlock> {
    let journaled =
        inode.kind() != FileType::Regular || inode.flags().contains(InodeFlags::JOURNAL_DATA);
    let mut left = range;
    let budget = handle.credits();
    let mut groups: SmallVec<[u64; 16]> = SmallVec::new();
    let mut extents = 0;
    let mut blocks = 0u64;
    // Returns whether one more extent may be removed. The groups of all removed extents count in
    // addition to the credits left, because a bitmap can enter the transaction after it changes.
    let mut may_remove = |extent: &Extent| {
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
        cost <= budget
            && handle.credits() >= STEP_CREDITS + 4
            && extents < REMOVE_EXTENTS
            && !(journaled && blocks >= REMOVE_JOURNALED)
    };
    modify_tree(fs, handle, inode, 0, |tree, mapped| {
        let mut has_credits = true;
        while has_credits && left.start < left.end {
            let removed = tree.remove_last(&left, &mut |extent| {
                has_credits = may_remove(extent);
                has_credits
            })?;
            left.end = removed.end;
            for extent in removed.extents {
                *mapped -= i64::from(extent.len);
                let blocks = extent.start..extent.start + u64::from(extent.len);
                handle.forget_data(blocks.clone());
                if journaled {
                    blocks.numbers().for_each(|block| handle.forget(block));
                }
                let (start, len) = (extent.start, extent.len);
                fs.groups.free(handle, BlockRun { start, len })?;
            }
        }
        if inode.data.mapping.unlanded_pages() == 0 {
            tree.collapse()?;
        }
        Ok(left.end)
    })
}

/// Returns the number of extents of a tree that is the root alone; `None` for another, and for a
/// damaged one. One handle with [`REMOVE_CREDITS`] removes all of them.
pub(crate) fn entries_of_root(inode: &Inode) -> Option<usize> {
    let root = inode.i_block.read();
    let root = read_root(inode, &root).ok()?;
    (root.depth() == 0).then(|| root.len())
}

/// Runs `change` on the tree under the exclusive lock and updates the inode's block count.
///
/// The count grows by `mapped_on_success` mapped blocks if `change` succeeds, by the number that
/// `change` stores in its second argument in any case, and by the new nodes.
fn modify_tree<R>(
    fs: &Fs,
    handle: &Handle<'_>,
    inode: &Arc<Inode>,
    mapped_on_success: i64,
    change: impl FnOnce(&mut Tree<'_, Writer<'_, '_>>, &mut i64) -> Result<R>,
) -> Result<R> {
    let store = Writer::new(fs, handle, inode);
    let mut root = inode.i_block.write();
    read_root(inode, &root)?;
    let mut tree = Tree {
        store: &store,
        root: &mut root,
    };
    let mut mapped = 0;
    let result = change(&mut tree, &mut mapped);
    // A failed removal has removed some extents; a failed insertion has mapped nothing.
    if result.is_ok() {
        mapped += mapped_on_success;
    }
    let blocks = mapped + store.nodes.get();
    if blocks != 0 {
        let sectors = blocks.saturating_mul(i64::from(fs.geo.block_size / 512));
        inode.add_sectors(sectors);
    }
    drop(root);
    inode.mark_dirty(fs, handle);
    result
}

/// Calls `each` with the first file block and a `Map::Mapped` for every extent that overlaps
/// `range`, in order, until it returns false.
///
/// Extents are cut to the range. The lock is held for one leaf at a time, and not while `each`
/// runs. So `each` may look up and change the tree. Changes made between two leaves are seen.
fn for_each(
    fs: &Fs,
    inode: &Inode,
    range: Range<FileBlock>,
    each: &mut dyn FnMut(FileBlock, Map) -> bool,
) -> Result<()> {
    let (mut from, end) = (range.start, range.end);
    let mut extents: Vec<Extent> = Vec::new();
    while from < end {
        let next = {
            let root = inode.i_block.read();
            let read = read_root(inode, &root)
                .and_then(|_| leaf_extents(&Reader { fs, inode }, &root, from, &mut extents));
            fs.witness("extents_read", inode.ino, read)?
        };
        for extent in extents.drain(..) {
            let (start, stop) = (from.max(extent.file_block), end.min(extent.end()));
            if start >= end {
                return Ok(());
            }
            let map = Map::Mapped {
                start: extent.start + u64::from(start - extent.file_block),
                len: stop - start,
                state: extent.state,
            };
            if !each(start, map) {
                return Ok(());
            }
        }
        from = next;
    }
    Ok(())
}

/// Adds the extents that end after `from`, of the leaf that covers `from`, to `extents`. Returns
/// the end of the leaf's range.
fn leaf_extents<S: Nodes>(
    store: &S,
    root: &[u8; 60],
    from: FileBlock,
    extents: &mut Vec<Extent>,
) -> Result<FileBlock> {
    let path = descend(store, root, from)?;
    for extent in path.leaf_entries(store, root)? {
        if extent.end() > from {
            extents.push(extent);
        }
    }
    Ok(path.end)
}

/// Returns the number of extents that map the file. Adjacent extents are not merged.
fn count_extents(fs: &Fs, inode: &Inode) -> Result<u64> {
    count_in(fs, inode, FileBlock::FIRST..FileBlock::END)
}

/// Returns the number of extents that map a range of the file.
pub(crate) fn count_in(fs: &Fs, inode: &Inode, range: Range<FileBlock>) -> Result<u64> {
    let mut count = 0;
    for_each(fs, inode, range, &mut |_, _| {
        count += 1;
        true
    })?;
    Ok(count)
}

impl Fs {
    /// Returns the number of extents that map the file's blocks. Data that has not been written
    /// back has no extent. Inodes without an extent tree (devices, FIFOs, sockets, short symbolic
    /// links) have 0.
    pub fn extent_count(&self, inode: &InodeRef) -> Result<u64> {
        if inode.flags().contains(InodeFlags::EXTENTS) {
            count_extents(self, inode)
        } else {
            Ok(0)
        }
    }
}

/// Returns the root of an empty tree.
pub(crate) fn empty_root() -> [u8; 60] {
    let mut root = [0; 60];
    node::fill(&mut root, 0, &[]);
    root
}
