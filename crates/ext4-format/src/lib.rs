//! Codecs for ext4's on-disk structures: one file per structure, no I/O, no unsafe code.
//!
//! Images may be damaged or hostile. Each length and offset is checked, and arithmetic cannot
//! overflow. Damage is reported as a [`FormatError`] that names the structure and the place.
//!
//! Conventions of all modules:
//!
//! * Numbers are native integers outside of [`superblock::Superblock`], whose fields are
//!   little-endian as on disk.
//! * `verify_…` and `update_…` take the checksum seed as an `Option`. A volume without metadata
//!   checksums has `None`, and they do nothing.
//! * Encoding keeps unknown bytes.
//!
//! Source of the format: the kernel's `Documentation/filesystems/ext4`, compared with images by
//! mke2fs.

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
pub mod block_map;
mod bytes;
pub mod checksum;
pub mod device;
mod dir_block;
pub mod dir_entry;
mod dir_record;
mod dir_rules;
pub mod dirhash;
pub mod error;
pub mod error_record;
pub mod extent;
pub mod fast_commit;
pub mod features;
pub mod geometry;
pub mod group_desc;
pub mod htree;
mod i_block;
pub mod inline_data;
pub mod inode;
pub mod inode_flags;
pub mod journal_device;
pub mod mmp;
pub mod mode;
pub mod nokey_name;
pub mod orphan_file;
pub mod superblock;
pub mod symlink;
pub mod timestamp;
pub mod xattr;

pub use checksum::Seed;
pub use error::{FormatError, Result};
pub use geometry::Geometry;
pub use superblock::Superblock;
