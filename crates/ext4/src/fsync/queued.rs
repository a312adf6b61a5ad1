//! Asynchronous fsyncs: queued, gathered into groups, served together.

use super::{Caller, SyncTarget};
use crate::state::Route;
use crate::{Fs, InodeRef, Result};
use writeback::{Load, SyncService};

/// A request that no caller waits for in place.
pub enum SyncRequest {
    /// Make a file durable, then call back.
    Fsync(SyncTarget, Box<dyn FnOnce(Result<()>) + Send>),
    /// Write a file's dirty pages.
    WriteBack(InodeRef),
    /// Make the volume durable, then call back.
    Sync(Box<dyn FnOnce(Result<()>) + Send>),
}

impl Fs {
    /// Makes a file durable together with others that are queued, and then calls `done` on another
    /// thread. `done` must be quick and must not wait for another asynchronous fsync. Waits only
    /// while thousands are queued. While the volume is unmounted, or if no thread can be started,
    /// `done` is called before this returns.
    pub fn fsync_later(&self, target: SyncTarget, done: impl FnOnce(Result<()>) + Send + 'static) {
        let bytes = target.inode.mapping.dirty_bytes();
        self.bdi.note_queued_fsync(bytes);
        let request = SyncRequest::Fsync(target, Box::new(done));
        if let Err(request) = self.fsyncs.submit(request, Load::Bytes(bytes)) {
            self.serve_group(vec![request], Caller::Other);
        }
    }

    /// [`Fs::sync`] without waiting: calls `done` on another thread, or before this returns if
    /// everything is durable. Calls that wait share one thread and one sync. As for
    /// [`Fs::fsync_later`], `done` must be quick, and is called before this returns while the
    /// volume is unmounted or if no thread can be started.
    pub fn sync_later(&self, done: impl FnOnce(Result<()>) + Send + 'static) {
        if self.is_clean() {
            return done(self.check_journal());
        }
        let request = SyncRequest::Sync(Box::new(done));
        if let Err(SyncRequest::Sync(done)) = self.fsyncs.submit(request, Load::Volume) {
            done(self.sync());
        }
    }
}

impl SyncService for Fs {
    type Request = SyncRequest;

    fn serve(&self, group: Vec<SyncRequest>) {
        self.serve_group(group, Caller::Worker);
    }
}

impl Fs {
    fn serve_group(&self, group: Vec<SyncRequest>, caller: Caller) {
        let (mut targets, mut callbacks, mut to_write) = (Vec::new(), Vec::new(), Vec::new());
        let mut syncs = Vec::new();
        for request in group {
            match request {
                SyncRequest::Fsync(target, done) => {
                    targets.push(target);
                    callbacks.push(done);
                }
                SyncRequest::WriteBack(inode) => to_write.push(inode),
                SyncRequest::Sync(done) => syncs.push(done),
            }
        }
        if !syncs.is_empty() {
            // An unmount waits for this group, so the outcome is not the unmount's.
            let result = self.sync_shared();
            syncs.into_iter().for_each(|done| done(result.clone()));
        }
        let to_write: Vec<_> = to_write.iter().map(|inode| &**inode).collect();
        // The files keep their errors for the next fsync.
        self.bdi.write_and_wait(self, &to_write, Route::Home);
        drop(to_write);
        if targets.is_empty() {
            return self.delete_unlinked();
        }
        let results = self.fsync_group(&targets, caller);
        // A callback may unmount the volume, which must not find these inodes in use.
        drop(targets);
        for (done, result) in callbacks.into_iter().zip(results) {
            done(result);
        }
        self.delete_unlinked();
    }
}
