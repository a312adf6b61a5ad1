//! A mounted volume.

use crate::alloc::Groups;
use crate::inode::dirty::DirtyInodes;
use crate::{Inode, InodeRef, Result};
use block::Queue;
use cache::{Budget, InodeTable};
use ext4_format::geometry::Geometry;
use ext4_format::inode::Timestamp;
use ext4_format::superblock::Superblock;
use jbd2::Journal;
use parking_lot::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use writeback::{BackingDev, Clock, Tunables};

/// How to mount.
#[derive(Clone)]
pub struct MountOptions {
    /// Refuse every change.
    pub read_only: bool,
    /// Memory for pages, inodes and metadata, in bytes. Ignored where `budget` is given.
    pub memory: u64,
    /// A budget to share with other volumes.
    pub budget: Option<Arc<Budget>>,
    /// Writeback parameters.
    pub tunables: Tunables,
    /// How long a transaction gathers changes.
    pub commit_interval: std::time::Duration,
    /// Update access times (relatime) or not (noatime).
    pub atime: bool,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

/// What statfs tells.
#[derive(Clone, Copy, Debug, Default)]
pub struct StatFs {
    /// Bytes in a block.
    pub block_size: u32,
    /// Blocks for data (without the file system's own overhead).
    pub blocks: u64,
    /// Free blocks.
    pub free: u64,
    /// Free blocks less what is reserved for root.
    pub available: u64,
    /// Inodes.
    pub inodes: u64,
    /// Free inodes.
    pub free_inodes: u64,
}

/// A mounted volume. Every method may be called from any number of threads.
pub struct Fs {
    pub(crate) me: Weak<Fs>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) geo: Geometry,
    pub(crate) journal: Arc<Journal>,
    pub(crate) groups: Groups,
    pub(crate) inodes: Arc<InodeTable<Inode>>,
    pub(crate) dirty_inodes: DirtyInodes,
    pub(crate) bdi: Arc<BackingDev<Fs>>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) options: MountOptions,
    pub(crate) superblock: Mutex<Superblock>,
    pub(crate) read_only: AtomicBool,
    /// Serialises renames of directories across directories (rank 1).
    pub(crate) rename_lock: Mutex<()>,
    /// Unlinked inodes whose last user is gone, to be deleted.
    pub(crate) doomed: Mutex<Vec<Arc<Inode>>>,
}

impl Fs {
    /// The time for inode time stamps.
    pub(crate) fn now(&self) -> Timestamp {
        todo!()
    }
    /// `Err(ReadOnly)` on a read-only volume.
    pub(crate) fn check_writable(&self) -> Result<()> {
        todo!()
    }
    /// An inode by number, loaded if need be.
    pub fn inode(&self, ino: u32) -> Result<InodeRef> {
        let _ = ino;
        todo!()
    }
    /// The root directory.
    pub fn root(&self) -> Result<InodeRef> {
        todo!()
    }
}
