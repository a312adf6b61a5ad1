//! The storage of attributes: the bytes of the inode after its fields, and one block.
//!
//! A change reads both places, assigns each attribute to a place, and writes the places that
//! differ. The inode is preferred: it is read anyway, and a block costs 4 KiB. Several inodes may
//! share a block: the kernel shares equal blocks and counts references. A change of a shared block
//! drops one reference and allocates a new block for the inode. This module never makes a block
//! shared.
//!
//! On volumes with `ea_inode`, a value that is larger than a block's room, or for which there is no
//! other place, is in an inode of its own ([`value_inode`]). Other values leave an eighth of the
//! block for the entries of such values. A change counts the references of all entries that the
//! inode has before and after it: an entry that only moves keeps its reference, and one that is
//! copied from a shared block makes another. Values in inodes count for `i_blocks`.
//!
//! ```text
//!            set, no room in the inode           set or removed
//!   no block ─────────────────────────▶ own block ─────▶ own block (in place)
//!      ▲                                   │  ▲
//!      └── all fit into the inode ─────────┘  └── set or removed ── shared block (one reference dropped)
//! ```

use super::attribute::{Attribute, borrow, own, references};
use super::block::{BlockChange, get_block, is_shared_block, leave_shared_block, write_block};
use super::{SetXattrMode, XATTR_CREDITS, value_inode};
use crate::{Error, Fs, Inode, InodeRef, Result};
use ext4_format::features::CompatFeatures;
use ext4_format::xattr::{
    StoredValue, ValueInode, build_ibody, fits_block, fits_ibody, leave_entries, parse_block,
    parse_ibody, space_for, wants_inode,
};
use jbd2::Handle;
use std::borrow::Cow;
use std::sync::Arc;
use units::Ino;

/// The number of values that one handle releases when an inode is deleted.
const RELEASED_AT_ONCE: usize = 8;

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
            attributes.inode = own(parse_ibody(&area)?);
        }
        if block.0 != 0 {
            let data = get_block(fs, inode, block)?.data();
            attributes.block = own(parse_block(&data)?.1);
        }
        Ok(attributes)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Attribute> {
        self.inode.iter().chain(&self.block)
    }

    fn find(&self, index: u8, name: &[u8]) -> Option<&Attribute> {
        self.iter().find(|attribute| attribute.is(index, name))
    }

    /// Returns the value of an attribute of `inode`.
    pub fn get(
        &self,
        fs: &Fs,
        inode: &Inode,
        (index, name): (u8, &[u8]),
    ) -> Result<Option<Cow<'_, [u8]>>> {
        let value = self.find(index, name).map(|found| found.value(fs, inode));
        fs.witness("read_attributes", inode.ino, value.transpose())
    }

    /// Returns the number of values in inodes.
    pub fn stored_values(&self) -> usize {
        self.iter().filter_map(|attribute| attribute.stored).count()
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
    /// Removes `count` attributes whose values are in inodes, or all of them if there are fewer.
    fn remove_values(&mut self, count: usize) {
        let mut left = count;
        let mut keep = |attribute: &Attribute| {
            let removed = attribute.stored.is_some() && left > 0;
            left -= usize::from(removed);
            !removed
        };
        self.inode.retain(&mut keep);
        self.block.retain(&mut keep);
    }
    fn inode_fits(&self, room: Room) -> bool {
        fits_ibody(&borrow(&self.inode), room.inode)
    }
    fn block_fits(&self, room: Room) -> bool {
        self.block.is_empty() || fits_block(&borrow(&self.block), room.block)
    }
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
    match (old.find(index, name), mode) {
        (None, SetXattrMode::Replace) => return Err(Error::NoAttribute),
        (Some(_), SetXattrMode::Create) => return Err(Error::Exists),
        (None, _) if value.is_none() => return Ok(false),
        // A value that cannot be read is replaced.
        (Some(same), _)
            if same
                .value(fs, inode)
                .is_ok_and(|same| value == Some(&*same)) =>
        {
            return Ok(false);
        }
        _ => {}
    }
    let room = room(fs, inode);
    let mut made = None;
    let new = match value {
        None => old.clone().without(index, name, room),
        Some(value) => {
            let mut new = Attribute {
                index,
                name: name.to_vec(),
                value: value.to_vec(),
                stored: None,
            };
            let uses_inodes = value_inode::is_used(fs) && !value.is_empty();
            let large = uses_inodes && wants_inode(value, room.block);
            let here = match large {
                false => old.clone().with(new.clone(), room),
                true => None,
            };
            let leaves_entries = |all: &Attributes| {
                all.block == old.block || leave_entries(&borrow(&all.block), room.block)
            };
            match here {
                Some(all) if !uses_inodes || leaves_entries(&all) => all,
                _ if !uses_inodes => return Err(Error::NoSpace),
                _ => {
                    // The entry takes the same room, whichever inode it is.
                    (new.value, new.stored) = (Vec::new(), Some(NOWHERE));
                    old.clone().with(new.clone(), room).ok_or(Error::NoSpace)?;
                    let (value_inode, stored) =
                        value_inode::create(fs, handle, inode, name, value)?;
                    made = Some(value_inode);
                    new.stored = Some(stored);
                    old.clone().with(new, room).ok_or(Error::NoSpace)?
                }
            }
        }
    };
    let written = write(
        fs,
        handle,
        inode,
        (&old, &new),
        made.as_ref().map(|made| made.ino),
        room,
    );
    if let (Err(_), Some(made)) = (&written, &made) {
        value_inode::put(fs, handle, made, inode);
    }
    written.map(|()| true)
}

/// A value whose inode is not made yet.
const NOWHERE: StoredValue = StoredValue {
    place: ValueInode {
        ino: Ino(0),
        size: 0,
    },
    entry_hash: 0,
};

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

/// Writes the places that differ. `made` is the inode of a new value, which has its reference.
fn write(
    fs: &Fs,
    handle: &Handle<'_>,
    inode: &Arc<Inode>,
    (old, new): (&Attributes, &Attributes),
    made: Option<Ino>,
    room: Room,
) -> Result<()> {
    let mut area = vec![0; room.inode].into_boxed_slice();
    build_ibody(&borrow(&new.inode), &mut area)?;
    let block = match new.block == old.block {
        true => BlockChange::None,
        false => BlockChange::plan(fs, inode, &new.block)?,
    };
    // The entries of a block that is replaced keep their references: the block has them.
    let mut before = references(&old.inode);
    if !matches!(block, BlockChange::Replace) {
        before.extend(references(&old.block));
    }
    let mut gained = references(&new.inode);
    gained.extend(references(&new.block));
    let mut lost = before;
    gained.retain(|place| {
        let kept = lost.iter().position(|lost| lost == place);
        kept.map(|at| lost.swap_remove(at)).is_none() && made != Some(place.ino)
    });
    let load = |place: &ValueInode| value_inode::load(fs, inode, *place);
    let gained: Vec<InodeRef> = gained.iter().map(load).collect::<Result<_>>()?;
    let lost = value_inode::load_lost(fs, inode, &lost);
    let mut counted = 0;
    let written = gained
        .iter()
        .try_for_each(|value| {
            value_inode::get(fs, handle, value, inode)?;
            counted += 1;
            Ok(())
        })
        .and_then(|()| match block {
            BlockChange::None => Ok(()),
            BlockChange::InPlace | BlockChange::Replace => {
                write_block(fs, handle, inode, &new.block, block)
            }
        });
    if let Err(error) = written {
        for value in &gained[..counted] {
            value_inode::put(fs, handle, value, inode);
        }
        return Err(error);
    }
    inode.set_inline_xattrs((!new.inode.is_empty()).then_some(area));
    for value in &lost {
        value_inode::put(fs, handle, value, inode);
    }
    inode.add_sectors(sectors_of_values(fs, new) - sectors_of_values(fs, old));
    set_ext_attr_feature(fs, handle);
    Ok(())
}

/// Returns the sectors that values in inodes count for in `i_blocks`: whole clusters.
fn sectors_of_values(fs: &Fs, attributes: &Attributes) -> i64 {
    let block = fs.geo.block_size;
    let clusters = |stored: StoredValue| {
        let blocks = stored.place.size.div_ceil(block);
        fs.geo.cluster().clusters_for(blocks.into())
    };
    let stored = attributes.iter().filter_map(|attribute| attribute.stored);
    (stored.map(clusters).sum::<u64>() * fs.geo.sectors_per_cluster()) as i64
}

/// Drops the references of an inode, which is being deleted, to values in inodes, a few in each
/// handle. A file may have more values than one handle has credits for.
pub(super) fn release_values(fs: &Fs, inode: &Arc<Inode>) -> Result<()> {
    if !value_inode::is_used(fs) || !inode.has_xattrs() {
        return Ok(());
    }
    loop {
        let old = Attributes::read(fs, inode)?;
        if old.stored_values() == 0 {
            return Ok(());
        }
        let credits = XATTR_CREDITS + value_inode::credits(fs, RELEASED_AT_ONCE, 0);
        let handle = fs.journal.start(credits)?;
        let mut new = old.clone();
        // The values of a block that stays with other inodes keep their references.
        if leave_shared_block(fs, &handle, inode)? {
            new.block.clear();
            inode.add_sectors(sectors_of_values(fs, &new) - sectors_of_values(fs, &old));
        } else {
            new.remove_values(RELEASED_AT_ONCE);
            write(fs, &handle, inode, (&old, &new), None, room(fs, inode))?;
        }
        inode.mark_dirty(fs, &handle);
    }
}

/// Returns whether attributes in the inode have values in inodes, or cannot be read.
pub(super) fn may_have_values(inode: &Inode) -> bool {
    let Some(area) = inode.xattr_places().0 else {
        return false;
    };
    parse_ibody(&area).map_or(true, |entries| !references(&own(entries)).is_empty())
}

/// Returns the credits for the references to values that a change moves between the inode and the
/// block. None of them is a value's last one.
pub(super) fn moved_credits(fs: &Fs, inode: &Inode) -> Result<u32> {
    let values = references(&Attributes::read(fs, inode)?.block);
    let credits = value_inode::table_credits(fs, &values);
    if credits == 0 || is_shared_block(fs, inode)? {
        return Ok(credits);
    }
    // The block is dropped only if all its entries fit in the inode. A change in place keeps the
    // references.
    let fits = room(fs, inode).inode / space_for(b"", b"");
    Ok(credits.min(fits as u32))
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
            stored: None,
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
