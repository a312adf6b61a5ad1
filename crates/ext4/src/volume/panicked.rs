//! Stopping a volume after a panic.

use crate::Fs;
use jbd2::JournalError;

impl Fs {
    /// Stops the volume after a panic in `what`, because structures in memory may be half changed.
    /// Nothing more is committed, the volume is read-only and is never marked clean. The journal
    /// records the error for the next mount and for e2fsck.
    pub fn stop_after_panic(&self, what: &str) {
        if !self.is_read_only() {
            let reason = format!("a panic in {what}");
            self.journal.abort(&JournalError::Aborted(reason));
        }
    }
}
