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
    /// Whether none is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.state.lock().running.is_empty()
    }
    /// Waits for all that began before this call.
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
