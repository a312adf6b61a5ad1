//! Blocks and inodes: which are free, and which to take next.
//!
//! Two truths per group: what the *bitmap* says in the running transaction (changed under a handle), and what is
//! *unavailable* in memory: the bitmap's blocks, blocks picked for data that has not landed, and blocks freed by a
//! transaction that has not committed.

use crate::{Error, Result};
use ext4_format::geometry::Geometry;
use ext4_format::types::{FsBlock, Ino};
use jbd2::{FreedExtent, Handle, Journal};
use std::sync::Arc;

/// A run of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockRun {
    /// First block.
    pub start: FsBlock,
    /// Blocks.
    pub len: u32,
}

/// Counts for statfs and the super block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Free blocks according to the bitmaps.
    pub free_blocks: u64,
    /// Blocks reserved by delayed allocation.
    pub reserved_blocks: u64,
    /// Free inodes.
    pub free_inodes: u64,
    /// Directories.
    pub dirs: u64,
}

/// The groups of a volume.
pub(crate) struct Groups {}

impl Groups {
    /// Reads the group descriptors (bitmaps are read when first needed).
    pub fn load(
        journal: Arc<Journal>,
        geo: &Geometry,
        superblock: &ext4_format::superblock::Superblock,
    ) -> Result<Groups> {
        let _ = (journal, geo, superblock);
        todo!()
    }
    /// Promises blocks for later [`Groups::pick`] calls, metadata overhead included; `Err(NoSpace)` if they are not there. Lock-free.
    pub fn reserve(&self, blocks: u64) -> Result<()> {
        let _ = blocks;
        Err(Error::NoSpace)
    }
    /// Takes a promise back.
    pub fn unreserve(&self, blocks: u64) {
        let _ = blocks;
        todo!()
    }
    /// Takes 1 to `want` contiguous blocks, as near behind `goal` as possible, in memory only (nothing is journaled).
    /// Prefers a run that holds all of `want`. `Err(NoSpace)` only when nothing at all is free.
    pub fn pick(&self, goal: FsBlock, want: u32) -> Result<BlockRun> {
        let _ = (goal, want);
        todo!()
    }
    /// Gives picked blocks back (their data failed to land or was truncated before).
    pub fn unpick(&self, run: BlockRun) {
        let _ = run;
        todo!()
    }
    /// Sets the bits of picked blocks in the bitmap, as part of the handle's transaction.
    pub fn record(&self, handle: &Handle<'_>, run: BlockRun) -> Result<()> {
        let _ = (handle, run);
        todo!()
    }
    /// Picks and records a block for metadata (extent node, directory block, attribute block) near `goal`.
    pub fn alloc_metadata_block(&self, handle: &Handle<'_>, goal: FsBlock) -> Result<FsBlock> {
        let _ = (handle, goal);
        todo!()
    }
    /// Clears bits in the bitmap as part of the handle's transaction; the blocks stay unavailable until
    /// [`Groups::released`] (this calls [`Handle::free_blocks`]). Freeing what is free already, or the file system's own blocks, is an error.
    pub fn free(&self, handle: &Handle<'_>, run: BlockRun) -> Result<()> {
        let _ = (handle, run);
        todo!()
    }
    /// The transaction that freed them has committed.
    pub fn released(&self, freed: &[FreedExtent]) {
        let _ = freed;
        todo!()
    }
    /// Takes an inode number: directories spread over groups, files near their parent directory.
    pub fn alloc_inode(&self, handle: &Handle<'_>, parent: Ino, directory: bool) -> Result<Ino> {
        let _ = (handle, parent, directory);
        todo!()
    }
    /// Frees an inode number.
    pub fn free_inode(&self, handle: &Handle<'_>, ino: Ino, directory: bool) -> Result<()> {
        let _ = (handle, ino, directory);
        todo!()
    }
    /// Block and byte offset of an inode in the inode table; `Err` for numbers out of range.
    pub fn inode_location(&self, ino: Ino) -> Result<(FsBlock, usize)> {
        let _ = ino;
        todo!()
    }
    /// Whether no inode of this inode table block has ever been used, so that it need not be read (see
    /// [`jbd2::Handle::create`]).
    pub fn itable_block_is_fresh(&self, block: FsBlock) -> bool {
        let _ = block;
        todo!()
    }
    /// Whether the inode bitmap says that it is in use (hostile images refer to free ones).
    pub fn inode_in_use(&self, ino: Ino) -> Result<bool> {
        let _ = ino;
        todo!()
    }
    /// A good place for the first block of an inode: its group, or its parent's last written place.
    pub fn goal_for(&self, ino: Ino) -> FsBlock {
        let _ = ino;
        todo!()
    }
    /// Puts changed bitmaps (with checksums) and group descriptors into their buffers. See [`jbd2::JournalClient`].
    pub fn write_back_state(&self, handle: &Handle<'_>) -> Result<()> {
        let _ = handle;
        todo!()
    }
    /// Blocks that [`Groups::write_back_state`] would change now, at most.
    pub fn pending_blocks(&self) -> u32 {
        todo!()
    }
    /// The counts now.
    pub fn counts(&self) -> Counts {
        todo!()
    }
}
