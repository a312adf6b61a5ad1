//! Values of attributes in inodes of their own (`ea_inode`; the format is in
//! [`ext4_format::xattr`]).
//!
//! No directory names such an inode. Its link count is 1 while it has references, so the first
//! reference is made with it, and with the last one it becomes an orphan, which is deleted when its
//! last user is gone.
//!
//! ```text
//!            create               get            put            put of the last one
//!   no inode ──────▶ 1 reference ◀───▶ more ... ─────▶ fewer ... ──────────────────▶ orphan, deleted
//! ```
//!
//! Inodes with equal values may share an inode, as those of the kernel do. This module makes a new
//! inode for each value. References are counted under the lock of the inode's fields, so threads
//! with different owners need no other lock. The blocks are metadata of the journal: they are
//! logged, and freed with revoke records.
//!
//! Inodes of Lustre have the number of their one owner in the place of the time of change, and no
//! count.

use crate::extents::{self, ExtentState, INSERT_CREDITS, Map};
use crate::orphan::{self, ORPHAN_CREDITS};
use crate::state::Links;
use crate::{Error, Fs, Inode, InodeDamage, InodeRef, Result};
use ext4_format::features::IncompatFeatures;
use ext4_format::inode::{FileType, InodeFlags, InodeMode, Timestamp};
use ext4_format::xattr::{
    StoredValue, ValueInode, set_value_inode_refs, value_hash, value_inode_refs,
};
use jbd2::Handle;
use std::collections::HashSet;
use units::{FileBlock, FsBlock};

/// The largest value that any writer makes, in bytes.
pub(super) const VALUE_MAX: u32 = 64 << 10;
/// Credits to make an inode, apart from its blocks: the inode, its bitmap and descriptor block, and
/// those to make it an orphan if its blocks cannot be had.
const CREATE_CREDITS: u32 = 4 + ORPHAN_CREDITS;
/// Credits to change one count: the inode, and those to make it an orphan.
const COUNT_CREDITS: u32 = 1 + ORPHAN_CREDITS;

/// Returns whether values may be in inodes of their own on this volume.
pub(super) fn is_used(fs: &Fs) -> bool {
    fs.geo.incompat.contains(IncompatFeatures::EA_INODE)
}

/// Returns the credits for a change of attributes that counts `references`, and that may make an
/// inode for a value of `len` bytes.
pub(super) fn credits(fs: &Fs, references: usize, len: usize) -> u32 {
    if !is_used(fs) {
        return 0;
    }
    let counts = (references as u32).saturating_mul(COUNT_CREDITS);
    let blocks = len.div_ceil(fs.geo.block_size as usize) as u32;
    let create = match blocks {
        0 => 0,
        // Runs of adjacent blocks need a bitmap and a descriptor block each.
        _ => CREATE_CREDITS + INSERT_CREDITS + blocks + 2 * blocks.min(8),
    };
    counts.saturating_add(create)
}

/// Returns the credits to count references that are never the last ones: the inodes' blocks of the
/// inode table.
pub(super) fn table_credits(fs: &Fs, places: &[ValueInode]) -> u32 {
    let location = |place: &ValueInode| fs.groups.inode_location(place.ino).ok();
    let blocks: HashSet<FsBlock> = places
        .iter()
        .filter_map(location)
        .map(|(block, _)| block)
        .collect();
    blocks.len() as u32
}

/// Loads the inode of a value of `owner`.
pub(super) fn load(fs: &Fs, owner: &Inode, place: ValueInode) -> Result<InodeRef> {
    let damage = || InodeDamage::XattrValue { value: place.ino }.of(owner.ino);
    let is_possible = place.ino >= fs.geo.first_ino && place.ino != owner.ino;
    if !is_used(fs) || !is_possible || place.size > VALUE_MAX {
        return Err(damage());
    }
    let inode = match fs.load_inode(place.ino, Links::Required) {
        Err(Error::Stale) => return Err(damage()),
        loaded => loaded?,
    };
    let (flags, size) = inode.fields(|f| (f.flags, f.size));
    if inode.kind() != FileType::Regular
        || !flags.contains(InodeFlags::EA_INODE)
        || size != u64::from(place.size)
    {
        return Err(damage());
    }
    Ok(inode)
}

/// Loads values of `owner` whose references are dropped. A value that cannot be loaded is recorded
/// as damage and left out, so its attribute can be removed, and `owner` can be deleted.
pub(super) fn load_lost(fs: &Fs, owner: &Inode, places: &[ValueInode]) -> Vec<InodeRef> {
    let load = |place: &ValueInode| {
        let loaded = load(fs, owner, *place);
        loaded.inspect_err(|error| fs.blame_half_done("drop_attribute_value", owner.ino, error))
    };
    places.iter().filter_map(|place| load(place).ok()).collect()
}

/// Reads the value of an attribute of `owner`.
pub(super) fn read(fs: &Fs, owner: &Inode, place: ValueInode) -> Result<Vec<u8>> {
    let damage = || InodeDamage::XattrValue { value: place.ino }.of(owner.ino);
    let inode = load(fs, owner, place)?;
    let hash = inode.fields(|f| f.atime.secs as u32);
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
    if value_hash(fs.geo.value_seed, &value) != hash && !is_of_lustre(&inode, owner) {
        return Err(damage());
    }
    Ok(value)
}

/// Whether an inode has its owner in the place of a time, and no count.
fn is_of_lustre(inode: &Inode, owner: &Inode) -> bool {
    let generation = owner.fields(|f| f.generation);
    inode.fields(|f| f.mtime.secs == i64::from(owner.ino.0) && f.generation == generation)
}

/// Makes an inode for a value that an attribute `name` of `owner` is to have, with one reference.
/// An error has changed nothing, or has left an orphan for [`Fs::delete_unlinked`].
pub(super) fn create(
    fs: &Fs,
    handle: &Handle<'_>,
    owner: &Inode,
    name: &[u8],
    value: &[u8],
) -> Result<(InodeRef, StoredValue)> {
    // Callers that do not know of the value have not asked for its credits.
    let needed = credits(fs, 1, value.len());
    if handle.credits() < needed && !handle.extend(needed) {
        return Err(Error::NoSpace);
    }
    let (uid, gid) = owner.fields(|f| (f.uid, f.gid));
    let kind = FileType::Regular;
    let ino = fs.groups.alloc_inode(handle, owner.ino, kind)?;
    if fs.inodes.get(ino).is_some() {
        // The inode is in use, so its bit in the bitmap stays set.
        return Err(InodeDamage::FreeInBitmap.of(ino));
    }
    let mode = InodeMode::new(kind, 0o600);
    let flags = InodeFlags::EA_INODE;
    let inode = match fs.new_inode(handle, ino, mode.0, uid, gid, flags) {
        Ok(inode) => inode,
        Err(error) => {
            fs.groups.free_inode(handle, ino, kind)?;
            return Err(error);
        }
    };
    let hash = value_hash(fs.geo.value_seed, value);
    inode.change_fields(|f| {
        f.atime = Timestamp {
            secs: i64::from(hash),
            nanos: 0,
        };
        set_value_inode_refs(f, 1);
    });
    inode.set_metadata_size(value.len() as u64);
    inode.mark_dirty(fs, handle);
    if let Err(error) = write(fs, handle, &inode, value) {
        put(fs, handle, &inode, owner);
        return Err(error);
    }
    let size = value.len() as u32;
    Ok((
        inode,
        StoredValue::new(ValueInode { ino, size }, name, hash),
    ))
}

/// Writes the blocks of a new value.
fn write(fs: &Fs, handle: &Handle<'_>, inode: &InodeRef, value: &[u8]) -> Result<()> {
    let mut goal = fs.groups.goal_for(inode.ino);
    for (at, part) in (0..).zip(value.chunks(fs.geo.block_size as usize)) {
        // The credits are enough for blocks that are adjacent, or nearly so.
        if handle.credits() < INSERT_CREDITS + ORPHAN_CREDITS + 3 && !handle.extend(INSERT_CREDITS)
        {
            return Err(Error::NoSpace);
        }
        let start = extents::add_metadata_block(fs, handle, inode, FileBlock(at), goal)?;
        let buffer = handle.create(start);
        handle.modify(&buffer, None, |block| {
            block[..part.len()].copy_from_slice(part);
        });
        goal = start + 1u64;
    }
    Ok(())
}

/// Adds a reference.
///
/// # Errors
/// `CorruptInode` if the inode has none: it is being deleted.
pub(super) fn get(fs: &Fs, handle: &Handle<'_>, inode: &InodeRef, owner: &Inode) -> Result<()> {
    let is_counted = inode.change_fields(|f| {
        let refs = value_inode_refs(f);
        let is_counted = f.links_count > 0 && refs > 0;
        if is_counted {
            set_value_inode_refs(f, refs.saturating_add(1));
        }
        is_counted
    });
    if !is_counted {
        return Err(InodeDamage::XattrValue { value: inode.ino }.of(owner.ino));
    }
    inode.mark_dirty(fs, handle);
    Ok(())
}

/// Drops a reference. With the last one the inode becomes an orphan, which [`Fs::delete_unlinked`]
/// deletes.
pub(super) fn put(fs: &Fs, handle: &Handle<'_>, inode: &InodeRef, owner: &Inode) {
    let has_one_owner = is_of_lustre(inode, owner);
    let is_last = inode.change_fields(|f| {
        let refs = match has_one_owner {
            true => 0,
            false => value_inode_refs(f).saturating_sub(1),
        };
        set_value_inode_refs(f, refs);
        refs == 0 && f.links_count > 0
    });
    if is_last {
        inode.set_links(0);
        orphan::add(fs, handle, inode);
    }
    inode.mark_dirty(fs, handle);
}
