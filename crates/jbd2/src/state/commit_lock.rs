//! The commit lock.
//!
//! Its holder commits, and keeps the lock until the transaction is durable. A thread that only
//! needs room for a handle does not wait that long: [`CommitLock::lock_unless`] returns as soon as
//! the full transaction is closed, and [`CommitLock::wait_until`] waits without locking.

use super::log_format::CommitState;
use std::ops::{Deref, DerefMut};
use std::time::Instant;
use sync::{Condvar, Mutex, MutexGuard, Rank};

/// A mutex around [`CommitState`] with a second condition to wait for.
pub(crate) struct CommitLock {
    state: Mutex<CommitState>,
    /// Prevents lost wake-ups: held between the check of the condition and the wait, and by
    /// [`CommitLock::notify`].
    waiting: Mutex<()>,
    wake: Condvar,
}

impl Default for CommitLock {
    fn default() -> CommitLock {
        CommitLock {
            state: Rank::Commit.mutex(CommitState::default()),
            waiting: Rank::CommitWaiting.mutex(()),
            wake: Condvar::new(),
        }
    }
}

/// Guard of a [`CommitLock`]. The fields are dropped in this order, so the lock is free when the
/// waiting threads wake up.
pub(crate) struct CommitGuard<'a> {
    state: MutexGuard<'a, CommitState>,
    _notify: NotifyOnDrop<'a>,
}

struct NotifyOnDrop<'a>(&'a CommitLock);

impl Drop for NotifyOnDrop<'_> {
    fn drop(&mut self) {
        self.0.notify();
    }
}

impl CommitLock {
    pub fn lock(&self) -> CommitGuard<'_> {
        self.guard(self.state.lock())
    }
    pub fn try_lock(&self) -> Option<CommitGuard<'_>> {
        self.state.try_lock().map(|state| self.guard(state))
    }
    /// Waits for the lock, or returns `None` as soon as `done` is true. The thread that makes
    /// `done` true must call [`CommitLock::notify`].
    pub fn lock_unless(&self, done: impl Fn() -> bool) -> Option<CommitGuard<'_>> {
        let mut waiting = self.waiting.lock();
        loop {
            if done() {
                return None;
            }
            if let Some(guard) = self.try_lock() {
                // Dropping the guard takes `waiting`.
                drop(waiting);
                // The previous holder may have made `done` true.
                return (!done()).then_some(guard);
            }
            self.wake.wait(&mut waiting);
        }
    }
    /// Waits until `done` is true. The thread that makes it true must call
    /// [`CommitLock::notify`], or drop a guard.
    pub fn wait_until(&self, done: impl Fn() -> bool) {
        let mut waiting = self.waiting.lock();
        while !done() {
            self.wake.wait(&mut waiting);
        }
    }
    /// As [`CommitLock::wait_until`], until the deadline at the latest.
    pub fn wait_until_deadline(&self, deadline: Instant, done: impl Fn() -> bool) {
        let mut waiting = self.waiting.lock();
        while !done() && !self.wake.wait_until(&mut waiting, deadline).timed_out() {}
    }
    /// Wakes the threads that wait, which check their condition again.
    pub fn notify(&self) {
        drop(self.waiting.lock());
        self.wake.notify_all();
    }
    fn guard<'a>(&'a self, state: MutexGuard<'a, CommitState>) -> CommitGuard<'a> {
        CommitGuard {
            state,
            _notify: NotifyOnDrop(self),
        }
    }
}

impl Deref for CommitGuard<'_> {
    type Target = CommitState;
    fn deref(&self) -> &CommitState {
        &self.state
    }
}

impl DerefMut for CommitGuard<'_> {
    fn deref_mut(&mut self) -> &mut CommitState {
        &mut self.state
    }
}
