//! Threads for what takes long, so that the threads that read requests go on reading.
//!
//! *Pool*: an fsync waits for the device. Each gets a thread of its own, up to a limit; many that wait at the same time
//! share one commit in the journal, so more threads mean fewer commits. Threads are started when none is idle and stay.
//!
//! *Reaper*: the kernel's forget of a deleted file frees its blocks, which takes long for a large one and which nobody
//! waits for. Should the reaper fall behind, whoever forgets does the work, so that the backlog is bounded.

use crate::guard::guarded;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, unbounded};
use ext4::Fs;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Threads of a pool at most.
const MAX_THREADS: usize = 64;
/// Deleted files that may wait for the reaper.
const MAX_BACKLOG: usize = 4096;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Load {
    /// Jobs submitted and not yet done.
    jobs: usize,
    threads: usize,
}

struct Shared {
    load: Mutex<Load>,
    all_done: Condvar,
    receiver: Receiver<(&'static str, Job)>,
}

/// Threads that run jobs which may block.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    sender: Sender<(&'static str, Job)>,
}

impl Pool {
    /// A pool without threads; they come with the work.
    pub fn new() -> Pool {
        let (sender, receiver) = unbounded();
        Pool {
            shared: Arc::new(Shared {
                load: Mutex::default(),
                all_done: Condvar::new(),
                receiver,
            }),
            sender,
        }
    }

    /// Runs `job` on a thread of the pool.
    pub fn submit(&self, op: &'static str, job: impl FnOnce() + Send + 'static) {
        let mut load = self.shared.load.lock();
        load.jobs += 1;
        if load.jobs > load.threads && load.threads < MAX_THREADS {
            let shared = self.shared.clone();
            let spawned = thread::Builder::new()
                .name("sluice-fsync".into())
                .spawn(move || shared.run());
            match spawned {
                Ok(_) => load.threads += 1,
                // Without any thread the job would never run.
                Err(_) if load.threads == 0 => {
                    drop(load);
                    guarded(op, job);
                    self.shared.done();
                    return;
                }
                Err(_) => {}
            }
        }
        drop(load);
        // The receiver lives in `shared`, so the channel is open.
        let _ = self.sender.send((op, Box::new(job)));
    }

    /// Waits until no job is left.
    pub fn drain(&self) {
        let mut load = self.shared.load.lock();
        while load.jobs > 0 {
            self.shared.all_done.wait(&mut load);
        }
    }
}

impl Shared {
    fn run(&self) {
        while let Ok((op, job)) = self.receiver.recv() {
            guarded(op, job);
            self.done();
        }
    }

    fn done(&self) {
        let mut load = self.load.lock();
        load.jobs -= 1;
        if load.jobs == 0 {
            self.all_done.notify_all();
        }
    }
}

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
            guarded("delete", || self.fs.reap_doomed());
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

    /// Deletes now what waits, or waits for who is at it: whether there was anything.
    pub fn catch_up(&self) -> bool {
        let behind = self.work.backlog.load(Ordering::Relaxed) > 0;
        if behind {
            self.work.reap();
        }
        behind
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
    use std::time::Duration;

    #[test]
    fn jobs_run_at_the_same_time_and_survive_a_panic() {
        let pool = Pool::new();
        let barrier = Arc::new(std::sync::Barrier::new(20));
        let ran = Arc::new(AtomicUsize::new(0));
        for _ in 0..20 {
            let (barrier, ran) = (barrier.clone(), ran.clone());
            pool.submit("test", move || {
                barrier.wait();
                ran.fetch_add(1, Ordering::Relaxed);
            });
        }
        pool.drain();
        assert_eq!(ran.load(Ordering::Relaxed), 20);
        pool.submit("test", || panic!("expected in this test"));
        pool.drain();
        let again = ran.clone();
        pool.submit("test", move || {
            thread::sleep(Duration::from_millis(5));
            again.fetch_add(1, Ordering::Relaxed);
        });
        pool.drain();
        assert_eq!(ran.load(Ordering::Relaxed), 21);
    }
}
