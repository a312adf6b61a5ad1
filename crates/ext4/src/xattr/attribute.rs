//! One attribute in memory.

use super::value_inode;
use crate::{Fs, Inode, Result};
use ext4_format::inline_data::ATTRIBUTE;
use ext4_format::xattr::{INDEX_SYSTEM, StoredValue, ValueInode, Xattr, XattrEntry, space_for};
use std::borrow::Cow;

/// An attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attribute {
    /// The number of the name's prefix.
    pub index: u8,
    /// The name without the prefix.
    pub name: Vec<u8>,
    /// The value; empty if an inode holds it.
    pub value: Vec<u8>,
    /// The inode that holds the value.
    pub stored: Option<StoredValue>,
}

impl Attribute {
    fn borrow(&self) -> Xattr<'_> {
        Xattr {
            index: self.index,
            name: &self.name,
            value: &self.value,
            stored: self.stored,
        }
    }
    /// Returns the value. An inode that holds it is read.
    pub fn value<'a>(&'a self, fs: &Fs, inode: &Inode) -> Result<Cow<'a, [u8]>> {
        Ok(match self.stored {
            None => Cow::Borrowed(&self.value),
            Some(stored) => Cow::Owned(value_inode::read(fs, inode, stored.place)?),
        })
    }
    /// Returns the length of the value in bytes. A value in an inode has at most
    /// [`value_inode::VALUE_MAX`].
    pub fn len(&self) -> usize {
        match self.stored {
            None => self.value.len(),
            Some(stored) => stored.place.size.min(value_inode::VALUE_MAX) as usize,
        }
    }
    pub fn is(&self, index: u8, name: &[u8]) -> bool {
        self.index == index && self.name == name
    }
    /// Whether it has a part of the inode's contents.
    pub fn is_inline_data(&self) -> bool {
        self.is(INDEX_SYSTEM, ATTRIBUTE)
    }
    pub fn space(&self) -> usize {
        space_for(&self.name, &self.value)
    }
}

/// Copies entries. Values that are in inodes are not read.
pub(super) fn own(entries: Vec<XattrEntry<'_>>) -> Vec<Attribute> {
    let own = |entry: XattrEntry<'_>| Attribute {
        index: entry.index,
        name: entry.name.to_vec(),
        value: entry.value.to_vec(),
        stored: Xattr::from(entry).stored,
    };
    entries.into_iter().map(own).collect()
}

pub(super) fn borrow(attributes: &[Attribute]) -> Vec<Xattr<'_>> {
    attributes.iter().map(Attribute::borrow).collect()
}

/// Returns the places of all values in inodes.
pub(super) fn references(attributes: &[Attribute]) -> Vec<ValueInode> {
    let stored = attributes.iter().filter_map(|attribute| attribute.stored);
    stored.map(|stored| stored.place).collect()
}
