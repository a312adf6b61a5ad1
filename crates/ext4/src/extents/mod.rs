//! The extent tree: which volume blocks hold which file blocks.
//!
//! The root lives in [`Inode::i_block`], whose lock guards the whole tree: shared for look-ups,
//! exclusive for changes (changes happen under a journal handle; the lock is taken after the handle
//! is started). The order of locks is handle → `i_block` → `meta`. Nodes below the root are blocks
//! of the journal, with a checksum that is stamped when their transaction commits and verified when
//! they come from the device.
//!
//! | file | what |
//! |---|---|
//! | `node` | entries of one node, in place |
//! | `tree` | paths, and replacing entries with splits, growth and shrinking; the invariants |
//! | `change` | insert, convert and remove as replacements of entries in a leaf |
//! | `store` | nodes in the journal's blocks |
//! | `promise` | nodes for pages that have not landed, promised before they are needed |
//!
//! A damaged tree is an error that names the inode or the block; every walk is bounded, as nodes'
//! ranges nest and levels count down. Files with the block map of ext2 and ext3 are refused in
//! [`read_root`], the one place that would choose.

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
use crate::{Error, Fs, Inode, InodeRef, Result};
use ext4_format::extent::{EXTENT_MAGIC, Extent};
use ext4_format::inode::{FileType, InodeFlags};
use ext4_format::types::{FileBlock, FsBlock};
use jbd2::Handle;
use node::View;
pub(crate) use promise::Changes;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;
use store::{Reader, Writer};
use tree::{END, Nodes, Tree, descend};

/// What a file block maps to, and for how long a run this holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Map {
    /// Blocks of the volume.
    Mapped {
        /// Of the first file block asked for.
        start: FsBlock,
        /// File blocks from there on that are mapped contiguously.
        len: u32,
        /// Allocated but reads as zeroes.
        unwritten: bool,
    },
    /// Nothing, for `len` file blocks at least (`u32::MAX` - start, where no extent follows; never
    /// 0).
    Hole {
        /// File blocks.
        len: u32,
    },
}

/// Blocks in one written extent at most.
pub(crate) const MAX_LEN: u32 = ext4_format::extent::MAX_WRITTEN_LEN;
/// Blocks in one unwritten extent at most.
pub(crate) const MAX_UNWRITTEN_LEN: u32 = ext4_format::extent::MAX_UNWRITTEN_LEN;

/// Credits that [`insert`] may use, and [`convert`] of what one extent maps.
///
/// The worst case is a full path of depth 4 that grows: 5 nodes changed, 5 split off, 1 below the
/// root, and for these 6 blocks a bitmap and a descriptor block each; the inode's own block is the
/// 24th.
pub(crate) const INSERT_CREDITS: u32 = 24;
/// Credits that [`remove`] needs to make progress: an insertion's (it may cut an extent in two),
/// and the bitmaps and descriptor blocks of a run of blocks that lies in two groups.
pub(crate) const REMOVE_CREDITS: u32 = 32;

/// Credits that [`remove`] keeps for a step beside the groups of the freed extents: the nodes on a
/// path, and the bitmaps and descriptor blocks of those that become empty.
const STEP_CREDITS: u32 = 18;
const _: () = assert!(STEP_CREDITS + 4 < REMOVE_CREDITS && INSERT_CREDITS + 8 <= REMOVE_CREDITS);
/// Extents that one call of [`remove`] takes away at most, whatever the credits: handles are short.
const REMOVE_EXTENTS: usize = 4096;
/// Blocks of directories and the like that one call takes away at most: each needs a revoke record.
const REMOVE_JOURNALED: u64 = 4096;

/// Checks that `i_block` is the root of an extent tree, and gives its view.
fn read_root<'a>(inode: &Inode, root: &'a [u8; 60]) -> Result<View<'a>> {
    match View::new(root, None) {
        // In a block map the first five bytes could be those of a header, were it not that block 4
        // is never data's.
        Ok(view) if view.depth() == 0 && view.max() == 4 => Ok(view),
        view => {
            let flags = inode.flags();
            if flags.contains(InodeFlags::EXTENTS) {
                return view;
            }
            if root.starts_with(&EXTENT_MAGIC.to_le_bytes()) && view.is_ok() {
                return Err(Error::CorruptInode {
                    ino: inode.ino.0,
                    what: "an extent tree without the flag for it",
                });
            }
            Err(Error::Unsupported(format!(
                "inode {}: block maps of ext2 and ext3",
                inode.ino
            )))
        }
    }
}

/// What `block` maps to. Takes the shared lock.
pub(crate) fn lookup(fs: &Fs, inode: &Inode, block: FileBlock) -> Result<Map> {
    let root = inode.i_block.read();
    let found =
        read_root(inode, &root).and_then(|view| lookup_from(&Reader { fs, inode }, &view, block.0));
    fs.witness("extents_lookup", inode.ino, found)
}

/// [`lookup`] below a root. A tree of depth 0 costs a search among 4 entries and no look at the
/// journal.
fn lookup_from<S: Nodes>(store: &S, root: &View<'_>, block: u32) -> Result<Map> {
    let (mut view, mut end, mut bytes) = (*root, END, None);
    while view.depth() > 0 {
        let rank = view.rank(block);
        let Some(slot) = rank.checked_sub(1) else {
            // Only a root can start behind the block.
            return Ok(hole(block, view.key(0).map_or(end, u64::from)));
        };
        let (_, child, child_end) = store.child(&view, slot, end)?;
        let (depth, key) = (view.depth() - 1, view.key(slot).unwrap_or(0));
        end = child_end;
        let bytes = bytes.insert(store.bytes(&child));
        view = store.view(bytes, depth, key, end)?;
    }
    let rank = view.rank(block);
    if let Some(extent) = rank.checked_sub(1).and_then(|at| view.extent(at))
        && extent.contains(block)
    {
        let extent = store.check(extent)?;
        let skip = block - extent.file_block;
        return Ok(Map::Mapped {
            start: FsBlock(extent.start + u64::from(skip)),
            len: extent.len - skip,
            unwritten: extent.unwritten,
        });
    }
    Ok(hole(block, view.key(rank).map_or(end, u64::from)))
}

fn hole(block: u32, end: u64) -> Map {
    let len = end
        .min(u64::from(u32::MAX))
        .saturating_sub(u64::from(block));
    Map::Hole {
        len: (len as u32).max(1),
    }
}

/// Maps the hole `block..block+len` to `start`; merges with neighbours where it can. Updates the
/// inode's block count and marks it dirty. A range that is (partly) mapped is an error.
///
/// `len` is at most 32,768 (32,767 for unwritten). New nodes are placed near `start`. On `NoSpace`
/// nothing has changed.
pub(crate) fn insert(
    fs: &Fs,
    handle: &Handle<'_>,
    inode: &Arc<Inode>,
    block: FileBlock,
    start: FsBlock,
    len: u32,
    unwritten: bool,
) -> Result<()> {
    let extent = Extent {
        file_block: block.0,
        len,
        unwritten,
        start: start.0,
    };
    let changed = change(fs, handle, inode, i64::from(len), |tree, _| {
        tree.insert(extent)
    });
    fs.witness("extents_insert", inode.ino, changed)
}

/// Makes the mapped range written (`unwritten` false) or unwritten (true), splitting extents at its
/// ends and merging with neighbours. Parts that are so already stay, as do holes.
///
/// A range that one extent maps takes at most [`INSERT_CREDITS`]; a longer one that many for every
/// extent, which are asked for as they are needed, and the error is `Invalid` where the transaction
/// has no room: see [`convert_some`].
pub(crate) fn convert(
    fs: &Fs,
    handle: &Handle<'_>,
    inode: &Arc<Inode>,
    range: Range<u64>,
    unwritten: bool,
) -> Result<()> {
    let end = range.end;
    match convert_some(fs, handle, inode, range, unwritten)? {
        stop if stop >= end => Ok(()),
        _ => Err(Error::Invalid("too many extents to convert in one handle")),
    }
}

/// As [`convert`], from the range's start on, as far as the handle's credits go; returns where it
/// stopped, the range's end when all is done.
pub(crate) fn convert_some(
    fs: &Fs,
    handle: &Handle<'_>,
    inode: &Arc<Inode>,
    range: Range<u64>,
    unwritten: bool,
) -> Result<u64> {
    let range = range.start..range.end.min(END);
    change(fs, handle, inode, 0, |tree, _| {
        let mut from = range.start;
        loop {
            from = tree.convert_first(from..range.end, unwritten)?;
            let has_credits =
                || handle.credits() >= INSERT_CREDITS || handle.extend(INSERT_CREDITS);
            if from >= range.end || !has_credits() {
                break;
            }
        }
        // Pages that wait count on the levels that there are.
        let own = match unwritten {
            true => 0,
            false => range.end.saturating_sub(range.start),
        };
        if inode.data.mapping.unlanded_pages() <= own {
            tree.collapse()?;
        }
        Ok(from)
    })
}

/// Unmaps `range` from its end backwards and frees the blocks, as far as the handle's credits go.
/// Returns where it stopped: the range's start when all is done, otherwise the end of what is left
/// for another handle.
///
/// With [`REMOVE_CREDITS`] at least one extent goes; the tree is consistent at every stop. Blocks
/// of directories and symbolic links get revoke records.
pub(crate) fn remove(
    fs: &Fs,
    handle: &Handle<'_>,
    inode: &Arc<Inode>,
    range: Range<u64>,
) -> Result<u64> {
    let journaled =
        inode.kind() != FileType::Regular || inode.flags().contains(InodeFlags::JOURNAL_DATA);
    let mut left = range.start..range.end.min(END);
    let budget = handle.credits();
    let mut groups: SmallVec<[u64; 16]> = SmallVec::new();
    let mut extents = 0;
    let mut blocks = 0u64;
    // Whether one more extent may go. Both what the handle has left and what the groups of all that
    // went may cost count, as bitmaps may be put into the transaction later than they change.
    let mut more = |extent: &Extent| {
        let per_group = u64::from(fs.geo.blocks_per_group.max(1));
        for block in [extent.start, extent.start + u64::from(extent.len) - 1] {
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
    change(fs, handle, inode, 0, |tree, data| {
        let mut go_on = true;
        while go_on && left.start < left.end {
            let removed = tree.remove_last(&left, &mut |extent| {
                go_on = more(extent);
                go_on
            })?;
            left.end = removed.end;
            for extent in removed.extents {
                *data -= i64::from(extent.len);
                let blocks = extent.start..extent.start + u64::from(extent.len);
                handle.forget_data(blocks.clone());
                if journaled {
                    blocks.for_each(|block| handle.forget(block));
                }
                let (start, len) = (FsBlock(extent.start), extent.len);
                fs.groups.free(handle, BlockRun { start, len })?;
            }
        }
        if inode.data.mapping.unlanded_pages() == 0 {
            tree.collapse()?;
        }
        Ok(left.end)
    })
}

/// Carries out a change of the tree under the exclusive lock and accounts for it. `data` is the
/// change of the number of mapped blocks if all goes well; `run` may change it.
fn change<R>(
    fs: &Fs,
    handle: &Handle<'_>,
    inode: &Arc<Inode>,
    data: i64,
    run: impl FnOnce(&mut Tree<'_, Writer<'_, '_>>, &mut i64) -> Result<R>,
) -> Result<R> {
    let store = Writer::new(fs, handle, inode);
    let mut root = inode.i_block.write();
    read_root(inode, &root)?;
    let mut tree = Tree {
        store: &store,
        root: &mut root,
    };
    let mut removed = 0;
    let result = run(&mut tree, &mut removed);
    // A failed removal has removed what it says; a failed insertion has mapped nothing.
    let mapped = if result.is_ok() { data } else { 0 };
    let blocks = mapped + removed + store.nodes.get();
    if blocks != 0 {
        let sectors = blocks.saturating_mul(i64::from(fs.geo.block_size / 512));
        inode.add_sectors(sectors);
    }
    drop(root);
    inode.mark_dirty(fs, handle);
    result
}

/// Calls `each` with (file block, `Map::Mapped`) for every extent that overlaps `range`, in order,
/// until it returns false.
///
/// The extents at the range's ends are cut to it. The lock is held for one leaf at a time and not
/// while `each` runs, so that `each` may look up and change; what changes behind its back is seen
/// as it is then.
pub(crate) fn for_each(
    fs: &Fs,
    inode: &Inode,
    range: Range<u64>,
    each: &mut dyn FnMut(u32, Map) -> bool,
) -> Result<()> {
    let (mut from, end) = (range.start, range.end.min(END));
    let mut extents: Vec<Extent> = Vec::new();
    while from < end {
        let next = {
            let root = inode.i_block.read();
            let read = read_root(inode, &root)
                .and_then(|_| leaf_extents(&Reader { fs, inode }, &root, from, &mut extents));
            fs.witness("extents_read", inode.ino, read)?
        };
        for extent in extents.drain(..) {
            let (start, stop) = (
                from.max(u64::from(extent.file_block)),
                end.min(extent.end()),
            );
            if start >= end {
                return Ok(());
            }
            let map = Map::Mapped {
                start: FsBlock(extent.start + start - u64::from(extent.file_block)),
                len: (stop - start) as u32,
                unwritten: extent.unwritten,
            };
            if !each(start as u32, map) {
                return Ok(());
            }
        }
        from = next;
    }
    Ok(())
}

/// Puts those extents of the leaf that covers `from` into `extents` that end behind it, and returns
/// the end of the leaf's range.
fn leaf_extents<S: Nodes>(
    store: &S,
    root: &[u8; 60],
    from: u64,
    extents: &mut Vec<Extent>,
) -> Result<u64> {
    let path = descend(store, root, from as u32)?;
    for extent in path.leaf_entries(store, root)? {
        if extent.end() > from {
            extents.push(extent);
        }
    }
    Ok(path.end)
}

/// How many extents map the file; adjacent ones count as they are stored.
pub(crate) fn count_extents(fs: &Fs, inode: &Inode) -> Result<u64> {
    count_in(fs, inode, 0..END)
}

/// How many extents map a part of the file.
pub(crate) fn count_in(fs: &Fs, inode: &Inode, range: Range<u64>) -> Result<u64> {
    let mut count = 0;
    for_each(fs, inode, range, &mut |_, _| {
        count += 1;
        true
    })?;
    Ok(count)
}

impl Fs {
    /// How many extents map the file's blocks; data that has not been written back yet has none. 0
    /// for what has no extent tree (devices, FIFOs, sockets, short symbolic links).
    pub fn extent_count(&self, inode: &InodeRef) -> Result<u64> {
        if inode.flags().contains(InodeFlags::EXTENTS) {
            count_extents(self, inode)
        } else {
            Ok(0)
        }
    }
}

/// An empty root.
pub(crate) fn empty_root() -> [u8; 60] {
    let mut root = [0; 60];
    node::fill(&mut root, 0, &[]);
    root
}
