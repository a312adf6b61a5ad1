//! Making the whole volume durable, at once or in the steps of a large sync.

use crate::state::SizeToSync;
use crate::{Error, Fs, Inode, Result};
use block::Reason;
use std::sync::Arc;

/// Bytes of metadata that the steps of a large sync leave to the commit of a concurrent small
/// fsync.
const STEP: u32 = 2 << 20;

impl Fs {
    /// Makes everything that is dirty now durable: data, then metadata by one commit. Concurrent
    /// callers share both ([`writeback::Ticket`]). If everything is durable, this takes a
    /// microsecond or less, starts nothing and stops no other thread. A concurrent unmount makes
    /// the same durable by its last sync; then this returns the unmount's outcome.
    ///
    /// # Errors
    /// The first error of any file; the journal's error if it has stopped.
    pub fn sync(&self) -> Result<()> {
        self.sync_shared()
            .or_else(|error| match &*self.lock_unmounted() {
                // Pages that it has not written are not durable.
                Some(Ok(())) if self.bdi.dirty_pages() > 0 => Err(error),
                Some(outcome) => outcome.clone(),
                None => Err(error),
            })
    }

    /// [`Fs::sync`] without regard to a concurrent unmount.
    pub(super) fn sync_shared(&self) -> Result<()> {
        if self.is_clean() {
            return self.check_journal();
        }
        self.syncs.share(|| self.sync_now())
    }

    /// Whether [`Fs::sync_now`] would find nothing to do for changes that were complete before this
    /// call. May be false although everything is durable. Takes no commit lock.
    pub(super) fn is_clean(&self) -> bool {
        // In this order, in which a change moves: deletions and data end in the journal.
        self.unlinked.is_empty()
            && self.bdi.is_clean()
            && self.waiting_sizes.begin_search().is_none()
            && self.journal.is_committed(self.journal.newest_change())
            && self.queue.is_durable(self.queue.written())
    }

    /// [`Fs::sync`] by the calling thread, alone.
    pub(crate) fn sync_now(&self) -> Result<()> {
        self.delete_unlinked();
        let sizes = self.sizes_to_sync();
        let data = self.bdi.sync();
        sizes
            .iter()
            .try_for_each(|(inode, begin)| inode.follow_to(self, *begin))?;
        // Also on a volume that has become read-only: the last commit of an unmount may be still to
        // come.
        if !self.queue.read_only() {
            self.commit_all()?;
        }
        // Changes that the journal had when it stopped are lost, although nothing is dirty.
        self.check_journal()?;
        data.map_err(|e| Error::Io(io_error(&e)))
    }

    /// Files whose size was set beyond their pages and is not on disk: a sync that begins now makes
    /// these sizes durable, too. Looks at dirty files only, and only if such a size was set since
    /// the last search found none.
    fn sizes_to_sync(&self) -> Vec<(Arc<Inode>, SizeToSync)> {
        let Some(search) = self.waiting_sizes.begin_search() else {
            return Vec::new();
        };
        let files = self.unlanded_files.parts().flatten();
        let waiting = files.filter_map(|inode| {
            let begin = inode.size_beyond_pages()?;
            Some((inode, begin))
        });
        let waiting: Vec<_> = waiting.collect();
        if waiting.is_empty() {
            search.found_none();
        }
        waiting
    }

    /// Makes all completed writes and every change of metadata durable.
    pub(crate) fn commit_all(&self) -> Result<()> {
        let written = self.queue.written();
        self.journal.commit(self.journal.newest_change())?;
        Ok(self.queue.flush_up_to(written, Reason::Sync)?)
    }

    /// Makes a step of a large sync durable that has completed and is recorded. The commit of the
    /// next small fsync writes the recorded metadata, unless it is much: then it is committed here.
    /// The journal and the queue keep errors.
    pub(crate) fn make_step_durable(&self) {
        let written = self.queue.written();
        let running = self.journal.running_tid();
        if self.journal.running_blocks() >= STEP / self.geo.block_size {
            let _ = self.journal.commit(running);
        }
        let _ = self.queue.flush_up_to(written, Reason::Sync);
    }
}

/// The I/O error in a [`std::io::Error`].
fn io_error(e: &std::io::Error) -> block::IoError {
    let inner = e.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match inner {
        Some(Error::Io(io)) => *io,
        other => block::IoError {
            op: block::Op::Write,
            offset: 0,
            len: 0,
            errno: other
                .map(Error::errno)
                .or(e.raw_os_error())
                .unwrap_or(rustix::io::Errno::IO.raw_os_error()),
        },
    }
}
