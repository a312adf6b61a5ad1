//! Pure codecs for ext4's on-disk structures: one file a structure, no I/O, no unsafe code.
//!
//! The list of modules is the format. Bytes come from images that may be damaged or hostile, so
//! nothing here trusts them: every length and offset is checked, arithmetic cannot overflow, and
//! what is wrong is reported as a [`FormatError`] that names the structure and the place.
//!
//! Conventions that all modules share:
//!
//! * Numbers are native integers outside of [`superblock::Superblock`], whose fields are
//!   little-endian as on disk.
//! * `verify_…` and `update_…` take the checksum seed as an `Option`: without metadata checksums it
//!   is `None` and they do nothing, so that callers need not ask.
//! * Encoding leaves bytes that it does not know as they were.
//!
//! The format's source is the kernel's `Documentation/filesystems/ext4`, checked against images
//! that mke2fs makes.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic
    )
)]

pub mod acl;
pub mod bitmap;
mod bytes;
pub mod checksum;
pub mod device;
mod dir_block;
pub mod dir_entry;
pub mod dirhash;
pub mod error;
pub mod extent;
pub mod features;
pub mod geometry;
pub mod group_desc;
pub mod htree;
pub mod inode;
pub mod inode_flags;
pub mod mmp;
pub mod mode;
pub mod orphan_file;
pub mod superblock;
pub mod symlink;
pub mod timestamp;
pub mod types;
pub mod xattr;

pub use checksum::Seed;
pub use error::{FormatError, Result};
pub use geometry::Geometry;
pub use superblock::Superblock;
pub use types::{FileBlock, FsBlock, GroupNo, Ino};
