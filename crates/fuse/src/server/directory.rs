//! Reading directories.
//!
//! Entries are gathered first and answered afterwards, so that the directory is not locked while
//! their inodes are loaded. An inode is counted as looked up if its entry fitted into the reply,
//! and only then.

use super::Server;
use super::attr::no_entry;
use ext4::{InodeRef, Result};
use fusedev::{Attr, DirEntries, Entry, NodeId};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Bytes that an entry takes in a reply beside its name: `fuse_dirent`, and `fuse_entry_out` before
/// it with attributes.
const DIRENT_SIZE: usize = 24;
const ENTRY_OUT_SIZE: usize = 128;
/// Entries gathered at a time.
const BATCH_BYTES: usize = 16 << 10;

struct Found {
    ino: u32,
    /// Its type, as a mode has it.
    mode: u32,
    next: u64,
    /// Where its name ends in [`Batch::names`]; it begins where the one before ends.
    name_end: usize,
}

/// Some entries of a directory.
#[derive(Default)]
struct Batch {
    entries: Vec<Found>,
    names: Vec<u8>,
    /// The directory may have more.
    more: bool,
}

impl Batch {
    fn iter(&self) -> impl Iterator<Item = (&Found, &OsStr)> {
        let mut begin = 0;
        self.entries.iter().map(move |entry| {
            let name = OsStr::from_bytes(&self.names[begin..entry.name_end]);
            begin = entry.name_end;
            (entry, name)
        })
    }
}

impl Server {
    /// Entries from `pos` on that take about [`BATCH_BYTES`] in a reply, `extra` bytes each beside
    /// the usual.
    fn gather(&self, dir: &InodeRef, pos: u64, extra: usize) -> Result<Batch> {
        let mut batch = Batch::default();
        let mut room = BATCH_BYTES;
        self.fs.read_dir(dir, pos, &mut |entry| {
            let size = (DIRENT_SIZE + entry.name.len()).next_multiple_of(8) + extra;
            batch.names.extend_from_slice(entry.name);
            batch.entries.push(Found {
                ino: entry.ino,
                mode: u32::from(entry.kind.mode_bits()),
                next: entry.next,
                name_end: batch.names.len(),
            });
            room = room.saturating_sub(size);
            batch.more = room == 0;
            room > 0
        })?;
        Ok(batch)
    }

    /// Calls `add` for the entries from `pos` on until it says that the reply is full, or there are
    /// no more.
    fn each_entry(
        &self,
        node: NodeId,
        mut pos: u64,
        extra: usize,
        mut add: impl FnMut(&Found, &OsStr) -> bool,
    ) -> Result<()> {
        let dir = self.inode(node)?;
        let mut added = false;
        loop {
            let batch = match self.gather(&dir, pos, extra) {
                Ok(batch) => batch,
                // What is in the reply already is told first; the error comes with the next
                // request.
                Err(_) if added => return Ok(()),
                Err(error) => return Err(error),
            };
            for (entry, name) in batch.iter() {
                if add(entry, name) {
                    return Ok(());
                }
                pos = entry.next;
                added = true;
            }
            if !batch.more {
                return Ok(());
            }
        }
    }

    pub(super) fn readdir(&self, node: NodeId, pos: u64, size: u32) -> Result<DirEntries> {
        let mut entries = DirEntries::new(size);
        self.each_entry(node, pos, 0, |found, name| {
            entries.add(u64::from(found.ino), found.next, found.mode, name)
        })?;
        Ok(entries)
    }

    pub(super) fn readdirplus(&self, node: NodeId, pos: u64, size: u32) -> Result<DirEntries> {
        let mut entries = DirEntries::new(size);
        self.each_entry(node, pos, ENTRY_OUT_SIZE, |found, name| {
            // The kernel takes no count from these two.
            if matches!(name.as_bytes(), b"." | b"..") {
                return entries.add_plus(&bare(found), found.next, name);
            }
            let Ok(inode) = self.fs.inode(found.ino) else {
                // A damaged inode: whoever looks it up gets the error.
                return entries.add_plus(&bare(found), found.next, name);
            };
            let entry = self.entry(&inode);
            let full = entries.add_plus(&entry, found.next, name);
            if full {
                self.forget(entry.node, 1);
            }
            full
        })?;
        Ok(entries)
    }
}

/// An entry without attributes: without a node, the kernel takes its number and type, and does not
/// count it.
fn bare(found: &Found) -> Entry {
    Entry {
        attr: Attr {
            ino: u64::from(found.ino),
            mode: found.mode,
            ..Attr::default()
        },
        ..no_entry()
    }
}
