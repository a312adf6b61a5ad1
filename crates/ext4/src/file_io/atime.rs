//! The access time of files that are read.

use crate::{Fs, Inode};
use ext4_format::inode::InodeFlags;
use std::sync::Arc;

/// relatime: an access time older than this is updated in any case, in seconds.
const RELATIME_AGE: i64 = 24 * 60 * 60;

impl Fs {
    /// Updates the access time after a read, by the rules of relatime.
    pub(super) fn touch_atime(&self, inode: &Arc<Inode>) {
        if !self.options.atime || self.is_read_only() {
            return;
        }
        let now = self.now();
        let updated = inode.change_fields(|f| {
            let stale =
                f.atime <= f.mtime || f.atime <= f.ctime || now.secs - f.atime.secs >= RELATIME_AGE;
            let updates = stale && !f.flags.contains(InodeFlags::NOATIME);
            if updates {
                f.atime = now;
            }
            updates
        });
        if !updated {
            return;
        }
        // A read succeeds even where its time cannot be recorded.
        if let Ok(handle) = self.journal.start(2) {
            inode.mark_dirty_attributes(self, &handle);
        }
    }
}
