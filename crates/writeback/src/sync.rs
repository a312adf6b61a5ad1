//! Sync as a ticket.
//!
//! Algorithm: a caller of sync joins the *group* that the flusher has not taken yet, and waits for
//! it. When the flusher takes the group it moves all that is dirty at that moment to its own list,
//! writes each inode on it once (a second time for pages that were under writeback with an earlier
//! content), finishes what is in flight, and ends the group. So a sync that arrives while another
//! runs shares the next one with all who do; what is dirtied after the group was taken is not
//! waited for; and the cost is what is dirty. Where nothing is dirty or in flight no thread is
//! woken at all.
//!
//! Writeback that somebody does on their own account (fsync) does not pass through the flusher;
//! [`Foreground`] makes it known. When the flusher has been through everything, a sync waits for
//! the foreground writeback that is under way then: it may have taken pages that were dirty before
//! the sync began.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use sync::{Condvar, Mutex};

/// An outcome that can be told to many. (`io::Error` cannot be cloned.)
#[derive(Clone, Debug)]
struct SharedError {
    errno: Option<i32>,
    kind: io::ErrorKind,
    text: Arc<str>,
}
impl SharedError {
    fn new(error: &io::Error) -> SharedError {
        SharedError {
            errno: error.raw_os_error(),
            kind: error.kind(),
            text: error.to_string().into(),
        }
    }
    fn to_io(&self) -> io::Error {
        match self.errno {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => io::Error::new(self.kind, &*self.text),
        }
    }
}

/// Callers of sync that are served together.
#[derive(Default)]
pub(crate) struct Group {
    outcome: Mutex<Option<Result<(), SharedError>>>,
    ended: Condvar,
}
impl Group {
    /// Ends it, unless it has ended.
    pub(crate) fn end(&self, outcome: io::Result<()>) {
        self.outcome
            .lock()
            .get_or_insert(outcome.map_err(|error| SharedError::new(&error)));
        self.ended.notify_all();
    }
    pub(crate) fn wait(&self) -> io::Result<()> {
        let mut outcome = self.outcome.lock();
        loop {
            if let Some(outcome) = &*outcome {
                return outcome.clone().map_err(|error| error.to_io());
            }
            self.ended.wait(&mut outcome);
        }
    }
    #[cfg(test)]
    pub(crate) fn ended(&self) -> Option<io::Result<()>> {
        let outcome = self.outcome.lock().clone();
        outcome.map(|outcome| outcome.map_err(|error| error.to_io()))
    }
}

/// Writeback under way outside the flusher.
#[derive(Default)]
pub(crate) struct ForegroundList {
    state: Mutex<ForegroundState>,
    ended: Condvar,
}
#[derive(Default)]
struct ForegroundState {
    next: u64,
    running: BTreeSet<u64>,
}

/// Announces that the caller takes dirty pages and writes them itself (fsync): hold it from before
/// the pages are taken until they have landed and are recorded. A sync that runs beside it waits
/// for it.
pub struct Foreground<'a> {
    list: &'a ForegroundList,
    id: u64,
}

impl ForegroundList {
    pub(crate) fn begin(&self) -> Foreground<'_> {
        let mut state = self.state.lock();
        let id = state.next;
        state.next += 1;
        state.running.insert(id);
        Foreground { list: self, id }
    }
    /// Waits for all that has begun before this call.
    pub(crate) fn wait(&self) {
        let mut state = self.state.lock();
        let end = state.next;
        while state.running.first().is_some_and(|&oldest| oldest < end) {
            self.ended.wait(&mut state);
        }
    }
}
impl Drop for Foreground<'_> {
    fn drop(&mut self) {
        self.list.state.lock().running.remove(&self.id);
        self.list.ended.notify_all();
    }
}
