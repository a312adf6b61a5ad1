//! Fsyncs that nobody waits for in place: queued, gathered, served together.

use super::SyncTarget;
use crate::{Fs, Result};
use writeback::SyncService;

/// A file to make durable, and whom to tell.
pub struct SyncRequest {
    target: SyncTarget,
    done: Box<dyn FnOnce(Result<()>) + Send>,
}

impl Fs {
    /// Makes a file durable beside others that are asked for about the same time, and then calls `done` on another thread.
    /// `done` must be quick, and must not wait for another fsync of this kind. Waits only where thousands are queued
    /// already. Where the volume is unmounted, or no thread can be had, `done` is called before this returns.
    pub fn fsync_later(&self, target: SyncTarget, done: impl FnOnce(Result<()>) + Send + 'static) {
        let pages = target.inode.mapping.dirty_pages();
        let request = SyncRequest {
            target,
            done: Box::new(done),
        };
        if let Err(request) = self.fsyncs.submit(request, pages) {
            self.serve(vec![request]);
        }
    }
}

impl SyncService for Fs {
    type Request = SyncRequest;

    fn serve(&self, group: Vec<SyncRequest>) {
        let (targets, told): (Vec<_>, Vec<_>) =
            group.into_iter().map(|r| (r.target, r.done)).unzip();
        let results = self.fsync_many(&targets);
        // Who is told may go on to unmount, and must not find these in use.
        drop(targets);
        for (done, result) in told.into_iter().zip(results) {
            done(result);
        }
        self.reap_doomed();
    }
}
