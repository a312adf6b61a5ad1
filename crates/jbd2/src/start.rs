//! The start of a handle, which may wait for a commit.

use crate::state::background::CommitRequest;
use crate::state::handle::assert_none_held;
use crate::transaction::CommitReason;
use crate::{Handle, Journal, JournalError, Tid};
use std::sync::PoisonError;
use sync::atomic::Ordering;

impl Journal {
    /// Joins the running transaction. May wait for a commit or for log space, so the caller must
    /// not hold a lock that these need.
    ///
    /// # Errors
    /// [`JournalError::TooLarge`] for more than [`Journal::max_credits`], or an error that says why
    /// nothing can be changed.
    pub fn start(&self, credits: u32) -> Result<Handle<'_>, JournalError> {
        assert_none_held("a handle is started");
        if self.read_only {
            return Err(JournalError::ReadOnly);
        }
        if credits > self.max_transaction {
            return Err(JournalError::TooLarge {
                asked: credits,
                most: self.max_transaction,
            });
        }
        loop {
            self.check()?;
            let gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
            // Under the gate: `close` sets this while it has the gate for itself.
            if self.closed.load(Ordering::Relaxed) {
                return Err(JournalError::Closed);
            }
            if self.reserve(&gate, credits) {
                return Ok(Handle::counted(self, gate, credits));
            }
            let full = gate.tid;
            // Under the gate: no commit looks at the transaction meanwhile.
            let found_empty = self.found_empty.load(Ordering::Acquire);
            drop(gate);
            self.wait_for_room(full, found_empty)?;
        }
    }
    /// Waits until transaction `full` is closed, or was found empty more than `found_empty` times:
    /// the handles that had reserved its blocks have ended without a change. The journal's thread
    /// commits it, unless that has ended or may itself wait for handles. So this thread does not
    /// wait for the log or for a device, except behind an earlier transaction.
    fn wait_for_room(&self, full: Tid, found_empty: u64) -> Result<(), JournalError> {
        assert_none_held("a commit is waited for");
        let has_room = || {
            self.running_tid() != full || self.found_empty.load(Ordering::Acquire) != found_empty
        };
        let commits = &self.background.commits.signal;
        if commits.is_served() {
            self.awaited.advance(full);
            self.background.request_commit(CommitRequest::Awaited);
            self.queue.throttle().kick();
            self.committing
                .wait_until(|| has_room() || !commits.is_served() || self.error().is_some());
        }
        let Some(mut state) = self.committing.lock_unless(has_room) else {
            return Ok(());
        };
        let result = self.commit_running(&mut state, CommitReason::Internal);
        self.stop_on_error(result)
    }
}
