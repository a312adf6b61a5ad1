//! The volume at the beginning of each run. It is small, and its journal wraps after a few commits.

use crate::device::Store;
use mkfs::MkfsOptions;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use testkit::disk::Disk;

/// Bytes of the volume.
const SIZE: usize = 12 << 20;
/// Blocks of the log that are in use. The journal file has 1024, the least that mkfs makes.
const LOG_BLOCKS: u32 = 160;

/// Offsets of fields in the journal's super block, which is big-endian.
mod jbd2 {
    pub const MAGIC: u32 = 0xc03b_3998;
    pub const SUPERBLOCK_V2: u32 = 4;
    pub const MAX_LEN: usize = 0x10;
    pub const INCOMPAT: usize = 0x28;
    pub const CHECKSUM: usize = 0xfc;
    /// Checksums of version 2 or 3.
    pub const CSUM: u32 = 0x18;
    pub const BYTES: usize = 1024;
}

fn get(block: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(block[at..at + 4].try_into().expect("four bytes"))
}

/// The volume, with blocks of this size.
pub fn volume(block_size: u32) -> Store {
    static BASES: Mutex<BTreeMap<u32, Arc<[u8]>>> = Mutex::new(BTreeMap::new());
    let mut bases = BASES.lock().expect("mkfs does not panic");
    let base = bases.entry(block_size).or_insert_with(|| make(block_size));
    Store::new(base.clone())
}

fn make(block_size: u32) -> Arc<[u8]> {
    let disk = Disk::new(SIZE);
    let options = MkfsOptions {
        uuid: Some([7; 16]),
        inodes: Some(256),
        reserved_percent: 0,
        block_size,
        journal_bytes: Some(1024 * u64::from(block_size)),
        ..MkfsOptions::default()
    };
    mkfs::format(&disk.queue(), &options).expect("mkfs");
    let mut bytes = disk.bytes();
    shorten_log(&mut bytes, block_size as usize);
    bytes.into()
}

fn shorten_log(bytes: &mut [u8], block_size: usize) {
    let is_journal =
        |block: &&mut [u8]| get(block, 0) == jbd2::MAGIC && get(block, 4) == jbd2::SUPERBLOCK_V2;
    let block = bytes.chunks_mut(block_size).find(is_journal);
    let sb = &mut block.expect("a journal")[..jbd2::BYTES];
    sb[jbd2::MAX_LEN..][..4].copy_from_slice(&LOG_BLOCKS.to_be_bytes());
    if get(sb, jbd2::INCOMPAT) & jbd2::CSUM != 0 {
        sb[jbd2::CHECKSUM..][..4].fill(0);
        let sum = ext4_format::checksum::crc32c(ext4_format::checksum::Seed::INITIAL, sb);
        sb[jbd2::CHECKSUM..][..4].copy_from_slice(&sum.to_be_bytes());
    }
}
