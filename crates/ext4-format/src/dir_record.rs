//! Records of directory blocks: their lengths, and how they are written.
//!
//! Callers outside of this crate use [`dir_entry`](crate::dir_entry).

use crate::bytes::{put, put_u16, put_u32, saturating_u32};
use crate::inode::FileType;
use units::Ino;

/// The longest name in bytes.
pub const NAME_MAX: usize = 255;
/// The size of a record without its name.
pub const HEADER: usize = 8;
/// The smallest record that can hold a name.
pub(crate) const MIN_REC_LEN: u32 = 12;

/// A record of a directory block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirEntryRef<'a> {
    /// Offset of the record in its block, in bytes.
    pub offset: u32,
    /// The inode; 0 in an unused record.
    pub ino: Ino,
    /// The name.
    pub name: &'a [u8],
    /// The file's type in the entry, or `None` if it has none.
    pub file_type: Option<FileType>,
    /// The record's length in bytes.
    pub rec_len: u32,
}

impl DirEntryRef<'_> {
    /// Returns whether the record names a file.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.ino.0 != 0
    }

    /// Returns whether this is `.` or `..`.
    #[must_use]
    pub fn is_dot_or_dotdot(&self) -> bool {
        self.name == b"." || self.name == b".."
    }
}

/// Returns the bytes that a record for a name of `name_len` bytes needs.
#[must_use]
pub const fn rec_len_for(name_len: usize) -> u32 {
    // Names have at most 255 bytes; callers refuse longer ones.
    let name_len = if name_len > NAME_MAX {
        NAME_MAX
    } else {
        name_len
    };
    ((name_len + HEADER + 3) & !3) as u32
}

/// Reads a record length: in blocks of 64 KiB the two low bits, free by alignment, carry bits 16
/// and 17, and 0 or 65535 stand for the whole block.
#[inline]
pub(crate) fn decode_rec_len(raw: u16, block_size: usize) -> u32 {
    if block_size < 0x1_0000 {
        return u32::from(raw);
    }
    if raw == 0 || raw == u16::MAX {
        return saturating_u32(block_size);
    }
    u32::from(raw & !3) | (u32::from(raw & 3) << 16)
}

#[inline]
fn encode_rec_len(rec_len: u32, block_size: usize) -> u16 {
    if let Ok(raw) = u16::try_from(rec_len) {
        return raw;
    }
    if rec_len as usize == block_size {
        return if block_size == 0x1_0000 { u16::MAX } else { 0 };
    }
    ((rec_len & 0xfffc) | ((rec_len >> 16) & 3)) as u16
}

/// Writes a record and its name. Returns `None` if they do not fit the block.
pub(crate) fn put_record(
    block: &mut [u8],
    offset: u32,
    (ino, rec_len): (Ino, u32),
    name: &[u8],
    file_type: Option<FileType>,
) -> Option<()> {
    let raw_len = encode_rec_len(rec_len, block.len());
    let record = block.get_mut(offset as usize..)?;
    put_u32(record, 0, ino.0)?;
    put_u16(record, 4, raw_len)?;
    put(
        record,
        6,
        [
            u8::try_from(name.len()).ok()?,
            file_type.map_or(0, FileType::dirent_code),
        ],
    )?;
    record
        .get_mut(HEADER..HEADER.checked_add(name.len())?)?
        .copy_from_slice(name);
    Some(())
}

/// Changes a record's length. Returns `None` if its header does not fit the block.
pub(crate) fn set_rec_len(block: &mut [u8], offset: u32, rec_len: u32) -> Option<()> {
    let raw_len = encode_rec_len(rec_len, block.len());
    put_u16(block, (offset as usize).checked_add(4)?, raw_len)
}
