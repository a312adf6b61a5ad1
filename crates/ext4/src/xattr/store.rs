//! The storage of attributes: the bytes of the inode after its fields, and one block.
//!
//! A change reads both places, assigns each attribute to a place, and writes the places that
//! differ. The inode is preferred: it is read anyway, and a block costs 4 KiB. Several inodes may
//! share a block: the kernel shares equal blocks and counts references. A change of a shared block
//! drops one reference and allocates a new block for the inode. This module never makes a block
//! shared.
//!
//! ```text
//!            set, no room in the inode           set or removed
//!   no block ─────────────────────────▶ own block ─────▶ own block (in place)
//!      ▲                                   │  ▲
//!      └── all fit into the inode ─────────┘  └── set or removed ── shared block (one reference dropped)
//! ```

use super::{SetXattrMode, value_inode};
use crate::alloc::BlockRun;
use crate::{Error, Fs, Inode, InodeDamage, Result};
use block::BufMut;
use ext4_format::checksum::Seed;
use ext4_format::features::CompatFeatures;
use ext4_format::inline_data::ATTRIBUTE;
use ext4_format::xattr::{
    INDEX_SYSTEM, Xattr, XattrEntry, build_block, build_ibody, fits_block, fits_ibody, parse_block,
    parse_ibody, set_refcount, space_for, update_block_checksum, verify_block_checksum,
};
use jbd2::{Buffer, Handle, Seal};
use std::sync::Arc;
use units::FsBlock;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attribute {
    /// The number of the name's prefix.
    pub index: u8,
    /// The name without the prefix.
    pub name: Vec<u8>,
    pub value: Vec<u8>,
}

impl Attribute {
    fn borrow(&self) -> Xattr<'_> {
        Xattr {
            index: self.index,
            name: &self.name,
            value: &self.value,
        }
    }
    fn is(&self, index: u8, name: &[u8]) -> bool {
        self.index == index && self.name == name
    }
    /// Whether it has a part of the inode's contents.
    pub(super) fn is_inline_data(&self) -> bool {
        self.is(INDEX_SYSTEM, ATTRIBUTE)
    }
    fn space(&self) -> usize {
        space_for(&self.name, &self.value)
    }
}

/// The attributes of an inode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    inode: Vec<Attribute>,
    block: Vec<Attribute>,
}

/// The space for attributes, in bytes.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub inode: usize,
    pub block: usize,
}

impl Attributes {
    /// Reads the attributes of an inode. The caller's lock excludes changes of attributes.
    pub fn read(fs: &Fs, inode: &Inode) -> Result<Attributes> {
        fs.witness("read_attributes", inode.ino, Self::try_read(fs, inode))
    }

    fn try_read(fs: &Fs, inode: &Inode) -> Result<Attributes> {
        let (area, block) = inode.xattr_places();
        let mut attributes = Attributes::default();
        if let Some(area) = area {
            attributes.inode = own(fs, inode, parse_ibody(&area)?)?;
        }
        if block.0 != 0 {
            let data = get_block(fs, inode, block)?.data();
            attributes.block = own(fs, inode, parse_block(&data)?.1)?;
        }
        Ok(attributes)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Attribute> {
        self.inode.iter().chain(&self.block)
    }

    pub fn get(&self, index: u8, name: &[u8]) -> Option<&[u8]> {
        let found = self.iter().find(|attribute| attribute.is(index, name))?;
        Some(&found.value)
    }

    /// Sets an attribute; `None` if the attributes do not fit.
    fn with(mut self, new: Attribute, room: Room) -> Option<Attributes> {
        self.remove(new.index, &new.name);
        // As in the kernel, the inode is tried first, then the block.
        self.inode.push(new);
        if self.inode_fits(room) {
            return Some(self);
        }
        self.block.extend(self.inode.pop());
        if self.block_fits(room) {
            return Some(self);
        }
        // Place all attributes again, the largest first. The one with contents stays in the inode.
        let mut all: Vec<Attribute> = self.inode.drain(..).chain(self.block.drain(..)).collect();
        all.sort_by_key(|attribute| {
            let place = !attribute.is_inline_data();
            (place, std::cmp::Reverse(attribute.space()))
        });
        for attribute in all {
            self.inode.push(attribute);
            if !self.inode_fits(room) {
                self.block.extend(self.inode.pop());
            }
        }
        self.block_fits(room).then_some(self)
    }

    /// Removes an attribute. If the others fit in the inode, they move there.
    fn without(mut self, index: u8, name: &[u8], room: Room) -> Attributes {
        self.remove(index, name);
        let count = self.inode.len();
        self.inode.append(&mut self.block);
        if !self.inode_fits(room) {
            self.block = self.inode.split_off(count);
        }
        self
    }

    fn remove(&mut self, index: u8, name: &[u8]) {
        self.inode.retain(|attribute| !attribute.is(index, name));
        self.block.retain(|attribute| !attribute.is(index, name));
    }
    fn inode_fits(&self, room: Room) -> bool {
        fits_ibody(&borrow(&self.inode), room.inode)
    }
    fn block_fits(&self, room: Room) -> bool {
        self.block.is_empty() || fits_block(&borrow(&self.block), room.block)
    }
}

/// Copies entries, with the values that are in inodes of their own.
pub(super) fn own(fs: &Fs, inode: &Inode, entries: Vec<XattrEntry<'_>>) -> Result<Vec<Attribute>> {
    let own = |entry: XattrEntry<'_>| {
        Ok(Attribute {
            index: entry.index,
            name: entry.name.to_vec(),
            value: match entry.value_inode {
                Some(place) => value_inode::read(fs, inode, place)?,
                None => entry.value.to_vec(),
            },
        })
    };
    entries.into_iter().map(own).collect()
}

pub(super) fn borrow(attributes: &[Attribute]) -> Vec<Xattr<'_>> {
    attributes.iter().map(Attribute::borrow).collect()
}

/// Sets an attribute, or removes it if `value` is `None`, as part of the handle's transaction. An
/// error has changed nothing. The caller's lock excludes other changes of attributes. The caller
/// sets the ctime and marks the inode dirty. Returns whether anything changed.
pub(crate) fn change(
    fs: &Fs,
    handle: &Handle<'_>,
    inode: &Arc<Inode>,
    (index, name): (u8, &[u8]),
    value: Option<&[u8]>,
    mode: SetXattrMode,
) -> Result<bool> {
    let old = Attributes::read(fs, inode)?;
    match (old.get(index, name), mode) {
        (None, SetXattrMode::Replace) => return Err(Error::NoAttribute),
        (Some(_), SetXattrMode::Create) => return Err(Error::Exists),
        (None, _) if value.is_none() => return Ok(false),
        (Some(same), _) if value == Some(same) => return Ok(false),
        _ => {}
    }
    let room = room(fs, inode);
    let new = match value {
        None => old.clone().without(index, name, room),
        Some(value) => {
            let new = Attribute {
                index,
                name: name.to_vec(),
                value: value.to_vec(),
            };
            old.clone().with(new, room).ok_or(Error::NoSpace)?
        }
    };
    write(fs, handle, inode, &old, &new, room)?;
    Ok(true)
}

/// Returns the space for attributes of an inode.
pub(super) fn room(fs: &Fs, inode: &Inode) -> Room {
    let extra = inode.fields(|f| f.extra_isize);
    let used = 128 + usize::from(extra);
    // Attributes in the inode start after the extra fields, so an inode without extra fields has
    // attributes in a block only.
    let inode = match extra {
        0 => 0,
        _ => usize::from(fs.geo.inode_size).saturating_sub(used),
    };
    Room {
        inode,
        block: fs.geo.block_size as usize,
    }
}

fn write(
    fs: &Fs,
    handle: &Handle<'_>,
    inode: &Arc<Inode>,
    old: &Attributes,
    new: &Attributes,
    room: Room,
) -> Result<()> {
    let mut area = vec![0; room.inode].into_boxed_slice();
    build_ibody(&borrow(&new.inode), &mut area)?;
    if new.block != old.block {
        write_block(fs, handle, inode, &new.block)?;
    }
    inode.set_inline_xattrs((!new.inode.is_empty()).then_some(area));
    set_ext_attr_feature(fs, handle);
    Ok(())
}

fn write_block(
    fs: &Fs,
    handle: &Handle<'_>,
    inode: &Arc<Inode>,
    attributes: &[Attribute],
) -> Result<()> {
    if attributes.is_empty() {
        return release(fs, handle, inode);
    }
    let mut bytes = BufMut::zeroed(fs.geo.block_size as usize);
    build_block(&borrow(attributes), 1, &mut bytes)?;
    let old = inode.xattr_block();
    if old.0 != 0 {
        let buffer = get_block(fs, inode, old)?;
        // The one reference is this inode's, and no reference is ever added.
        if parse_block(&buffer.data())?.0.refcount == 1 {
            handle.modify(&buffer, seal(fs), |block| block.copy_from_slice(&bytes));
            return Ok(());
        }
    }
    let goal = fs.groups.goal_for(inode.ino);
    let place = fs.groups.alloc_metadata_block(handle, goal)?;
    let buffer = handle.create(place);
    handle.modify(&buffer, seal(fs), |block| block.copy_from_slice(&bytes));
    release(fs, handle, inode)?;
    inode.set_xattr_block(place, fs.geo.sectors_per_cluster() as i64);
    Ok(())
}

/// Drops the inode's reference to its block, if it has one, and frees the block with the last
/// reference.
pub(super) fn release(fs: &Fs, handle: &Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
    let place = inode.xattr_block();
    if place.0 == 0 {
        return Ok(());
    }
    let buffer = get_block(fs, inode, place)?;
    parse_block(&buffer.data())?;
    // Another inode may drop its reference concurrently, so the count is read and changed in one
    // step.
    let is_last = handle.modify(&buffer, seal(fs), |block| {
        let refcount = parse_block(block)?.0.refcount;
        match refcount {
            0 | 1 => Ok(true),
            shared => set_refcount(block, shared - 1).map(|()| false),
        }
    })?;
    drop(buffer);
    if is_last {
        handle.forget(place);
        let run = BlockRun {
            start: place,
            len: 1,
        };
        fs.groups.free(handle, run)?;
    }
    inode.set_xattr_block(FsBlock(0), -(fs.geo.sectors_per_cluster() as i64));
    inode.mark_dirty(fs, handle);
    Ok(())
}

/// Updates the checksum of a block before it is logged.
fn seal_block(seed: u32, block: FsBlock, bytes: &mut [u8]) {
    update_block_checksum(Some(Seed(seed)), bytes, block);
}

/// Returns the seal of attribute blocks. It has the volume's seed, because inodes share blocks.
fn seal(fs: &Fs) -> Option<Seal> {
    fs.geo.csum_seed.map(|seed| Seal {
        seal: seal_block,
        seed: seed.0,
    })
}

fn get_block(fs: &Fs, inode: &Inode, place: FsBlock) -> Result<Arc<Buffer>> {
    let run = BlockRun {
        start: place,
        len: 1,
    };
    if !fs.geo.contains_blocks(place, 1) || fs.groups.is_system(run) {
        return Err(InodeDamage::XattrBlock { block: place }.of(inode.ino));
    }
    let buffer = fs.journal.get(place)?;
    buffer.verify_once(|bytes| verify_block_checksum(fs.geo.csum_seed, bytes, place))?;
    Ok(buffer)
}

/// Sets the feature flag EXT_ATTR in the super block.
fn set_ext_attr_feature(fs: &Fs, handle: &Handle<'_>) {
    if fs.geo.compat.contains(CompatFeatures::EXT_ATTR) {
        return;
    }
    {
        let mut superblock = fs.superblock.lock();
        let features = superblock.compat() | CompatFeatures::EXT_ATTR;
        superblock.set_compat(features);
    }
    fs.mark_superblock_dirty(handle);
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room {
        inode: 96,
        block: 1024,
    };

    fn attribute(name: &str, len: usize) -> Attribute {
        Attribute {
            index: 1,
            name: name.into(),
            value: vec![b'v'; len],
        }
    }
    fn names(attributes: &[Attribute]) -> Vec<&str> {
        let names = attributes.iter().map(|a| std::str::from_utf8(&a.name));
        names.map(Result::unwrap).collect()
    }

    #[test]
    fn the_inode_is_preferred() {
        let attributes = Attributes::default();
        let attributes = attributes.with(attribute("a", 20), ROOM).unwrap();
        let attributes = attributes.with(attribute("b", 20), ROOM).unwrap();
        let attributes = attributes.with(attribute("c", 20), ROOM).unwrap();
        assert_eq!(names(&attributes.inode), ["a", "b"]);
        assert_eq!(names(&attributes.block), ["c"]);
        // Two attributes shrink. The inode has room for one of them.
        let attributes = attributes.with(attribute("a", 0), ROOM).unwrap();
        let attributes = attributes.with(attribute("c", 12), ROOM).unwrap();
        assert_eq!(names(&attributes.inode), ["b", "a"]);
        assert_eq!(names(&attributes.block), ["c"]);
        // Without "b" the others fit in the inode.
        let attributes = attributes.without(1, b"b", ROOM);
        assert_eq!(names(&attributes.inode), ["a", "c"]);
        assert!(attributes.block.is_empty());
    }

    #[test]
    fn a_small_attribute_moves_to_the_block_for_a_larger_one() {
        let mut attributes = Attributes::default();
        for (name, len) in [("small", 4), ("large", 900)] {
            attributes = attributes.with(attribute(name, len), ROOM).unwrap();
        }
        assert_eq!(names(&attributes.inode), ["small"]);
        // "middle" fits neither with "small" in the inode nor with "large" in the block. It fits in
        // the inode when "small" moves.
        let attributes = attributes.with(attribute("middle", 64), ROOM).unwrap();
        assert_eq!(names(&attributes.inode), ["middle"]);
        assert_eq!(names(&attributes.block), ["large", "small"]);
        assert_eq!(attributes.clone().with(attribute("more", 40), ROOM), None);
        assert_eq!(attributes.with(attribute("large", 2000), ROOM), None);
    }

    #[test]
    fn inodes_without_room_use_the_block() {
        let room = Room { inode: 0, ..ROOM };
        let attributes = Attributes::default().with(attribute("a", 1), room).unwrap();
        assert_eq!(names(&attributes.block), ["a"]);
        let attributes = attributes.without(1, b"a", room);
        assert_eq!(attributes, Attributes::default());
    }
}
