//! Unlinked files that are being deleted, or that a user of the volume still holds.

use crate::Fs;
use std::sync::{OnceLock, Weak};
use sync::{Condvar, Mutex, Rank};

/// A user of the volume that keeps unlinked files for others: a FUSE server, for the kernel.
pub trait DeletedInodes: Send + Sync {
    /// Whether it holds an unlinked file that may be released soon.
    fn holds_any(&self) -> bool;
}

/// The [`DeletedInodes`] of a volume.
#[derive(Default)]
pub(crate) struct DeletedInodesSlot(OnceLock<Weak<dyn DeletedInodes>>);

/// Deletions of unlinked files by any thread.
pub(crate) struct Deletions {
    count: Mutex<Count>,
    ended: Condvar,
}

impl Default for Deletions {
    fn default() -> Deletions {
        Deletions {
            count: Rank::Deletions.mutex(Count::default()),
            ended: Condvar::new(),
        }
    }
}

#[derive(Default)]
struct Count {
    begun: u64,
    ended: u64,
}

/// A running deletion; it ends on drop.
pub(crate) struct Deletion<'a>(&'a Deletions);

impl Deletions {
    /// Begins a deletion. Called before the inode leaves the queue, so that a thread that finds the
    /// queue empty waits for it.
    pub fn begin(&self) -> Deletion<'_> {
        self.count.lock().begun += 1;
        Deletion(self)
    }

    /// Waits until as many deletions have ended as had begun before the call. Returns whether there
    /// were any to wait for.
    pub fn wait(&self) -> bool {
        let mut count = self.count.lock();
        let begun = count.begun;
        let any = count.ended < begun;
        while count.ended < begun {
            self.ended.wait(&mut count);
        }
        any
    }
}

impl Drop for Deletion<'_> {
    fn drop(&mut self) {
        self.0.count.lock().ended += 1;
        self.0.ended.notify_all();
    }
}

impl Fs {
    /// Registers the holder of unlinked files. Only the first call has an effect.
    pub fn set_deleted_inodes(&self, holder: Weak<dyn DeletedInodes>) {
        let _ = self.deleted_inodes.0.set(holder);
    }

    /// Whether the holder has an unlinked file that may be released soon.
    pub(crate) fn awaits_release(&self) -> bool {
        let holder = self.deleted_inodes.0.get().and_then(Weak::upgrade);
        holder.is_some_and(|holder| holder.holds_any())
    }
}
