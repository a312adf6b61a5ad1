//! Block group descriptors: the places of a group's bitmaps and inode table, and free counts.

use bitflags::bitflags;

use crate::bytes::{get_u16, get_u32, hi16, hi32, join16, join32, lo16, lo32, put_u16, put_u32};
use crate::checksum::{Seed, compare, crc16, crc32c};
use crate::error::{FormatError, Result};
use crate::features::RoCompatFeatures;
use crate::geometry::Geometry;
use units::{FsBlock, GroupNo};

/// The size of a descriptor without `64bit`, in bytes.
pub const MIN_DESC_SIZE: u16 = 32;
/// The size from which a descriptor has the high halves, in bytes.
pub const MIN_DESC_SIZE_64BIT: u16 = 64;
const CHECKSUM_OFFSET: usize = 0x1e;

bitflags! {
    /// The parts of a group that were never written.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct GroupFlags: u16 {
        /// The inode bitmap is not initialised: all inodes are free.
        const INODE_UNINIT = 0x0001;
        /// The block bitmap is not initialised: only the group's own metadata is in use.
        const BLOCK_UNINIT = 0x0002;
        /// The inode table has been zeroed.
        const INODE_ZEROED = 0x0004;
    }
}

/// A group descriptor in native integers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GroupDesc {
    /// Block of the block bitmap.
    pub block_bitmap: FsBlock,
    /// Block of the inode bitmap.
    pub inode_bitmap: FsBlock,
    /// First block of the inode table.
    pub inode_table: FsBlock,
    /// Free blocks in the group.
    pub free_blocks_count: u32,
    /// Free inodes in the group.
    pub free_inodes_count: u32,
    /// Directories among the group's inodes.
    pub used_dirs_count: u32,
    /// Flags; unknown bits are kept.
    pub flags: GroupFlags,
    /// Block of the snapshot exclusion bitmap (unused).
    pub exclude_bitmap: u64,
    /// Checksum of the block bitmap; 16 bits in 32-byte descriptors.
    pub block_bitmap_csum: u32,
    /// Checksum of the inode bitmap; 16 bits in 32-byte descriptors.
    pub inode_bitmap_csum: u32,
    /// Inodes at the end of the table that were never used.
    pub itable_unused: u32,
    /// The descriptor's own checksum, as read. [`update_checksum`] writes it.
    pub checksum: u16,
}

/// The formats of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DescFormat {
    /// Block numbers have 32 bits, counts 16.
    Bits32,
    /// The high halves of block numbers and counts follow.
    Bits64,
}

impl DescFormat {
    const fn of(desc_size: u16) -> DescFormat {
        if desc_size >= MIN_DESC_SIZE_64BIT {
            DescFormat::Bits64
        } else {
            DescFormat::Bits32
        }
    }
}

fn truncated(have: usize, desc_size: u16) -> FormatError {
    FormatError::Truncated {
        structure: "group descriptor",
        need: u64::from(desc_size),
        have: have as u64,
    }
}

impl GroupDesc {
    /// Reads a descriptor of `desc_size` bytes.
    ///
    /// # Errors
    ///
    /// `Truncated` if there are fewer bytes; `OutOfRange` for a size below 32.
    pub fn decode(bytes: &[u8], desc_size: u16) -> Result<GroupDesc> {
        check_size(desc_size)?;
        let raw = bytes
            .get(..usize::from(desc_size))
            .ok_or_else(|| truncated(bytes.len(), desc_size))?;
        Self::decode_fields(raw, DescFormat::of(desc_size))
            .ok_or_else(|| truncated(bytes.len(), desc_size))
    }

    fn decode_fields(raw: &[u8], format: DescFormat) -> Option<GroupDesc> {
        let high32 = |offset| match format {
            DescFormat::Bits32 => Some(0),
            DescFormat::Bits64 => get_u32(raw, offset),
        };
        let high16 = |offset| match format {
            DescFormat::Bits32 => Some(0),
            DescFormat::Bits64 => get_u16(raw, offset),
        };
        Some(GroupDesc {
            block_bitmap: FsBlock(join32(high32(0x20)?, get_u32(raw, 0)?)),
            inode_bitmap: FsBlock(join32(high32(0x24)?, get_u32(raw, 4)?)),
            inode_table: FsBlock(join32(high32(0x28)?, get_u32(raw, 8)?)),
            free_blocks_count: join16(high16(0x2c)?, get_u16(raw, 0xc)?),
            free_inodes_count: join16(high16(0x2e)?, get_u16(raw, 0xe)?),
            used_dirs_count: join16(high16(0x30)?, get_u16(raw, 0x10)?),
            flags: GroupFlags::from_bits_retain(get_u16(raw, 0x12)?),
            exclude_bitmap: join32(high32(0x34)?, get_u32(raw, 0x14)?),
            block_bitmap_csum: join16(high16(0x38)?, get_u16(raw, 0x18)?),
            inode_bitmap_csum: join16(high16(0x3a)?, get_u16(raw, 0x1a)?),
            itable_unused: join16(high16(0x32)?, get_u16(raw, 0x1c)?),
            checksum: get_u16(raw, CHECKSUM_OFFSET)?,
        })
    }

    /// Writes the descriptor into `bytes`. Bytes after the known fields are kept.
    ///
    /// The checksum field is written as it stands in `self`: call [`update_checksum`] afterwards.
    ///
    /// # Errors
    ///
    /// `Truncated` if there are fewer than `desc_size` bytes; `OutOfRange` for a size below 32.
    pub fn encode(&self, bytes: &mut [u8], desc_size: u16) -> Result<()> {
        check_size(desc_size)?;
        let have = bytes.len();
        let raw = bytes
            .get_mut(..usize::from(desc_size))
            .ok_or_else(|| truncated(have, desc_size))?;
        self.encode_fields(raw, DescFormat::of(desc_size))
            .ok_or_else(|| truncated(have, desc_size))
    }

    fn encode_fields(&self, raw: &mut [u8], format: DescFormat) -> Option<()> {
        put_u32(raw, 0, lo32(self.block_bitmap.0))?;
        put_u32(raw, 4, lo32(self.inode_bitmap.0))?;
        put_u32(raw, 8, lo32(self.inode_table.0))?;
        put_u16(raw, 0xc, lo16(self.free_blocks_count))?;
        put_u16(raw, 0xe, lo16(self.free_inodes_count))?;
        put_u16(raw, 0x10, lo16(self.used_dirs_count))?;
        put_u16(raw, 0x12, self.flags.bits())?;
        put_u32(raw, 0x14, lo32(self.exclude_bitmap))?;
        put_u16(raw, 0x18, lo16(self.block_bitmap_csum))?;
        put_u16(raw, 0x1a, lo16(self.inode_bitmap_csum))?;
        put_u16(raw, 0x1c, lo16(self.itable_unused))?;
        put_u16(raw, CHECKSUM_OFFSET, self.checksum)?;
        if format == DescFormat::Bits32 {
            return Some(());
        }
        put_u32(raw, 0x20, hi32(self.block_bitmap.0))?;
        put_u32(raw, 0x24, hi32(self.inode_bitmap.0))?;
        put_u32(raw, 0x28, hi32(self.inode_table.0))?;
        put_u16(raw, 0x2c, hi16(self.free_blocks_count))?;
        put_u16(raw, 0x2e, hi16(self.free_inodes_count))?;
        put_u16(raw, 0x30, hi16(self.used_dirs_count))?;
        put_u16(raw, 0x32, hi16(self.itable_unused))?;
        put_u32(raw, 0x34, hi32(self.exclude_bitmap))?;
        put_u16(raw, 0x38, hi16(self.block_bitmap_csum))?;
        put_u16(raw, 0x3a, hi16(self.inode_bitmap_csum))
    }

    /// Checks that the bitmaps and the inode table lie on the volume and the counts are possible.
    ///
    /// # Errors
    ///
    /// `OutOfRange` with the first field at fault.
    pub fn validate(&self, geometry: &Geometry, group: GroupNo) -> Result<()> {
        self.validate_places(geometry)?;
        let blocks = geometry.blocks_in_group(group);
        let inodes = geometry.inodes_per_group;
        check_count("free_blocks_count", self.free_blocks_count, blocks)?;
        check_count("free_inodes_count", self.free_inodes_count, inodes)?;
        check_count("used_dirs_count", self.used_dirs_count, inodes)?;
        check_count("itable_unused", self.itable_unused, inodes)
    }

    /// Checks that the bitmaps and the inode table lie on the volume. Before the log is replayed
    /// the counts need not be possible: the last group may have grown, and the super block not yet.
    ///
    /// # Errors
    ///
    /// `OutOfRange` with the first field at fault.
    pub fn validate_places(&self, geometry: &Geometry) -> Result<()> {
        let itable_blocks = u64::from(geometry.itable_blocks_per_group());
        check_place(geometry, "block_bitmap", self.block_bitmap, 1)?;
        check_place(geometry, "inode_bitmap", self.inode_bitmap, 1)?;
        check_place(geometry, "inode_table", self.inode_table, itable_blocks)
    }

    /// Verifies a block bitmap block against this descriptor. Not for `BLOCK_UNINIT` groups.
    ///
    /// # Errors
    ///
    /// `Checksum`, or `Truncated` if `bitmap` is shorter than the group.
    pub fn verify_block_bitmap(
        &self,
        geometry: &Geometry,
        group: GroupNo,
        bitmap: &[u8],
    ) -> Result<()> {
        let bits = geometry.clusters_per_group();
        verify_bitmap(
            "block bitmap",
            geometry,
            group,
            bitmap,
            bits,
            self.block_bitmap_csum,
        )
    }

    /// Verifies an inode bitmap block against this descriptor. Not for `INODE_UNINIT` groups.
    ///
    /// # Errors
    ///
    /// `Checksum`, or `Truncated` if `bitmap` is shorter than the group.
    pub fn verify_inode_bitmap(
        &self,
        geometry: &Geometry,
        group: GroupNo,
        bitmap: &[u8],
    ) -> Result<()> {
        let bits = geometry.inodes_per_group;
        verify_bitmap(
            "inode bitmap",
            geometry,
            group,
            bitmap,
            bits,
            self.inode_bitmap_csum,
        )
    }

    /// Stores the checksum of a changed block bitmap block.
    pub fn update_block_bitmap_csum(&mut self, geometry: &Geometry, bitmap: &[u8]) {
        if let Some(seed) = geometry.csum_seed {
            let covered = covered_bitmap(bitmap, geometry.clusters_per_group()).unwrap_or(bitmap);
            self.block_bitmap_csum = stored_width(bitmap_checksum(seed, covered), geometry);
        }
    }

    /// Stores the checksum of a changed inode bitmap block.
    pub fn update_inode_bitmap_csum(&mut self, geometry: &Geometry, bitmap: &[u8]) {
        if let Some(seed) = geometry.csum_seed {
            let covered = covered_bitmap(bitmap, geometry.inodes_per_group).unwrap_or(bitmap);
            self.inode_bitmap_csum = stored_width(bitmap_checksum(seed, covered), geometry);
        }
    }
}

fn check_count(field: &'static str, count: u32, most: u32) -> Result<()> {
    match count <= most {
        true => Ok(()),
        false => Err(out_of_range(field, count.into())),
    }
}

/// Checks that `len` blocks from `start` on lie on the volume.
fn check_place(geometry: &Geometry, field: &'static str, start: FsBlock, len: u64) -> Result<()> {
    match geometry.contains_blocks(start, len) {
        true => Ok(()),
        false => Err(out_of_range(field, start.0)),
    }
}

fn out_of_range(field: &'static str, value: u64) -> FormatError {
    FormatError::OutOfRange {
        structure: "group descriptor",
        field,
        value,
    }
}

fn check_size(desc_size: u16) -> Result<()> {
    if desc_size >= MIN_DESC_SIZE {
        return Ok(());
    }
    Err(FormatError::OutOfRange {
        structure: "group descriptor",
        field: "desc_size",
        value: u64::from(desc_size),
    })
}

/// Returns the checksum of a bitmap's bytes: those that cover the group, not the whole block.
#[must_use]
pub fn bitmap_checksum(seed: Seed, bytes: &[u8]) -> u32 {
    crc32c(seed, bytes)
}

fn covered_bitmap(bitmap: &[u8], bits: u32) -> Option<&[u8]> {
    bitmap.get(..(bits / 8) as usize)
}

/// Descriptors of 32 bytes keep only the low half of a bitmap's checksum.
fn stored_width(checksum: u32, geometry: &Geometry) -> u32 {
    if geometry.desc_size >= MIN_DESC_SIZE_64BIT {
        checksum
    } else {
        checksum & 0xffff
    }
}

fn verify_bitmap(
    structure: &'static str,
    geometry: &Geometry,
    group: GroupNo,
    bitmap: &[u8],
    bits: u32,
    stored: u32,
) -> Result<()> {
    let Some(seed) = geometry.csum_seed else {
        return Ok(());
    };
    let covered = covered_bitmap(bitmap, bits).ok_or(FormatError::Truncated {
        structure,
        need: u64::from(bits / 8),
        have: bitmap.len() as u64,
    })?;
    let computed = stored_width(bitmap_checksum(seed, covered), geometry);
    compare(structure, u64::from(group.0), stored, computed)
}

/// The checksum of a raw descriptor, or `None` if the volume has no descriptor checksums.
///
/// Under `metadata_csum` it is the low half of the crc32c of the group's number and the descriptor
/// with a zeroed checksum field; under `uninit_bg` the crc16 of UUID, number and descriptor without
/// the field.
#[must_use]
pub fn checksum(geometry: &Geometry, group: GroupNo, raw: &[u8]) -> Option<u16> {
    let raw = raw.get(..usize::from(geometry.desc_size).min(raw.len()))?;
    let before = raw.get(..CHECKSUM_OFFSET)?;
    let after = raw.get(CHECKSUM_OFFSET + 2..)?;
    let number = group.0.to_le_bytes();
    if let Some(seed) = geometry.csum_seed {
        return Some(lo16(
            seed.extend(&number)
                .extend(before)
                .extend(&[0, 0])
                .extend(after)
                .0,
        ));
    }
    if !geometry.ro_compat.contains(RoCompatFeatures::GDT_CSUM) {
        return None;
    }
    let register = crc16(0xffff, &geometry.uuid);
    let register = crc16(register, &number);
    Some(crc16(crc16(register, before), after))
}

/// Verifies the checksum of a raw descriptor.
///
/// # Errors
///
/// `Checksum` with the group's number.
pub fn verify_checksum(geometry: &Geometry, group: GroupNo, raw: &[u8]) -> Result<()> {
    let Some(computed) = checksum(geometry, group, raw) else {
        return Ok(());
    };
    let stored =
        get_u16(raw, CHECKSUM_OFFSET).ok_or_else(|| truncated(raw.len(), geometry.desc_size))?;
    compare(
        "group descriptor",
        u64::from(group.0),
        u32::from(stored),
        u32::from(computed),
    )
}

/// Writes the checksum of a raw descriptor. Without descriptor checksums nothing
/// changes.
pub fn update_checksum(geometry: &Geometry, group: GroupNo, raw: &mut [u8]) {
    if let Some(checksum) = checksum(geometry, group, raw) {
        // The checksum was computed over bytes on both sides of the field, so the field is there.
        let _ = put_u16(raw, CHECKSUM_OFFSET, checksum);
    }
}
