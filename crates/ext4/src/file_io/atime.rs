//! The access time of files, directories and symbolic links that are read.

use crate::{Fs, InodeRef};
use ext4_format::inode::{InodeFields, InodeFlags, Timestamp};

/// relatime: an access time older than this is updated in any case, in seconds.
const RELATIME_AGE: i64 = 24 * 60 * 60;

impl Fs {
    /// Whether [`Fs::note_access`] would update the access time.
    pub fn access_is_due(&self, inode: &InodeRef) -> bool {
        let now = self.now();
        self.notes_accesses() && inode.fields(|f| is_due(f, now))
    }

    fn notes_accesses(&self) -> bool {
        self.options.atime && !self.is_read_only()
    }

    /// Updates the access time after a read, by the rules of relatime, if the mount options ask for
    /// that. Returns whether it has changed.
    pub fn note_access(&self, inode: &InodeRef) -> bool {
        if !self.notes_accesses() {
            return false;
        }
        let now = self.now();
        let updated = inode.change_fields(|f| {
            let updates = is_due(f, now);
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

/// The rule of relatime: whether a read at the time `now` updates the access time.
fn is_due(fields: &InodeFields<()>, now: Timestamp) -> bool {
    let atime = fields.atime;
    let is_old =
        atime <= fields.mtime || atime <= fields.ctime || now.secs - atime.secs >= RELATIME_AGE;
    is_old && !fields.flags.contains(InodeFlags::NOATIME)
}
