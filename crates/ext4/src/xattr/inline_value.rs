//! The attribute with a part of the contents of an inode (`inline_data`). It is in the inode, and
//! there it is as long as the inode has its contents in it, even if it is empty.
//!
//! A change only changes memory. The caller holds the inode's lock exclusively and a handle, and
//! marks the inode dirty.

use super::attribute::{Attribute, borrow, own};
use super::store::room;
use crate::{Fs, Inode, Result};
use ext4_format::inline_data::ATTRIBUTE;
use ext4_format::xattr::{INDEX_SYSTEM, build_ibody, parse_ibody, room_in_ibody};

/// The bytes for attributes in an inode; `None` if it has none.
type Area = Option<Box<[u8]>>;

/// The attributes in an inode, apart from the one with contents.
pub(crate) struct BesideInline {
    others: Vec<Attribute>,
    /// The value of the attribute with contents, if there is one.
    pub value: Option<Vec<u8>>,
    /// The most bytes that the value can have; `None` if there is no room for the attribute.
    pub room: Option<usize>,
    /// Bytes for attributes in the inode.
    area_len: usize,
}

impl BesideInline {
    /// Reads the attributes in an inode.
    pub fn read(fs: &Fs, inode: &Inode) -> Result<BesideInline> {
        fs.witness("read_inline_value", inode.ino, Self::try_read(fs, inode))
    }

    fn try_read(fs: &Fs, inode: &Inode) -> Result<BesideInline> {
        let area_len = room(fs, inode).inode;
        let mut others = match inode.xattr_places().0 {
            Some(area) => own(parse_ibody(&area)?),
            None => Vec::new(),
        };
        let at = others.iter().position(Attribute::is_inline_data);
        let value = at.map(|at| others.swap_remove(at).value);
        let room = room_in_ibody(&borrow(&others), ATTRIBUTE, area_len);
        Ok(BesideInline {
            others,
            value,
            room,
            area_len,
        })
    }

    /// Returns the bytes for attributes with `value` as the contents, or without contents.
    pub fn area_with(mut self, value: Option<&[u8]>) -> Result<Area> {
        if let Some(value) = value {
            self.others.push(Attribute {
                index: INDEX_SYSTEM,
                name: ATTRIBUTE.to_vec(),
                value: value.to_vec(),
                stored: None,
            });
        }
        if self.others.is_empty() {
            return Ok(None);
        }
        let mut area = vec![0; self.area_len].into_boxed_slice();
        build_ibody(&borrow(&self.others), &mut area)?;
        Ok(Some(area))
    }
}
