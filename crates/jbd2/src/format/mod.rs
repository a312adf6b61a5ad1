//! The journal's on-disk format, one file per structure. The codecs do no I/O. Parsing is checked,
//! because a log may be hostile. All numbers are big-endian.
//!
//! Source: the kernel's `Documentation/filesystems/ext4/journal.rst`. It does not say which bytes a
//! checksum covers or how long a tag is; these facts come from logs that the kernel and debugfs
//! wrote.
//!
//! | file            | structure                                                        |
//! |-----------------|------------------------------------------------------------------|
//! | `checksum.rs`   | the checksums of csum v1 (CRC-32), v2 and v3 (CRC-32C)           |
//! | `superblock.rs` | journal block 0                                                  |
//! | `descriptor.rs` | descriptor blocks and their tags, in all formats                 |
//! | `revoke.rs`     | revoke blocks                                                    |
//! | `commit.rs`     | commit blocks                                                    |
//! | `fast_commit.rs`| detection of fast commits                                        |

pub mod checksum;
pub mod commit;
pub mod descriptor;
pub mod fast_commit;
pub mod revoke;
pub mod superblock;

use crate::Tid;

/// First four bytes of each log block that is not a copy.
pub const MAGIC: u32 = 0xC03B_3998;
/// Bytes of the header of a log block.
pub const HEADER_BYTES: usize = 12;

/// Types of log blocks.
pub mod block_type {
    /// A descriptor: tags with the homes of the copies after it.
    pub const DESCRIPTOR: u32 = 1;
    /// The end of a transaction.
    pub const COMMIT: u32 = 2;
    /// A super block without features.
    pub const SUPERBLOCK_V1: u32 = 3;
    /// A super block with features.
    pub const SUPERBLOCK_V2: u32 = 4;
    /// Numbers of blocks that must not be replayed.
    pub const REVOKE: u32 = 5;
}

/// Compatible features.
pub mod compat {
    /// Commit blocks have a CRC-32 of the transaction (csum v1).
    pub const CHECKSUM: u32 = 0x1;
}

/// Incompatible features.
pub mod incompat {
    /// The log may have revoke blocks.
    pub const REVOKE: u32 = 0x1;
    /// Block numbers have 64 bits.
    pub const BITS64: u32 = 0x2;
    /// Commit blocks may reach the device before the blocks that they commit.
    pub const ASYNC_COMMIT: u32 = 0x4;
    /// csum v2.
    pub const CSUM_V2: u32 = 0x8;
    /// csum v3.
    pub const CSUM_V3: u32 = 0x10;
    /// The end of the journal may hold fast commits.
    pub const FAST_COMMIT: u32 = 0x20;
    /// All features that this crate knows.
    pub const KNOWN: u32 = REVOKE | BITS64 | ASYNC_COMMIT | CSUM_V2 | CSUM_V3 | FAST_COMMIT;
}

/// The header of a log block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// One of [`block_type`].
    pub kind: u32,
    /// The transaction that the block belongs to.
    pub sequence: Tid,
}

impl Header {
    /// Reads the header. Returns `None` if the magic is missing.
    pub fn parse(block: &[u8]) -> Option<Header> {
        (get_u32(block, 0)? == MAGIC).then_some(())?;
        Some(Header {
            kind: get_u32(block, 4)?,
            sequence: Tid(get_u32(block, 8)?),
        })
    }
    /// Writes the header.
    pub fn write(self, block: &mut [u8]) {
        put_u32(block, 0, MAGIC);
        put_u32(block, 4, self.kind);
        put_u32(block, 8, self.sequence.0);
    }
}

/// The layout of log blocks, which depends on the journal's features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes.
    pub block_size: usize,
    /// Block numbers have 64 bits.
    pub bits64: bool,
    /// Checksums in the log.
    pub checksums: Checksums,
    /// Seed of csum v2 and v3.
    pub seed: u32,
}

/// The versions of checksums in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// No checksums.
    None,
    /// A CRC-32 of the transaction in its commit block.
    V1,
    /// CRC-32C of each block; tags have its low 16 bits.
    V2,
    /// CRC-32C of each block; tags have all of it.
    V3,
}

impl Layout {
    /// Returns whether descriptor, revoke and commit blocks have a CRC-32C.
    pub fn block_checksums(&self) -> bool {
        matches!(self.checksums, Checksums::V2 | Checksums::V3)
    }
    /// Returns the usable bytes of a descriptor or revoke block: all without the checksum in the
    /// tail.
    pub fn usable(&self) -> usize {
        if self.block_checksums() {
            self.block_size - 4
        } else {
            self.block_size
        }
    }
    /// Returns whether the checksum in the tail of a descriptor or revoke block is right, or the
    /// layout has none.
    pub fn tail_valid(&self, block: &[u8]) -> bool {
        if !self.block_checksums() {
            return true;
        }
        let at = self.block_size - 4;
        get_u32(block, at) == Some(checksum::with_hole(self.seed, block, at))
    }
    /// Writes the checksum in the tail of a descriptor or revoke block.
    pub fn seal_tail(&self, block: &mut [u8]) {
        if self.block_checksums() {
            let at = self.block_size - 4;
            let sum = checksum::with_hole(self.seed, block, at);
            put_u32(block, at, sum);
        }
    }
}

/// Reads a big-endian number at `at`.
pub fn get_u32(bytes: &[u8], at: usize) -> Option<u32> {
    let part = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_be_bytes(part.try_into().ok()?))
}
/// Reads a big-endian number at `at`.
pub fn get_u16(bytes: &[u8], at: usize) -> Option<u16> {
    let part = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_be_bytes(part.try_into().ok()?))
}
/// Reads a big-endian number at `at`.
pub fn get_u64(bytes: &[u8], at: usize) -> Option<u64> {
    let part = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_be_bytes(part.try_into().ok()?))
}
/// Writes a big-endian number at `at`.
pub fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}
/// Writes a big-endian number at `at`.
pub fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
/// Writes a big-endian number at `at`.
pub fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_be_bytes());
}
