//! The ext4 file system: over a journal ([`jbd2`]), a cache and a writeback engine, on real ext4
//! volumes.
//!
//! | module | what it owns |
//! |---|---|
//! | [`fs`] | a mounted volume: mount, unmount, sync, statfs |
//! | [`inode`] | inodes in memory, their way to and from the inode table |
//! | `alloc` | blocks and inodes: which are free, which to take next |
//! | `extents` | the tree that maps file blocks to volume blocks |
//! | `directory` | entries in linear and hashed directories |
//! | `namespace` | create, link, unlink, rename … |
//! | `file_io` | read, write, truncate, fallocate, seek |
//! | [`mod@fsync`] | files made durable: one, many, a subtree |
//! | `writepages` | delayed allocation and what happens when data has landed |
//! | `xattr` | extended attributes and ACLs |
//! | `orphan` | inodes to be deleted after a crash |

#![forbid(unsafe_code)]

mod alloc;
mod attributes;
mod damage;
mod directory;
mod error;
mod extents;
mod file_io;
mod fsync;
mod namespace;
mod orphan;
mod state;
mod volume;
mod writepages;
mod xattr;

pub use damage::{ErrorRecord, ErrorSummary, OnError};
pub use directory::DirEntry;
pub use error::{Error, Result};
pub use ext4_format::inode::{FileType, Timestamp};
pub use ext4_format::types::Ino;
pub use file_io::{FallocateMode, SeekWhence};
pub use fsync::SyncTarget;
pub use jbd2::AsyncCommit;
pub use namespace::{NewInode, Opened, RenameFlags};
pub use state::{
    Attr, DeletedInodes, Fs, Inode, InodeRef, MountOptions, OrphanReport, SetAttr, SetTime,
};
pub use volume::{StatFs, VolumeInfo, VolumeStats};
pub use xattr::SetXattrMode;
