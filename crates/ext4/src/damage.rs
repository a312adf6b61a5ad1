//! Damage that is met while the volume is mounted: its record in the super block, and its
//! consequences.
//!
//! ```text
//!  damage met ─▶ note ─┬─▶ first of this mount: super block on the device (errors, ERROR), past the journal
//!                      ├─▶ later ones: with the next super block that is written
//!                      └─▶ errors=remount-ro: the journal stops, the volume refuses changes
//! ```
//!
//! The record is ext4's: a count, and for the first and the last error its time, inode, block,
//! function, line and code. `e2fsck` clears it. An error may be met under any lock, so the lock of
//! [`ErrorLog`] is the last in the order, and only the device is used.

use crate::{Error, Result};
use block::{BufMut, Class, Durability, Queue, Reason};
use ext4_format::error::FormatError;
pub use ext4_format::error_record::{ErrorRecord, ErrorSummary};
use ext4_format::superblock::{Access, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State, Superblock};
use jbd2::{Journal, JournalError};
use std::panic::Location;
use std::str::FromStr;
use std::sync::Arc;
use sync::atomic::{AtomicBool, Ordering};
use sync::clock::Clock;
use sync::{Mutex, Rank};
use units::Ino;

/// The reaction to damage (ext4's option `errors=`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// The error is recorded and the operation fails. The volume stays writable.
    Continue,
    /// In addition the journal stops, and the volume is read-only until it is mounted again.
    RemountReadOnly,
}

impl OnError {
    /// The setting of the super block (`tune2fs -e`). `panic` counts as remount-ro: a file system
    /// in user space cannot stop the system.
    pub(crate) fn of(superblock: &Superblock) -> OnError {
        match superblock.errors.get() {
            2 | 3 => OnError::RemountReadOnly,
            _ => OnError::Continue,
        }
    }

    /// The word that [`OnError::from_str`] reads.
    pub fn name(self) -> &'static str {
        match self {
            OnError::Continue => "continue",
            OnError::RemountReadOnly => "remount-ro",
        }
    }
}

impl FromStr for OnError {
    type Err = String;

    fn from_str(word: &str) -> Result<OnError, String> {
        match word {
            "continue" => Ok(OnError::Continue),
            "remount-ro" => Ok(OnError::RemountReadOnly),
            "panic" => Err(
                "errors=panic is not possible: a file system in user space cannot stop the system; \
                 errors=remount-ro stops all changes of the volume"
                    .into(),
            ),
            _ => Err(format!("\"{word}\" is unknown; use continue or remount-ro")),
        }
    }
}

/// e2fsprogs' number for an error.
fn code(error: &Error) -> u8 {
    match error {
        Error::Corrupt(FormatError::Checksum { .. } | FormatError::MissingTail { .. })
        | Error::CorruptDirectory {
            error: FormatError::Checksum { .. } | FormatError::MissingTail { .. },
            ..
        } => 4,
        Error::Corrupt(_) | Error::CorruptInode { .. } | Error::CorruptDirectory { .. } => 5,
        Error::Journal(JournalError::Corrupt { .. }) => 5,
        Error::Io(_) | Error::Journal(_) => 2,
        _ => 1,
    }
}

/// Whether an error means that the volume is damaged.
pub(crate) fn is_damage(error: &Error) -> bool {
    matches!(
        error,
        Error::Corrupt(_)
            | Error::CorruptInode { .. }
            | Error::CorruptDirectory { .. }
            | Error::Journal(JournalError::Corrupt { .. })
    )
}

/// The errors of a mounted volume.
pub(crate) struct ErrorLog {
    queue: Arc<Queue>,
    journal: Arc<Journal>,
    clock: Arc<dyn Clock>,
    policy: OnError,
    /// Bytes of a block of the volume.
    block_size: u32,
    /// The record is written by a mount that may write.
    access: Access,
    summary: Mutex<ErrorSummary>,
    /// An error was met in this mount.
    met: AtomicBool,
    /// The summary differs from what the device has.
    unsaved: AtomicBool,
}

impl ErrorLog {
    pub fn new(
        queue: Arc<Queue>,
        journal: Arc<Journal>,
        clock: Arc<dyn Clock>,
        policy: OnError,
        access: Access,
        superblock: &Superblock,
    ) -> Arc<ErrorLog> {
        Arc::new(ErrorLog {
            queue,
            journal,
            clock,
            policy,
            block_size: superblock.block_size(),
            access,
            summary: Rank::ErrorLog.mutex(ErrorSummary::read(superblock)),
            met: AtomicBool::new(false),
            unsaved: AtomicBool::new(false),
        })
    }

    /// The record.
    pub fn summary(&self) -> ErrorSummary {
        self.summary.lock().clone()
    }

    /// The reaction to damage.
    pub fn policy(&self) -> OnError {
        self.policy
    }

    /// Whether an error was met in this mount.
    pub fn is_met(&self) -> bool {
        self.met.load(Ordering::Acquire)
    }

    /// Whether the record has changed since it was last written.
    pub fn is_unsaved(&self) -> bool {
        self.unsaved.load(Ordering::Acquire)
    }

    /// Copies the record into a super block that is about to be written.
    pub fn put_into(&self, sb: &mut Superblock) {
        if self.met.load(Ordering::Acquire) {
            self.unsaved.store(false, Ordering::Release);
            self.summary.lock().write(sb);
            sb.set_state(sb.state() | State::ERROR);
        }
    }

    /// Records an error that an operation met, on an inode if there is one. Stops the volume if
    /// `errors=` asks for it.
    #[track_caller]
    pub fn note(&self, func: &'static str, ino: Option<Ino>, error: &Error) {
        self.record(func, ino, error);
        if self.policy == OnError::RemountReadOnly {
            // The journal calls back, the volume becomes read-only, and the journal's super block
            // has the error for the next mount.
            self.journal
                .abort(&JournalError::Aborted(error.to_string()));
        }
    }

    /// Records an error.
    #[track_caller]
    pub fn record(&self, func: &'static str, ino: Option<Ino>, error: &Error) {
        let (ino, block) = match error {
            Error::CorruptInode { ino, block, .. } => {
                (Some(*ino), block.map_or(0, |block| block.0))
            }
            Error::CorruptDirectory { ino, block, .. } => (Some(*ino), block.0),
            Error::Io(e) => (ino, e.offset / u64::from(self.block_size)),
            _ => (ino, 0),
        };
        let ino = ino.map_or(0, |ino| ino.0);
        let record = ErrorRecord {
            time: self.clock.realtime().0.max(0) as u64,
            ino,
            block,
            func: func.to_owned(),
            line: Location::caller().line(),
            code: code(error),
        };
        {
            let mut summary = self.summary.lock();
            if summary.count == 0 {
                summary.first = record.clone();
            }
            summary.last = record;
            summary.count = summary.count.saturating_add(1);
        }
        self.unsaved.store(true, Ordering::Release);
        if !self.met.swap(true, Ordering::AcqRel) {
            tracing::error!(
                "{}: {func}: inode {ino}: {error}; recorded in the super block (errors={})",
                self.queue.name(),
                self.policy.name()
            );
            // At once: this process may end at any moment.
            self.save();
        }
    }

    /// Writes the record into the super block on the device, and changes nothing else there. If the
    /// device fails, the next super block contains the record.
    pub fn save(&self) {
        if self.access == Access::ReadWrite
            && let Err(error) = self.try_save()
        {
            tracing::error!("{}: the super block: {error}", self.queue.name());
        }
    }

    fn try_save(&self) -> Result<()> {
        // Small blocks behind it hold descriptors, which the journal writes.
        let bytes = self
            .queue
            .read(
                SUPERBLOCK_OFFSET,
                SUPERBLOCK_SIZE,
                SUPERBLOCK_SIZE,
                Class::Metadata,
                Reason::MetadataRead,
            )?
            .pop()
            .ok_or(Error::Internal("a read of the device returned no buffer"))?;
        let mut sb = Superblock::parse(&bytes)?;
        self.put_into(&mut sb);
        sb.update_checksum();
        self.queue.write(
            SUPERBLOCK_OFFSET,
            &[BufMut::copy_of(sb.as_bytes()).freeze()],
            Class::Metadata,
            Reason::Other,
            Durability::Fua,
        )?;
        Ok(())
    }
}

/// Keeps the record of errors over a replay of the log, which may contain an older super block.
pub(crate) fn carry_over(before: &Superblock, after: &mut Superblock) {
    if before.error_count.get() > after.error_count.get() {
        ErrorSummary::read(before).write(after);
    }
    after.set_state(after.state() | (before.state() & State::ERROR));
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::{IoError, Op};
    use cache::Budget;
    use jbd2::{AsyncCommit, JournalOptions, LogFormat, Overlay};
    use mkfs::MkfsOptions;
    use std::time::Duration;
    use sync::clock::SystemClock;
    use testkit::crash::Promises;
    use testkit::disk::Disk;

    fn superblock(queue: &Queue) -> Superblock {
        let (at, len) = (SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE);
        let bufs = queue.read(at, len, len, Class::Metadata, Reason::Other);
        Superblock::parse(&bufs.unwrap()[0]).unwrap()
    }

    /// The first record after an I/O error at byte `offset` of a volume with blocks of `block_size`
    /// bytes.
    fn record_of_io_error(block_size: u32, offset: u64) -> ErrorRecord {
        let disk = Disk::new(32 << 20);
        let queue = disk.queue();
        let options = MkfsOptions {
            block_size,
            ..MkfsOptions::default()
        };
        mkfs::format(&queue, &options).unwrap();
        disk.start_recording();
        let options = JournalOptions {
            commit_interval: Duration::from_secs(3600),
            block_size,
            format: LogFormat::Kept,
            async_commit: AsyncCommit::default(),
            uuid: [0; 16],
        };
        let budget = Budget::of_memory(8 << 20);
        let log = ErrorLog::new(
            queue.clone(),
            Journal::read_only(queue.clone(), Overlay::default(), budget, options),
            Arc::new(SystemClock),
            OnError::Continue,
            Access::ReadWrite,
            &superblock(&queue),
        );
        let error = IoError {
            op: Op::Read,
            offset,
            len: 4096,
            errno: 5,
        };
        log.note("a_test", Some(Ino(12)), &Error::Io(error));
        // Nothing else is written: of small blocks the next ones hold descriptors.
        let recording = disk.take_recording();
        let mut writes = Vec::new();
        let mut rng = testkit::seed::Rng::from_seed(1);
        let end = recording.log.len();
        let note = |at, bytes: &[u8]| writes.push((at, bytes.len()));
        recording.log.crash(Promises::Kept, end, &mut rng, note);
        assert_eq!(writes, [(SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE)]);
        ErrorSummary::read(&superblock(&queue)).first
    }

    #[test]
    fn an_io_error_is_recorded_with_the_volumes_block() {
        for (block_size, block) in [(1024, 73), (2048, 36), (4096, 18)] {
            let record = record_of_io_error(block_size, 73 << 10);
            assert_eq!((record.ino, record.block), (12, block), "{block_size}");
            assert_eq!((&*record.func, record.code), ("a_test", 2));
        }
    }
}
