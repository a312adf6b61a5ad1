//! A read-only checker for ext4 volumes: it finds what `e2fsck -fn` finds and names the object and
//! the place.
//!
//! ```text
//!  open        super block (or a backup), features, journal (replayed in memory)       volume.rs journal.rs
//!  pass 0      backups, group descriptors, where metadata lies                          groups.rs
//!  pass 1      each inode: fields, mapping, attributes; which blocks it claims          inodes.rs mapping.rs xattrs.rs
//!     1b       who else claims the blocks that are claimed twice
//!  pass 2      each directory block: checksum, entries, hash tree                       directories.rs htree.rs
//!  pass 3, 4   every directory leads to the root; link counts                           links.rs
//!  pass 5      bitmaps and free counts                                                  bitmaps.rs
//! ```
//!
//! The image may be hostile. Every block is descended into once, so that no loop and no fan-out
//! costs more than the volume has blocks. Memory is a bit for each block and a few bytes for each
//! inode in use ([`Options::memory`] bounds it). At most [`MAX_FINDINGS`] findings are kept; all
//! are counted.
#![forbid(unsafe_code)]

mod bitmaps;
mod chunked;
mod directories;
mod finding;
mod groups;
mod htree;
mod inodes;
mod journal;
mod links;
mod mapping;
mod orphans;
mod resize;
mod state;
mod volume;
mod xattrs;

pub use finding::{Finding, Kind, MAX_FINDINGS, Place, Report, Severity};

use block::{IoError, Queue};
use state::Checker;
use std::sync::Arc;

/// How to check.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of memory for bitmaps and tables, at most. A volume that needs more is refused.
    pub memory: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options { memory: 1 << 30 }
    }
}

/// Hears how far the check is.
pub trait Progress {
    /// A pass begins; it has `total` steps.
    fn begin(&mut self, pass: &str, total: u64);
    /// So many steps of it are done.
    fn done(&mut self, steps: u64);
}

/// Hears nothing.
impl Progress for () {
    fn begin(&mut self, _pass: &str, _total: u64) {}
    fn done(&mut self, _steps: u64) {}
}

/// Why a volume could not be checked at all.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// There is no ext2, ext3 or ext4 file system: neither the super block nor a backup is one.
    #[error("{0}")]
    NotAVolume(String),
    /// It has a feature that this checker does not know how to follow.
    #[error("cannot check this volume: {0}")]
    Unsupported(String),
}

/// Checks the volume behind `queue` and writes nothing.
///
/// # Errors
/// [`Error`] where nothing can be said about the volume. Damage is no error: it is in the report.
pub fn check(
    queue: &Arc<Queue>,
    options: &Options,
    progress: &mut dyn Progress,
) -> Result<Report, Error> {
    let mut report = Report::default();
    let volume = volume::Volume::open(queue, options, &mut report)?;
    let mut checker = Checker::new(volume, report, progress);
    checker.run()?;
    Ok(checker.into_report())
}
