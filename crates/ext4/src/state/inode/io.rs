//! The part of an inode that only I/O needs. It is made at the first I/O, and dropped when the
//! inode has no user and none of its pages is dirty or in flight: most cached inodes have none.
//!
//! ```text
//!            make                     last unpin, or the last batch is finished; nothing in use
//!   absent ───────▶ present ─────────────────────────────────────────────────────────────▶ absent
//! ```
//!
//! A user takes a reference under the lock of [`IoSlot`], and keeps it while it holds a lock of
//! [`FileIo`] or waits. [`FileData::drop_idle_io`] drops a `FileIo` only if no user has one. So all
//! threads that exclude one another by such a lock have the same `FileIo`.

use super::FileData;
use super::batch::Batch;
use super::node_promise::Promised;
use super::readahead::Readahead;
use smallvec::SmallVec;
use std::sync::Arc;
use sync::atomic::Ordering;
use sync::{Mutex, Rank};
use units::{FileBlock, FsBlock, PageIndex};

/// Batches that may have pages of a file.
pub(crate) type Batches = SmallVec<[Arc<Batch>; 2]>;

/// State of reading and writing a file.
pub(crate) struct FileIo {
    /// Held while pages are gathered and blocks are picked for writeback. Contains the page after
    /// the flusher's last slice.
    pub writeback_lock: Mutex<PageIndex>,
    /// Where the allocator looks first: file block and volume block behind the last extent written.
    pub goal: Mutex<Option<(FileBlock, FsBlock)>>,
    /// Blocks that unrecorded pages may need for nodes of the extent tree, and the clusters that
    /// they need.
    pub nodes: Mutex<Promised>,
    /// State of sequential reading.
    pub readahead: Readahead,
    /// Batches that may have pages of the file.
    pub batches: Mutex<Batches>,
}

impl Default for FileIo {
    fn default() -> FileIo {
        FileIo {
            writeback_lock: Rank::InodeWriteback.mutex(PageIndex::FIRST),
            goal: Rank::InodeGoal.mutex(None),
            nodes: Rank::NodePromise.mutex(Promised::default()),
            readahead: Readahead::default(),
            batches: Rank::FileBatches.mutex(Batches::default()),
        }
    }
}

impl FileIo {
    /// Whether only hints are left: where the next block or page is looked for.
    fn is_idle(&mut self) -> bool {
        let nodes = self.nodes.get_mut();
        (nodes.nodes, nodes.users) == (0, 0)
            && nodes.clusters.is_empty()
            && self.batches.get_mut().is_empty()
            && self.readahead.is_idle()
    }
}

/// The place of an inode's [`FileIo`].
pub(super) type IoSlot = Mutex<Option<Arc<FileIo>>>;

pub(super) fn empty_slot() -> IoSlot {
    Rank::InodeIo.mutex(None)
}

impl FileData {
    /// Whether there is a [`FileIo`]. Other threads may make or drop it meanwhile.
    #[inline]
    pub fn has_io(&self) -> bool {
        self.has_io.load(Ordering::Acquire)
    }
    /// Returns the [`FileIo`] that exists. Without one nothing is in flight, and no node is
    /// promised.
    #[inline]
    pub fn io(&self) -> Option<Arc<FileIo>> {
        match self.has_io() {
            true => self.io.lock().clone(),
            false => None,
        }
    }
    /// Returns the [`FileIo`] that exists, or a new one.
    pub fn make_io(&self) -> Arc<FileIo> {
        let mut io = self.io.lock();
        let made = io.get_or_insert_with(|| {
            self.has_io.store(true, Ordering::Release);
            Arc::default()
        });
        made.clone()
    }
    /// Drops the [`FileIo`] unless it is in use.
    pub(super) fn drop_idle_io(&self) {
        let mut io = self.io.lock();
        let is_idle = io
            .as_mut()
            .is_some_and(|io| Arc::get_mut(io).is_some_and(FileIo::is_idle));
        if is_idle {
            self.has_io.store(false, Ordering::Release);
            let dropped = io.take();
            drop(io);
            drop(dropped);
        }
    }
}

#[cfg(test)]
mod tests;
