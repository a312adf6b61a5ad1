//! The journal's threads. Neither makes a thread that changes metadata wait for a device.
//!
//! - One commits at intervals, when a transaction has grown large, and when a handle waits for a
//!   full transaction to be closed.
//! - The other one writes checkpoints before the log is full, so that commits need not wait for
//!   space. A commit must not wait for it, so it is another thread.
//!
//! Each holds a reference to the journal only while it works, so it never keeps a journal alive.

use crate::Journal;
use crate::state::background::{CheckpointRequest, CommitRequest, Requests, Signal, Worker};
use crate::transaction::CommitReason;
use std::sync::{Arc, PoisonError, Weak};
use sync::thread;

/// Starts the threads.
pub(crate) fn spawn(journal: &Arc<Journal>) {
    let background = &journal.background;
    spawn_thread(
        journal,
        &background.commits,
        "sluice-journal",
        commit_thread,
    );
    let checkpoints = &background.checkpoints;
    spawn_thread(journal, checkpoints, "sluice-log-home", checkpoint_thread);
}

fn spawn_thread<R>(
    journal: &Arc<Journal>,
    worker: &Worker<R>,
    name: &str,
    run: fn(&Weak<Journal>, &Signal<R>),
) where
    R: Copy + Default + Ord + Send + 'static,
{
    let weak = Arc::downgrade(journal);
    let signal = worker.signal.clone();
    let thread = thread::Builder::new().name(name.into()).spawn(move || {
        let _serving = Serving::new(&weak, &signal);
        run(&weak, &signal);
    });
    match thread {
        Ok(thread) => worker.set_thread(thread),
        // Commits then happen only on request or when a transaction is full, and checkpoints when
        // the log is full.
        Err(error) => tracing::error!(%error, name, "a thread of the journal could not be started"),
    }
}

/// Marks a thread as serving. Threads that wait for its work are woken when it ends.
struct Serving<'a, R: Copy + Default + Ord> {
    journal: &'a Weak<Journal>,
    signal: &'a Signal<R>,
}

impl<'a, R: Copy + Default + Ord> Serving<'a, R> {
    fn new(journal: &'a Weak<Journal>, signal: &'a Signal<R>) -> Serving<'a, R> {
        signal.begin_serving();
        Serving { journal, signal }
    }
}

impl<R: Copy + Default + Ord> Drop for Serving<'_, R> {
    fn drop(&mut self) {
        self.signal.end_serving();
        if let Some(journal) = self.journal.upgrade() {
            journal.committing.notify();
        }
    }
}

fn commit_thread(weak: &Weak<Journal>, signal: &Signal<CommitRequest>) {
    let Some(interval) = weak
        .upgrade()
        .map(|journal| journal.options.commit_interval)
    else {
        return;
    };
    let mut deadline = sync::time::now() + interval;
    loop {
        let mut requests = signal.wait(Some(deadline));
        if requests.request == CommitRequest::None && sync::time::now() >= deadline {
            requests.request = CommitRequest::Interval;
        }
        if requests.stop || !commit(weak, signal, requests) {
            break;
        }
        if requests.request != CommitRequest::None {
            deadline = sync::time::now() + interval;
        }
    }
}

/// Carries out a request. Returns `false` if the journal is gone or has stopped. The journal keeps
/// errors.
fn commit(
    journal: &Weak<Journal>,
    signal: &Signal<CommitRequest>,
    requests: Requests<CommitRequest>,
) -> bool {
    let Some(journal) = journal.upgrade() else {
        return false;
    };
    if journal.error().is_some() {
        return false;
    }
    // Without changes, a handle may wait for blocks that running handles have reserved.
    let is_awaited = requests.request == CommitRequest::Awaited;
    if is_awaited || (requests.request != CommitRequest::None && journal.has_changes()) {
        if !is_awaited && let Some(client) = journal.client() {
            // The client may write files, and it may start handles. A handle that meets a full
            // transaction meanwhile commits by itself.
            signal.end_serving();
            journal.committing.notify();
            client.before_commit();
            signal.begin_serving();
        }
        // No thread waits for the flush of this commit: it waits for the readers.
        let _quiet = match requests.request {
            CommitRequest::Interval => journal
                .queue
                .throttle()
                .wait_for_flush(|| signal.is_asked()),
            _ => None,
        };
        let tid = match requests.request {
            CommitRequest::Awaited => journal.awaited.load(),
            _ => journal.running_tid(),
        };
        let _ = journal.commit_because(tid, CommitReason::Internal);
    }
    true
}

fn checkpoint_thread(weak: &Weak<Journal>, signal: &Signal<CheckpointRequest>) {
    loop {
        let requests = signal.wait(None);
        if requests.stop || write_home(weak, signal, requests.request).is_none() {
            break;
        }
    }
}

/// Carries out a request, part by part. Returns `None` if the journal is gone or has stopped, and
/// this thread is to stop. The journal keeps errors.
pub(crate) fn write_home(
    weak: &Weak<Journal>,
    signal: &Signal<CheckpointRequest>,
    request: CheckpointRequest,
) -> Option<()> {
    let journal = weak.upgrade()?;
    let last = match request {
        CheckpointRequest::All => journal.set.lock().transactions().map(|(_, last)| last),
        CheckpointRequest::None | CheckpointRequest::Part => None,
    };
    drop(journal);
    loop {
        let journal = weak.upgrade()?;
        if signal.is_stopped() || journal.error().is_some() {
            return None;
        }
        let is_due = last.is_some_and(|last| !journal.is_home(last));
        if !is_due && !journal.wants_checkpoint() {
            return Some(());
        }
        let result = journal.checkpoint_in_background();
        // Without a part, other volumes fill the memory.
        if !journal.stop_on_error(result).ok()? {
            return Some(());
        }
    }
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
