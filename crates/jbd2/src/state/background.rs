//! The requests to the journal's thread (`crate::background`), and the thread's handle.

use std::sync::Arc;
use std::time::Instant;
use sync::atomic::{AtomicBool, Ordering};
use sync::thread::{self, JoinHandle};
use sync::{Condvar, Mutex, Rank};

/// The work that the thread is asked for.
#[derive(Default)]
pub(crate) struct Requests {
    pub commit: bool,
    pub checkpoint: bool,
    pub stop: bool,
}

/// Requests that the thread has not taken.
pub(crate) struct Signal {
    requests: Mutex<Requests>,
    /// Whether there are requests.
    asked: AtomicBool,
    changed: Condvar,
}

impl Default for Signal {
    fn default() -> Signal {
        Signal {
            requests: Rank::JournalThread.mutex(Requests::default()),
            asked: AtomicBool::new(false),
            changed: Condvar::new(),
        }
    }
}

/// The thread, and the requests to it.
pub(crate) struct Background {
    pub signal: Arc<Signal>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Default for Background {
    fn default() -> Background {
        Background {
            signal: Arc::default(),
            thread: Rank::JournalThread.mutex(None),
        }
    }
}

impl Signal {
    fn ask(&self, request: impl FnOnce(&mut Requests)) {
        request(&mut self.requests.lock());
        self.asked.store(true, Ordering::SeqCst);
        self.changed.notify_one();
    }
    /// Whether there are requests. Takes no lock.
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }
    /// Waits for a request or the deadline, and takes the requests.
    pub fn wait(&self, deadline: Instant) -> Requests {
        let mut requests = self.requests.lock();
        while !requests.stop && !requests.commit && !requests.checkpoint {
            if self.changed.wait_until(&mut requests, deadline).timed_out() {
                break;
            }
        }
        let stop = requests.stop;
        self.asked.store(stop, Ordering::SeqCst);
        let taken = std::mem::take(&mut *requests);
        requests.stop = stop;
        taken
    }
}

impl Background {
    /// Sets the thread, which [`Background::stop`] waits for.
    pub fn set_thread(&self, thread: JoinHandle<()>) {
        *self.thread.lock() = Some(thread);
    }
    /// Requests a commit of the running transaction.
    pub fn request_commit(&self) {
        self.signal.ask(|requests| requests.commit = true);
    }
    /// Requests a checkpoint.
    pub fn request_checkpoint(&self) {
        self.signal.ask(|requests| requests.checkpoint = true);
    }
    /// Stops the thread and waits for it, unless it is the caller.
    pub fn stop(&self) {
        self.signal.ask(|requests| requests.stop = true);
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}
