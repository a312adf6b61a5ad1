//! Values of attributes in inodes of their own (`ea_inode`).
//!
//! Such an inode is a regular file with the flag `EA_INODE`. No directory names it, and inodes with
//! equal values share it. Its blocks are read as metadata. The hash of its contents is in the place
//! of its access time; inodes of Lustre have the number of their one owner in the place of the time
//! of change instead.

use crate::extents::{self, ExtentState, Map};
use crate::state::Links;
use crate::{Error, Fs, Inode, InodeDamage, Result};
use ext4_format::checksum::crc32c;
use ext4_format::inode::{FileType, InodeFlags};
use ext4_format::xattr::ValueInode;
use units::FileBlock;

/// The largest value that any writer makes, in bytes.
const VALUE_MAX: u32 = 64 << 10;

/// Reads the value of an attribute of `owner`.
pub(super) fn read(fs: &Fs, owner: &Inode, place: ValueInode) -> Result<Vec<u8>> {
    let damage = || InodeDamage::XattrValue { value: place.ino }.of(owner.ino);
    if place.size > VALUE_MAX || place.ino < fs.geo.first_ino {
        return Err(damage());
    }
    let inode = match fs.load_inode(place.ino, Links::Required) {
        Err(Error::Stale) => return Err(damage()),
        loaded => loaded?,
    };
    let (flags, size, hash, owned) = inode.fields(|f| {
        let is_of_owner = f.mtime.secs == i64::from(owner.ino.0);
        (f.flags, f.size, f.atime.secs as u32, is_of_owner)
    });
    if inode.kind() != FileType::Regular
        || !flags.contains(InodeFlags::EA_INODE)
        || size != u64::from(place.size)
    {
        return Err(damage());
    }
    let mut value = Vec::with_capacity(place.size as usize);
    let mut at = FileBlock::FIRST;
    while value.len() < place.size as usize {
        let Map::Mapped {
            start,
            state: ExtentState::Written,
            ..
        } = extents::lookup(fs, &inode, at)?
        else {
            return Err(damage());
        };
        let left = place.size as usize - value.len();
        let data = fs.journal.get(start)?.data();
        value.extend_from_slice(data.get(..left.min(data.len())).unwrap_or_default());
        at += 1;
    }
    if crc32c(fs.geo.value_seed, &value) != hash && !owned {
        return Err(damage());
    }
    Ok(value)
}
