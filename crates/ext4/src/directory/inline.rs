//! Directories in their inode (`inline_data`).
//!
//! A directory begins here, and moves to a block when it is full. [`image`] shows its records as
//! those of a block: "." and "..", which the inode has not, then the records of both parts. A
//! change changes the image, and writes it back. Records do not cross from one part to the other.
//!
//! ```text
//!   init ─▶ 56 bytes in i_block ─▶ grows into the attribute, as far as there is room ─▶ a block
//! ```
//!
//! The block has the image's bytes, and readers use the positions that the block would give
//! ([`super::read()`]). So a reader continues at its position after the move.

use super::block::{BlockKind, Dir, entry_kind};
use super::plan::NewEntry;
use super::{At, Place, Slot};
use crate::alloc::BlockRun;
use crate::inline_data::{self, Places};
use crate::{Error, Fs, Inode, InodeDamage, Result};
use ext4_format::dir_entry;
use ext4_format::error::FormatError;
use ext4_format::inline_data as format;
use ext4_format::inode::FileType;
use jbd2::Handle;
use std::sync::Arc;
use units::Ino;

/// Credits that [`move_to_block`] may use: the block, a bitmap, a descriptor block and the inode,
/// and the bitmap and the descriptor block again if it fails.
pub(super) const MOVE_CREDITS: u32 = 8;

/// Returns the records as those of a block, each checked.
pub(super) fn image(fs: &Fs, inode: &Inode) -> Result<Vec<u8>> {
    inode.check_not_encrypted()?;
    let Places { i_block, attribute } = inline_data::places(fs, inode)?;
    let kind = entry_kind(fs, FileType::Directory);
    let image = format::image(inode.ino, &i_block, &attribute, kind);
    for part in format::parts(&image) {
        let mut end = part.start as u32;
        let records = image.get(part.clone()).unwrap_or_default();
        for record in dir_entry::records(records, fs.geo.inodes_count) {
            let record = record.map_err(|_| damage(fs, inode, end))?;
            end = part.start as u32 + record.offset + record.rec_len;
        }
    }
    Ok(image)
}

/// The error for a record at byte `at` of the image.
fn damage(fs: &Fs, inode: &Inode, at: u32) -> Error {
    let offset = at.saturating_sub(format::DOTS);
    let error = InodeDamage::InlineRecord { offset }.of(inode.ino);
    fs.blame("directory_inline", inode.ino, error)
}

/// Finds a name; it can be "..".
pub(super) fn find(fs: &Fs, inode: &Inode, name: &[u8]) -> Result<Place> {
    let image = image(fs, inode)?;
    let probed = dir_entry::probe(&image, name, fs.geo.inodes_count);
    Ok(Place {
        at: At::Inode,
        slot: probed.map_err(|_| damage(fs, inode, 0))?.into(),
        dentry: None,
    })
}

/// Returns whether the directory has no entry except "." and "..".
pub(super) fn is_empty(fs: &Fs, inode: &Inode) -> Result<bool> {
    let image = image(fs, inode)?;
    dir_entry::is_empty(&image, fs.geo.inodes_count).map_err(|_| damage(fs, inode, 0))
}

/// Makes a new directory one in its inode. Returns `false`, with nothing changed, if its other
/// attributes leave no room.
pub(super) fn init(fs: &Fs, handle: &Handle<'_>, inode: &Arc<Inode>, parent: Ino) -> Result<bool> {
    if inline_data::capacity(fs, inode)?.is_none() {
        return Ok(false);
    }
    let i_block = format::empty_directory(parent);
    inline_data::store(fs, inode, (i_block, b""), format::IN_I_BLOCK as u64)?;
    inode.mark_dirty(fs, handle);
    Ok(true)
}

/// Changes the image.
pub(super) fn change(
    fs: &Fs,
    handle: &Handle<'_>,
    inode: &Arc<Inode>,
    change: impl FnOnce(&mut [u8]) -> Result<(), FormatError>,
) -> Result<()> {
    let mut image = image(fs, inode)?;
    change(&mut image).map_err(|_| damage(fs, inode, 0))?;
    store(fs, handle, inode, &image)
}

fn store(fs: &Fs, handle: &Handle<'_>, inode: &Arc<Inode>, image: &[u8]) -> Result<()> {
    let (i_block, attribute) = format::places(image).ok_or_else(|| damage(fs, inode, 0))?;
    let size = (format::IN_I_BLOCK + attribute.len()) as u64;
    inline_data::store(fs, inode, (i_block, attribute), size)?;
    inode.mark_dirty(fs, handle);
    Ok(())
}

/// Removes the entry at `offset`.
pub(super) fn remove(fs: &Fs, handle: &Handle<'_>, inode: &Arc<Inode>, offset: u32) -> Result<()> {
    change(fs, handle, inode, |image| {
        // Of one part only: the record before takes over the space.
        let part = format::part(image, offset);
        let start = part.start as u32;
        dir_entry::remove(image.get_mut(part).unwrap_or_default(), offset - start)
    })
}

/// Adds an entry at the slot that [`find`] returned. Returns `false`, with nothing changed, if
/// there is no room for it.
///
/// # Errors
/// `Exists` if the name exists.
pub(super) fn add(
    fs: &Fs,
    handle: &Handle<'_>,
    inode: &Arc<Inode>,
    slot: Slot,
    entry: &NewEntry<'_>,
) -> Result<bool> {
    let mut image = image(fs, inode)?;
    match slot {
        Slot::Entry { .. } => return Err(Error::Exists),
        Slot::Room { offset } => {
            let put = dir_entry::insert_at(&mut image, offset, entry.name, entry.ino, entry.kind);
            put.map_err(|_| damage(fs, inode, offset))?;
        }
        Slot::Full { .. } => {
            let room = inline_data::capacity(fs, inode)?.unwrap_or(0);
            let len = room.saturating_sub(format::IN_I_BLOCK);
            if format::grow(&mut image, len).is_none() {
                return Ok(false);
            }
            let at = format::part(&image, image.len() as u32);
            let records = image.get_mut(at).unwrap_or_default();
            let put = dir_entry::insert(records, entry.name, entry.ino, entry.kind);
            if put.map_err(|_| damage(fs, inode, 0))?.is_none() {
                return Ok(false);
            }
        }
    }
    store(fs, handle, inode, &image)?;
    Ok(true)
}

/// Moves the entries to a block. An error has changed nothing.
pub(super) fn move_to_block(fs: &Fs, handle: &Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
    let image = image(fs, inode)?;
    let view = Dir::open_new(fs, inode);
    let mut bytes = vec![0; view.block_size()];
    format::to_block(&image, &mut bytes, view.tail()).ok_or_else(|| damage(fs, inode, 0))?;
    let start = fs
        .groups
        .alloc_metadata_block(handle, fs.groups.goal_for(inode.ino))?;
    // Before the inode refers to it: ".." is read without the directory's lock.
    let buffer = handle.create(start);
    view.overwrite(handle, &buffer, BlockKind::Leaf, &bytes);
    drop(buffer);
    if let Err(error) = inline_data::move_out(fs, handle, inode, Some(start)) {
        handle.forget(start);
        fs.groups.free(handle, BlockRun { start, len: 1 })?;
        return Err(error);
    }
    Ok(())
}
