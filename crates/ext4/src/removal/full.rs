//! The steps before an operation fails with `NoSpace`.
//!
//! Algorithm, for every operation that may need space ([`Fs::with_space`]):
//! 1. Run the operation. If it returns `NoSpace` it has changed nothing, or reports what it left
//!    undone.
//! 2. Release freed blocks: delete the unlinked files without users, wait for deletions by other
//!    threads, and commit the transaction that freed blocks or inodes. Then repeat 1, also if a
//!    commit of another thread has released blocks meanwhile.
//! 3. Settle promises that are larger than needed, by writing dirty files. Then repeat 1.
//! 4. Wait a few milliseconds while [`crate::DeletedInodes`] holds unlinked files. Then repeat 2
//!    and 1. A program that removes a file and then writes relies on its space, but the kernel
//!    reports only later to a FUSE server that it has forgotten the file.
//!
//! A step without work costs a look at a counter, so a volume that is really full fails at once.

use crate::{Error, Fs, Result};
use std::time::Duration;

/// How often step 4 looks again, and how long it waits each time.
const RELEASE_WAITS: u32 = 10;
const RELEASE_DELAY: Duration = Duration::from_millis(5);

/// About how many blocks one change of names or attributes may take.
pub(crate) const NAMESPACE_BLOCKS: u64 = 16;
/// For operations that may take any number of blocks.
pub(crate) const ANY_BLOCKS: u64 = u64::MAX;

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
        let releases = self.groups.releases();
        let mut result = work();
        // A commit may have made space just now.
        if is_full(&result) && !is_short() {
            result = work();
        }
        let has_released =
            || Ok::<_, Error>(self.release_freed()? || self.groups.releases() != releases);
        if is_full(&result) && is_short() && has_released()? {
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
        self.journal.pause();
        result
    }

    /// Step 2. Returns whether there was anything to release.
    fn release_freed(&self) -> Result<bool> {
        let any = !self.unlinked.is_empty();
        self.delete_unlinked();
        let deleted = self.unlinked.wait() || any;
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
        let waits = self.groups.commit_frees_space();
        if waits {
            self.journal.commit(self.journal.running_tid())?;
        }
        Ok(waits)
    }
}
