//! Directories in their inode (`inline_data`): look-ups and reading.
//!
//! The records are in two parts, neither of which has "." or "..". The position of an entry is 2
//! plus the byte after its record, counted over both parts.

use crate::inline_data::{self, Places};
use crate::{Fs, Inode, InodeDamage, Result};
use ext4_format::dir_entry::{self, DirEntryRef};
use ext4_format::inode::FileType;
use units::Ino;

/// The position of the first entry other than "." and "..".
const FIRST: u64 = 2;

/// An entry, copied.
pub(super) struct Entry {
    pub ino: Ino,
    pub kind: Option<FileType>,
    pub name: Vec<u8>,
    /// The position after it.
    pub next: u64,
}

/// Returns the parent of a directory.
pub(super) fn parent(inode: &Inode) -> Ino {
    ext4_format::inline_data::parent(&inode.i_block.read())
}

/// Looks up a name other than "." and "..".
pub(super) fn lookup(
    fs: &Fs,
    inode: &Inode,
    name: &[u8],
) -> Result<Option<(Ino, Option<FileType>)>> {
    let mut found = None;
    each(fs, inode, &mut |entry, _| {
        if entry.name == name {
            found = Some((entry.ino, entry.file_type));
        }
    })?;
    Ok(found)
}

/// Returns the entries from a position on.
pub(super) fn read(fs: &Fs, inode: &Inode, pos: u64) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    each(fs, inode, &mut |entry, base| {
        let next = FIRST + base + u64::from(entry.offset + entry.rec_len);
        if next > pos.max(FIRST) {
            entries.push(Entry {
                ino: entry.ino,
                kind: entry.file_type,
                name: entry.name.to_vec(),
                next,
            });
        }
    })?;
    Ok(entries)
}

/// Calls `visit` with each entry, and with the bytes before its part.
fn each(fs: &Fs, inode: &Inode, visit: &mut dyn FnMut(&DirEntryRef<'_>, u64)) -> Result<()> {
    let Places { i_block, attribute } = inline_data::places(fs, inode)?;
    let mut base = 0;
    for part in [ext4_format::inline_data::records(&i_block), &attribute] {
        let mut end = 0;
        for entry in dir_entry::entries(part, fs.geo.inodes_count) {
            let entry = entry.map_err(|_| {
                let offset = base as u32 + end;
                let error = InodeDamage::InlineRecord { offset }.of(inode.ino);
                fs.blame("directory_inline", inode.ino, error)
            })?;
            end = entry.offset + entry.rec_len;
            visit(&entry, base);
        }
        base += part.len() as u64;
    }
    Ok(())
}
