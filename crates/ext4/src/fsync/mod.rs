//! Making files durable: one, many, a subtree, at once or later.
//!
//! ```text
//!   data (data.rs)                      journal                         device
//!   sweep, land, record   ──────▶   one commit for all   ──────▶   flush, unless the commit's covers the data
//! ```
//!
//! The data of any number of files leaves through one plug and is recorded by few handles; then the newest transaction
//! that any of them needs is committed, which commits the older ones. Each file has a result of its own: what did not
//! land of it, or else the journal's error if it needed a commit.

mod data;
mod queued;
mod tree;

use crate::{Fs, InodeRef, Result};
use jbd2::Tid;
use std::sync::atomic::Ordering;

pub(crate) use data::has_unlanded;
pub(crate) use tree::ParentHint;

/// A file or directory that is to be made durable.
#[derive(Clone)]
pub struct SyncTarget {
    /// Which.
    pub inode: InodeRef,
    /// Leave out times, owner and mode, as fdatasync does.
    pub data_only: bool,
}

impl Fs {
    /// Makes a file (or directory) durable; `data_only` leaves out times, owner and mode, as fdatasync does.
    pub fn fsync(&self, inode: &InodeRef, data_only: bool) -> Result<()> {
        self.check_journal()?;
        if self.is_read_only() {
            return Ok(());
        }
        let mut landed = self.write_and_wait(&[inode]);
        landed.pop().unwrap_or(Ok(()))?;
        let tid = self.needed_commit(inode, data_only)?;
        self.make_durable(tid)
    }

    /// Makes many files durable, with a result for each in their order: the data of all through one plug, one commit, one
    /// flush. One may be named several times. Nothing else's dirty data is waited for.
    pub fn fsync_many(&self, targets: &[SyncTarget]) -> Vec<Result<()>> {
        if let Err(error) = self.check_journal() {
            return targets.iter().map(|_| Err(error.clone())).collect();
        }
        if self.is_read_only() {
            return targets.iter().map(|_| Ok(())).collect();
        }
        let inodes: Vec<_> = targets.iter().map(|target| &*target.inode).collect();
        let landed = self.write_and_wait(&inodes);
        let tids: Vec<Result<Option<Tid>>> = landed
            .into_iter()
            .zip(targets)
            .map(|(landed, t)| landed.and_then(|()| self.needed_commit(&t.inode, t.data_only)))
            .collect();
        let later = |a: Tid, b: Tid| if a.reached(b) { a } else { b };
        let newest = tids.iter().flatten().flatten().copied().reduce(later);
        let committed = self.make_durable(newest);
        // Where the commit failed, a file that did not need it may be durable all the same.
        let flushed = match &committed {
            Ok(()) => Ok(()),
            Err(_) => self.make_durable(None),
        };
        let result = |tid: Option<Tid>| match tid {
            Some(tid) if !self.journal.is_committed(tid) => committed.clone(),
            _ => flushed.clone(),
        };
        tids.into_iter().map(|tid| tid.and_then(result)).collect()
    }

    /// `Err` where the journal has stopped: nothing can be made durable any more.
    pub(crate) fn check_journal(&self) -> Result<()> {
        match self.journal.error() {
            Some(error) if self.is_read_only() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// After its data has landed: the transaction that has to be committed for `inode`, if it is not yet.
    fn needed_commit(&self, inode: &InodeRef, data_only: bool) -> Result<Option<Tid>> {
        let tid = if data_only {
            inode.datasync_tid.get()
        } else {
            if inode.lazy_times.load(Ordering::Relaxed) {
                // A write that was overtaken by the flusher has changed times that no transaction has.
                let handle = self.journal.start(2)?;
                inode.mark_dirty_attributes(self, &handle);
            }
            inode.tid.get()
        };
        Ok(tid.filter(|&tid| !self.journal.is_committed(tid)))
    }

    /// Commits up to `tid` and sees to it that data which has landed is durable.
    fn make_durable(&self, tid: Option<Tid>) -> Result<()> {
        if let Some(tid) = tid {
            // A commit that is under way may have flushed before the data had landed.
            let under_way = tid != self.journal.running_tid();
            self.journal.commit(tid)?;
            if !under_way {
                return Ok(());
            }
        }
        Ok(self.queue.flush()?)
    }
}
