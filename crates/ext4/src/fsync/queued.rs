//! Asynchronous fsyncs: queued, gathered into groups, served together.

use super::SyncTarget;
use crate::state::Route;
use crate::{Fs, InodeRef, Result};
use writeback::SyncService;

/// A request that no caller waits for in place.
pub enum SyncRequest {
    /// Make a file durable, then call back.
    Fsync(SyncTarget, Box<dyn FnOnce(Result<()>) + Send>),
    /// Write a file's dirty pages.
    WriteBack(InodeRef),
}

impl Fs {
    /// Makes a file durable together with others that are queued, and then calls `done` on another
    /// thread. `done` must be quick and must not wait for another asynchronous fsync. Waits only
    /// while thousands are queued. While the volume is unmounted, or if no thread can be started,
    /// `done` is called before this returns.
    pub fn fsync_later(&self, target: SyncTarget, done: impl FnOnce(Result<()>) + Send + 'static) {
        let pages = target.inode.data.mapping.dirty_pages();
        let request = SyncRequest::Fsync(target, Box::new(done));
        if let Err(request) = self.fsyncs.submit(request, pages) {
            self.serve(vec![request]);
        }
    }
}

impl SyncService for Fs {
    type Request = SyncRequest;

    fn serve(&self, group: Vec<SyncRequest>) {
        let (mut targets, mut callbacks, mut to_write) = (Vec::new(), Vec::new(), Vec::new());
        for request in group {
            match request {
                SyncRequest::Fsync(target, done) => {
                    targets.push(target);
                    callbacks.push(done);
                }
                SyncRequest::WriteBack(inode) => to_write.push(inode),
            }
        }
        let to_write: Vec<_> = to_write.iter().map(|inode| &**inode).collect();
        // The files keep their errors for the next fsync.
        self.bdi.write_and_wait(self, &to_write, Route::Home);
        drop(to_write);
        if targets.is_empty() {
            return self.delete_unlinked();
        }
        let results = self.fsync_many(&targets);
        // A callback may unmount the volume, which must not find these inodes in use.
        drop(targets);
        for (done, result) in callbacks.into_iter().zip(results) {
            done(result);
        }
        self.delete_unlinked();
    }
}
