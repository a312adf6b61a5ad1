//! The orphan list and the orphan file in memory (`orphan` operates on them).

use super::Inode;
use ext4_format::checksum::Seed;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use sync::atomic::{AtomicBool, AtomicU64};
use sync::{Mutex, Rank};
use units::FsBlock;

/// The orphans of a volume.
pub(crate) struct OrphanState {
    /// Set by `volume::orphans` on a volume that has one.
    pub file: OnceLock<OrphanFile>,
    pub list: Mutex<OrphanList>,
    /// Orphans in both.
    pub count: AtomicU64,
}

impl Default for OrphanState {
    fn default() -> OrphanState {
        OrphanState {
            file: OnceLock::new(),
            list: Rank::Orphans.mutex(OrphanList::default()),
            count: AtomicU64::new(0),
        }
    }
}

/// The orphan file.
pub(crate) struct OrphanFile {
    /// Of the blocks' checksums; `None` without metadata_csum.
    pub seed: Option<Seed>,
    pub blocks: Box<[SlotBlock]>,
    /// ORPHAN_PRESENT is in the super block.
    pub is_flagged: AtomicBool,
}

/// A block of the orphan file.
pub(crate) struct SlotBlock {
    pub place: FsBlock,
    /// Bit n is set while slot n is taken.
    pub taken: Mutex<Box<[u64]>>,
}

/// The orphan list. Inodes that recovery has not reached are on disk only: the last entry then has
/// a `next` that is not here.
#[derive(Default)]
pub(crate) struct OrphanList {
    pub entries: HashMap<u32, OrphanEntry>,
    /// The value of `s_last_orphan`; 0: empty.
    pub head: u32,
}

/// An inode on the orphan list.
pub(crate) struct OrphanEntry {
    pub inode: Arc<Inode>,
    /// Towards the head; 0 at the head.
    pub prev: u32,
    /// The value of its `i_dtime`; 0 at the end.
    pub next: u32,
}

/// The orphans that a mount found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrphanReport {
    /// Unlinked inodes that were deleted.
    pub deleted: u32,
    /// Truncations that were completed.
    pub truncated: u32,
}
