//! Deletion of files that the kernel has forgotten.
//!
//! Freeing the blocks of a large file takes long, and no program waits for it. So a thread of its
//! own does it. If it falls behind, the thread that handles the forget deletes files itself, which
//! bounds the backlog.

use crate::panics::stop_on_panic;
use crossbeam_channel::{Sender, TrySendError, bounded};
use ext4::Fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use sync::{Mutex, Rank};

/// Deleted files that may wait for the thread.
const MAX_BACKLOG: usize = 4096;

/// The thread that deletes files.
pub(crate) struct Reaper {
    work: Arc<Work>,
    wake: Option<Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

struct Work {
    fs: Arc<Fs>,
    /// Approximate number of files to delete.
    backlog: AtomicUsize,
    /// Held during deletion, so that a caller can wait for another thread's deletions.
    reaping: Mutex<()>,
}

impl Work {
    fn reap(&self) {
        let _reaping = self.reaping.lock();
        // Files that are added later have a wake-up of their own.
        let before = self.backlog.load(Ordering::Relaxed);
        if before > 0 {
            stop_on_panic(&self.fs, "delete", || self.fs.delete_unlinked_slowed());
            self.backlog.fetch_sub(before, Ordering::Relaxed);
        }
    }
}

impl Reaper {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(fs: Arc<Fs>) -> std::io::Result<Reaper> {
        let (wake, woken) = bounded::<()>(1);
        let work = Arc::new(Work {
            fs,
            backlog: AtomicUsize::new(0),
            reaping: Rank::Reaper.mutex(()),
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

    /// Adds a file to the backlog: its last link and its last pin are gone.
    pub fn kick(&self) {
        let backlog = self.work.backlog.fetch_add(1, Ordering::Relaxed) + 1;
        let has_ended = match &self.wake {
            Some(wake) => matches!(wake.try_send(()), Err(TrySendError::Disconnected(()))),
            None => true,
        };
        if has_ended || backlog > MAX_BACKLOG {
            self.work.reap();
        }
    }

    /// Returns when the files that are in the backlog now have been deleted.
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
