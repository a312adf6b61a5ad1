//! A mounted volume and its inodes in memory: [`Fs`], [`Inode`], and what they own. Every other
//! module but `alloc` operates on them.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | [`Fs`]: the parts of a mounted volume, and what every operation needs of them |
//! | `options` | the options of a mount |
//! | `inode` | [`Inode`]: its fields, and the way of its pages to durability |
//! | `load` | how inodes are loaded and made |
//! | `read_ahead` | inodes and directories that are read before they are needed |
//! | `changed_inodes` | inodes whose table block is to be written |
//! | `unlanded_files` | files with pages that no transaction covers |
//! | `unmapped_parts` | the last removal of a part of a cluster (`bigalloc`) |
//! | `waiting_sizes` | the number of sizes that wait for pages |
//! | `truncated_files` | files that were truncated to zero and written again |
//! | `freed_runs` | blocks that wait to be discarded |
//! | `deletions` | deletions that run; the holder of unlinked files |
//! | `orphans` | the orphan list and file in memory |
//! | `stream` | where small files are placed |
//! | `blame` | damage that an operation meets |

mod blame;
mod changed_inodes;
mod deletions;
mod freed_runs;
mod inode;
mod load;
mod options;
mod orphans;
mod read_ahead;
mod stream;
mod truncated_files;
mod unlanded_files;
mod unmapped_parts;
mod waiting_sizes;

pub(crate) use changed_inodes::ChangedInodes;
pub use deletions::DeletedInodes;
pub(crate) use deletions::{DeletedInodesSlot, Unlinked};
pub(crate) use freed_runs::FreedRuns;
pub(crate) use inode::{
    AfterWrite, Arrival, Batch, FileIo, HOT_BYTES, LOGGED_PAGES, Needed, NodeKey, OrphanPlace,
    Outcome, Promised, Range, Record, SizeToSync, decode_rdev, is_stale_behind, live_bytes,
};
pub use inode::{
    Attr, FirstLink, Inode, InodeRef, NamesVersion, Route, SetAttr, SetTime, SyncKind, WriteMode,
};
pub(crate) use load::Links;
pub use options::MountOptions;
pub use orphans::OrphanReport;
pub(crate) use orphans::{OrphanEntry, OrphanFile, OrphanList, OrphanState, SlotBlock};
pub(crate) use stream::{Piece, SmallFileStream};
pub(crate) use truncated_files::TruncatedFiles;
pub(crate) use unlanded_files::UnlandedFiles;
pub(crate) use unmapped_parts::UnmappedParts;
pub(crate) use waiting_sizes::WaitingSizes;

use crate::alloc::{Groups, LiveGeometry};
use crate::damage::ErrorLog;
use crate::mmp::Protection;
use crate::{Error, Result};
use block::Queue;
use cache::{Budget, Dentries, InodeTable};
use ext4_format::features::RoCompatFeatures;
use ext4_format::inode::Timestamp;
use ext4_format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use jbd2::{Handle, Journal, RecoveryReport};
use std::sync::{Arc, Weak};
use sync::atomic::{AtomicBool, AtomicU32, Ordering};
use sync::{Mutex, MutexGuard};
use units::{FsBlock, Ino, PageSize};
use writeback::{BackingDev, FsyncQueue, Ticket};

/// A mounted volume. Every method may be called from any number of threads.
pub struct Fs {
    pub(crate) me: Weak<Fs>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) geo: Arc<LiveGeometry>,
    /// The size of pages: that of the volume's blocks.
    pub(crate) page_size: PageSize,
    pub(crate) journal: Arc<Journal>,
    pub(crate) groups: Groups,
    pub(crate) inodes: Arc<InodeTable<Inode>>,
    pub(crate) dentries: Dentries,
    pub(crate) changed_inodes: ChangedInodes,
    pub(crate) unlanded_files: UnlandedFiles,
    pub(crate) bdi: Arc<BackingDev<Fs>>,
    pub(crate) fsyncs: FsyncQueue<Fs>,
    pub(crate) syncs: Ticket<Result<()>>,
    pub(crate) truncated_files: TruncatedFiles,
    pub(crate) unmapped_parts: UnmappedParts,
    pub(crate) waiting_sizes: WaitingSizes,
    pub(crate) freed_runs: FreedRuns,
    pub(crate) budget: Arc<Budget>,
    pub(crate) options: MountOptions,
    pub(crate) superblock: Mutex<Superblock>,
    pub(crate) superblock_dirty: AtomicBool,
    pub(crate) read_only: AtomicBool,
    pub(crate) read_only_reason: Mutex<Option<String>>,
    /// Protection against mounts by other nodes.
    pub(crate) protection: Option<Protection>,
    /// Whether a resize runs.
    pub(crate) resizing: AtomicBool,
    /// The outcome of the unmount.
    pub(crate) unmounted: Mutex<Option<Result<()>>>,
    pub(crate) journal_blocks: u32,
    pub(crate) recovery: RecoveryReport,
    pub(crate) orphans: Mutex<OrphanReport>,
    /// Serialises renames of directories across directories.
    pub(crate) rename_lock: Mutex<()>,
    /// Unlinked inodes without users, and their deletions.
    pub(crate) unlinked: Unlinked,
    pub(crate) deleted_inodes: DeletedInodesSlot,
    /// The next inode's generation.
    pub(crate) generation: AtomicU32,
    /// Where small files are placed.
    pub(crate) small_files: Arc<SmallFileStream>,
    /// Whether data has been recorded since a sync prepared a commit.
    pub(crate) recorded: AtomicBool,
    /// The record of damage.
    pub(crate) errors: Arc<ErrorLog>,
    pub(crate) orphan_state: OrphanState,
}

impl Fs {
    /// Locks the outcome of the unmount. The holder may wait for the threads of the fsync queue, so
    /// a callback on one of them leaves the queue before it waits for the lock.
    pub(crate) fn lock_unmounted(&self) -> MutexGuard<'_, Option<Result<()>>> {
        self.fsyncs.leave();
        self.unmounted.lock()
    }

    /// The current time as an inode time stamp.
    pub(crate) fn now(&self) -> Timestamp {
        let (secs, nanos) = self.options.clock.realtime();
        self.storable(Timestamp { secs, nanos })
    }

    /// The nearest time that this volume's inodes can hold: users see the same time after a
    /// remount. As in the kernel, the first and the last second have no nanoseconds.
    pub(crate) fn storable(&self, time: Timestamp) -> Timestamp {
        if self.geo.inode_size > 128 {
            let secs = time.secs.clamp(Timestamp::MIN_SECS, Timestamp::MAX_SECS);
            let is_limit = matches!(secs, Timestamp::MIN_SECS | Timestamp::MAX_SECS);
            let nanos = if is_limit {
                0
            } else {
                time.nanos.min(999_999_999)
            };
            return Timestamp { secs, nanos };
        }
        // No room for nanoseconds, nor for more than 32 bits of seconds.
        Timestamp {
            secs: time.secs.clamp(i64::from(i32::MIN), i64::from(i32::MAX)),
            nanos: 0,
        }
    }

    /// # Errors
    /// `ReadOnly` on a read-only volume.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.is_read_only() {
            Err(Error::ReadOnly)
        } else {
            Ok(())
        }
    }

    /// Whether changes are refused, by the mount options or after an error.
    pub fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Relaxed)
    }

    /// The root directory.
    pub fn root(&self) -> Result<InodeRef> {
        self.inode(Ino::ROOT)
    }

    /// The super block was changed under `handle`. It is part of the handle's transaction.
    pub(crate) fn mark_superblock_dirty(&self, _handle: &Handle<'_>) {
        self.superblock_dirty.store(true, Ordering::Release);
    }

    /// Sets the feature that a volume with a file of 2 GiB or more has.
    fn require_large_file(&self, handle: &Handle<'_>) {
        if self.geo.ro_compat.contains(RoCompatFeatures::LARGE_FILE) {
            return;
        }
        {
            let mut sb = self.superblock.lock();
            let features = sb.ro_compat() | RoCompatFeatures::LARGE_FILE;
            sb.set_ro_compat(features);
        }
        self.mark_superblock_dirty(handle);
    }

    pub(crate) fn become_read_only(&self, why: &str) {
        // Before the inode table is read by `Fs::wait_for_writers`.
        self.read_only.store(true, Ordering::SeqCst);
        self.read_only_reason
            .lock()
            .get_or_insert_with(|| why.to_owned());
    }

    /// Writes a changed super block into the running transaction.
    pub(crate) fn write_back_superblock(&self, handle: &Handle<'_>) -> Result<()> {
        if self.superblock_dirty.swap(false, Ordering::AcqRel) || self.errors.is_unsaved() {
            let buffer = handle.get(self.superblock_block())?;
            handle.modify(&buffer, None, |bytes| self.encode_superblock(bytes));
        }
        Ok(())
    }

    /// Encodes the super block, with the current counts, into `bytes`, the block that holds it.
    pub(crate) fn encode_superblock(&self, bytes: &mut [u8]) {
        let counts = self.groups.counts();
        let mut sb = self.superblock.lock();
        sb.set_free_blocks_count(counts.free_blocks);
        sb.set_free_inodes_count(counts.free_inodes as u32);
        sb.set_write_time(self.options.clock.realtime().0.max(0) as u64);
        self.errors.put_into(&mut sb);
        sb.update_checksum();
        let at = SUPERBLOCK_OFFSET as usize % bytes.len().max(1);
        if let Some(place) = bytes.get_mut(at..at + SUPERBLOCK_SIZE) {
            place.copy_from_slice(sb.as_bytes());
        }
    }

    /// The block that holds the super block.
    pub(crate) fn superblock_block(&self) -> FsBlock {
        self.geo.superblock_block()
    }
}

/// Whether the read-only compatible features of `sb` say that orphans may be present.
pub(crate) fn orphans_present(sb: &Superblock) -> bool {
    sb.ro_compat().contains(RoCompatFeatures::ORPHAN_PRESENT)
}
