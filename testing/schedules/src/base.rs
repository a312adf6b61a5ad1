//! The volumes at the beginning of runs. They are small, and a journal wraps after a few commits.

use crate::device::Store;
use mkfs::MkfsOptions;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use testkit::disk::Disk;
use testkit::oracle::Mke2fs;

/// Bytes of the volume.
const SIZE: usize = 12 << 20;

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

/// The format of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// Ext4 with the default features and blocks of 4 KiB, as all others but `SmallBlocks`.
    Ext4,
    /// Blocks of 1 KiB.
    SmallBlocks,
    /// Block maps; no journal, no checksums.
    Ext2,
    /// Block maps; a journal without checksums, a list of orphans.
    Ext3,
    /// A list of orphans instead of the orphan file.
    OrphanList,
    /// Inodes of 2 KiB with small files and directories in them.
    InlineData,
    /// Clusters of 16 KiB.
    Bigalloc,
    /// Values of attributes in inodes.
    EaInode,
}

impl Format {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Format::Ext4 => "ext4",
            Format::SmallBlocks => "1k",
            Format::Ext2 => "ext2",
            Format::Ext3 => "ext3",
            Format::OrphanList => "orphan-list",
            Format::InlineData => "inline",
            Format::Bigalloc => "bigalloc",
            Format::EaInode => "ea-inode",
        }
    }

    /// Whether a mount recovers a volume after a crash.
    pub fn has_journal(self) -> bool {
        self != Format::Ext2
    }

    /// Whether the contents of files are found by extents, so that fallocate can be used.
    pub fn has_extents(self) -> bool {
        !matches!(self, Format::Ext2 | Format::Ext3)
    }

    fn block_size(self) -> u32 {
        match self {
            Format::SmallBlocks => 1024,
            _ => 4096,
        }
    }

    /// Blocks of the log that are in use. The journal file has 1024, the least that mkfs makes.
    /// Changes of names that are in the inode, and of attributes with inodes, need more credits.
    fn log_blocks(self) -> u32 {
        match self {
            Format::InlineData | Format::EaInode => 240,
            _ => 160,
        }
    }

    fn features(self) -> &'static str {
        match self {
            Format::OrphanList => "^orphan_file",
            Format::Bigalloc => "bigalloc",
            Format::EaInode => "ea_inode",
            _ => "",
        }
    }

    /// The arguments of mke2fs, for what our mkfs does not make.
    fn mke2fs(self) -> Option<Mke2fs> {
        let size = SIZE as u64;
        Some(match self {
            Format::Ext2 => Mke2fs::of_type(size, "ext2"),
            Format::Ext3 => Mke2fs::of_type(size, "ext3"),
            Format::InlineData => Mke2fs::new(size).args(&["-I", "2048", "-O", "inline_data"]),
            _ => return None,
        })
    }
}

/// A volume of this format.
pub fn volume(format: Format) -> Store {
    static BASES: Mutex<BTreeMap<Format, Arc<[u8]>>> = Mutex::new(BTreeMap::new());
    let mut bases = BASES.lock().expect("mkfs does not panic");
    let base = bases.entry(format).or_insert_with(|| make(format));
    Store::new(base.clone())
}

fn make(format: Format) -> Arc<[u8]> {
    let mut bytes = match format.mke2fs() {
        Some(how) => by_mke2fs(&how),
        None => ours(format),
    };
    if format.has_journal() {
        shorten_log(&mut bytes, format);
    }
    bytes.into()
}

fn ours(format: Format) -> Vec<u8> {
    let disk = Disk::new(SIZE);
    let options = MkfsOptions {
        uuid: Some([7; 16]),
        inodes: Some(256),
        reserved_percent: 0,
        block_size: format.block_size(),
        cluster_size: (format == Format::Bigalloc).then_some(16 << 10),
        journal_bytes: Some(1024 * u64::from(format.block_size())),
        features: vec![format.features().to_owned()],
        ..MkfsOptions::default()
    };
    mkfs::format(&disk.queue(), &options).expect("mkfs");
    disk.bytes()
}

fn by_mke2fs(how: &Mke2fs) -> Vec<u8> {
    let uuid = "07070707-0707-0707-0707-070707070707";
    let seed = format!("hash_seed={uuid}");
    let how = how
        .clone()
        .args(&["-U", uuid, "-E", &seed, "-N", "256", "-m", "0"]);
    Disk::by_mke2fs(&how).bytes()
}

fn shorten_log(bytes: &mut [u8], format: Format) {
    let is_journal =
        |block: &&mut [u8]| get(block, 0) == jbd2::MAGIC && get(block, 4) == jbd2::SUPERBLOCK_V2;
    let block = bytes
        .chunks_mut(format.block_size() as usize)
        .find(is_journal);
    let sb = &mut block.expect("a journal")[..jbd2::BYTES];
    sb[jbd2::MAX_LEN..][..4].copy_from_slice(&format.log_blocks().to_be_bytes());
    if get(sb, jbd2::INCOMPAT) & jbd2::CSUM != 0 {
        sb[jbd2::CHECKSUM..][..4].fill(0);
        let sum = ext4_format::checksum::crc32c(ext4_format::checksum::Seed::INITIAL, sb);
        sb[jbd2::CHECKSUM..][..4].copy_from_slice(&sum.to_be_bytes());
    }
}
