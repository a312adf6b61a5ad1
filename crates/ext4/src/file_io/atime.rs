//! The access time of files, directories and symbolic links that are read.

use crate::{Fs, InodeRef};
use ext4_format::inode::InodeFlags;

/// relatime: an access time older than this is updated in any case, in seconds.
const RELATIME_AGE: i64 = 24 * 60 * 60;

impl Fs {
    /// Updates the access time after a read, by the rules of relatime, if the mount options ask for
    /// that. Returns whether it has changed.
    pub fn note_access(&self, inode: &InodeRef) -> bool {
        if !self.options.atime || self.is_read_only() {
            return false;
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
        // A read succeeds even where its time cannot be recorded.
        if updated && let Ok(handle) = self.journal.start(2) {
            inode.mark_dirty_attributes(self, &handle);
        }
        updated
    }
}
