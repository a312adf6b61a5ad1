//! New blocks of directories and symbolic links.

use super::{ExtentState, clusters, modify};
use crate::alloc::BlockRun;
use crate::{Fs, Inode, Result};
use jbd2::Handle;
use std::sync::Arc;
use units::{FileBlock, FsBlock};

/// Allocates a block of metadata for file block `at` of a directory or symbolic link, near `goal`,
/// and maps it.
///
/// # Errors
/// `NoSpace`, and the errors of a damaged map. An error has changed nothing.
pub(crate) fn add_metadata_block(
    fs: &Fs,
    handle: &Handle<'_>,
    inode: &Arc<Inode>,
    at: FileBlock,
    goal: FsBlock,
) -> Result<FsBlock> {
    let written = ExtentState::Written;
    let insert = |start, new| {
        let run = BlockRun { start, len: 1 };
        let changed = modify(fs, handle, inode, |map, taken| {
            map.insert(at, run, written)?;
            *taken += i64::from(new);
            Ok(())
        });
        fs.witness("extents_insert", inode.ino, changed)
    };
    if let Some(block) = clusters::place_of(fs, inode, at)? {
        return insert(block, 0).map(|()| block);
    }
    let size = fs.geo.cluster();
    let start = fs.groups.alloc_metadata_block(handle, goal)?;
    let block = start + u64::from(size.within(at));
    if let Err(error) = insert(block, size.blocks()) {
        fs.groups.free(handle, BlockRun { start, len: 1 })?;
        return Err(error);
    }
    Ok(block)
}
