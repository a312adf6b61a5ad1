//! The reaper: the kernel's forget of a deleted file frees its blocks, which takes long for a large
//! one and which nobody waits for, so a thread of its own does it. Should it fall behind, whoever
//! forgets does the work, so that the backlog is bounded.

use crossbeam_channel::{Sender, TrySendError, bounded};
use ext4::Fs;
use fusedev::guarded;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Deleted files that may wait for the reaper.
const MAX_BACKLOG: usize = 4096;

/// Deletes files that have neither a name nor a user.
pub(crate) struct Reaper {
    work: Arc<Work>,
    wake: Option<Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

struct Work {
    fs: Arc<Fs>,
    /// Files announced and not yet deleted, about.
    backlog: AtomicUsize,
    /// Held while files are deleted, so that one can wait for those of another thread.
    reaping: Mutex<()>,
}

impl Work {
    fn reap(&self) {
        let _reaping = self.reaping.lock();
        // What is announced from here on has a wake-up of its own.
        let before = self.backlog.load(Ordering::Relaxed);
        if before > 0 {
            if guarded("delete", || self.fs.delete_unlinked()).is_none() {
                self.fs.stop_after_panic("the deletion of a file");
            }
            self.backlog.fetch_sub(before, Ordering::Relaxed);
        }
    }
}

impl Reaper {
    /// Starts the thread.
    pub fn start(fs: Arc<Fs>) -> std::io::Result<Reaper> {
        let (wake, woken) = bounded::<()>(1);
        let work = Arc::new(Work {
            fs,
            backlog: AtomicUsize::new(0),
            reaping: Mutex::new(()),
        });
        let thread = thread::Builder::new().name("sluice-reap".into()).spawn({
            let work = work.clone();
            move || {
                while woken.recv().is_ok() {
                    work.reap();
                }
            }
        })?;
        Ok(Reaper {
            work,
            wake: Some(wake),
            thread: Some(thread),
        })
    }

    /// The last user of a deleted file has just gone.
    pub fn kick(&self) {
        let backlog = self.work.backlog.fetch_add(1, Ordering::Relaxed) + 1;
        let asleep = match &self.wake {
            Some(wake) => matches!(wake.try_send(()), Err(TrySendError::Disconnected(()))),
            None => true,
        };
        if asleep || backlog > MAX_BACKLOG {
            self.work.reap();
        }
    }

    /// Deletes now what waits, or waits for the thread that is at it.
    pub fn catch_up(&self) {
        if self.work.backlog.load(Ordering::Relaxed) > 0 {
            self.work.reap();
        }
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.wake = None;
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}
