//! Orphans: inodes to be deleted or truncated after a crash. They are recorded in the orphan file
//! if the volume has one, otherwise in the list that starts in the super block. A mount recovers
//! them (`volume::orphans`).
//!
//! ```text
//! orphan file: a slot per inode; threads start at different blocks      list: without a file, or if it is full
//!
//!  block 0 [ 14 ·  · 17 ·  · ]   ob_magic, checksum                     s_last_orphan ─▶ 31
//!  block 1 [  · ·  ·  · ·  · ]                                               31.i_dtime ─▶ 29
//!  block 2 [ 20 21 ·  · ·  · ]                                               29.i_dtime ─▶ 0
//! ```
//!
//! An inode's place is in its `meta.orphan`. Calls of [`add`] and [`del`] for one inode must not
//! run concurrently: the caller holds the inode's lock or is its last user. The locks of
//! `OrphanState` come before `Inode::meta` and `Fs::superblock`. They are never held during I/O.

mod file;
mod list;

use crate::state::OrphanPlace;
use crate::{Fs, Inode, Result};
use jbd2::Handle;
use std::sync::Arc;
use sync::atomic::Ordering;

/// Credits for [`add`] and [`del`] of one inode: a block of the orphan file or the super block, the
/// inode, and a neighbour on the list.
pub(crate) const ORPHAN_CREDITS: u32 = 4;

/// Records an inode as an orphan: its link count became 0, or a truncation starts. It has no effect
/// on an orphan. It cannot fail, as callers have often changed the inode by then: the list takes
/// the inode if the orphan file is full or cannot be read.
pub(crate) fn add(fs: &Fs, handle: &Handle<'_>, inode: &Arc<Inode>) {
    if inode.orphan_place().is_some() {
        return;
    }
    let state = &fs.orphan_state;
    let place = state.file.get().and_then(|file| {
        let place = file.add(fs, handle, inode.ino);
        place.unwrap_or_else(|error| {
            tracing::warn!("orphan file: {error}; inode {} is on the list", inode.ino);
            None
        })
    });
    match place {
        Some(place) => inode.set_orphan_place(Some(place)),
        None => list::add(fs, handle, inode),
    }
    state.count.fetch_add(1, Ordering::Relaxed);
}

/// Removes the record of an orphan. It has no effect on another inode.
pub(crate) fn del(fs: &Fs, handle: &Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
    let state = &fs.orphan_state;
    let place = inode.orphan_place();
    match (place, state.file.get()) {
        (None, _) => return Ok(()),
        (Some(OrphanPlace::List), _) => list::del(fs, handle, inode),
        (Some(OrphanPlace::File { block, slot }), Some(file)) => {
            file.del(handle, block, slot)?;
            inode.set_orphan_place(None);
        }
        // Not reached: only the orphan file assigns such places.
        (Some(OrphanPlace::File { .. }), None) => {}
    }
    state.count.fetch_sub(1, Ordering::Relaxed);
    Ok(())
}

/// Returns whether any orphan is recorded.
pub(crate) fn any(fs: &Fs) -> bool {
    fs.orphan_state.count.load(Ordering::Relaxed) > 0
}
