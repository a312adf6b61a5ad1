//! Whether there is anything to commit, found out without the commit lock.
//!
//! A change is in one of these places until it is durable, and it moves from each to the next:
//!
//! ```text
//!   a running handle (its credits) ──▶ the client's state ──▶ the running transaction ──▶ a committing transaction
//!                                              └─ moved by write_back_early ─┘
//! ```
//!
//! [`Journal::newest_change`] looks at the places in this order, so it meets each change that was
//! complete before. While the client's state moves into the transaction, a change may be in
//! neither. [`WriteBacks`] counts such moves, so that one during the look is noticed.

use super::Journal;
use crate::Tid;
use std::sync::PoisonError;
use sync::atomic::{AtomicU64, Ordering};

/// Counts the beginnings and ends of moves of the client's state into the running transaction: odd
/// during a move. Only one thread moves at a time, as it holds the commit lock.
#[derive(Default)]
pub(crate) struct WriteBacks(AtomicU64);

/// A move that is under way; it ends on drop.
pub(crate) struct Moving<'a>(&'a AtomicU64);

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

impl WriteBacks {
    pub fn begin(&self) -> Moving<'_> {
        self.0.fetch_add(1, Ordering::AcqRel);
        Moving(&self.0)
    }
    /// Returns what `look` returns; `None` if a move was under way meanwhile.
    fn between<T>(&self, look: impl FnOnce() -> T) -> Option<T> {
        let before = self.0.load(Ordering::Acquire);
        if before % 2 == 1 {
            return None;
        }
        let seen = look();
        (self.0.load(Ordering::Acquire) == before).then_some(seen)
    }
}

impl Journal {
    /// Returns a transaction that has, or comes after, every change that was complete before the
    /// call: the running one, or the one before it if the running one is empty. Takes no commit
    /// lock and closes no transaction, so a caller without changes disturbs no handle.
    pub fn newest_change(&self) -> Tid {
        let gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        let changed = || {
            !gate.is_unused()
                || self.client().is_some_and(|client| client.has_changes())
                || !gate.is_empty()
        };
        match self.write_backs.between(changed) {
            Some(false) => gate.tid.previous(),
            _ => gate.tid,
        }
    }
}
