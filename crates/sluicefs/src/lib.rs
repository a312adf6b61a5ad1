//! Ext4 volumes in user space: open or format one, and use it as [`std::fs`] is used.
//!
//! A [`Volume`] is an image file, a block device, memory (`mem:64MiB`) or a modelled device
//! (`sim:ssd,size=8GiB`) with a real ext4 file system and a real journal on it; the Linux kernel
//! and e2fsck can take it over at any moment. It is cheap to clone and to be used from any number
//! of threads.
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
//! | module | what it holds |
//! |---|---|
//! | [`volume`] | [`Volume`]: open, format, sync, close |
//! | [`dir`] | [`Dir`]: everything that takes a path; a volume is its root directory |
//! | [`mod@file`] | [`File`]: contents, in streams and by position |
//! | [`completion`] | [`SyncCompletion`]: an asynchronous sync under way |
//! | [`options`] | [`VolumeOptions`], [`FormatOptions`], [`OpenOptions`] |
//! | [`metadata`] | [`Metadata`], [`FileType`], [`FileTimes`], [`SetAttributes`] |
//! | [`error`] | what the errors carry, and their numbers |
//!
//! # Paths
//! Relative and absolute paths both begin at the root of the volume (relative ones given to a
//! [`Dir`] begin there). `..` and symbolic links are followed inside the volume and never leave it:
//! above the root is the root.
//!
//! # Permissions
//! The library acts as root does: it stores owners and modes and checks none of them.

#![forbid(unsafe_code)]

pub mod completion;
pub mod dir;
pub mod error;
pub mod file;
pub mod metadata;
pub mod options;
mod path;
mod probe;
pub mod volume;

pub use block::{SizeHistogram, StatsSnapshot as DeviceStats, parse_size};
pub use cache::Budget as MemoryBudget;
pub use completion::SyncCompletion;
pub use dir::{Dir, DirEntry, NewNode, ReadDir, SpecialFile};
pub use error::{Cause, Error, errno};
pub use ext4::{
    AsyncCommit, ErrorRecord, ErrorSummary, OnError, RenameFlags, StatFs, VolumeInfo, VolumeStats,
};
pub use file::File;
pub use metadata::{FileTimes, FileType, Metadata, SetAttributes};
pub use options::{FormatOptions, OpenOptions, VolumeOptions};
pub use std::fs::Permissions;
pub use volume::{FormatReport, Volume};
pub use writeback::{Flushers, Tunables};
