//! Opening and closing files. Small files get into the kernel's page cache before the reply to
//! OPEN, so that a program reads them without a request: a READ, and the GETATTR after it because
//! the kernel assumes that the access time has changed.

use super::Server;
use super::contents::with_buffer;
use crate::nodes::{Storing, ino_of};
use ext4::{InodeRef, Result, WriteMode};
use fusedev::{CachedPages, Entry, NodeId};

/// The largest file that is stored, in bytes. A program that opens a file and does not read all of
/// it costs a copy of this size at most.
const SMALL: usize = 128 << 10;

impl Server {
    /// Opens a file with `flags` of open(2). Checks the inode's flags, as immutable and encrypted;
    /// the kernel has checked modes and ACLs.
    ///
    /// The kernel drops the cached pages of a file whose access time the next read changes. Else it
    /// would answer that read without a request.
    pub(super) fn open(&self, node: NodeId, flags: i32) -> Result<CachedPages> {
        let ino = ino_of(node)?;
        let inode = self.inode(node);
        if flags & libc::O_ACCMODE != libc::O_RDONLY {
            let mode = match flags & libc::O_APPEND {
                0 => WriteMode::Anywhere,
                _ => WriteMode::Append,
            };
            let inode = inode?;
            inode.check_may_open_for_writing(mode)?;
            self.nodes.open_for_writing(ino);
            return Ok(self.pages_after_open(&inode, flags));
        }
        if let Ok(inode) = &inode {
            inode.check_may_open_for_reading()?;
        }
        if let Some(storing) = self.nodes.open_for_reading(ino)
            && self.stores_contents
            && flags & libc::O_DIRECT == 0
            // The first READ returns the error.
            && let Ok(inode) = &inode
        {
            self.store(inode, node, storing);
        }
        Ok(inode.map_or(CachedPages::Kept, |inode| {
            self.pages_after_open(&inode, flags)
        }))
    }

    fn pages_after_open(&self, inode: &InodeRef, flags: i32) -> CachedPages {
        let reads = flags & libc::O_ACCMODE != libc::O_WRONLY && flags & libc::O_NOATIME == 0;
        if reads && self.fs.access_is_due(inode) {
            CachedPages::Dropped
        } else {
            CachedPages::Kept
        }
    }

    /// Stores the contents of a small file in the kernel's page cache. All of them: the kernel may
    /// have pages of several sizes, and takes a part of one for the whole.
    fn store(&self, inode: &InodeRef, node: NodeId, storing: Storing<'_>) {
        let size = inode.size();
        let Some(notifier) = self.notifier.get() else {
            return;
        };
        if !(1..=SMALL as u64).contains(&size) {
            return;
        }
        with_buffer(size as usize, |buffer| {
            if let Ok(n) = self.fs.read(inode, 0, buffer)
                && n == buffer.len()
            {
                self.coherence.note_cached(inode.ino());
                notifier.store(node, buffer);
                storing.stored();
            }
        });
    }

    /// Counts the open that is a part of a file's creation.
    pub(super) fn created(&self, entry: &Entry) {
        if let Ok(ino) = ino_of(entry.node) {
            self.nodes.open_for_writing(ino);
        }
    }

    /// The end of an open.
    pub(super) fn release(&self, node: NodeId) {
        if let Ok(ino) = ino_of(node) {
            self.nodes.release(ino);
        }
    }
}
