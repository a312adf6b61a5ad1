//! Reading directories.
//!
//! Entries are gathered first and answered afterwards, so that the directory is not locked while their inodes are loaded.
//! An inode is counted as looked up if its entry fitted into the reply, and only then.

use super::attr::{TTL, fuse_type, no_entry};
use super::{Server, node_of};
use ext4::{InodeRef, Result};
use fuser::{FileAttr, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// Bytes that an entry takes in a reply beside its name: `fuse_dirent`, and `fuse_entry_out` before it with attributes.
const DIRENT_SIZE: usize = 24;
const ENTRY_OUT_SIZE: usize = 128;
/// Entries gathered at a time.
const BATCH_BYTES: usize = 16 << 10;

struct Found {
    ino: u32,
    kind: fuser::FileType,
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
    /// Entries from `pos` on that take about [`BATCH_BYTES`] in a reply, `extra` bytes each beside the usual.
    fn gather(&self, dir: &InodeRef, pos: u64, extra: usize) -> Result<Batch> {
        let mut batch = Batch::default();
        let mut room = BATCH_BYTES;
        self.fs.read_dir(dir, pos, &mut |entry| {
            let size = (DIRENT_SIZE + entry.name.len()).next_multiple_of(8) + extra;
            batch.names.extend_from_slice(entry.name);
            batch.entries.push(Found {
                ino: entry.ino,
                kind: fuse_type(entry.kind),
                next: entry.next,
                name_end: batch.names.len(),
            });
            room = room.saturating_sub(size);
            batch.more = room == 0;
            room > 0
        })?;
        Ok(batch)
    }

    /// Calls `add` for the entries from `pos` on until it says that the reply is full, or there are no more.
    fn each_entry(
        &self,
        node: INodeNo,
        mut pos: u64,
        extra: usize,
        mut add: impl FnMut(&Found, &OsStr) -> bool,
    ) -> Result<()> {
        let dir = self.inode(node)?;
        let mut added = false;
        loop {
            let batch = match self.gather(&dir, pos, extra) {
                Ok(batch) => batch,
                // What is in the reply already is told first; the error comes with the next request.
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

    pub(super) fn readdir(
        &self,
        node: INodeNo,
        pos: u64,
        reply: &mut ReplyDirectory,
    ) -> Result<()> {
        self.each_entry(node, pos, 0, |entry, name| {
            reply.add(INodeNo(u64::from(entry.ino)), entry.next, entry.kind, name)
        })
    }

    pub(super) fn readdirplus(
        &self,
        node: INodeNo,
        pos: u64,
        reply: &mut ReplyDirectoryPlus,
    ) -> Result<()> {
        self.each_entry(node, pos, ENTRY_OUT_SIZE, |entry, name| {
            // The kernel takes no count from these two.
            if matches!(name.as_bytes(), b"." | b"..") {
                return add_bare(entry, name, reply);
            }
            let Ok(inode) = self.fs.inode(entry.ino) else {
                // A damaged inode: whoever looks it up gets the error.
                self.nodes.count(entry.ino);
                let full = add_bare(entry, name, reply);
                if full {
                    self.forget(node_of(entry.ino), 1);
                }
                return full;
            };
            let attr = self.count_lookup(&inode);
            let full = reply.add(
                INodeNo(u64::from(entry.ino)),
                entry.next,
                name,
                &TTL,
                &self.fuse_attr(&attr),
                Generation(u64::from(attr.generation)),
            );
            if full {
                self.forget(node_of(entry.ino), 1);
            }
            full
        })
    }
}

/// An entry of which only the type is told, and that not for long.
fn add_bare(entry: &Found, name: &OsStr, reply: &mut ReplyDirectoryPlus) -> bool {
    let ino = INodeNo(u64::from(entry.ino));
    let attr = FileAttr {
        ino,
        kind: entry.kind,
        ..no_entry()
    };
    reply.add(ino, entry.next, name, &Duration::ZERO, &attr, Generation(0))
}
