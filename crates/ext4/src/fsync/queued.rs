//! Fsyncs that nobody waits for in place: queued, gathered, served together.

use super::SyncTarget;
use crate::writepages::Route;
use crate::{Fs, InodeRef, Result};
use writeback::SyncService;

/// What nobody waits for in place.
pub enum SyncRequest {
    /// A file to make durable, and whom to tell.
    Fsync(SyncTarget, Box<dyn FnOnce(Result<()>) + Send>),
    /// A file whose data is to land.
    Land(InodeRef),
}

impl Fs {
    /// Makes a file durable beside others that are asked for about the same time, and then calls
    /// `done` on another thread. `done` must be quick, and must not wait for another fsync of this
    /// kind. Waits only where thousands are queued already. Where the volume is unmounted, or no
    /// thread can be had, `done` is called before this returns.
    pub fn fsync_later(&self, target: SyncTarget, done: impl FnOnce(Result<()>) + Send + 'static) {
        let pages = target.inode.mapping.dirty_pages();
        let request = SyncRequest::Fsync(target, Box::new(done));
        if let Err(request) = self.fsyncs.submit(request, pages) {
            self.serve(vec![request]);
        }
    }
}

impl SyncService for Fs {
    type Request = SyncRequest;

    fn serve(&self, group: Vec<SyncRequest>) {
        let (mut targets, mut told, mut landing) = (Vec::new(), Vec::new(), Vec::new());
        for request in group {
            match request {
                SyncRequest::Fsync(target, done) => {
                    targets.push(target);
                    told.push(done);
                }
                SyncRequest::Land(inode) => landing.push(inode),
            }
        }
        // Errors stay with the files, for whoever fsyncs them.
        let landing: Vec<_> = landing.iter().map(|inode| &**inode).collect();
        self.write_and_wait(&landing, Route::Home);
        drop(landing);
        if targets.is_empty() {
            return self.reap_doomed();
        }
        let results = self.fsync_many(&targets);
        // Who is told may go on to unmount, and must not find these in use.
        drop(targets);
        for (done, result) in told.into_iter().zip(results) {
            done(result);
        }
        self.reap_doomed();
    }
}
