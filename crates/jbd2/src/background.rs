//! The journal's thread. It commits at intervals and when a transaction has grown large, and writes
//! checkpoints before the log is full, so that commits need not wait for space.

use crate::Journal;
use crate::transaction::CommitReason;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Instant;
use sync::thread::{self, JoinHandle};
use sync::{Condvar, Mutex, Rank};

/// The work that the thread is asked for.
#[derive(Default)]
struct Requests {
    commit: bool,
    checkpoint: bool,
    stop: bool,
}

struct Signal {
    requests: Mutex<Requests>,
    changed: Condvar,
}

impl Default for Signal {
    fn default() -> Signal {
        Signal {
            requests: Rank::JournalThread.mutex(Requests::default()),
            changed: Condvar::new(),
        }
    }
}

/// The thread. It holds a reference to the journal only while it works, so it never keeps a journal
/// alive.
pub(crate) struct Background {
    signal: Arc<Signal>,
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

impl Background {
    /// Starts the thread.
    pub fn spawn(&self, journal: &Arc<Journal>) {
        let weak = Arc::downgrade(journal);
        let signal = self.signal.clone();
        let interval = journal.options.commit_interval;
        let thread = thread::Builder::new()
            .name("sluice-journal".into())
            .spawn(move || {
                let mut deadline = sync::time::now() + interval;
                loop {
                    let mut requests = wait(&signal, deadline);
                    requests.commit |= sync::time::now() >= deadline;
                    if requests.stop || !work(&weak, &requests) {
                        break;
                    }
                    if requests.commit {
                        deadline = sync::time::now() + interval;
                    }
                }
            });
        match thread {
            Ok(thread) => *self.thread.lock() = Some(thread),
            // Commits then happen only on request or when a transaction is full.
            Err(error) => tracing::error!(%error, "the journal has no background thread"),
        }
    }
    /// Requests a commit of the running transaction.
    pub fn request_commit(&self) {
        self.signal.requests.lock().commit = true;
        self.signal.changed.notify_one();
    }
    /// Requests a checkpoint.
    pub fn request_checkpoint(&self) {
        self.signal.requests.lock().checkpoint = true;
        self.signal.changed.notify_one();
    }
    /// Stops the thread and waits for it, unless it is the caller.
    pub fn stop(&self) {
        self.signal.requests.lock().stop = true;
        self.signal.changed.notify_one();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// Waits for a request or the deadline, and takes the requests.
fn wait(signal: &Signal, deadline: Instant) -> Requests {
    let mut requests = signal.requests.lock();
    while !requests.stop && !requests.commit && !requests.checkpoint {
        if signal
            .changed
            .wait_until(&mut requests, deadline)
            .timed_out()
        {
            break;
        }
    }
    let stop = requests.stop;
    let taken = std::mem::take(&mut *requests);
    requests.stop = stop;
    taken
}

/// Carries out the requests. Returns `false` if the journal is gone or has stopped. The journal
/// keeps errors.
fn work(journal: &Weak<Journal>, requests: &Requests) -> bool {
    let Some(journal) = journal.upgrade() else {
        return false;
    };
    if journal.error().is_some() {
        return false;
    }
    if requests.commit && journal.has_changes() {
        if let Some(client) = journal.client() {
            client.before_commit();
        }
        let _ = journal.commit_because(journal.running_tid(), CommitReason::Internal);
    }
    if requests.checkpoint {
        let result = journal.checkpoint_all();
        let _ = journal.stop_on_error(result);
    }
    true
}

impl Journal {
    /// Returns whether a commit would write anything.
    fn has_changes(&self) -> bool {
        let empty = self
            .gate
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .is_empty();
        !empty || self.pending_blocks() > 0
    }
}
