//! Making files durable: one, many, a subtree, all; synchronously or asynchronously.
//!
//! ```text
//!   data (writeback)                       journal                       device
//!   write, wait, record   ──────▶   one commit for all   ──────▶   flush, unless the commit's covers the data
//! ```
//!
//! The data of any number of files leaves through one plug and is recorded by few handles. Then one
//! commit of the newest transaction that any of them needs commits the older ones, too. Each file
//! has a result of its own: the error of its data, or else the journal's error if it needed a
//! commit.

mod all;
mod auto_da_alloc;
mod queued;
#[cfg(test)]
mod tests;
mod tree;

use crate::state::{Needed, Route};
use crate::{Error, Fs, Inode, InodeRef, Result, SyncKind};
use block::Reason;
use std::sync::Arc;

/// A file or directory that is to be made durable.
#[derive(Clone)]
pub struct SyncTarget {
    /// The file or directory.
    pub inode: InodeRef,
    /// The system call.
    pub kind: SyncKind,
}

/// Bytes of one call that go through the log, at most. They are written twice, here and by
/// the checkpoint. That must cost less than a separate write in place; see docs/FSYNC.md.
const LOG_BYTES: u64 = 64 << 10;

/// An fsync of at most this many files is that of a client that waits, and not of many.
const FEW_FILES: usize = 8;

/// The thread that makes files durable.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Caller {
    /// A worker of the queue. An unmount waits for it before it writes anything.
    Worker,
    /// Any other thread.
    Other,
}

impl Fs {
    /// Makes a file (or directory) durable.
    pub fn fsync(&self, inode: &InodeRef, kind: SyncKind) -> Result<()> {
        self.check_journal()?;
        if self.is_read_only() {
            return self.make_recorded_durable(inode, kind, Caller::Other);
        }
        let _timed = self.bdi.begin_fsync(inode.mapping.dirty_bytes());
        let begin = inode.size_to_sync();
        let route = self.route_for(std::iter::once((inode, kind)));
        self.write_and_record(inode, route)?;
        self.make_durable(inode.needed(self, kind, begin)?)
    }

    /// Makes many files durable by one plug, one commit and one flush. Returns a result for each
    /// file, in their order. A file may be named several times. Other files' dirty data is not
    /// waited for.
    pub fn fsync_many(&self, targets: &[SyncTarget]) -> Vec<Result<()>> {
        self.fsync_group(targets, Caller::Other)
    }

    fn fsync_group(&self, targets: &[SyncTarget], caller: Caller) -> Vec<Result<()>> {
        if let Err(error) = self.check_journal() {
            return targets.iter().map(|_| Err(error.clone())).collect();
        }
        if self.is_read_only() {
            let durable = |t: &SyncTarget| self.make_recorded_durable(&t.inode, t.kind, caller);
            return targets.iter().map(durable).collect();
        }
        let inodes: Vec<_> = targets.iter().map(|target| &*target.inode).collect();
        let _timed = (inodes.len() <= FEW_FILES).then(|| {
            let bytes = inodes.iter().map(|inode| inode.mapping.dirty_bytes());
            self.bdi.begin_queued_fsync(bytes.sum())
        });
        let route = self.route_for(targets.iter().map(|t| (&t.inode, t.kind)));
        let begin: Vec<_> = inodes.iter().map(|inode| inode.size_to_sync()).collect();
        let written = self.bdi.write_and_wait(self, &inodes, route);
        let needed: Vec<Result<Needed>> = written
            .into_iter()
            .zip(targets.iter().zip(begin))
            .map(|(written, (t, begin))| written.and_then(|()| t.inode.needed(self, t.kind, begin)))
            .collect();
        let all = needed.iter().flatten().copied().reduce(Needed::and);
        let done = self.make_durable(all.unwrap_or_default());
        let result = |needed: Needed| match &done {
            Ok(()) => Ok(()),
            // A file that did not need the commit may be durable although it failed.
            Err(_) => self.make_durable(needed),
        };
        needed.into_iter().map(|n| n.and_then(result)).collect()
    }

    /// Writes what is dirty in `inode` now, and waits until it is recorded in the running
    /// transaction: no later change of metadata becomes durable without it.
    pub(crate) fn write_back(&self, inode: &Arc<Inode>) -> Result<()> {
        self.write_and_record(inode, Route::Home)
    }

    fn write_and_record(&self, inode: &Arc<Inode>, route: Route) -> Result<()> {
        let mut result = self.bdi.write_and_wait(self, &[inode], route);
        result.pop().unwrap_or(Ok(()))
    }

    /// The way by which the data of these files becomes durable soonest. A few pages go through the
    /// log, which is written anyway. An overwrite that needs no commit goes home at once, and so
    /// does anything long.
    fn route_for<'a>(
        &self,
        files: impl Iterator<Item = (&'a InodeRef, SyncKind)> + Clone,
    ) -> Route {
        let bytes: u64 = files.clone().map(|(f, _)| f.mapping.dirty_bytes()).sum();
        if bytes > LOG_BYTES || self.journal.is_crowded() {
            return Route::Home;
        }
        let mut files = files;
        let commits = files.any(|(file, kind)| {
            kind == SyncKind::Fsync || file.datasync_needs_commit(&self.journal)
        });
        match commits {
            true => Route::Log,
            false => Route::LogNew,
        }
    }

    /// Makes a file durable on a volume that is read-only: by the mount options, or because an
    /// unmount has begun. The last commit may be still to come.
    ///
    /// # Errors
    /// `ReadOnly` if an unmount could not write the pages.
    fn make_recorded_durable(
        &self,
        inode: &Arc<Inode>,
        kind: SyncKind,
        caller: Caller,
    ) -> Result<()> {
        if inode.has_unlanded() {
            if caller == Caller::Other {
                // An unmount that is under way writes the pages.
                drop(self.lock_unmounted());
            }
            self.wait_writeback(inode);
        }
        if inode.has_unlanded() || inode.size_waits() {
            return Err(Error::ReadOnly);
        }
        self.make_durable(inode.needed_of_recorded(self, kind))
    }

    /// # Errors
    /// The journal's error where it has stopped: nothing can be made durable.
    pub(crate) fn check_journal(&self) -> Result<()> {
        match self.journal.error() {
            Some(error) if self.is_read_only() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Commits and flushes, where no other commit or flush has covered `needed` meanwhile.
    fn make_durable(&self, needed: Needed) -> Result<()> {
        if let Some(tid) = needed.commit {
            self.journal.commit(tid)?;
        }
        Ok(self.queue.flush_up_to(needed.written, Reason::Sync)?)
    }
}
