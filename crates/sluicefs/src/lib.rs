//! Ext4 volumes in user space: open or format one, and use it as [`std::fs`] is used.
//!
//! A [`Volume`] is an ext4 file system with a jbd2 journal. It is stored in an image file, on a
//! block device, in memory (`mem:64MiB`) or on a modelled device (`sim:ssd,size=8GiB`). The Linux
//! kernel and e2fsck can use the same volume, also after a crash. Any number of threads may use a
//! volume; a clone is cheap.
//!
//! ```
//! use sluicefs::{FormatOptions, Volume};
//! use std::io::Write;
//!
//! # fn main() -> std::io::Result<()> {
//! let volume = Volume::format("mem:64MiB", FormatOptions::new())?;
//! volume.create_dir_all("/etc/sluice")?;
//! volume.write("/etc/sluice/motd", "small files leave in large writes\n")?;
//!
//! let mut log = volume.create_file("/var.log")?;
//! writeln!(log, "hello")?;
//! log.sync_all()?;
//! drop(log);
//!
//! for entry in volume.read_dir("/")? {
//!     println!("{}", entry?.path().display());
//! }
//! volume.close()
//! # }
//! ```
//!
//! # Paths
//! Relative and absolute paths both start at the root of the volume. Relative paths given to a
//! [`Dir`] start at that directory. `..` and symbolic links never leave the volume: the parent of
//! the root is the root.
//!
//! # Permissions
//! The library acts as root: it stores owners and modes and checks none of them.
//!
//! # Errors
//! Functions return [`std::io::Error`]. Its payload is an [`Error`], which has the operation, the
//! path and the [`Cause`]. [`errno`] returns the system's error number.

#![forbid(unsafe_code)]

// A module uses only modules above it in this list.
mod probe;

mod devices;
mod error;
mod metadata;
mod path;
mod shared;

mod completion;
mod dir;
mod file;

mod volume;

mod inodes;

mod journal_device;

mod options;

mod tree;

pub use block::{
    ByReason, LatencyHistogram, LatencyRule, ReadTarget, Reason as IoReason, ReasonStats,
    SizeHistogram, StatsSnapshot as DeviceStats, ThrottleCause, ThrottleOptions, ThrottleStats,
    parse_size,
};
pub use cache::Budget as MemoryBudget;
pub use completion::SyncCompletion;
pub use devices::{SCHEMES as DEVICE_SCHEMES, contents, partition_table};
pub use dir::{Dir, DirEntry, NewNode, ReadDir, SpecialFile};
pub use error::{Cause, Error, errno};
pub use ext4::{
    AsyncCommit, ErrorRecord, ErrorSummary, ExternalJournal, OnError, RenameFlags, ResizeProgress,
    StatFs, Uuid, VolumeInfo, VolumeStats,
};
pub use file::File;
pub use inodes::UnreadableInodes;
pub use journal_device::{external_journal, find_journal, journal_of};
pub use metadata::{DeviceNumber, FileTimes, FileType, Metadata, SetAttributes};
pub use mkfs::Usage;
pub use options::{FormatOptions, FormatReport, OpenOptions, UsageType, VolumeOptions};
pub use partition::{Format as PartitionFormat, Partition, Table as PartitionTable};
pub use probe::EXT4 as EXT4_CONTENTS;
pub use std::fs::Permissions;
pub use volume::Volume;
pub use writeback::{FlusherState, Flushers, Reason as WritebackReason, Tunables, WritebackStats};
