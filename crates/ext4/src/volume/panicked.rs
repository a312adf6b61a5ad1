//! What follows a panic.

use crate::Fs;
use jbd2::JournalError;

impl Fs {
    /// Stops the volume after a panic in `what`: structures in memory may be half changed. Nothing
    /// more is committed, the volume is read-only, and the journal carries the error: the next
    /// mount and e2fsck find the volume marked as having errors, and it is never marked clean by
    /// this one.
    pub fn stop_after_panic(&self, what: &str) {
        if !self.is_read_only() {
            let reason = format!("a panic in {what}");
            self.journal.abort(&JournalError::Aborted(reason));
        }
    }
}
