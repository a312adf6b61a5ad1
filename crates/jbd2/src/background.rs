//! The journal's thread: commits at intervals or when a transaction has grown large, and
//! checkpoints before the log is full, so that commits need not wait for it.

use crate::Journal;
use crate::commit::Why;
use std::sync::{Arc, Weak};
use std::time::Instant;
use sync::thread::{self, JoinHandle};
use sync::{Condvar, Mutex, Rank};

#[derive(Default)]
struct Wanted {
    commit: bool,
    checkpoint: bool,
    stop: bool,
}

struct Signal {
    wanted: Mutex<Wanted>,
    changed: Condvar,
}

impl Default for Signal {
    fn default() -> Signal {
        Signal {
            wanted: Rank::JournalThread.mutex(Wanted::default()),
            changed: Condvar::new(),
        }
    }
}

/// The thread and how to reach it. The thread holds the journal only while it works, so that it
/// never keeps one alive.
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
                while let Some((mut commit, checkpoint)) = wait(&signal, deadline) {
                    if sync::time::now() >= deadline {
                        commit = true;
                    }
                    if !work(&weak, commit, checkpoint) {
                        break;
                    }
                    if commit {
                        deadline = sync::time::now() + interval;
                    }
                }
            });
        match thread {
            Ok(thread) => *self.thread.lock() = Some(thread),
            // Commits then happen when somebody asks for one or a transaction is full.
            Err(error) => tracing::error!(%error, "the journal has no background thread"),
        }
    }
    /// Asks for a commit of the running transaction.
    pub fn ask_commit(&self) {
        self.signal.wanted.lock().commit = true;
        self.signal.changed.notify_one();
    }
    /// Asks for a checkpoint.
    pub fn ask_checkpoint(&self) {
        self.signal.wanted.lock().checkpoint = true;
        self.signal.changed.notify_one();
    }
    /// Stops the thread and waits for it (unless it is the caller).
    pub fn stop(&self) {
        self.signal.wanted.lock().stop = true;
        self.signal.changed.notify_one();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// Waits for something to do: whether a commit and whether a checkpoint was asked for; `None` to
/// stop.
fn wait(signal: &Signal, deadline: Instant) -> Option<(bool, bool)> {
    let mut wanted = signal.wanted.lock();
    while !wanted.stop && !wanted.commit && !wanted.checkpoint {
        if signal.changed.wait_until(&mut wanted, deadline).timed_out() {
            break;
        }
    }
    if wanted.stop {
        return None;
    }
    let Wanted {
        commit, checkpoint, ..
    } = std::mem::take(&mut *wanted);
    Some((commit, checkpoint))
}

/// Does what was asked for; `false` where there is no journal left to do it for. Errors are latched
/// in the journal.
fn work(journal: &Weak<Journal>, commit: bool, checkpoint: bool) -> bool {
    let Some(journal) = journal.upgrade() else {
        return false;
    };
    if journal.error().is_some() {
        return false;
    }
    if commit && journal.has_changes() {
        if let Some(client) = journal.client() {
            client.before_commit();
        }
        let _ = journal.commit_because(journal.running_tid(), Why::Due);
    }
    if checkpoint {
        let result = journal.checkpoint_all();
        let _ = journal.stop_on_error(result);
    }
    true
}

impl Journal {
    /// Whether a commit would write anything.
    fn has_changes(&self) -> bool {
        let empty = self
            .gate
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .is_empty();
        !empty || self.pending_blocks() > 0
    }
}
