//! Stopping the journal after a panic.

use super::Journal;
use crate::JournalError;

/// Stops the journal if the thread panics before this is dropped: what it was doing is incomplete,
/// and nothing may follow it.
pub(crate) struct StopOnPanic<'j> {
    journal: &'j Journal,
    what: &'static str,
    /// The thread was unwinding already.
    unwinding: bool,
}

impl<'j> StopOnPanic<'j> {
    /// The thread begins `what`.
    pub fn new(journal: &'j Journal, what: &'static str) -> StopOnPanic<'j> {
        StopOnPanic {
            journal,
            what,
            unwinding: sync::thread::panicking(),
        }
    }
}

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if sync::thread::panicking() && !self.unwinding {
            let why = format!("a thread panicked in {}", self.what);
            self.journal.stop(JournalError::Aborted(why));
        }
    }
}
