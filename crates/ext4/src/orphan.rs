//! Inodes to be deleted (or truncated) after a crash: the orphan file where the volume has one, otherwise the list
//! that begins in the super block.

use crate::{Fs, Inode, Result};
use jbd2::Handle;
use std::sync::Arc;

/// Where an orphan is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrphanPlace {
    /// On the linked list of the super block.
    List,
    /// In a slot of the orphan file.
    File {
        /// Block of the orphan file.
        block: u32,
        /// Slot in it.
        slot: u32,
    },
}
/// Credits of [`add`] and [`del`].
pub(crate) const ORPHAN_CREDITS: u32 = 4;
/// Records an inode as an orphan (its link count went to 0, or a truncate begins). Does nothing if it is one.
pub(crate) fn add(fs: &Fs, handle: &Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
    let _ = (fs, handle, inode);
    todo!()
}
/// Takes the record back. Does nothing if there is none.
pub(crate) fn del(fs: &Fs, handle: &Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
    let _ = (fs, handle, inode);
    todo!()
}

/// What is remembered of the orphan list or file.
#[derive(Default)]
pub(crate) struct OrphanState {}
/// Whether any orphan is recorded.
pub(crate) fn any(fs: &Fs) -> bool {
    let _ = fs;
    todo!()
}
/// Deletes or truncates what a crash left; see [`crate::OrphanReport`].
pub(crate) fn recover(fs: &Fs) -> Result<crate::OrphanReport> {
    let _ = fs;
    todo!()
}
