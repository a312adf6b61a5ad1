//! Extended attributes: in the inode's own slack, and in one block that `i_file_acl` points to.
//!
//! ```text
//! inode area: magic(4)    entry entry … 0(4)   free   … value value
//! block:      header(32)  entry entry … 0(4)   free   … value value
//! ```
//!
//! Entries grow from the front, values from the back. Value offsets count from the first entry in
//! an inode and from the block's start in a block. Under `ea_inode` the contents of another inode
//! can be the value.

mod name;
mod value;

pub use name::{
    INDEX_POSIX_ACL_ACCESS, INDEX_POSIX_ACL_DEFAULT, INDEX_SECURITY, INDEX_SYSTEM, INDEX_TRUSTED,
    INDEX_USER, full_name, prefix, split_name,
};

pub use value::{
    StoredValue, ValueInode, leave_entries, set_value_inode_refs, value_hash, value_inode_refs,
    wants_inode,
};

use crate::bytes::{get_u16, get_u32, put, put_u16, put_u32, saturating_u32};
use crate::checksum::{Seed, compare};
use crate::error::{FormatError, Result};
use units::{FsBlock, Ino};

/// The magic number of both places.
pub const XATTR_MAGIC: u32 = 0xea02_0000;
/// Most inodes that may share a block.
pub const REFCOUNT_MAX: u32 = 1024;
/// The longest name without its prefix, in bytes.
pub const NAME_MAX: usize = 255;

const ENTRY: usize = 16;
const IBODY_HEADER: usize = 4;
const BLOCK_HEADER: usize = 32;
const BLOCK_CHECKSUM: usize = 0x10;
const BLOCK_HASH: usize = 0xc;

/// The place of a set of attributes. The two places differ in the header and in the start of the
/// value offsets. Only a block's entries have hashes; the kernel stores 0 in inodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Inode,
    Block,
}

impl Place {
    /// Returns the offset of the first entry in the area.
    const fn header(self) -> usize {
        match self {
            Place::Inode => IBODY_HEADER,
            Place::Block => BLOCK_HEADER,
        }
    }

    /// The start of the value offsets.
    const fn value_base(self) -> usize {
        match self {
            Place::Inode => IBODY_HEADER,
            Place::Block => 0,
        }
    }

    const fn structure(self) -> &'static str {
        match self {
            Place::Inode => "inode attributes",
            Place::Block => "xattr block",
        }
    }
}

/// An attribute as it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XattrEntry<'a> {
    /// Where the entry starts in its area, in bytes.
    pub offset: u32,
    /// The index that stands for the name's prefix.
    pub index: u8,
    /// The name without the prefix.
    pub name: &'a [u8],
    /// The value; empty if an inode holds it.
    pub value: &'a [u8],
    /// The inode that holds the value.
    pub value_inode: Option<ValueInode>,
    /// The stored hash; 0 if the writer did not compute it.
    pub hash: u32,
}

impl XattrEntry<'_> {
    /// Checks the stored hash. 0 is allowed, and so is the hash that machines with signed `char`
    /// made. The hash of a value in an inode is not checked.
    ///
    /// # Errors
    ///
    /// `XattrHash`.
    pub fn verify_hash(&self) -> Result<()> {
        if self.value_inode.is_some() {
            return Ok(());
        }
        let [computed, signed] = name_hashes(self.name).map(|name| hash_value(name, self.value));
        if self.hash == 0 || self.hash == computed || self.hash == signed {
            return Ok(());
        }
        Err(FormatError::XattrHash {
            offset: self.offset,
            stored: self.hash,
            computed,
        })
    }
}

/// Returns the hashes of a name, with unsigned and with signed `char`.
fn name_hashes(name: &[u8]) -> [u32; 2] {
    let signed = |byte: u8| i32::from(byte.cast_signed()).cast_unsigned();
    [hash_name(name, u32::from), hash_name(name, signed)]
}

/// An attribute to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Xattr<'a> {
    /// The index that stands for the name's prefix.
    pub index: u8,
    /// The name without the prefix.
    pub name: &'a [u8],
    /// The value; empty if an inode holds it.
    pub value: &'a [u8],
    /// The inode that holds the value.
    pub stored: Option<StoredValue>,
}

impl Xattr<'_> {
    fn hash(&self) -> u32 {
        match self.stored {
            Some(stored) => stored.entry_hash,
            None => entry_hash(self.name, self.value),
        }
    }
}

impl<'a> From<XattrEntry<'a>> for Xattr<'a> {
    fn from(entry: XattrEntry<'a>) -> Self {
        Xattr {
            index: entry.index,
            name: entry.name,
            value: entry.value,
            stored: entry.value_inode.map(|place| StoredValue {
                place,
                entry_hash: entry.hash,
            }),
        }
    }
}

fn hash_name(name: &[u8], widen: impl Fn(u8) -> u32) -> u32 {
    name.iter()
        .fold(0u32, |hash, byte| hash.rotate_left(5) ^ widen(*byte))
}

fn hash_value(hash: u32, value: &[u8]) -> u32 {
    value.chunks(4).fold(hash, |hash, chunk| {
        let word = chunk
            .iter()
            .rev()
            .fold(0u32, |word, byte| (word << 8) | u32::from(*byte));
        hash.rotate_left(16) ^ word
    })
}

/// Returns the hash of an attribute: its name's bytes, then its value's words, padded with zeroes.
#[must_use]
pub fn entry_hash(name: &[u8], value: &[u8]) -> u32 {
    hash_value(hash_name(name, u32::from), value)
}

fn align4(len: usize) -> usize {
    len.saturating_add(3) & !3
}

/// Parses the attributes in an inode's slack; none if it does not begin with the magic.
///
/// # Errors
///
/// `XattrBounds` or `OutOfRange`.
pub fn parse_ibody(area: &[u8]) -> Result<Vec<XattrEntry<'_>>> {
    match get_u32(area, 0) {
        Some(XATTR_MAGIC) => parse_entries(area, Place::Inode),
        _ => Ok(Vec::new()),
    }
}

/// The header of an attribute block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHeader {
    /// Inodes that share the block.
    pub refcount: u32,
    /// The hash of all attributes, by which equal blocks are found; 0 if it must not be shared.
    pub hash: u32,
}

/// Parses an attribute block.
///
/// # Errors
///
/// `BadMagic`, `XattrBounds` or `OutOfRange`. The checksum is [`verify_block_checksum`]'s.
pub fn parse_block(block: &[u8]) -> Result<(BlockHeader, Vec<XattrEntry<'_>>)> {
    let truncated = || FormatError::Truncated {
        structure: "xattr block",
        need: BLOCK_HEADER as u64,
        have: block.len() as u64,
    };
    let field = |offset| get_u32(block, offset).ok_or_else(truncated);
    let found = field(0)?;
    if found != XATTR_MAGIC {
        return Err(FormatError::BadMagic {
            structure: "xattr block",
            expected: XATTR_MAGIC,
            found,
        });
    }
    let header = BlockHeader {
        refcount: field(4)?,
        hash: field(BLOCK_HASH)?,
    };
    let range = |field, value| FormatError::OutOfRange {
        structure: "xattr block",
        field,
        value,
    };
    let blocks = field(8)?;
    if blocks != 1 {
        return Err(range("h_blocks", u64::from(blocks)));
    }
    if header.refcount == 0 || header.refcount > REFCOUNT_MAX {
        return Err(range("h_refcount", u64::from(header.refcount)));
    }
    Ok((header, parse_entries(block, Place::Block)?))
}

fn parse_entries(area: &[u8], place: Place) -> Result<Vec<XattrEntry<'_>>> {
    let mut entries = Vec::new();
    let mut offset = place.header();
    // The end of the entries is known after the loop. Values must start after it.
    let mut lowest_value = area.len();
    loop {
        let bounds = |field, value: u64| FormatError::XattrBounds {
            offset: saturating_u32(offset),
            field,
            value,
        };
        let word = get_u32(area, offset).ok_or_else(|| bounds("entry", offset as u64))?;
        if word == 0 {
            break;
        }
        let [name_len, index, _, _] = word.to_le_bytes();
        let end = offset
            .saturating_add(ENTRY)
            .saturating_add(usize::from(name_len));
        let header_end = offset.saturating_add(ENTRY);
        let name = area
            .get(header_end..end)
            .ok_or_else(|| bounds("e_name_len", name_len.into()))?;
        let read = || {
            let inum = get_u32(area, offset.checked_add(4)?)?;
            let size = get_u32(area, offset.checked_add(8)?)?;
            let hash = get_u32(area, offset.checked_add(12)?)?;
            Some((get_u16(area, offset.checked_add(2)?)?, inum, size, hash))
        };
        let (value_offset, inum, size, hash) =
            read().ok_or_else(|| bounds("entry", offset as u64))?;
        let value_inode = (inum != 0).then_some(ValueInode {
            ino: Ino(inum),
            size,
        });
        // An entry without name, prefix and value would be the end mark. No implementation writes
        // such a name.
        if name.contains(&0) || (name.is_empty() && index == 0) {
            return Err(bounds("e_name", 0));
        }
        let mut value: &[u8] = &[];
        if size > 0 && value_inode.is_none() {
            let start = place.value_base().saturating_add(usize::from(value_offset));
            let value_end = start.saturating_add(size as usize);
            value = area
                .get(start..value_end)
                .ok_or_else(|| bounds("e_value_size", u64::from(size)))?;
            lowest_value = lowest_value.min(start);
        }
        entries.push(XattrEntry {
            offset: saturating_u32(offset),
            index,
            name,
            value,
            value_inode,
            hash,
        });
        offset = align4(end);
    }
    if offset.saturating_add(4) > lowest_value {
        return Err(FormatError::XattrBounds {
            offset: saturating_u32(offset),
            field: "e_value_offs",
            value: lowest_value as u64,
        });
    }
    Ok(entries)
}

/// Returns the bytes that an attribute takes in either place: its entry and its value.
#[must_use]
pub fn space_for(name: &[u8], value: &[u8]) -> usize {
    align4(ENTRY.saturating_add(name.len())).saturating_add(align4(value.len()))
}

/// Returns the bytes that attributes take beside the header: entries, end mark and values.
#[must_use]
pub fn space_for_all(attributes: &[Xattr<'_>]) -> usize {
    attributes
        .iter()
        .map(|attribute| space_for(attribute.name, attribute.value))
        .fold(4, usize::saturating_add)
}

/// Returns whether the attributes fit in an inode's slack of `area_len` bytes.
#[must_use]
pub fn fits_ibody(attributes: &[Xattr<'_>], area_len: usize) -> bool {
    attributes.is_empty() || space_for_all(attributes).saturating_add(IBODY_HEADER) <= area_len
}

/// Returns the most bytes that the value of one more attribute can have in an inode's slack of
/// `area_len` bytes; `None` if there is no room for its entry.
#[must_use]
pub fn room_in_ibody(others: &[Xattr<'_>], name: &[u8], area_len: usize) -> Option<usize> {
    let used = space_for_all(others)
        .saturating_add(IBODY_HEADER)
        .saturating_add(space_for(name, b""));
    Some(area_len.checked_sub(used)? & !3)
}

/// Returns whether the attributes fit in a block of `block_size` bytes.
#[must_use]
pub fn fits_block(attributes: &[Xattr<'_>], block_size: usize) -> bool {
    space_for_all(attributes).saturating_add(BLOCK_HEADER) <= block_size
}

/// Writes the attributes into an inode's slack, which is overwritten as a whole.
///
/// # Errors
///
/// `NoRoom` if they do not fit, `OutOfRange` for a name over 255 bytes or none at all; nothing is
/// changed then.
pub fn build_ibody(attributes: &[Xattr<'_>], area: &mut [u8]) -> Result<()> {
    if attributes.is_empty() {
        area.fill(0);
        return Ok(());
    }
    check_build(Place::Inode, attributes, area.len())?;
    build_entries(attributes, area, Place::Inode)?;
    put_u32(area, 0, XATTR_MAGIC).ok_or(no_room("inode attributes", IBODY_HEADER, area.len()))
}

/// Writes the attributes as a block, sorted, with entry hashes and block hash. The checksum is left
/// to [`update_block_checksum`], which must know where the block goes.
///
/// # Errors
///
/// `NoRoom` if they do not fit, `OutOfRange` for a name over 255 bytes or none at all; nothing is
/// changed then.
pub fn build_block(attributes: &[Xattr<'_>], refcount: u32, block: &mut [u8]) -> Result<()> {
    check_build(Place::Block, attributes, block.len())?;
    build_entries(attributes, block, Place::Block)?;
    let hash = block_hash(attributes);
    let have = block.len();
    let mut write = || {
        put_u32(block, 0, XATTR_MAGIC)?;
        put_u32(block, 4, refcount)?;
        put_u32(block, 8, 1)?;
        put_u32(block, BLOCK_HASH, hash)
    };
    write().ok_or(no_room("xattr block", BLOCK_HEADER, have))
}

/// Changes the number of inodes that share a block. The checksum must be updated afterwards.
///
/// # Errors
///
/// `Truncated`.
pub fn set_refcount(block: &mut [u8], refcount: u32) -> Result<()> {
    let have = block.len() as u64;
    let error = FormatError::Truncated {
        structure: "xattr block",
        need: BLOCK_HEADER as u64,
        have,
    };
    put_u32(block, 4, refcount).ok_or(error)
}

/// Returns the hash of a set of attributes in the order of a block; 0 if one of them hashes to 0.
#[must_use]
pub fn block_hash(attributes: &[Xattr<'_>]) -> u32 {
    let mut hash = 0u32;
    for attribute in sorted(attributes) {
        let entry = attribute.hash();
        if entry == 0 {
            return 0;
        }
        hash = hash.rotate_left(16) ^ entry;
    }
    hash
}

fn sorted<'a>(attributes: &[Xattr<'a>]) -> Vec<Xattr<'a>> {
    let mut sorted = attributes.to_vec();
    sorted.sort_by(|a, b| (a.index, a.name.len(), a.name).cmp(&(b.index, b.name.len(), b.name)));
    sorted
}

fn no_room(structure: &'static str, need: usize, have: usize) -> FormatError {
    FormatError::NoRoom {
        structure,
        need: need as u64,
        have: have as u64,
    }
}

fn check_build(place: Place, attributes: &[Xattr<'_>], have: usize) -> Result<()> {
    let structure = place.structure();
    for attribute in attributes {
        let is_nameless = attribute.name.is_empty() && attribute.index == 0;
        if attribute.name.len() > NAME_MAX || is_nameless {
            let value = attribute.name.len() as u64;
            return Err(FormatError::OutOfRange {
                structure,
                field: "e_name_len",
                value,
            });
        }
    }
    let need = space_for_all(attributes).saturating_add(place.header());
    if need > have {
        Err(no_room(structure, need, have))
    } else {
        Ok(())
    }
}

fn build_entries(attributes: &[Xattr<'_>], area: &mut [u8], place: Place) -> Result<()> {
    let have = area.len();
    area.fill(0);
    let mut offset = place.header();
    let mut value_end = have & !3;
    for attribute in sorted(attributes) {
        let padded = align4(attribute.value.len());
        // The kernel checks the hash of a value in an inode in both places.
        let hash = match (place, attribute.stored) {
            (Place::Inode, None) => 0,
            _ => attribute.hash(),
        };
        let value_inode = attribute.stored.map(|stored| stored.place);
        let size = match value_inode {
            Some(place) => Some(place.size),
            None => u32::try_from(attribute.value.len()).ok(),
        };
        let mut write = || {
            let value_start = value_end.checked_sub(padded)?;
            let relative = if padded == 0 {
                0
            } else {
                value_start.checked_sub(place.value_base())?
            };
            let entry = area.get_mut(offset..)?;
            put(
                entry,
                0,
                [u8::try_from(attribute.name.len()).ok()?, attribute.index],
            )?;
            put_u16(entry, 2, u16::try_from(relative).ok()?)?;
            put_u32(entry, 4, value_inode.map_or(0, |place| place.ino.0))?;
            put_u32(entry, 8, size?)?;
            put_u32(entry, 12, hash)?;
            let name_end = ENTRY.checked_add(attribute.name.len())?;
            entry
                .get_mut(ENTRY..name_end)?
                .copy_from_slice(attribute.name);
            let stored_end = value_start.checked_add(attribute.value.len())?;
            area.get_mut(value_start..stored_end)?
                .copy_from_slice(attribute.value);
            value_end = value_start;
            offset = offset.checked_add(align4(name_end))?;
            Some(())
        };
        write().ok_or(no_room(
            "extended attributes",
            space_for_all(attributes),
            have,
        ))?;
    }
    Ok(())
}

fn block_checksum(seed: Seed, block: &[u8], place: FsBlock) -> Option<u32> {
    let before = block.get(..BLOCK_CHECKSUM)?;
    let after = block.get(BLOCK_CHECKSUM + 4..)?;
    Some(
        seed.extend(&place.0.to_le_bytes())
            .extend(before)
            .extend(&[0; 4])
            .extend(after)
            .0,
    )
}

/// Verifies the checksum of the attribute block at `place`. `seed` is the volume's, as inodes share
/// it.
///
/// # Errors
///
/// `Checksum` or `Truncated`.
pub fn verify_block_checksum(seed: Option<Seed>, block: &[u8], place: FsBlock) -> Result<()> {
    let Some(seed) = seed else { return Ok(()) };
    let read = || {
        Some((
            get_u32(block, BLOCK_CHECKSUM)?,
            block_checksum(seed, block, place)?,
        ))
    };
    let (stored, computed) = read().ok_or(FormatError::Truncated {
        structure: "xattr block",
        need: BLOCK_HEADER as u64,
        have: block.len() as u64,
    })?;
    compare("xattr block", place.0, stored, computed)
}

/// Writes the checksum of the attribute block that goes to `place`. Without a seed nothing changes.
pub fn update_block_checksum(seed: Option<Seed>, block: &mut [u8], place: FsBlock) {
    let checksum = seed.and_then(|seed| block_checksum(seed, block, place));
    if let Some(checksum) = checksum {
        let _ = put_u32(block, BLOCK_CHECKSUM, checksum);
    }
}
