//! Making files durable: one, many, a subtree, at once or later.
//!
//! ```text
//!   data (data.rs)                      journal                         device
//!   sweep, land, record   ──────▶   one commit for all   ──────▶   flush, unless the commit's covers the data
//! ```
//!
//! The data of any number of files leaves through one plug and is recorded by few handles; then the
//! newest transaction that any of them needs is committed, which commits the older ones. Each file
//! has a result of its own: what did not land of it, or else the journal's error if it needed a
//! commit.

mod data;
mod queued;
mod replaced;
mod tree;

use crate::durability::Needed;
use crate::writepages::Route;
use crate::{Fs, InodeRef, Result};
use writeback::courtesy::SMALL_PAGES;

pub(crate) use replaced::Replaced;
pub(crate) use tree::ParentHint;

/// A file or directory that is to be made durable.
#[derive(Clone)]
pub struct SyncTarget {
    /// Which.
    pub inode: InodeRef,
    /// Leave out times, owner and mode, as fdatasync does.
    pub data_only: bool,
}

/// Pages of one call that go through the log, at most (64 KiB). They are written twice, once here
/// and once by the checkpoint: what that costs must stay below what a write of their own costs. See
/// docs/FSYNC.md.
const LOG_PAGES: u64 = (64 << 10) / block::PAGE_SIZE as u64;

impl Fs {
    /// Makes a file (or directory) durable; `data_only` leaves out times, owner and mode, as
    /// fdatasync does.
    pub fn fsync(&self, inode: &InodeRef, data_only: bool) -> Result<()> {
        self.check_journal()?;
        if self.is_read_only() {
            return Ok(());
        }
        if inode.mapping.dirty_pages() <= SMALL_PAGES {
            self.bdi.note_small_sync();
        }
        let begin = inode.size_to_sync();
        let route = self.route_for(std::iter::once((inode, data_only)));
        let mut landed = self.write_and_wait(&[inode], route);
        landed.pop().unwrap_or(Ok(()))?;
        self.make_durable(inode.needed(self, data_only, begin)?)
    }

    /// Makes many files durable, with a result for each in their order: the data of all through one
    /// plug, one commit, one flush. One may be named several times. Nothing else's dirty data is
    /// waited for.
    pub fn fsync_many(&self, targets: &[SyncTarget]) -> Vec<Result<()>> {
        if let Err(error) = self.check_journal() {
            return targets.iter().map(|_| Err(error.clone())).collect();
        }
        if self.is_read_only() {
            return targets.iter().map(|_| Ok(())).collect();
        }
        let inodes: Vec<_> = targets.iter().map(|target| &*target.inode).collect();
        let route = self.route_for(targets.iter().map(|t| (&t.inode, t.data_only)));
        let begin: Vec<_> = inodes.iter().map(|inode| inode.size_to_sync()).collect();
        let landed = self.write_and_wait(&inodes, route);
        let needed: Vec<Result<Needed>> = landed
            .into_iter()
            .zip(targets.iter().zip(begin))
            .map(|(landed, (t, begin))| {
                landed.and_then(|()| t.inode.needed(self, t.data_only, begin))
            })
            .collect();
        let all = needed.iter().flatten().copied().reduce(Needed::and);
        let done = self.make_durable(all.unwrap_or_default());
        let result = |needed: Needed| match &done {
            Ok(()) => Ok(()),
            // A file that did not need the commit may be durable all the same.
            Err(_) => self.make_durable(needed),
        };
        needed.into_iter().map(|n| n.and_then(result)).collect()
    }

    /// By which way the data of these files becomes durable soonest: a little goes through the log,
    /// which has to be written anyway; an overwrite that needs no commit, and anything that is
    /// long, goes home at once.
    fn route_for<'a>(&self, files: impl Iterator<Item = (&'a InodeRef, bool)> + Clone) -> Route {
        let pages: u64 = files.clone().map(|(f, _)| f.mapping.dirty_pages()).sum();
        if pages > LOG_PAGES || self.journal.is_crowded() {
            return Route::Home;
        }
        let mut files = files;
        let commits =
            files.any(|(file, data_only)| !data_only || file.datasync_needs_commit(&self.journal));
        match commits {
            true => Route::Log,
            false => Route::LogNew,
        }
    }

    /// `Err` where the journal has stopped: nothing can be made durable any more.
    pub(crate) fn check_journal(&self) -> Result<()> {
        match self.journal.error() {
            Some(error) if self.is_read_only() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Commits, and flushes what no commit or other flush has covered meanwhile. Both do nothing
    /// where nothing is left.
    fn make_durable(&self, needed: Needed) -> Result<()> {
        if let Some(tid) = needed.commit {
            self.journal.commit(tid)?;
        }
        Ok(self.queue.flush_up_to(needed.written)?)
    }
}
