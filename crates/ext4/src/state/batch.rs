//! Batches: I/O in flight of many inodes, whose metadata is recorded when it has completed.

use super::{Piece, SmallFileStream};
use crate::alloc::BlockRun;
use crate::{Error, Inode};
use block::{Buf, EndIo, IoError, Payload};
use ext4_format::types::{FsBlock, Ino};
use smallvec::SmallVec;
use std::sync::Arc;
use sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use sync::{Condvar, Mutex};
/// Pages of a range that goes through the log, at most.
pub(crate) const LOGGED_PAGES: u32 = 16;

/// By which way data goes to its block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Route {
    /// In place, and only then is it recorded.
    #[default]
    Home,
    /// What has a written block already in place, anything else through the log.
    LogNew,
    /// All of it through the log.
    Log,
}

/// What is to be recorded when a range has landed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// It was mapped and written before.
    Overwrite,
    /// It was mapped but unwritten.
    Convert,
    /// Blocks were picked for it.
    Insert(BlockRun),
}

/// A range of one inode that is being written.
pub(crate) struct Range {
    pub inode: Arc<Inode>,
    pub first: u64,
    pub pages: u32,
    /// Pages among them that hold a reservation.
    pub reserved: u32,
    pub record: Record,
    /// For one that goes through the log: its first block, and the data.
    pub logged: Option<(FsBlock, SmallVec<[Buf; 1]>)>,
    pub error: Option<IoError>,
}

impl Range {
    pub fn pages(&self) -> std::ops::Range<u64> {
        self.first..self.first + u64::from(self.pages)
    }
}

/// I/O in flight of one or many inodes.
pub struct Batch {
    /// Bios in flight, and one while the batch is open.
    pub(crate) pending: AtomicUsize,
    pub(crate) open: AtomicBool,
    pub(crate) route: Route,
    pub(crate) ranges: Mutex<Vec<Range>>,
    pub(crate) errors: Mutex<Vec<(u64, IoError)>>,
    /// Where its small files go.
    pub(crate) piece: Mutex<Piece>,
    pub(crate) landed: Mutex<()>,
    pub(crate) landed_cv: Condvar,
    /// Held while finishing; set when finished.
    pub(crate) finished: Mutex<Option<Outcome>>,
}

/// What became of a finished batch: the inodes of which something did not land, with the reason of
/// each.
pub(crate) type Outcome = SmallVec<[(Ino, Error); 1]>;

impl Batch {
    /// Makes a batch that is going to have about `expected` pages.
    pub(crate) fn new(stream: &Arc<SmallFileStream>, expected: u64, route: Route) -> Arc<Batch> {
        Arc::new(Batch {
            pending: AtomicUsize::new(1),
            open: AtomicBool::new(true),
            route,
            ranges: Mutex::default(),
            errors: Mutex::default(),
            piece: Mutex::new(Piece::new(stream, expected)),
            landed: Mutex::default(),
            landed_cv: Condvar::new(),
            finished: Mutex::default(),
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

    /// After [`Fs::finish`]: the error of an inode of which something did not land.
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
