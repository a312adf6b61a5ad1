//! Foreground writeback that is under way, for a sync to wait for.

use std::collections::BTreeSet;
use sync::{Condvar, Mutex, Rank};

/// Foreground writeback that is under way.
pub(crate) struct ForegroundList {
    state: Mutex<ForegroundState>,
    ended: Condvar,
}

impl Default for ForegroundList {
    fn default() -> ForegroundList {
        ForegroundList {
            state: Rank::ForegroundList.mutex(ForegroundState::default()),
            ended: Condvar::new(),
        }
    }
}

#[derive(Default)]
struct ForegroundState {
    next: u64,
    running: BTreeSet<u64>,
    /// How many have failed.
    failures: u64,
    /// The error number of the last one that has failed.
    errno: i32,
}

/// Announces foreground writeback, from before it takes dirty pages until they are recorded. A sync
/// that runs concurrently waits for it: it may have taken pages that were dirty before the sync
/// began.
pub(crate) struct Foreground<'a> {
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
    /// Returns how many have failed.
    pub(crate) fn failures(&self) -> u64 {
        self.state.lock().failures
    }
    /// Whether none is under way, and none has failed since there were so many `failures`. Pages of
    /// one that failed are on the dirty lists again.
    pub(crate) fn is_idle_since(&self, failures: u64) -> bool {
        let state = self.state.lock();
        state.running.is_empty() && state.failures == failures
    }
    /// Waits for all that began before this call. Returns the last error number, if one has failed
    /// since there were so many `failures`.
    pub(crate) fn wait(&self, failures: u64) -> Option<i32> {
        let mut state = self.state.lock();
        let end = state.next;
        while state.running.first().is_some_and(|&oldest| oldest < end) {
            self.ended.wait(&mut state);
        }
        (state.failures != failures).then_some(state.errno)
    }
}

impl Foreground<'_> {
    /// A file could not be written: its pages are dirty again. A sync that waits for this
    /// writeback reports the error.
    pub(crate) fn fail(&self, errno: i32) {
        let mut state = self.list.state.lock();
        state.failures += 1;
        state.errno = errno;
    }
}

impl Drop for Foreground<'_> {
    fn drop(&mut self) {
        self.list.state.lock().running.remove(&self.id);
        self.list.ended.notify_all();
    }
}
