//! Inodes: a 128-byte record that ext2 defined, extended by what `i_extra_isize` covers, followed
//! by room for extended attributes up to the volume's inode size.
//!
//! [`InodeFields`] is the record in native integers. Encoding writes the known fields into existing
//! bytes and keeps all others: attributes, checksums, and fields of newer kernels.

use crate::bytes::{
    get, get_u16, get_u32, hi16, hi32, join16, join32, lo16, lo32, put, put_u16, put_u32,
};
use crate::checksum::compare;
use crate::error::{FormatError, Result};
use crate::features::{IncompatFeatures, RoCompatFeatures};
use crate::geometry::Geometry;
use units::{FsBlock, Ino};

pub use crate::device::DeviceNumber;
pub use crate::i_block::I_BLOCK_SIZE;
pub use crate::inode_flags::InodeFlags;
pub use crate::mode::{FileType, InodeMode};
pub use crate::timestamp::Timestamp;

/// The size of the record without any extra fields, in bytes.
pub const GOOD_OLD_INODE_SIZE: usize = 128;

/// The extra bytes that hold all the fields known here.
pub const FULL_EXTRA_ISIZE: u16 = 32;
/// The most links an inode may have; directories beyond it count 1 under `dir_nlink`.
pub const LINK_MAX: u16 = 65_000;

const CHECKSUM_LO: usize = 0x7c;
const CHECKSUM_HI: usize = 0x82;
const EXTRA_ISIZE: usize = 0x80;
const SECTOR_BITS: u32 = 9;

/// An inode in native integers. `B` is the type of `i_block`: `()` for the other fields alone, for
/// a caller that keeps `i_block` apart from them. The fields are in this order: stat reads those up
/// to `crtime`, which lie in two lines of the processor's cache.
#[derive(Debug, Clone, PartialEq, Eq)]
#[repr(C)]
pub struct InodeFields<B = [u8; I_BLOCK_SIZE]> {
    /// Type and permissions.
    pub mode: InodeMode,
    /// Hard links.
    pub links_count: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Project; 0 if the inode has no room for it.
    pub projid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Space used, in 512-byte sectors.
    pub blocks: u64,
    /// Flags; unknown bits are kept.
    pub flags: InodeFlags,
    /// Distinguishes the files that had this inode number.
    pub generation: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Last change of the data.
    pub mtime: Timestamp,
    /// Creation; `None` if the inode has no room for it.
    pub crtime: Option<Timestamp>,
    /// Version, for NFS and `statx`; 32 bits without room for more.
    pub version: u64,
    /// Block with extended attributes, 0 if none.
    pub file_acl: FsBlock,
    /// Deletion time in seconds, or the next inode of the orphan list.
    pub dtime: u32,
    /// Extra bytes after the first 128 that hold fields; 0 in 128-byte inodes.
    pub extra_isize: u16,
    /// Extent root, block map, symlink or device number.
    pub i_block: B,
}

impl Default for InodeFields {
    fn default() -> Self {
        InodeFields {
            mode: InodeMode(0),
            uid: 0,
            gid: 0,
            size: 0,
            atime: Timestamp::default(),
            ctime: Timestamp::default(),
            mtime: Timestamp::default(),
            crtime: None,
            dtime: 0,
            links_count: 0,
            blocks: 0,
            flags: InodeFlags::empty(),
            version: 0,
            i_block: [0; I_BLOCK_SIZE],
            generation: 0,
            file_acl: FsBlock(0),
            extra_isize: 0,
            projid: 0,
        }
    }
}

fn truncated(have: usize, geometry: &Geometry) -> FormatError {
    FormatError::Truncated {
        structure: "inode",
        need: u64::from(geometry.inode_size).max(GOOD_OLD_INODE_SIZE as u64),
        have: have as u64,
    }
}

/// Returns whether `extra_isize` covers a field of the record.
fn fits(extra_isize: u16, field_end: usize) -> bool {
    usize::from(extra_isize).saturating_add(GOOD_OLD_INODE_SIZE) >= field_end
}

/// Returns the checked `i_extra_isize` of a raw inode.
///
/// # Errors
///
/// `OutOfRange` if it is unaligned or reaches past the record, `Truncated` if the record is cut
/// off.
pub fn extra_isize(geometry: &Geometry, raw: &[u8]) -> Result<u16> {
    if usize::from(geometry.inode_size) <= GOOD_OLD_INODE_SIZE {
        return Ok(0);
    }
    let extra = get_u16(raw, EXTRA_ISIZE).ok_or_else(|| truncated(raw.len(), geometry))?;
    let room = geometry
        .inode_size
        .saturating_sub(GOOD_OLD_INODE_SIZE as u16);
    if extra > room || !extra.is_multiple_of(4) {
        return Err(FormatError::OutOfRange {
            structure: "inode",
            field: "i_extra_isize",
            value: u64::from(extra),
        });
    }
    Ok(extra)
}

impl InodeFields {
    /// Reads a raw inode of the volume's inode size.
    ///
    /// # Errors
    ///
    /// `Truncated`, or `OutOfRange` for an impossible `i_extra_isize`.
    pub fn decode(geometry: &Geometry, raw: &[u8]) -> Result<InodeFields> {
        let error = || truncated(raw.len(), geometry);
        let raw = raw
            .get(..usize::from(geometry.inode_size))
            .ok_or_else(error)?;
        let extra_isize = extra_isize(geometry, raw)?;
        Self::decode_fields(geometry, raw, extra_isize).ok_or_else(error)
    }

    fn decode_fields(geometry: &Geometry, raw: &[u8], extra_isize: u16) -> Option<InodeFields> {
        let extra = |offset: usize| {
            if fits(extra_isize, offset.saturating_add(4)) {
                get_u32(raw, offset)
            } else {
                Some(0)
            }
        };
        let mode = InodeMode(get_u16(raw, 0)?);
        let flags = InodeFlags::from_bits_retain(get_u32(raw, 0x20)?);
        let has_size_hi =
            mode.is_regular() || geometry.incompat.contains(IncompatFeatures::LARGEDIR);
        let size_hi = if has_size_hi { get_u32(raw, 0x6c)? } else { 0 };
        let is_64bit = geometry.incompat.contains(IncompatFeatures::SIXTY_FOUR_BIT);
        let file_acl_hi = if is_64bit { get_u16(raw, 0x76)? } else { 0 };
        let crtime = match fits(extra_isize, 0x94) {
            true => Some(Timestamp::decode(get_u32(raw, 0x90)?, extra(0x94)?)),
            false => None,
        };
        Some(InodeFields {
            mode,
            uid: join16(get_u16(raw, 0x78)?, get_u16(raw, 2)?),
            gid: join16(get_u16(raw, 0x7a)?, get_u16(raw, 0x18)?),
            size: join32(size_hi, get_u32(raw, 4)?),
            atime: Timestamp::decode(get_u32(raw, 8)?, extra(0x8c)?),
            ctime: Timestamp::decode(get_u32(raw, 0xc)?, extra(0x84)?),
            mtime: Timestamp::decode(get_u32(raw, 0x10)?, extra(0x88)?),
            crtime,
            dtime: get_u32(raw, 0x14)?,
            links_count: get_u16(raw, 0x1a)?,
            blocks: decode_blocks(geometry, flags, get_u16(raw, 0x74)?, get_u32(raw, 0x1c)?),
            flags,
            version: join32(extra(0x98)?, get_u32(raw, 0x24)?),
            i_block: get::<I_BLOCK_SIZE>(raw, 0x28)?,
            generation: get_u32(raw, 0x64)?,
            file_acl: FsBlock(join32(u32::from(file_acl_hi), get_u32(raw, 0x68)?)),
            extra_isize,
            projid: extra(0x9c)?,
        })
    }

    /// Writes the fields into a raw inode of the volume's inode size; other bytes stay.
    ///
    /// Call [`update_checksum`] afterwards.
    ///
    /// # Errors
    ///
    /// `Truncated`, or `OutOfRange` for an `extra_isize` or a block count that the volume cannot
    /// hold.
    pub fn encode(&self, geometry: &Geometry, raw: &mut [u8]) -> Result<()> {
        let have = raw.len();
        let raw = raw
            .get_mut(..usize::from(geometry.inode_size))
            .ok_or_else(|| truncated(have, geometry))?;
        let (blocks_hi, blocks_lo, flags) = self.encode_blocks(geometry)?;
        if usize::from(geometry.inode_size) > GOOD_OLD_INODE_SIZE {
            put_u16(raw, EXTRA_ISIZE, self.extra_isize).ok_or_else(|| truncated(have, geometry))?;
        }
        extra_isize(geometry, raw)?;
        self.encode_fields(geometry, raw, (blocks_hi, blocks_lo), flags)
            .ok_or_else(|| truncated(have, geometry))
    }

    fn encode_fields(
        &self,
        geometry: &Geometry,
        raw: &mut [u8],
        (blocks_hi, blocks_lo): (u16, u32),
        flags: InodeFlags,
    ) -> Option<()> {
        put_u16(raw, 0, self.mode.0)?;
        put_u16(raw, 2, lo16(self.uid))?;
        put_u32(raw, 4, lo32(self.size))?;
        put_u32(raw, 0x14, self.dtime)?;
        put_u16(raw, 0x18, lo16(self.gid))?;
        put_u16(raw, 0x1a, self.links_count)?;
        put_u32(raw, 0x1c, blocks_lo)?;
        put_u32(raw, 0x20, flags.bits())?;
        put_u32(raw, 0x24, lo32(self.version))?;
        put(raw, 0x28, self.i_block)?;
        put_u32(raw, 0x64, self.generation)?;
        put_u32(raw, 0x68, lo32(self.file_acl.0))?;
        put_u32(raw, 0x6c, hi32(self.size))?;
        put_u16(raw, 0x74, blocks_hi)?;
        if geometry.incompat.contains(IncompatFeatures::SIXTY_FOUR_BIT) {
            put_u16(raw, 0x76, lo16(hi32(self.file_acl.0)))?;
        }
        put_u16(raw, 0x78, hi16(self.uid))?;
        put_u16(raw, 0x7a, hi16(self.gid))?;

        let extra_isize = if usize::from(geometry.inode_size) > GOOD_OLD_INODE_SIZE {
            self.extra_isize
        } else {
            0
        };
        let mut put_time = |time: Timestamp, low: usize, extra: usize| {
            if !fits(extra_isize, extra.saturating_add(4)) {
                return put_u32(raw, low, time.encode_seconds());
            }
            let (seconds, extra_bits) = time.encode();
            put_u32(raw, low, seconds)?;
            put_u32(raw, extra, extra_bits)
        };
        put_time(self.atime, 8, 0x8c)?;
        put_time(self.ctime, 0xc, 0x84)?;
        put_time(self.mtime, 0x10, 0x88)?;
        if let (true, Some(crtime)) = (fits(extra_isize, 0x94), self.crtime) {
            put_time(crtime, 0x90, 0x94)?;
        }
        if fits(extra_isize, 0x9c) {
            put_u32(raw, 0x98, hi32(self.version))?;
        }
        if fits(extra_isize, 0xa0) {
            put_u32(raw, 0x9c, self.projid)?;
        }
        Some(())
    }
}

impl<B> InodeFields<B> {
    /// Replaces `i_block`. Returns the fields with the new value, and the old one.
    #[must_use]
    pub fn replace_i_block<C>(self, i_block: C) -> (InodeFields<C>, B) {
        let fields = InodeFields {
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            size: self.size,
            atime: self.atime,
            ctime: self.ctime,
            mtime: self.mtime,
            crtime: self.crtime,
            dtime: self.dtime,
            links_count: self.links_count,
            blocks: self.blocks,
            flags: self.flags,
            version: self.version,
            i_block,
            generation: self.generation,
            file_acl: self.file_acl,
            extra_isize: self.extra_isize,
            projid: self.projid,
        };
        (fields, self.i_block)
    }

    /// Returns the block count's halves, and the flags with `HUGE_FILE` as that count needs it.
    fn encode_blocks(&self, geometry: &Geometry) -> Result<(u16, u32, InodeFlags)> {
        let error = FormatError::OutOfRange {
            structure: "inode",
            field: "i_blocks",
            value: self.blocks,
        };
        let plain = self.flags - InodeFlags::HUGE_FILE;
        if let Ok(blocks) = u32::try_from(self.blocks) {
            return Ok((0, blocks, plain));
        }
        if !geometry.ro_compat.contains(RoCompatFeatures::HUGE_FILE) {
            return Err(error);
        }
        if let Ok(high) = u16::try_from(hi32(self.blocks)) {
            return Ok((high, lo32(self.blocks), plain));
        }
        let blocks = self.blocks >> geometry.block_bits.saturating_sub(SECTOR_BITS).min(63);
        let high = u16::try_from(hi32(blocks)).map_err(|_| error)?;
        Ok((high, lo32(blocks), plain | InodeFlags::HUGE_FILE))
    }

    /// The file type, or `OutOfRange` if the mode has none.
    ///
    /// # Errors
    ///
    /// `OutOfRange`, with the mode.
    pub fn file_type(&self) -> Result<FileType> {
        self.mode.file_type().ok_or(FormatError::OutOfRange {
            structure: "inode",
            field: "i_mode",
            value: u64::from(self.mode.0),
        })
    }

    /// Returns whether the symlink's target is in `i_block` itself.
    #[must_use]
    pub fn is_fast_symlink(&self) -> bool {
        self.mode.is_symlink()
            && self.size < I_BLOCK_SIZE as u64
            && !self
                .flags
                .intersects(InodeFlags::INLINE_DATA | InodeFlags::EXTENTS)
    }
}

fn decode_blocks(geometry: &Geometry, flags: InodeFlags, high: u16, low: u32) -> u64 {
    if !geometry.ro_compat.contains(RoCompatFeatures::HUGE_FILE) {
        return u64::from(low);
    }
    let blocks = join32(u32::from(high), low);
    if flags.contains(InodeFlags::HUGE_FILE) {
        // 48 bits of blocks of at most 64 KiB are 55 bits of sectors.
        return blocks << geometry.block_bits.saturating_sub(SECTOR_BITS).min(15);
    }
    blocks
}

/// The part of a raw inode that may hold extended attributes: empty if there is none.
///
/// # Errors
///
/// As [`extra_isize`].
pub fn in_inode_xattr_area<'a>(geometry: &Geometry, raw: &'a [u8]) -> Result<&'a [u8]> {
    let start = GOOD_OLD_INODE_SIZE.saturating_add(usize::from(extra_isize(geometry, raw)?));
    let end = usize::from(geometry.inode_size);
    raw.get(start..end)
        .ok_or_else(|| truncated(raw.len(), geometry))
}

/// [`in_inode_xattr_area`], to be written.
///
/// # Errors
///
/// As [`extra_isize`].
pub fn in_inode_xattr_area_mut<'a>(geometry: &Geometry, raw: &'a mut [u8]) -> Result<&'a mut [u8]> {
    let start = GOOD_OLD_INODE_SIZE.saturating_add(usize::from(extra_isize(geometry, raw)?));
    let (end, have) = (usize::from(geometry.inode_size), raw.len());
    raw.get_mut(start..end)
        .ok_or_else(|| truncated(have, geometry))
}

/// The stored checksum's halves joined, the computed one, and whether both halves are stored.
fn checksums(geometry: &Geometry, ino: Ino, raw: &[u8]) -> Option<(u32, u32, bool)> {
    let raw = raw.get(..usize::from(geometry.inode_size))?;
    let is_large = raw.len() > GOOD_OLD_INODE_SIZE;
    let extra = if is_large {
        get_u16(raw, EXTRA_ISIZE)?
    } else {
        0
    };
    let has_high = is_large && fits(extra, CHECKSUM_HI + 2);
    let seed = geometry.inode_csum_seed(ino, get_u32(raw, 0x64)?)?;
    let seed = seed.extend(raw.get(..CHECKSUM_LO)?).extend(&[0, 0]);
    let low = u32::from(get_u16(raw, CHECKSUM_LO)?);
    if !has_high {
        return Some((
            low,
            seed.extend(raw.get(CHECKSUM_LO + 2..)?).0 & 0xffff,
            false,
        ));
    }
    let seed = seed
        .extend(raw.get(CHECKSUM_LO + 2..CHECKSUM_HI)?)
        .extend(&[0, 0]);
    let computed = seed.extend(raw.get(CHECKSUM_HI + 2..)?).0;
    Some((
        join16(get_u16(raw, CHECKSUM_HI)?, lo16(low)),
        computed,
        true,
    ))
}

/// Verifies a raw inode's checksum. An inode that was never used need not have one.
///
/// # Errors
///
/// `Checksum` with the inode's number, or `Truncated`.
pub fn verify_checksum(geometry: &Geometry, ino: Ino, raw: &[u8]) -> Result<()> {
    if geometry.csum_seed.is_none() {
        return Ok(());
    }
    let (stored, computed, _) =
        checksums(geometry, ino, raw).ok_or_else(|| truncated(raw.len(), geometry))?;
    compare("inode", u64::from(ino.0), stored, computed)
}

/// Writes a raw inode's checksum. Without metadata checksums nothing changes.
///
/// # Errors
///
/// `Truncated`.
pub fn update_checksum(geometry: &Geometry, ino: Ino, raw: &mut [u8]) -> Result<()> {
    if geometry.csum_seed.is_none() {
        return Ok(());
    }
    let have = raw.len();
    let error = || truncated(have, geometry);
    let (_, computed, has_high) = checksums(geometry, ino, raw).ok_or_else(error)?;
    put_u16(raw, CHECKSUM_LO, lo16(computed)).ok_or_else(error)?;
    if has_high {
        put_u16(raw, CHECKSUM_HI, hi16(computed)).ok_or_else(error)?;
    }
    Ok(())
}
