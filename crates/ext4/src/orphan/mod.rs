//! Inodes to be deleted (or truncated) after a crash: the orphan file where the volume has one,
//! otherwise the list that begins in the super block.
//!
//! ```text
//! orphan file (a slot each; one block per thread, so that threads do not meet)      list, where there is no file or it is full
//!
//!  block 0 [ 14 ·  · 17 ·  · ]   ob_magic, checksum                                s_last_orphan ─▶ 31
//!  block 1 [  · ·  ·  · ·  · ]                                                          31.i_dtime ─▶ 29
//!  block 2 [ 20 21 ·  · ·  · ]                                                          29.i_dtime ─▶ 0
//! ```
//!
//! An inode's place is in its `meta.orphan`. Whoever calls [`add`] and [`del`] sees to it that they
//! do not run at once for one inode (it holds the inode's lock, or is its last user). Locks:
//! `OrphanState`'s come before `Inode::meta` and `Fs::superblock`, and are never held during I/O.

mod file;
mod list;
mod recover;

pub(crate) use recover::recover;

use crate::state::OrphanPlace;
use crate::{Fs, Inode, Result};
use jbd2::Handle;
use std::sync::Arc;
use sync::atomic::Ordering;

/// Credits of [`add`] and [`del`]: a block of the orphan file or the super block, the inode, and a
/// neighbour on the list.
pub(crate) const ORPHAN_CREDITS: u32 = 4;

/// Records an inode as an orphan (its link count went to 0, or a truncate begins). Does nothing if
/// it is one.
pub(crate) fn add(fs: &Fs, handle: &Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
    if inode.orphan_place().is_some() {
        return Ok(());
    }
    let state = &fs.orphan_state;
    let place = match state.file.get() {
        Some(file) => file.add(fs, handle, inode.ino)?,
        None => None,
    };
    match place {
        Some(place) => inode.set_orphan_place(Some(place)),
        None => list::add(fs, handle, inode),
    }
    state.count.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Takes the record back. Does nothing if there is none.
pub(crate) fn del(fs: &Fs, handle: &Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
    let state = &fs.orphan_state;
    let place = inode.orphan_place();
    match (place, state.file.get()) {
        (None, _) => return Ok(()),
        (Some(OrphanPlace::List), _) => list::del(fs, handle, inode),
        (Some(OrphanPlace::File { block, slot }), Some(file)) => {
            file.del(fs, handle, block, slot)?;
            inode.set_orphan_place(None);
        }
        // Places in a file are given out by the file.
        (Some(OrphanPlace::File { .. }), None) => {}
    }
    state.count.fetch_sub(1, Ordering::Relaxed);
    Ok(())
}

/// Whether any orphan is recorded.
pub(crate) fn any(fs: &Fs) -> bool {
    fs.orphan_state.count.load(Ordering::Relaxed) > 0
}
