//! The calls of the writeback engine and of the journal: a mount passes the volume down to them as
//! a [`WritebackFs`] and a [`JournalClient`].

use crate::state::{Batch, Route};
use crate::{Error, Fs, Inode, Result, writepages};
use block::{IoError, Op, Plug};
use cache::{ErrSeq, Mapping};
use jbd2::{FreedExtent, Handle, JournalClient, JournalError, Phase, Tid};
use std::sync::Arc;
use sync::atomic::Ordering;
use units::PageIndex;
use writeback::{DirtyState, Progress, Reason, Slice, WritebackFs};

impl WritebackFs for Fs {
    type Inode = Inode;
    type Batch = Batch;
    type Route = Route;
    type Error = Error;

    fn dirty_state(inode: &Inode) -> &DirtyState {
        &inode.data.dirty_state
    }

    fn mapping(inode: &Inode) -> &Mapping {
        &inode.mapping
    }

    fn errors(inode: &Inode) -> &ErrSeq {
        &inode.data.errors
    }

    fn is_dirty(inode: &Inode) -> bool {
        writepages::is_dirty(inode)
    }

    fn end(inode: &Inode) -> PageIndex {
        inode.end_page()
    }

    fn errno(error: &Error) -> i32 {
        error.errno()
    }

    fn write_error(errno: i32) -> Error {
        Error::Io(IoError {
            op: Op::Write,
            offset: 0,
            len: 0,
            errno,
        })
    }

    fn new_batch(&self, expected: u64, route: Route) -> Arc<Batch> {
        Batch::new(&self.small_files, expected, route)
    }

    fn write_pages(
        &self,
        inode: &Arc<Inode>,
        slice: Slice,
        plug: &mut Plug<'_>,
        batch: &Arc<Batch>,
    ) -> Progress<Error> {
        self.write_slice(inode, slice, plug, batch)
    }

    fn close_batch(batch: &Batch) {
        batch.close();
    }

    fn batch_completed(&self, batch: &Batch) -> bool {
        batch.close();
        batch.has_landed()
    }

    fn finish_batch(&self, batch: &Batch, reason: Reason) -> Result<()> {
        match reason {
            Reason::Sync => self.finish_for_sync(batch),
            _ => self.finish(batch),
        }
    }

    fn batch_error(batch: &Batch, inode: &Inode) -> Option<Error> {
        batch.error_of(inode.ino)
    }

    fn wait_writeback(&self, inode: &Inode) {
        self.wait_writeback(inode);
    }

    fn make_step_durable(&self) {
        self.make_step_durable();
    }

    fn panicked(&self) {
        self.stop_after_panic("writeback");
    }

    fn tick(&self) {
        self.delete_unlinked();
        self.discard_freed();
    }
}

impl JournalClient for Fs {
    fn write_back_state(&self, handle: &Handle<'_>, phase: Phase) {
        let mut result = self.changed_inodes.write_back(self, handle, phase);
        if phase != Phase::Ahead {
            result = result
                .and(self.groups.write_back_state(handle))
                .and(self.write_back_superblock(handle));
        }
        if let Err(error) = result {
            // Without this state the transaction would be incomplete, so it must not commit.
            tracing::error!("metadata could not be put into the journal: {error}");
            self.journal
                .abort(&JournalError::Aborted(error.to_string()));
        }
    }

    fn pending_blocks(&self) -> u32 {
        self.changed_inodes.pending_blocks() + self.groups.pending_blocks() + 1
    }

    fn has_changes(&self) -> bool {
        self.changed_inodes.pending_blocks() > 0
            || self.groups.pending_blocks() > 0
            || self.superblock_dirty.load(Ordering::Acquire)
            || self.errors.is_unsaved()
    }

    fn before_commit(&self) {
        self.write_truncated_files();
    }

    fn committed(&self, _tid: Tid, freed: &[FreedExtent]) {
        self.groups.released(freed);
        if self.options.discard {
            self.freed_runs.add(freed);
        }
    }

    fn aborted(&self, error: &JournalError) {
        // The error does not say which of two devices has failed.
        let why = match self.journal.device() {
            Some(device) => format!("{error} (the journal is on {})", device.name()),
            None => error.to_string(),
        };
        tracing::error!("{}: {why}; the volume is read-only now", self.queue.name());
        self.become_read_only(&why);
        self.errors
            .record("journal_stopped", None, &Error::Journal(error.clone()));
    }
}
