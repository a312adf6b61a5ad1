//! Makes ext4 volumes with the default features and the layout rules of mke2fs 1.47.
//!
//! [`format()`] works in these steps:
//!
//! | step | file |
//! |---|---|
//! | options to feature bits | `features.rs` |
//! | usage to block size and bytes per inode | `usage.rs` |
//! | device size to numbers of groups, inodes and journal blocks | `shape.rs` |
//! | a place for each table and file | `layout.rs` |
//! | zeroing of tables and journal, where the device is not known to be zero | `zeroed.rs` |
//! | inodes, directories, journal, orphan file | `contents.rs` |
//! | superblock | `superblock.rs` |
//! | descriptors and backups | `format.rs` |
//! | a journal on a device of its own: a new one, and the volume that uses one | `journal_device.rs` |
//!
//! Groups without files are marked uninitialised where group checksums make that safe. So a volume
//! of any size needs few writes beyond its group descriptors.
//!
//! The primary superblock is wiped first and written last: an interrupted run leaves no volume that
//! looks complete.

#![forbid(unsafe_code)]

mod contents;
mod error;
mod features;
mod format;
mod journal_device;
mod layout;
mod shape;
mod superblock;
mod usage;
mod write;
mod zeroed;

pub use error::{Error, Result};
pub use format::{format, format_with_journal};
pub use usage::Usage;

/// The properties of a new volume; the defaults are those of mke2fs.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// Bytes: 1024, 2048 or 4096.
    pub block_size: u32,
    /// Bytes of a cluster, a power of two, for the feature `bigalloc`. `None` stands for 16 blocks.
    pub cluster_size: Option<u64>,
    /// The use of the volume. `None` stands for the one that mke2fs chooses by size.
    pub usage: Option<Usage>,
    /// Bytes per inode. `None` stands for the ratio of the use, and at least a cluster.
    pub inode_ratio: Option<u64>,
    /// Overrides `inode_ratio`.
    pub inodes: Option<u64>,
    /// At most 16 bytes.
    pub label: String,
    /// `None` stands for a random one.
    pub uuid: Option<[u8; 16]>,
    /// Percent of the blocks reserved for root.
    pub reserved_percent: u32,
    /// `None` stands for the size that mke2fs chooses (no journal below 2048 blocks).
    pub journal_bytes: Option<u64>,
    /// User and group of the root directory.
    pub root_owner: (u32, u32),
    /// Features to add (`name`) or leave out (`^name`), as with `mke2fs -O`. A string may hold
    /// several, separated by commas.
    pub features: Vec<String>,
    /// Whether to discard the whole device first.
    pub discard: bool,
}

impl Default for MkfsOptions {
    fn default() -> MkfsOptions {
        MkfsOptions {
            block_size: 4096,
            cluster_size: None,
            usage: None,
            inode_ratio: None,
            inodes: None,
            label: String::new(),
            uuid: None,
            reserved_percent: 5,
            journal_bytes: None,
            root_owner: (0, 0),
            features: Vec::new(),
            discard: true,
        }
    }
}

/// The properties of the volume that was made.
#[derive(Clone, Debug)]
pub struct MkfsReport {
    /// Number of blocks of the volume.
    pub blocks: u64,
    /// Number of inodes of the volume.
    pub inodes: u64,
    /// Number of block groups.
    pub groups: u32,
    /// 0 for a volume without a journal.
    pub journal_blocks: u32,
    /// As stored in the superblock.
    pub uuid: [u8; 16],
}
