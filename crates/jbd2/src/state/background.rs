//! The requests to the journal's threads (`crate::background`), and the threads' handles.

use std::sync::Arc;
use std::time::Instant;
use sync::atomic::{AtomicBool, Ordering};
use sync::thread::{self, JoinHandle};
use sync::{Condvar, Mutex, Rank};

/// A request for a commit of the running transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CommitRequest {
    #[default]
    None,
    /// The interval is over. No thread waits for this commit.
    Interval,
    /// The transaction is large.
    Large,
    /// A handle waits until the transaction is closed.
    Awaited,
}

/// A request for a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CheckpointRequest {
    #[default]
    None,
    /// Of the oldest transactions, until little of the log is in use.
    Part,
    /// Of all transactions.
    All,
}

/// A request and whether the thread is to stop.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Requests<R> {
    pub request: R,
    pub stop: bool,
}

/// Requests that a thread has not taken. The greatest of several requests counts.
pub(crate) struct Signal<R> {
    requests: Mutex<Requests<R>>,
    /// Whether there are requests.
    asked: AtomicBool,
    /// Whether the thread waits for requests or carries them out.
    serving: AtomicBool,
    changed: Condvar,
}

/// A thread, and the requests to it.
pub(crate) struct Worker<R> {
    pub signal: Arc<Signal<R>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The journal's threads.
#[derive(Default)]
pub(crate) struct Background {
    pub commits: Worker<CommitRequest>,
    pub checkpoints: Worker<CheckpointRequest>,
}

impl<R: Default> Default for Signal<R> {
    fn default() -> Signal<R> {
        Signal {
            requests: Rank::JournalThread.mutex(Requests::default()),
            asked: AtomicBool::new(false),
            serving: AtomicBool::new(false),
            changed: Condvar::new(),
        }
    }
}

impl<R: Default> Default for Worker<R> {
    fn default() -> Worker<R> {
        Worker {
            signal: Arc::default(),
            thread: Rank::JournalThread.mutex(None),
        }
    }
}

impl<R: Copy + Default + Ord> Signal<R> {
    fn change(&self, change: impl FnOnce(&mut Requests<R>)) {
        change(&mut self.requests.lock());
        self.asked.store(true, Ordering::SeqCst);
        self.changed.notify_one();
    }
    /// Requests work.
    pub fn ask(&self, request: R) {
        self.change(|requests| requests.request = requests.request.max(request));
    }
    /// Whether there are requests. Takes no lock.
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }
    /// Whether the thread is to stop.
    pub fn is_stopped(&self) -> bool {
        self.requests.lock().stop
    }
    /// Whether the thread waits for requests or carries them out. Takes no lock.
    pub fn is_served(&self) -> bool {
        self.serving.load(Ordering::SeqCst)
    }
    /// The thread waits for requests or carries them out.
    pub fn begin_serving(&self) {
        self.serving.store(true, Ordering::SeqCst);
    }
    /// The thread does neither.
    pub fn end_serving(&self) {
        self.serving.store(false, Ordering::SeqCst);
    }
    /// Waits for a request, or until the deadline if there is one, and takes the requests.
    pub fn wait(&self, deadline: Option<Instant>) -> Requests<R> {
        let mut requests = self.requests.lock();
        while !requests.stop && requests.request == R::default() {
            match deadline {
                None => self.changed.wait(&mut requests),
                Some(deadline) => {
                    if self.changed.wait_until(&mut requests, deadline).timed_out() {
                        break;
                    }
                }
            }
        }
        self.asked.store(requests.stop, Ordering::SeqCst);
        let taken = *requests;
        requests.request = R::default();
        taken
    }
}

impl<R: Copy + Default + Ord> Worker<R> {
    /// Sets the thread, which [`Worker::stop`] waits for.
    pub fn set_thread(&self, thread: JoinHandle<()>) {
        *self.thread.lock() = Some(thread);
    }
    /// Stops the thread and waits for it, unless it is the caller.
    fn stop(&self) {
        self.signal.change(|requests| requests.stop = true);
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl Background {
    /// Requests a commit of the running transaction.
    pub fn request_commit(&self, request: CommitRequest) {
        self.commits.signal.ask(request);
    }
    /// Requests a checkpoint.
    pub fn request_checkpoint(&self, request: CheckpointRequest) {
        self.checkpoints.signal.ask(request);
    }
    /// Stops the threads and waits for them, unless one of them is the caller.
    pub fn stop(&self) {
        self.commits.stop();
        self.checkpoints.stop();
    }
}
