//! Entries of directories, linear and hashed (htree).
//!
//! The caller holds the directory's `lock`: shared for look-ups and reading, exclusive for changes.

use crate::{Fs, Inode, Result};
use ext4_format::inode::FileType;
use ext4_format::types::Ino;
use jbd2::Handle;
use std::sync::Arc;

/// An entry met by reading a directory.
#[derive(Clone, Copy, Debug)]
pub struct DirEntry<'a> {
    /// Inode number.
    pub ino: u32,
    /// Type, where the volume records it.
    pub kind: FileType,
    /// Name, without a slash or NUL, 1 to 255 bytes.
    pub name: &'a [u8],
    /// Where reading continues after this entry.
    pub next: u64,
}

/// Credits that [`add`] may use (a split of every level).
pub(crate) const ADD_CREDITS: u32 = 40;
/// Credits that [`remove`] and [`replace`] may use.
pub(crate) const REMOVE_CREDITS: u32 = 4;

/// Looks a name up.
pub(crate) fn lookup(fs: &Fs, dir: &Inode, name: &[u8]) -> Result<Option<(Ino, FileType)>> {
    let _ = (fs, dir, name);
    todo!()
}
/// Adds an entry; the caller knows that the name is not there.
pub(crate) fn add(
    fs: &Fs,
    handle: &Handle<'_>,
    dir: &Arc<Inode>,
    name: &[u8],
    ino: Ino,
    kind: FileType,
) -> Result<()> {
    let _ = (fs, handle, dir, name, ino, kind);
    todo!()
}
/// Removes an entry; `Err(NotFound)` if it is not there.
pub(crate) fn remove(fs: &Fs, handle: &Handle<'_>, dir: &Arc<Inode>, name: &[u8]) -> Result<()> {
    let _ = (fs, handle, dir, name);
    todo!()
}
/// Lets an existing entry (or "..") name another inode.
pub(crate) fn replace(
    fs: &Fs,
    handle: &Handle<'_>,
    dir: &Arc<Inode>,
    name: &[u8],
    ino: Ino,
    kind: FileType,
) -> Result<()> {
    let _ = (fs, handle, dir, name, ino, kind);
    todo!()
}
/// Writes the first block of a new directory ("." and "..").
pub(crate) fn init(fs: &Fs, handle: &Handle<'_>, dir: &Arc<Inode>, parent: Ino) -> Result<()> {
    let _ = (fs, handle, dir, parent);
    todo!()
}
/// Whether only "." and ".." are there.
pub(crate) fn is_empty(fs: &Fs, dir: &Inode) -> Result<bool> {
    let _ = (fs, dir);
    todo!()
}
/// Calls `each` with the entries from position `pos` (0 at the start; otherwise a `next` of an earlier call) until it
/// returns false. Positions stay valid while entries come and go (hash order in hashed directories).
pub(crate) fn read(
    fs: &Fs,
    dir: &Inode,
    pos: u64,
    each: &mut dyn FnMut(DirEntry<'_>) -> bool,
) -> Result<()> {
    let _ = (fs, dir, pos, each);
    todo!()
}
