//! Reading directories.
//!
//! Entries are collected in batches, so that the directory is not locked while their inodes are
//! loaded. A lookup is counted only for an entry that fits into the reply.

use super::Server;
use super::attr::no_entry;
use ext4::{InodeRef, Result};
use fusedev::{Attr, DirEntries, Entry, NodeId};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use units::Ino;

/// Bytes of an entry in a reply, without its name: `fuse_dirent`, and with attributes also
/// `fuse_entry_out`.
const DIRENT_SIZE: usize = 24;
const ENTRY_OUT_SIZE: usize = 128;
/// Size of a batch, measured in the reply.
const BATCH_BYTES: usize = 16 << 10;

struct Found {
    ino: Ino,
    /// The file type bits of a mode.
    mode: u32,
    next: u64,
    /// End of the name in [`Batch::names`]. It begins at the end of the name before.
    name_end: usize,
}

/// Some entries of a directory.
#[derive(Default)]
struct Batch {
    entries: Vec<Found>,
    names: Vec<u8>,
    /// The directory may have more entries.
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
    /// Collects about [`BATCH_BYTES`] of entries from `pos` on. Each takes `extra` bytes in the
    /// reply besides its `fuse_dirent`.
    fn collect(&self, dir: &InodeRef, pos: u64, extra: usize) -> Result<Batch> {
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

    /// Calls `read_ahead` for each batch, and `add` for the entries from `pos` on, until it returns
    /// true (the reply is full) or there are no more.
    fn each_entry(
        &self,
        node: NodeId,
        mut pos: u64,
        extra: usize,
        read_ahead: impl Fn(&Batch),
        mut add: impl FnMut(&Found, &OsStr) -> bool,
    ) -> Result<()> {
        let dir = self.inode(node)?;
        if self.notes_listings {
            self.fs.note_access(&dir);
        }
        let mut added = false;
        loop {
            let batch = match self.collect(&dir, pos, extra) {
                Ok(batch) => batch,
                // The reply has the entries so far; the next request returns the error.
                Err(_) if added => return Ok(()),
                Err(error) => return Err(error),
            };
            read_ahead(&batch);
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
        self.each_entry(
            node,
            pos,
            0,
            |_| {},
            |found, name| entries.add(u64::from(found.ino), found.next, found.mode, name),
        )?;
        Ok(entries)
    }

    pub(super) fn readdirplus(&self, node: NodeId, pos: u64, size: u32) -> Result<DirEntries> {
        let mut entries = DirEntries::new(size);
        let inodes = |batch: &Batch| {
            let inos = batch.entries.iter().map(|found| found.ino);
            self.fs.read_inodes_ahead(inos);
        };
        self.each_entry(node, pos, ENTRY_OUT_SIZE, inodes, |found, name| {
            // The kernel counts no lookups of these two.
            if matches!(name.as_bytes(), b"." | b"..") {
                return entries.add_plus(&bare(found), found.next, name);
            }
            let Ok(inode) = self.fs.inode(found.ino) else {
                // A damaged inode: its lookup returns the error.
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

/// An entry without attributes. It has no node, so the kernel uses only the number and type, and
/// counts no lookup.
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
