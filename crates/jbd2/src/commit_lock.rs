//! The commit's lock, and what may be waited for instead of it.
//!
//! Whoever has it commits, and keeps it until the transaction is durable. Whoever only needs room
//! for a handle in the next transaction need not wait so long: [`CommitLock::or_until`] ends when
//! the lock is free or as soon as a transaction has been closed that makes the condition true.

use crate::form::CommitState;
use std::ops::{Deref, DerefMut};
use sync::{Condvar, Mutex, MutexGuard, Rank};

/// See the module.
pub(crate) struct CommitLock {
    state: Mutex<CommitState>,
    /// Held by those who are about to wait and by whoever wakes them, so that no wake-up is missed.
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

/// The lock, held. Its fields are dropped in this order: the lock is free when those who wait are
/// woken.
pub(crate) struct Committing<'a> {
    state: MutexGuard<'a, CommitState>,
    _wake: Wake<'a>,
}

/// Wakes those who wait when it is dropped.
struct Wake<'a>(&'a CommitLock);

impl Drop for Wake<'_> {
    fn drop(&mut self) {
        self.0.changed();
    }
}

impl CommitLock {
    /// Waits for the lock.
    pub fn lock(&self) -> Committing<'_> {
        self.held(self.state.lock())
    }
    /// The lock, if it is free.
    pub fn try_lock(&self) -> Option<Committing<'_>> {
        self.state.try_lock().map(|state| self.held(state))
    }
    /// Waits for the lock, unless it is `done` before.
    pub fn or_until(&self, done: impl Fn() -> bool) -> Option<Committing<'_>> {
        let mut waiting = self.waiting.lock();
        loop {
            if done() {
                return None;
            }
            if let Some(held) = self.try_lock() {
                // Whoever had it may have done it since, and then this wakes the others.
                drop(waiting);
                return (!done()).then_some(held);
            }
            self.wake.wait(&mut waiting);
        }
    }
    /// Wakes those who wait: a transaction was closed, or the lock is free.
    pub fn changed(&self) {
        drop(self.waiting.lock());
        self.wake.notify_all();
    }
    fn held<'a>(&'a self, state: MutexGuard<'a, CommitState>) -> Committing<'a> {
        Committing {
            state,
            _wake: Wake(self),
        }
    }
}

impl Deref for Committing<'_> {
    type Target = CommitState;
    fn deref(&self) -> &CommitState {
        &self.state
    }
}

impl DerefMut for Committing<'_> {
    fn deref_mut(&mut self) -> &mut CommitState {
        &mut self.state
    }
}
