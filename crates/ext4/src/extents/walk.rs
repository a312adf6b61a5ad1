//! All extents of a range of a file.

use super::store::Reader;
use super::tree::{Nodes, descend};
use super::{Map, Root, block_map, root_of};
use crate::{Fs, Inode, InodeDamage, InodeRef, Result};
use ext4_format::extent::Extent;
use ext4_format::inode::{FileType, InodeFlags};
use std::ops::Range;
use units::FileBlock;

/// Calls `each` with the first file block and a `Map::Mapped` for every extent that overlaps
/// `range`, in order, until it returns false. The extents of a block map are its contiguous runs
/// within a block of pointers.
///
/// Extents are cut to the range. The lock is held for one leaf at a time, and not while `each`
/// runs. So `each` may look up and change the tree. Changes made between two leaves are seen.
pub(super) fn for_each(
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
            let store = Reader { fs, inode };
            let read = root_of(inode, &root).and_then(|kind| match kind {
                Root::Tree(_) => leaf_extents(&store, &root, from, &mut extents),
                Root::BlockMap => {
                    block_map::next_run(&store, &root, fs.geo.block_size, from, &mut extents)
                }
            });
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
pub(super) fn count_extents(fs: &Fs, inode: &Inode) -> Result<u64> {
    count_in(fs, inode, FileBlock::FIRST..FileBlock::END)
}

/// Returns the number of extents that map a range of the file.
///
/// # Errors
/// The errors of a damaged map, also for one with more blocks than the volume: the loop of a block
/// map would otherwise take hours.
pub(crate) fn count_in(fs: &Fs, inode: &Inode, range: Range<FileBlock>) -> Result<u64> {
    let (mut count, mut blocks) = (0, 0);
    let most = fs.geo.blocks_count;
    for_each(fs, inode, range, &mut |_, map| {
        count += 1;
        blocks += match map {
            Map::Mapped { len, .. } => u64::from(len),
            Map::Hole { .. } => 0,
        };
        blocks <= most
    })?;
    if blocks > most {
        let error = InodeDamage::BlockMapLoop { most }.of(inode.ino);
        return Err(fs.blame("extents_count", inode.ino, error));
    }
    Ok(count)
}

impl Fs {
    /// Returns the number of extents that map the file's blocks, or of contiguous runs of a block
    /// map. Data that has not been written back has no extent. Inodes without a map (devices,
    /// FIFOs, sockets, short symbolic links, files in their inode) have 0.
    pub fn extent_count(&self, inode: &InodeRef) -> Result<u64> {
        let has_map = inode.fields(|f| {
            let kind = f.mode.file_type();
            let is_inline = f.flags.contains(InodeFlags::INLINE_DATA) || f.is_fast_symlink();
            !is_inline
                && matches!(
                    kind,
                    Some(FileType::Regular | FileType::Directory | FileType::Symlink)
                )
        });
        match has_map {
            true => count_extents(self, inode),
            false => Ok(0),
        }
    }
}
