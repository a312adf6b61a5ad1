//! The blocks of new nodes and indirect blocks: from the inode's promise, or else unreserved ones.

use crate::state::{FileIo, NodeKey};
use crate::{Fs, Inode, Result};
use jbd2::Handle;
use std::sync::Arc;
use units::FsBlock;

impl Fs {
    /// Allocates a block for a node of `inode`'s tree: from the inode's reservation, or else from
    /// the unreserved blocks. The caller holds `i_block` exclusively.
    pub(super) fn alloc_node(
        &self,
        handle: &Handle<'_>,
        inode: &Inode,
        goal: FsBlock,
    ) -> Result<FsBlock> {
        let take = |io: &Arc<FileIo>| {
            let mut state = io.nodes.lock();
            let left = state.nodes.checked_sub(1)?;
            state.nodes = left;
            Some(())
        };
        // Promised nodes keep the inode's `FileIo`; one that was taken does not.
        let Some(io) = inode.data.io().filter(|io| take(io).is_some()) else {
            return self.groups.alloc_metadata_block(handle, goal);
        };
        let block = self.groups.alloc_reserved_block(handle, goal);
        if block.is_err() {
            io.nodes.lock().nodes += 1;
        }
        block
    }

    /// Allocates an indirect block of `inode`'s block map: from the inode's reservation, if that
    /// has this one, or else from the unreserved blocks. The caller holds `i_block` exclusively.
    pub(super) fn alloc_indirect(
        &self,
        handle: &Handle<'_>,
        inode: &Inode,
        key: NodeKey,
        goal: FsBlock,
    ) -> Result<FsBlock> {
        let take = |io: &Arc<FileIo>| {
            let mut state = io.nodes.lock();
            let is_promised = state.indirect.remove(&key);
            state.nodes -= u32::from(is_promised);
            is_promised
        };
        let Some(io) = inode.data.io().filter(take) else {
            return self.groups.alloc_metadata_block(handle, goal);
        };
        let block = self.groups.alloc_reserved_block(handle, goal);
        if block.is_err() {
            let mut state = io.nodes.lock();
            state.nodes += 1;
            state.indirect.insert(key);
        }
        block
    }
}
