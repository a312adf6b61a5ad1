//! The extent tree: which volume blocks hold which file blocks.
//!
//! The root lives in [`Inode::i_block`], whose lock guards the whole tree: shared for look-ups, exclusive for changes
//! (changes happen under a journal handle; the lock is taken after the handle is started).

use crate::{Fs, Inode, Result};
use ext4_format::types::{FileBlock, FsBlock};
use jbd2::Handle;
use std::ops::Range;
use std::sync::Arc;

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
    /// Nothing, for `len` file blocks (`u32::MAX` - start at most, where no extent follows).
    Hole {
        /// File blocks.
        len: u32,
    },
}

/// Blocks in one written extent at most.
pub(crate) const MAX_LEN: u32 = 32768;
/// Blocks in one unwritten extent at most.
pub(crate) const MAX_UNWRITTEN_LEN: u32 = 32767;

/// Credits that [`insert`] or [`convert`] may use.
pub(crate) const INSERT_CREDITS: u32 = 24;
/// Credits that [`remove`] needs to make progress.
pub(crate) const REMOVE_CREDITS: u32 = 32;

/// What `block` maps to. Takes the shared lock.
pub(crate) fn lookup(fs: &Fs, inode: &Inode, block: FileBlock) -> Result<Map> {
    let _ = (fs, inode, block);
    todo!()
}
/// Maps the hole `block..block+len` to `start`; merges with neighbours where it can. Updates the inode's block count and
/// marks it dirty. A range that is (partly) mapped is an error.
pub(crate) fn insert(
    fs: &Fs,
    handle: &Handle<'_>,
    inode: &Arc<Inode>,
    block: FileBlock,
    start: FsBlock,
    len: u32,
    unwritten: bool,
) -> Result<()> {
    let _ = (fs, handle, inode, block, start, len, unwritten);
    todo!()
}
/// Makes the mapped range written (`unwritten` false) or unwritten (true), splitting extents at its ends. Parts that are so already stay.
pub(crate) fn convert(
    fs: &Fs,
    handle: &Handle<'_>,
    inode: &Arc<Inode>,
    range: Range<u64>,
    unwritten: bool,
) -> Result<()> {
    let _ = (fs, handle, inode, range, unwritten);
    todo!()
}
/// Unmaps `range` from its end backwards and frees the blocks, as far as the handle's credits go. Returns where it
/// stopped: the range's start when all is done, otherwise the end of what is left for another handle.
pub(crate) fn remove(
    fs: &Fs,
    handle: &Handle<'_>,
    inode: &Arc<Inode>,
    range: Range<u64>,
) -> Result<u64> {
    let _ = (fs, handle, inode, range);
    todo!()
}
/// Calls `each` with (file block, Map::Mapped) for every extent that overlaps `range`, in order, until it returns false.
pub(crate) fn for_each(
    fs: &Fs,
    inode: &Inode,
    range: Range<u64>,
    each: &mut dyn FnMut(u32, Map) -> bool,
) -> Result<()> {
    let _ = (fs, inode, range, each);
    todo!()
}
/// An empty root.
pub(crate) fn empty_root() -> [u8; 60] {
    todo!()
}
