//! A read-only checker for ext4 volumes. It finds the same damage as `e2fsck -fn`, and names the
//! object and the place.
//!
//! ```text
//!  open        super block (or a backup), features, journal (replayed in memory)       volume.rs journal.rs
//!  pass 0      backups, group descriptors, places of metadata                           groups.rs
//!  pass 1      each inode: fields, mapping, attributes; it claims its blocks            inodes.rs mapping.rs xattrs.rs
//!     1b       all owners of blocks that are claimed twice
//!  pass 2      each directory block: checksum, entries, hash tree                       directories.rs htree.rs
//!  pass 3, 4   the path from each directory to the root; link counts                    links.rs
//!  pass 5      bitmaps and free counts                                                  bitmaps.rs
//! ```
//!
//! The image may be hostile. Each block of a tree is read once, so loops and shared nodes cost
//! nothing. Memory is two bits for each block and a few bytes for each inode in use;
//! [`Options::memory`] is the limit. At most [`MAX_FINDINGS`] findings are kept; all are counted.
#![forbid(unsafe_code)]

mod bitmaps;
mod chunked;
mod directories;
mod finding;
mod groups;
mod htree;
mod inline;
mod inodes;
mod journal;
mod links;
mod mapping;
mod orphans;
mod owners;
mod resize;
mod state;
mod value_table;
mod values;
mod volume;
mod xattrs;

pub use finding::{Finding, Kind, MAX_FINDINGS, Place, Report, Severity};

use block::{IoError, Queue};
use state::Checker;
use std::sync::Arc;

/// Parameters of a check.
#[derive(Clone)]
pub struct Options {
    /// Most bytes of memory for bitmaps and tables. A volume that needs more is refused.
    pub memory: u64,
    /// The device with the journal of a volume whose journal is on a device of its own. Without it
    /// the journal is not checked.
    pub journal: Option<Arc<Queue>>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            memory: 1 << 30,
            journal: None,
        }
    }
}

/// Receives the progress of a check.
pub trait Progress {
    /// A pass with `total` steps begins.
    fn begin(&mut self, pass: &str, total: u64);
    /// `steps` more steps of the pass are done.
    fn done(&mut self, steps: u64);
}

/// Ignores the progress.
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
    /// Neither the super block nor a backup is that of an ext2, ext3 or ext4 file system.
    #[error("{0}")]
    NotAVolume(String),
    /// The volume has a feature or property that this checker does not support.
    #[error("cannot check this volume: {0}")]
    Unsupported(String),
}

/// Checks the volume on `queue` without writing to it.
///
/// # Errors
/// [`Error`] if the volume cannot be checked at all. Damage is not an error; the report contains
/// it.
pub fn check(
    queue: &Arc<Queue>,
    options: &Options,
    progress: &mut dyn Progress,
) -> Result<Report, Error> {
    let mut report = Report::default();
    let volume = volume::Volume::open(queue, options, &mut report)?;
    let mut checker = Checker::new(volume, report, progress);
    run(&mut checker)?;
    Ok(checker.into_report())
}

/// Carries out all parts of the check.
fn run(checker: &mut Checker<'_>) -> Result<(), Error> {
    checker.load_groups()?;
    checker.replay_journal_in_memory()?;
    checker.check_superblock();
    checker.check_backups()?;
    checker.check_groups();
    checker.find_orphans()?;
    checker.check_inodes()?;
    checker.check_resize_inode()?;
    checker.name_shared_blocks()?;
    checker.check_directories()?;
    checker.check_links();
    checker.check_attribute_counts();
    checker.check_values();
    checker.check_bitmaps()?;
    Ok(())
}
