//! The ext4 file system: over a journal ([`jbd2`]), a cache and a writeback engine, on real ext4
//! volumes.
//!
//! Modules use only those below them:
//!
//! | module | what it owns |
//! |---|---|
//! | `volume` | mount, unmount, statfs; the calls of the journal and the writeback engine |
//! | `namespace` | create, link, unlink, rename … |
//! | `bulkstat` | the attributes of all inodes, read in the order of the device |
//! | `attributes` | mode, owner, times, flags; operations on extended attributes |
//! | `file_io` | read, write, truncate, fallocate, seek |
//! | `fsync` | files made durable: one, many, a subtree, all |
//! | `removal` | pages, blocks and inodes removed; the steps before `NoSpace` |
//! | `writepages` | delayed allocation: dirty pages to I/O, completed I/O to metadata |
//! | `directory` | entries in linear and hashed directories |
//! | `inline_data` | contents in the inode |
//! | `xattr` | storage of extended attributes and ACLs |
//! | `orphan` | inodes to be deleted after a crash |
//! | `extents` | the tree that maps file blocks to volume blocks |
//! | `state` | [`Fs`] and [`Inode`], and what they own |
//! | `alloc` | free blocks and inodes, and which to take next |
//! | `mmp` | protection against a second mount by another node |
//! | `damage` | the record of damage |

#![forbid(unsafe_code)]

mod alloc;
mod attributes;
mod bulkstat;
mod damage;
mod directory;
mod error;
mod extents;
mod file_io;
mod fsync;
mod inline_data;
mod mmp;
mod namespace;
mod orphan;
mod removal;
mod state;
#[cfg(test)]
mod test_volume;
mod volume;
mod writepages;
mod xattr;

pub use alloc::Acting;
pub use bulkstat::Scanned;
pub use damage::{ErrorRecord, ErrorSummary, OnError};
pub use directory::DirEntry;
pub use error::{Error, InodeDamage, Result};
pub use ext4_format::inode::{FileType, InodeFlags, Timestamp};
pub use ext4_format::journal_device::{ExternalJournal, Uuid};
pub use file_io::{FallocateMode, PrivilegeBits, ReadMode, SeekWhence};
pub use fsync::SyncTarget;
pub use jbd2::AsyncCommit;
pub use namespace::{CachedPath, NewInode, Opened, RenameFlags};
pub use state::{
    Attr, DeletedInodes, FirstLink, Fs, Inode, InodeRef, MountOptions, NamesVersion, OrphanReport,
    SetAttr, SetTime, SyncKind, WriteMode,
};
pub use volume::{ResizeProgress, StatFs, VolumeInfo, VolumeStats, external_journal};
pub use xattr::SetXattrMode;
