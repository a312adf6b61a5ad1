//! The steps before an operation fails with `NoSpace`.
//!
//! Algorithm, for every operation that may need space ([`Fs::with_space`]):
//! 1. Run the operation. If it returns `NoSpace` it has changed nothing, or reports what it left
//!    undone.
//! 2. Release freed blocks: delete the unlinked files without users, wait for deletions by other
//!    threads, and commit the transaction that freed blocks. Then repeat 1.
//! 3. Settle promises that are larger than needed, by writing dirty files. Then repeat 1.
//! 4. Wait a few milliseconds while [`DeletedInodes`] holds unlinked files, and repeat 2 and 1. A
//!    program that removes a file and then writes relies on its space, but the kernel reports only
//!    later to a FUSE server that it has forgotten the file.
//!
//! A step without work costs a look at a counter, so a volume that is really full fails at once.

use crate::{Error, Fs, Result};
use std::sync::{OnceLock, Weak};
use std::time::Duration;
use sync::{Condvar, Mutex, Rank};

/// How often step 4 looks again, and how long it waits each time.
const RELEASE_WAITS: u32 = 10;
const RELEASE_DELAY: Duration = Duration::from_millis(5);

/// A user of the volume that keeps unlinked files for others: a FUSE server, for the kernel.
pub trait DeletedInodes: Send + Sync {
    /// Whether it holds an unlinked file that may be released soon.
    fn holds_any(&self) -> bool;
}

/// The [`DeletedInodes`] of a volume.
#[derive(Default)]
pub(crate) struct DeletedInodesSlot(OnceLock<Weak<dyn DeletedInodes>>);

/// About how many blocks one change of names or attributes may take.
pub(crate) const NAMESPACE_BLOCKS: u64 = 16;
/// For operations that may take any number of blocks.
pub(crate) const ANY_BLOCKS: u64 = u64::MAX;

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
    fn wait(&self) -> bool {
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
    /// Runs `work`, which may take up to `blocks`. While it returns `NoSpace`, takes the steps of
    /// this module and runs it again. Called with no lock and no handle held.
    ///
    /// # Errors
    /// Those of `work`; the journal's, where a commit fails.
    pub(crate) fn with_space<T>(
        &self,
        blocks: u64,
        mut work: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let is_full = |result: &Result<T>| matches!(result, Err(Error::NoSpace));
        // Attributes and directories have limits of their own, with the same error.
        let is_short = || self.groups.is_short_of(blocks);
        let mut result = work();
        // A commit may have made space just now.
        if is_full(&result) && !is_short() {
            result = work();
        }
        if is_full(&result) && is_short() && self.release_freed()? {
            result = work();
        }
        if is_full(&result) && is_short() && self.settle_promises()? {
            result = work();
        }
        let mut waits = 0;
        while is_full(&result) && is_short() && waits < RELEASE_WAITS && self.awaits_release() {
            waits += 1;
            self.options.clock.sleep(RELEASE_DELAY);
            self.release_freed()?;
            result = work();
        }
        result
    }

    /// Registers the holder of unlinked files. Only the first call has an effect.
    pub fn set_deleted_inodes(&self, holder: Weak<dyn DeletedInodes>) {
        let _ = self.deleted_inodes.0.set(holder);
    }

    fn awaits_release(&self) -> bool {
        let holder = self.deleted_inodes.0.get().and_then(Weak::upgrade);
        holder.is_some_and(|holder| holder.holds_any())
    }

    /// Step 2. Returns whether there was anything to release.
    fn release_freed(&self) -> Result<bool> {
        let any = !self.unlinked.lock().is_empty();
        self.delete_unlinked();
        let deleted = self.deletions.wait() || any;
        Ok(self.commit_freed()? || deleted)
    }

    /// Step 3. Returns whether there was anything to settle.
    fn settle_promises(&self) -> Result<bool> {
        if !self.groups.has_reserved_nodes() {
            return Ok(false);
        }
        // A file that cannot be written keeps its promise and the error.
        let _ = self.bdi.sync();
        self.commit_freed()?;
        Ok(true)
    }

    fn commit_freed(&self) -> Result<bool> {
        let waits = self.groups.commit_frees_blocks();
        if waits {
            self.journal.commit(self.journal.running_tid())?;
        }
        Ok(waits)
    }
}
