//! The journal's thread. It commits at intervals and when a transaction has grown large, and writes
//! checkpoints before the log is full, so that commits need not wait for space.

use crate::Journal;
use crate::state::background::{Requests, Signal};
use crate::transaction::CommitReason;
use std::sync::{Arc, PoisonError, Weak};
use sync::thread;

/// Starts the thread. It holds a reference to the journal only while it works, so it never keeps a
/// journal alive.
pub(crate) fn spawn(journal: &Arc<Journal>) {
    let weak = Arc::downgrade(journal);
    let signal = journal.background.signal.clone();
    let interval = journal.options.commit_interval;
    let thread = thread::Builder::new()
        .name("sluice-journal".into())
        .spawn(move || {
            let mut deadline = sync::time::now() + interval;
            loop {
                let mut requests = signal.wait(deadline);
                if !requests.commit && sync::time::now() >= deadline {
                    // No thread waits for this commit: its flush waits for the readers.
                    wait_for_flush(&weak, &signal);
                    requests.commit = true;
                }
                if requests.stop || !work(&weak, &requests) {
                    break;
                }
                if requests.commit {
                    deadline = sync::time::now() + interval;
                }
            }
        });
    match thread {
        Ok(thread) => journal.background.set_thread(thread),
        // Commits then happen only on request or when a transaction is full.
        Err(error) => tracing::error!(%error, "the journal has no background thread"),
    }
}

/// Waits until a flush delays no reader for long, or until the thread is asked for something.
fn wait_for_flush(journal: &Weak<Journal>, signal: &Signal) {
    if let Some(journal) = journal.upgrade()
        && journal.has_changes()
    {
        let throttle = journal.queue.throttle();
        throttle.wait_for_flush(|| signal.is_asked());
    }
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
        let result = journal.checkpoint_in_background();
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
