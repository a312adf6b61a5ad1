//! Deletion of files that the kernel has forgotten.
//!
//! Freeing the blocks of a large file takes long, and no program waits for it. So a thread of its
//! own does it. If it falls behind, the thread that handles the forget deletes files itself, which
//! bounds the backlog.
//!
//! Threads that wait for a deletion wait for a condition variable and not for a lock: the pool of
//! serving threads sees that, and other requests are served meanwhile.

use crate::panics::stop_on_panic;
use crossbeam_channel::{Sender, TrySendError, bounded};
use ext4::Fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use sync::{Condvar, Mutex, Rank};

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
    /// Whether a thread deletes files. Another thread that wants to waits until it has ended.
    reaping: Mutex<bool>,
    /// `reaping` has become false.
    ended: Condvar,
}

/// The right to delete files.
struct Reaping<'a>(&'a Work);

impl Drop for Reaping<'_> {
    fn drop(&mut self) {
        *self.0.reaping.lock() = false;
        self.0.ended.notify_one();
    }
}

impl Work {
    /// Waits until no other thread deletes files.
    fn begin(&self) -> Reaping<'_> {
        let mut reaping = self.reaping.lock();
        while *reaping {
            self.ended.wait(&mut reaping);
        }
        *reaping = true;
        Reaping(self)
    }

    fn reap(&self) {
        let _reaping = self.begin();
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
            reaping: Rank::Reaper.mutex(false),
            ended: Condvar::new(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use sync::waits::{WaitObserver, observe};

    struct Waits(AtomicUsize);

    impl WaitObserver for Waits {
        fn begin_wait(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
        fn end_wait(&self) {}
    }

    #[test]
    fn a_thread_that_waits_for_a_deletion_tells_its_pool() {
        let fs = crate::test_volume::in_memory();
        let reaper = Reaper::start(fs.clone()).unwrap();
        let waits = Arc::new(Waits(AtomicUsize::new(0)));
        let reaping = reaper.work.begin();
        reaper.kick();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                observe(Some(waits.clone()));
                reaper.catch_up();
                observe(None);
            });
            while waits.0.load(Ordering::SeqCst) == 0 {
                assert!(!waiting.is_finished());
                thread::sleep(std::time::Duration::from_millis(1));
            }
            drop(reaping);
        });
        assert_eq!(reaper.work.backlog.load(Ordering::SeqCst), 0);
        drop(reaper);
        fs.unmount().unwrap();
    }
}
