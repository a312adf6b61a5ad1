//! Whole-volume operations: mount and unmount, statfs, counters, label, trim, resize.

mod assemble;
pub(crate) mod bootstrap;
mod callbacks;
mod fast_commit;
mod journal;
mod journal_device;
mod label;
mod mount;
mod orphans;
mod panicked;
mod resize;
mod trim;

pub use journal_device::external_journal;
pub use resize::ResizeProgress;

use crate::alloc::Acting;
use crate::damage::{ErrorSummary, OnError};
use crate::state::OrphanReport;
use crate::{Error, Fs, InodeRef, Result};
use block::{Queue, StatsSnapshot, ThrottleStats};
use cache::{Budget, Kind};
use ext4_format::journal_device::ExternalJournal;
use ext4_format::superblock::State;
use jbd2::{JournalStats, RecoveryReport};
use std::sync::Arc;
use units::PageIndex;
use writeback::{Tunables, WritebackStats};

/// Space and inodes of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// Bytes in a block.
    pub block_size: u32,
    /// Blocks without the file system's own overhead.
    pub blocks: u64,
    /// Free blocks.
    pub free: u64,
    /// Free blocks that are reserved neither for root nor for changes on a full volume.
    pub available: u64,
    /// All inodes.
    pub inodes: u64,
    /// Free inodes.
    pub free_inodes: u64,
}

/// Counters of a volume.
#[derive(Clone, Copy, Debug, Default)]
pub struct VolumeStats {
    /// Counters of the device's queue.
    pub device: StatsSnapshot,
    /// Counters of the journal's device, if the journal is on a device of its own.
    pub journal_device: Option<StatsSnapshot>,
    /// The throttle of background writes.
    pub throttle: ThrottleStats,
    /// Counters of the journal, and how full its log is.
    pub journal: JournalStats,
    /// Dirty data, its limits and the flusher.
    pub writeback: WritebackStats,
    /// Pages that are dirty or being written.
    pub dirty_pages: u64,
    /// Inodes in memory.
    pub cached_inodes: u64,
    /// Used bytes of the memory budget, by all volumes that share it.
    pub memory_used: u64,
    /// Bytes of the memory budget.
    pub memory_limit: u64,
    /// Of the used bytes, pages of files.
    pub page_bytes: u64,
    /// Of the used bytes, metadata blocks.
    pub metadata_bytes: u64,
}

/// Description of a volume.
#[derive(Clone, Debug)]
pub struct VolumeInfo {
    /// Label.
    pub label: String,
    /// UUID.
    pub uuid: [u8; 16],
    /// Features, by their names in e2fsprogs.
    pub features: Vec<String>,
    /// Bytes in a block.
    pub block_size: u32,
    /// Blocks.
    pub blocks: u64,
    /// Inodes.
    pub inodes: u32,
    /// Bytes in an inode.
    pub inode_size: u16,
    /// Block groups.
    pub groups: u32,
    /// Blocks of the journal (0: none, or it is on a device that was not given).
    pub journal_blocks: u32,
    /// The journal that is on a device of its own.
    pub external_journal: Option<ExternalJournal>,
    /// Whether it is mounted read-only.
    pub read_only: bool,
    /// Why it is read-only, if the mount options did not ask for it.
    pub read_only_reason: Option<String>,
    /// Whether the volume is marked as having errors.
    pub errors: bool,
    /// The record of errors.
    pub error_summary: ErrorSummary,
    /// The reaction to damage.
    pub on_error: OnError,
    /// Times it was mounted for writing.
    pub mount_count: u16,
    /// Time of mkfs, in seconds since 1970.
    pub created: u64,
    /// The report of journal recovery at this mount.
    pub recovery: RecoveryReport,
    /// Orphans that were deleted or truncated at this mount.
    pub orphans: OrphanReport,
}

impl Fs {
    /// Makes the calling thread act for a user until the result is dropped: it takes the blocks
    /// that are reserved for root only if the user may have them. A thread that acts for nobody
    /// may.
    pub fn act_for(&self, uid: u32, gid: u32) -> Acting {
        self.groups.act_for(uid, gid)
    }

    /// Space and inodes, for statfs.
    pub fn statfs(&self) -> StatFs {
        let counts = self.groups.counts();
        let (overhead, reserved) = {
            let sb = self.superblock.lock();
            (
                u64::from(sb.overhead_clusters.get()) << self.geo.cluster_bits,
                sb.reserved_blocks_count(),
            )
        };
        let free = counts.free_blocks.saturating_sub(counts.reserved_blocks);
        StatFs {
            block_size: self.geo.block_size,
            blocks: self.geo.blocks_count.saturating_sub(overhead),
            free,
            available: free.saturating_sub(reserved + counts.margin_blocks),
            inodes: u64::from(self.geo.inodes_count),
            free_inodes: counts.free_inodes,
        }
    }

    /// Counters of the volume.
    pub fn stats(&self) -> VolumeStats {
        VolumeStats {
            device: self.queue.stats().snapshot(),
            journal_device: self.journal.device().map(|queue| queue.stats().snapshot()),
            throttle: self.queue.throttle().stats(),
            journal: self.journal.stats(),
            writeback: self.bdi.stats(),
            dirty_pages: self.bdi.dirty_pages(),
            cached_inodes: self.inodes.len() as u64,
            memory_used: self.budget.used(),
            memory_limit: self.budget.limit(),
            page_bytes: self.budget.used_by(Kind::Pages),
            metadata_bytes: self.budget.used_by(Kind::Metadata),
        }
    }

    /// Description of the volume.
    pub fn info(&self) -> VolumeInfo {
        let read_only_reason = self.read_only_reason.lock().clone();
        let sb = self.superblock.lock();
        let mut features = sb.compat().names();
        features.extend(sb.incompat().names());
        features.extend(sb.ro_compat().names());
        VolumeInfo {
            label: String::from_utf8_lossy(sb.label()).into_owned(),
            uuid: sb.uuid,
            features,
            block_size: self.geo.block_size,
            blocks: self.geo.blocks_count,
            inodes: self.geo.inodes_count,
            inode_size: self.geo.inode_size,
            groups: self.geo.groups,
            journal_blocks: self.journal_blocks,
            external_journal: sb.external_journal(),
            read_only: self.is_read_only(),
            read_only_reason,
            errors: sb.state().contains(State::ERROR) || self.errors.is_met(),
            error_summary: self.errors.summary(),
            on_error: self.errors.policy(),
            mount_count: sb.mnt_count.get(),
            created: u64::from(sb.mkfs_time.get()) | u64::from(sb.mkfs_time_hi) << 32,
            recovery: self.recovery,
            orphans: *self.orphans.lock(),
        }
    }

    /// The device's queue.
    pub fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// The memory budget.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// The writeback parameters.
    pub fn tunables(&self) -> Tunables {
        self.bdi.tunables()
    }

    /// Changes the writeback parameters, with immediate effect.
    pub fn set_tunables(&self, tunables: Tunables) -> Result<()> {
        let set = self.bdi.set_tunables(tunables);
        set.map_err(|_| Error::Invalid("a writeback parameter"))
    }

    /// Drops clean pages, inodes and metadata blocks from memory, also those of other volumes on
    /// the same budget, and returns free memory to the system.
    pub fn drop_caches(&self) {
        self.budget.drop_caches();
    }

    /// Drops the cached clean pages of one file.
    pub fn invalidate(&self, inode: &InodeRef) {
        inode.mapping.invalidate(PageIndex::FIRST..PageIndex::END);
    }
}

impl Drop for Fs {
    fn drop(&mut self) {
        if self.unmounted.get_mut().is_some() {
            return;
        }
        // The flusher and the journal hold the file system weakly, so nothing can be written now,
        // and a commit without its state would be damage. The volume ends as in a crash.
        tracing::error!(
            "{}: dropped without unmount; the next mount recovers what was durable",
            self.queue.name()
        );
        self.crash();
    }
}
