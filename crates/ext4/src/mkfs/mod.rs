//! New volumes, with the default features and the layout rules of mke2fs 1.47.

use crate::Result;
use block::Queue;

/// What a new volume is to be; the defaults are mke2fs's.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// Bytes in a block (4096).
    pub block_size: u32,
    /// Bytes per inode; `None`: by size as mke2fs.conf says (16384, 32768 from 4 TiB, 65536 from 16 TiB).
    pub inode_ratio: Option<u64>,
    /// Inodes; overrides the ratio.
    pub inodes: Option<u64>,
    /// Volume label (16 bytes at most).
    pub label: String,
    /// UUID; `None`: random.
    pub uuid: Option<[u8; 16]>,
    /// Percent of the blocks reserved for root.
    pub reserved_percent: u32,
    /// Journal size in bytes; `None`: by size as mke2fs does.
    pub journal_bytes: Option<u64>,
    /// Owner of the root directory.
    pub root_owner: (u32, u32),
    /// Features to add ("name") or leave out ("^name"), mke2fs -O.
    pub features: Vec<String>,
    /// Discard the device first.
    pub discard: bool,
}

/// What was made.
#[derive(Clone, Debug)]
pub struct MkfsReport {
    /// Blocks.
    pub blocks: u64,
    /// Inodes.
    pub inodes: u64,
    /// Groups.
    pub groups: u32,
    /// Journal blocks.
    pub journal_blocks: u32,
    /// UUID.
    pub uuid: [u8; 16],
}

/// Formats a device.
pub fn mkfs(queue: &Queue, options: &MkfsOptions) -> Result<MkfsReport> {
    let _ = (queue, options);
    todo!()
}
