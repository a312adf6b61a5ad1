//! The options of a mount.

use crate::damage::OnError;
use block::Queue;
use cache::Budget;
use jbd2::AsyncCommit;
use std::sync::Arc;
use std::time::Duration;
use sync::clock::{Clock, SystemClock};
use writeback::{Flushers, Tunables};

/// How to mount.
#[derive(Clone)]
pub struct MountOptions {
    /// Refuse every change.
    pub read_only: bool,
    /// Do not replay the journal, so that the volume is what the device has without it. Needs
    /// `read_only`.
    pub no_recovery: bool,
    /// Memory for pages, inodes and metadata, in bytes. Ignored where `budget` is given.
    pub memory: u64,
    /// A budget to share with other volumes.
    pub budget: Option<Arc<Budget>>,
    /// Writeback parameters.
    pub tunables: Tunables,
    /// Whether the flusher has a thread of its own.
    pub flushers: Flushers,
    /// How long a transaction collects changes before the journal commits it.
    pub commit_interval: Duration,
    /// When the commit block is written together with the transaction, as with the kernel's
    /// `journal_async_commit` (docs/FSYNC.md).
    pub async_commit: AsyncCommit,
    /// The device with the journal of a volume whose journal is on a device of its own.
    pub journal: Option<Arc<Queue>>,
    /// Update access times as relatime does; otherwise never (noatime).
    pub atime: bool,
    /// Discard blocks after the transaction that freed them has committed.
    pub discard: bool,
    /// The reaction to damage; `None`: the setting of the super block.
    pub errors: Option<OnError>,
    /// The source of time.
    pub clock: Arc<dyn Clock>,
}

impl Default for MountOptions {
    fn default() -> Self {
        MountOptions {
            read_only: false,
            no_recovery: false,
            memory: 1 << 30,
            budget: None,
            tunables: Tunables::default(),
            flushers: Flushers::default(),
            commit_interval: Duration::from_secs(5),
            async_commit: AsyncCommit::default(),
            journal: None,
            atime: false,
            discard: false,
            errors: None,
            clock: Arc::new(SystemClock),
        }
    }
}
