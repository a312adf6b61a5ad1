//! Batches: I/O in flight of many inodes, whose metadata is recorded when it has completed.

use super::Inode;
use crate::Error;
use crate::alloc::BlockRun;
use crate::state::{Piece, SmallFileStream};
use block::{Buf, EndIo, IoError, Payload};
use smallvec::SmallVec;
use std::sync::Arc;
use sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use sync::{Condvar, Mutex, Rank};
use units::{FsBlock, Ino, PageIndex};

/// Pages of a range that goes through the log, at most.
pub(crate) const LOGGED_PAGES: u32 = 16;

/// How data gets to its block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Route {
    /// It is written in place, and recorded when that has completed.
    #[default]
    Home,
    /// Overwrites go in place, new blocks through the log.
    LogNew,
    /// Everything goes through the log.
    Log,
}

/// The change of metadata when a range has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// None: the range was mapped and written before.
    Overwrite,
    /// Its unwritten extents become written ones.
    Convert,
    /// The picked blocks are mapped.
    Insert(BlockRun),
}

/// A range of one inode that is being written.
pub(crate) struct Range {
    pub inode: Arc<Inode>,
    pub first: PageIndex,
    pub pages: u32,
    /// Pages with a reserved block.
    pub reserved: u32,
    pub record: Record,
    /// Its first block and its data, where it goes through the log.
    pub logged: Option<(FsBlock, SmallVec<[Buf; 1]>)>,
    pub error: Option<IoError>,
}

impl Range {
    pub fn pages(&self) -> std::ops::Range<PageIndex> {
        self.first..self.first + self.pages
    }
}

/// I/O in flight of one or many inodes, written and recorded together.
pub struct Batch {
    /// Bios in flight, plus one while the batch is open.
    pub(crate) pending: AtomicUsize,
    pub(crate) open: AtomicBool,
    pub(crate) route: Route,
    pub(crate) ranges: Mutex<Vec<Range>>,
    pub(crate) errors: Mutex<Vec<(u64, IoError)>>,
    /// Where its small files are placed.
    pub(crate) piece: Mutex<Piece>,
    pub(crate) landed: Mutex<()>,
    pub(crate) landed_cv: Condvar,
    /// Held while the batch is finished, and set then.
    pub(crate) finished: Mutex<Option<Outcome>>,
}

/// The result of a finished batch: the inodes of which something failed, with the error of each.
pub(crate) type Outcome = SmallVec<[(Ino, Error); 1]>;

impl Batch {
    /// Begins a batch of about `expected` pages.
    pub(crate) fn new(stream: &Arc<SmallFileStream>, expected: u64, route: Route) -> Arc<Batch> {
        Arc::new(Batch {
            pending: AtomicUsize::new(1),
            open: AtomicBool::new(true),
            route,
            ranges: Rank::BatchRanges.mutex(Vec::new()),
            errors: Rank::BatchErrors.mutex(Vec::new()),
            piece: Rank::BatchPiece.mutex(Piece::new(stream, expected)),
            landed: Rank::BatchLanded.mutex(()),
            landed_cv: Condvar::new(),
            finished: Rank::BatchFinished.mutex(None),
        })
    }

    fn put(&self) {
        if self.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
            drop(self.landed.lock());
            self.landed_cv.notify_all();
        }
    }

    /// No more I/O will be added.
    pub(crate) fn close(&self) {
        if self.open.swap(false, Ordering::AcqRel) {
            self.piece.lock().put_back();
            self.put();
        }
    }

    pub(crate) fn has_landed(&self) -> bool {
        self.pending.load(Ordering::Acquire) == 0
    }

    pub(crate) fn wait_landed(&self) {
        if self.has_landed() {
            return;
        }
        let mut guard = self.landed.lock();
        while !self.has_landed() {
            self.landed_cv.wait(&mut guard);
        }
    }

    /// The error of an inode, once the batch is finished.
    pub(crate) fn error_of(&self, ino: Ino) -> Option<Error> {
        let finished = self.finished.lock();
        let mut failed = finished.iter().flatten();
        let (_, error) = failed.find(|(failed, _)| *failed == ino)?;
        Some(error.clone())
    }
}

impl EndIo for Batch {
    fn end_io(&self, tag: u64, _payload: Payload, result: Result<(), IoError>) {
        if let Err(error) = result {
            self.errors.lock().push((tag, error));
        }
        self.put();
    }
}
