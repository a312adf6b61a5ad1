//! What happens before anybody is told that the volume is full.
//!
//! Algorithm, for every operation that may need space ([`Fs::with_space`]):
//! 1. The operation runs. `NoSpace` has changed nothing, or is told of what it left undone.
//! 2. What was freed becomes available: deleted files that nobody uses any more give their blocks
//!    back, deletions that other threads have begun are waited for, and the transaction that freed
//!    blocks is committed. Then 1 again.
//! 3. Promises that are larger than what will be used are settled: dirty files are written. Then 1
//!    again.
//!
//! A step that has nothing to do costs a look at a counter, so a volume that is really full says so
//! at once.

use crate::{Error, Fs, Result};
use sync::{Condvar, Mutex};

/// Blocks that one change of names or attributes may take, roughly.
pub(crate) const NAMESPACE_BLOCKS: u64 = 16;
/// For operations that may take any number of blocks.
pub(crate) const ANY_BLOCKS: u64 = u64::MAX;

/// Deletions of unlinked files by any thread.
#[derive(Default)]
pub(crate) struct Deletions {
    count: Mutex<Count>,
    ended: Condvar,
}

#[derive(Default)]
struct Count {
    begun: u64,
    ended: u64,
}

/// One of them, until it is dropped.
pub(crate) struct Deletion<'a>(&'a Deletions);

impl Deletions {
    /// Begins one. To be called before the inode leaves the queue, so that a thread that finds the
    /// queue empty waits for it.
    pub fn begin(&self) -> Deletion<'_> {
        self.count.lock().begun += 1;
        Deletion(self)
    }

    /// Waits until as many have ended as had begun: whether there were any. More may begin all the
    /// time.
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
    /// Runs `work`, which may take up to `blocks`, and again after each step that may have made
    /// space if it says `NoSpace`: see the module. Called with no lock and no handle held.
    ///
    /// # Errors
    /// Those of `work`; the journal's, where a commit fails.
    pub(crate) fn with_space<T>(
        &self,
        blocks: u64,
        mut work: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let is_full = |result: &Result<T>| matches!(result, Err(Error::NoSpace));
        // Attributes and directories have limits of their own, which are told in the same way.
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
        result
    }

    /// Step 2: whether there was anything.
    fn release_freed(&self) -> Result<bool> {
        let any = !self.unlinked.lock().is_empty();
        self.delete_unlinked();
        let deleted = self.deletions.wait() || any;
        Ok(self.commit_freed()? || deleted)
    }

    /// Step 3: whether there was anything.
    fn settle_promises(&self) -> Result<bool> {
        if !self.groups.is_overpromised() {
            return Ok(false);
        }
        // What cannot be written keeps its promise, and its file keeps the error.
        let _ = self.bdi.sync();
        self.commit_freed()?;
        Ok(true)
    }

    fn commit_freed(&self) -> Result<bool> {
        let waits = self.groups.waits_for_commit();
        if waits {
            self.journal.commit(self.journal.running_tid())?;
        }
        Ok(waits)
    }
}
