//! A mounted volume: what belongs to all of it, sync, statfs, attributes.

mod attr;
pub(crate) mod bootstrap;
mod errors;
mod flags;
pub(crate) mod full;
mod label;
mod mount;
mod panicked;
mod trim;

use crate::alloc::Groups;
use crate::durability::WaitingSizes;
use crate::fsync::TruncatedFiles;
use crate::inode::dirty::DirtyInodes;
use crate::inode::dirty_files::DirtyFiles;
use crate::writepages::SmallFileStream;
use crate::{Error, Inode, InodeRef, Result};
use block::{Queue, StatsSnapshot};
use cache::{Budget, InodeTable, Kind};
use ext4_format::features::RoCompatFeatures;
use ext4_format::geometry::Geometry;
use ext4_format::inode::Timestamp;
use ext4_format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State, Superblock};
use ext4_format::types::Ino;
use jbd2::{
    AsyncCommit, FreedExtent, Handle, Journal, JournalClient, JournalError, JournalStats, Phase,
    RecoveryReport, Tid,
};
use std::sync::{Arc, Weak};
use std::time::Duration;
use sync::Mutex;
use sync::atomic::{AtomicBool, AtomicU32, Ordering};
use writeback::{BackingDev, Clock, Flushers, FsyncQueue, SystemClock, Tunables};

pub(crate) use errors::ErrorLog;
pub use errors::{ErrorRecord, ErrorSummary, OnError};
pub use mount::OrphanReport;

/// Blocks that the steps of a large sync leave to the commit of a small fsync beside it (2 MiB).
const STEP_BLOCKS: u32 = 512;

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
    /// Whether the flusher has a thread of its own.
    pub flushers: Flushers,
    /// How long a transaction gathers changes.
    pub commit_interval: Duration,
    /// When commit blocks are written together with what they commit, as the kernel's
    /// `journal_async_commit` does (docs/FSYNC.md).
    pub async_commit: AsyncCommit,
    /// Update access times as relatime does; otherwise never (noatime).
    pub atime: bool,
    /// What happens when damage is met; `None`: what the super block says.
    pub errors: Option<OnError>,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

impl Default for MountOptions {
    fn default() -> Self {
        MountOptions {
            read_only: false,
            memory: 1 << 30,
            budget: None,
            tunables: Tunables::default(),
            flushers: Flushers::default(),
            commit_interval: Duration::from_secs(5),
            async_commit: AsyncCommit::default(),
            atime: false,
            errors: None,
            clock: Arc::new(SystemClock),
        }
    }
}

/// What statfs tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

/// Counters of a volume.
#[derive(Clone, Copy, Debug, Default)]
pub struct VolumeStats {
    /// The device's.
    pub device: StatsSnapshot,
    /// The journal's.
    pub journal: JournalStats,
    /// Pages that are dirty or being written.
    pub dirty_pages: u64,
    /// Inodes in memory.
    pub cached_inodes: u64,
    /// Bytes of the memory budget that are in use, by everyone who shares it.
    pub memory_used: u64,
    /// Of them, pages of files.
    pub page_bytes: u64,
    /// Of them, metadata blocks.
    pub metadata_bytes: u64,
}

/// What a volume is.
#[derive(Clone, Debug)]
pub struct VolumeInfo {
    /// Label.
    pub label: String,
    /// UUID.
    pub uuid: [u8; 16],
    /// Features by e2fsprogs' names.
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
    /// Blocks of the journal (0: none).
    pub journal_blocks: u32,
    /// Whether it is mounted read-only.
    pub read_only: bool,
    /// Why, where that was not asked for.
    pub read_only_reason: Option<String>,
    /// Whether the volume is marked as having errors.
    pub errors: bool,
    /// What is recorded of them.
    pub error_summary: ErrorSummary,
    /// What happens when damage is met.
    pub on_error: OnError,
    /// Times it was mounted for writing.
    pub mount_count: u16,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// What journal recovery did at this mount.
    pub recovery: RecoveryReport,
    /// What became of orphans at this mount.
    pub orphans: OrphanReport,
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
    pub(crate) dirty_files: DirtyFiles,
    pub(crate) bdi: Arc<BackingDev<Fs>>,
    pub(crate) fsyncs: FsyncQueue<Fs>,
    pub(crate) truncated_files: TruncatedFiles,
    pub(crate) waiting_sizes: WaitingSizes,
    pub(crate) budget: Arc<Budget>,
    pub(crate) options: MountOptions,
    pub(crate) superblock: Mutex<Superblock>,
    superblock_dirty: AtomicBool,
    read_only: AtomicBool,
    read_only_reason: Mutex<Option<String>>,
    unmounted: Mutex<Option<Result<()>>>,
    journal_blocks: u32,
    recovery: RecoveryReport,
    orphans: Mutex<OrphanReport>,
    /// Serialises renames of directories across directories (rank 1).
    pub(crate) rename_lock: Mutex<()>,
    /// Unlinked inodes whose last user is gone, to be deleted.
    pub(crate) unlinked: Mutex<Vec<Arc<Inode>>>,
    /// Those of them that are being deleted.
    pub(crate) deletions: full::Deletions,
    /// The next inode's generation.
    pub(crate) generation: AtomicU32,
    /// Where small files go.
    pub(crate) small_files: Arc<SmallFileStream>,
    /// Whether data has been recorded since a sync prepared a commit.
    pub(crate) recorded: AtomicBool,
    /// Errors that were met.
    pub(crate) errors: Arc<ErrorLog>,
    /// In-memory state of the orphan list or file.
    pub(crate) orphan_state: crate::orphan::OrphanState,
}

impl Fs {
    /// The time for inode time stamps.
    pub(crate) fn now(&self) -> Timestamp {
        let (secs, nanos) = self.options.clock.realtime();
        self.storable(Timestamp { secs, nanos })
    }

    /// The nearest time that this volume's inodes can hold, so that what users see now is what they
    /// see after a remount.
    pub(crate) fn storable(&self, time: Timestamp) -> Timestamp {
        if self.geo.inode_size > 128 {
            return Timestamp {
                secs: time.secs.clamp(Timestamp::MIN_SECS, Timestamp::MAX_SECS),
                nanos: time.nanos.min(999_999_999),
            };
        }
        // No room for nanoseconds, nor for more than 32 bits of seconds.
        Timestamp {
            secs: time.secs.clamp(i64::from(i32::MIN), i64::from(i32::MAX)),
            nanos: 0,
        }
    }

    /// `Err(ReadOnly)` on a read-only volume.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.is_read_only() {
            Err(Error::ReadOnly)
        } else {
            Ok(())
        }
    }

    /// Whether changes are refused, by wish or after an error.
    pub fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Relaxed)
    }

    /// The root directory.
    pub fn root(&self) -> Result<InodeRef> {
        self.inode(Ino::ROOT.0)
    }

    /// The super block changed under `handle` (see [`Fs::superblock`]); it goes out with the
    /// handle's transaction.
    pub(crate) fn mark_superblock_dirty(&self, _handle: &Handle<'_>) {
        self.superblock_dirty.store(true, Ordering::Release);
    }

    /// Makes everything that is dirty now durable: data, then metadata by one commit. Beside an
    /// unmount, whose last sync makes the same durable, its outcome is that of the unmount.
    ///
    /// # Errors
    /// Anything could not be written; the journal has stopped.
    pub fn sync(&self) -> Result<()> {
        self.sync_now()
            .or_else(|error| match &*self.unmounted.lock() {
                Some(outcome) => outcome.clone(),
                None => Err(error),
            })
    }

    fn sync_now(&self) -> Result<()> {
        self.delete_unlinked();
        let sizes = self.sizes_to_sync();
        let data = self.bdi.sync();
        if !self.is_read_only() {
            sizes
                .iter()
                .try_for_each(|(inode, begin)| inode.follow_to(self, *begin))?;
            self.commit_all()?;
        }
        // What was in the journal when it stopped is lost, though nothing may be dirty any more.
        self.check_journal()?;
        data.map_err(|e| Error::Io(io_error(&e)))
    }

    /// Makes everything durable that has landed, and every change of metadata.
    pub(crate) fn commit_all(&self) -> Result<()> {
        let written = self.queue.written();
        self.journal.commit(self.journal.running_tid())?;
        Ok(self.queue.flush_up_to(written)?)
    }

    /// Makes a step of a large sync durable, which has landed and is recorded. What the steps
    /// record is for the commit of the next small fsync to write, unless that would be much: then
    /// it is committed here. Errors are kept by the journal and the queue.
    pub(crate) fn make_step_durable(&self) {
        let written = self.queue.written();
        let running = self.journal.running_tid();
        if self.journal.running_blocks() >= STEP_BLOCKS {
            let _ = self.journal.commit(running);
        }
        let _ = self.queue.flush_up_to(written);
    }

    /// Space and inodes.
    pub fn statfs(&self) -> StatFs {
        let counts = self.groups.counts();
        let (overhead, reserved) = {
            let sb = self.superblock.lock();
            (
                u64::from(sb.overhead_clusters.get()),
                sb.reserved_blocks_count(),
            )
        };
        let free = counts.free_blocks.saturating_sub(counts.reserved_blocks);
        StatFs {
            block_size: self.geo.block_size,
            blocks: self.geo.blocks_count.saturating_sub(overhead),
            free,
            available: free.saturating_sub(reserved),
            inodes: u64::from(self.geo.inodes_count),
            free_inodes: counts.free_inodes,
        }
    }

    /// Counters.
    pub fn stats(&self) -> VolumeStats {
        VolumeStats {
            device: self.queue.stats().snapshot(),
            journal: self.journal.stats(),
            dirty_pages: self.bdi.dirty_pages(),
            cached_inodes: self.inodes.len() as u64,
            memory_used: self.budget.used(),
            page_bytes: self.budget.used_by(Kind::Pages),
            metadata_bytes: self.budget.used_by(Kind::Metadata),
        }
    }

    /// What the volume is.
    pub fn info(&self) -> VolumeInfo {
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
            read_only: self.is_read_only(),
            read_only_reason: self.read_only_reason.lock().clone(),
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

    /// Writeback's parameters.
    pub fn tunables(&self) -> Tunables {
        self.bdi.tunables()
    }

    /// Changes them; they hold at once.
    pub fn set_tunables(&self, tunables: Tunables) -> Result<()> {
        let set = self.bdi.set_tunables(tunables);
        set.map_err(|_| Error::Invalid("a writeback parameter"))
    }

    /// Drops clean pages, inodes and metadata blocks from memory, those of others who share the
    /// budget as well, and gives the system back what is free.
    pub fn drop_caches(&self) {
        self.budget.drop_caches();
    }

    /// Forgets the cached clean pages of one file.
    pub fn invalidate(&self, inode: &InodeRef) {
        inode.mapping.invalidate(0..u64::MAX);
    }

    fn become_read_only(&self, why: &str) {
        self.read_only.store(true, Ordering::Relaxed);
        self.read_only_reason
            .lock()
            .get_or_insert_with(|| why.to_owned());
    }

    /// Puts the super block into the journal, if it has changed.
    fn write_back_superblock(&self, handle: &Handle<'_>) -> Result<()> {
        if self.superblock_dirty.swap(false, Ordering::AcqRel) || self.errors.is_unsaved() {
            let buffer = handle.get(self.superblock_block())?;
            handle.modify(&buffer, None, |bytes| self.encode_superblock(bytes));
        }
        Ok(())
    }

    /// Encodes the super block with the counts of now into its place in block `bytes` that holds
    /// it.
    fn encode_superblock(&self, bytes: &mut [u8]) {
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

    /// Block that holds the super block.
    fn superblock_block(&self) -> u64 {
        SUPERBLOCK_OFFSET / u64::from(self.geo.block_size)
    }
}

/// What is left of an I/O error that went through [`std::io::Error`].
fn io_error(e: &std::io::Error) -> block::IoError {
    let inner = e.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match inner {
        Some(Error::Io(io)) => *io,
        other => block::IoError {
            op: block::Op::Write,
            offset: 0,
            len: 0,
            errno: other
                .map(Error::errno)
                .or(e.raw_os_error())
                .unwrap_or(rustix::io::Errno::IO.raw_os_error()),
        },
    }
}

impl JournalClient for Fs {
    fn write_back_state(&self, handle: &Handle<'_>, phase: Phase) {
        let mut result = self.dirty_inodes.write_back(self, handle, phase);
        if phase != Phase::Ahead {
            result = result
                .and(self.groups.write_back_state(handle))
                .and(self.write_back_superblock(handle));
        }
        if let Err(error) = result {
            // The transaction would be incomplete: better none.
            tracing::error!("metadata could not be put into the journal: {error}");
            self.journal
                .abort(&JournalError::Aborted(error.to_string()));
        }
    }

    fn pending_blocks(&self) -> u32 {
        self.dirty_inodes.pending_blocks() + self.groups.pending_blocks() + 1
    }

    fn before_commit(&self) {
        self.write_truncated_files();
    }

    fn committed(&self, _tid: Tid, freed: &[FreedExtent]) {
        self.groups.released(freed);
    }

    fn aborted(&self, error: &JournalError) {
        tracing::error!(
            "{}: {error}; the volume is read-only now",
            self.queue.name()
        );
        self.become_read_only(&error.to_string());
        self.errors
            .record("journal_stopped", 0, &Error::Journal(error.clone()));
    }
}

impl Drop for Fs {
    fn drop(&mut self) {
        if self.unmounted.get_mut().is_some() {
            return;
        }
        // The flusher and the journal hold the file system weakly: nothing of it can be written any
        // more, and a commit without its state would be damage. So it ends as a crash does, on
        // whichever thread held the last reference.
        tracing::error!(
            "{}: dropped without unmount; the next mount recovers what was durable",
            self.queue.name()
        );
        self.crash();
    }
}

/// Whether the read-only compatible features of `sb` say that orphans may be present.
pub(crate) fn orphans_present(sb: &Superblock) -> bool {
    sb.ro_compat().contains(RoCompatFeatures::ORPHAN_PRESENT)
}
