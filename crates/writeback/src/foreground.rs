//! Fsync: the caller's thread writes the files itself, without the flusher.
//!
//! Algorithm ([`BackingDev::write_and_wait`]):
//! 1. *Sweep*: the dirty pages of each file, in the order given, go through the batch engine
//!    ([`crate::batches`]).
//! 2. *Wait* for what others have in flight of the same files.
//! 3. *Repeat once* for files that still have unrecorded pages: such a page was under writeback
//!    with an earlier content. A page that is unrecorded after that was dirtied since the call.
//!
//! Nothing of other files is written or waited for, except where the flusher has put it into one
//! batch with these.

use crate::backing_dev::BackingDev;
use crate::batches::{BatchCount, BatchOwner, BatchWriter, Batches, PendingBatch};
use crate::interface::{OnLocked, Reason, WritebackFs};
use crate::window::WINDOW;
use smallvec::SmallVec;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a batch at most.
const BATCH_BYTES: u64 = 4 << 20;
/// Sweeps over the files: see the module's third step.
const SWEEPS: usize = 2;

/// Linux's number of EIO: the error of a sync beside an fsync that panics.
const EIO: i32 = 5;

/// One result for each file, in their order.
pub type Results<E> = SmallVec<[Result<(), E>; 1]>;

/// An fsync as the owner of batches.
struct Fsync<F: WritebackFs> {
    route: F::Route,
    /// Batches of which something failed.
    failed: Vec<Arc<F::Batch>>,
}

impl<F: WritebackFs> BatchOwner<F> for Fsync<F> {
    fn route(&self) -> F::Route {
        self.route
    }
    fn batch_bytes(&self) -> u64 {
        BATCH_BYTES
    }
    fn window(&self) -> usize {
        WINDOW
    }
    fn begun(&mut self) -> Option<BatchCount> {
        None
    }
    fn sent(&mut self, _batches: &Batches<F>, _now: Duration) {}
    fn finished(
        &mut self,
        batch: PendingBatch<F>,
        result: Result<(), F::Error>,
        _batches: &Batches<F>,
        _now: Duration,
    ) {
        if result.is_err() {
            self.failed.push(batch.batch.clone());
        }
    }
}

impl<F: WritebackFs> BackingDev<F> {
    /// Writes what is dirty in `inodes` now, and waits until it has completed and is recorded.
    /// Pages that are dirtied later are not waited for.
    pub fn write_and_wait(
        &self,
        fs: &F,
        inodes: &[&Arc<F::Inode>],
        route: F::Route,
    ) -> Results<F::Error> {
        if inodes
            .iter()
            .all(|inode| F::mapping(inode).unlanded_pages() == 0)
        {
            return inodes.iter().map(|_| Ok(())).collect();
        }
        let foreground = self.foreground.begin();
        let write = AssertUnwindSafe(|| self.write_unlanded(fs, inodes, route));
        let results = catch_unwind(write).unwrap_or_else(|panic| {
            fs.panicked();
            foreground.fail(EIO);
            resume_unwind(panic)
        });
        if let Some(error) = results.iter().find_map(|result| result.as_ref().err()) {
            foreground.fail(F::errno(error));
        }
        results
    }

    fn write_unlanded(
        &self,
        fs: &F,
        inodes: &[&Arc<F::Inode>],
        route: F::Route,
    ) -> Results<F::Error> {
        let mut results: Results<F::Error> = inodes.iter().map(|_| Ok(())).collect();
        // Each with a cursor behind the errors that were known before.
        let mut todo: SmallVec<[(usize, u64); 1]> = (0..inodes.len())
            .filter(|&i| F::mapping(inodes[i]).unlanded_pages() > 0)
            .map(|i| (i, F::errors(inodes[i]).sample()))
            .collect();
        for _ in 0..SWEEPS {
            let dirty = |&(i, _): &(usize, u64)| F::mapping(inodes[i]).dirty_pages();
            let mut left = todo.iter().map(dirty).sum::<u64>();
            let mut batches = Batches::new();
            let owner = Fsync {
                route,
                failed: Vec::new(),
            };
            let mut writer = BatchWriter::new(fs, self, Reason::Sync, &mut batches, owner);
            for &(i, _) in &todo {
                writer.end_inode();
                if F::mapping(inodes[i]).dirty_pages() == 0 {
                    continue;
                }
                let progress = writer.sweep(inodes[i], OnLocked::Wait, left);
                left = left.saturating_sub(progress.pages as u64);
                if let Some(error) = progress.failed {
                    results[i] = Err(error);
                }
                writer.send_if_full();
            }
            writer.finish_inline();
            let failed = writer.owner.failed;
            todo.retain(|&mut (i, _)| {
                fs.wait_writeback(inodes[i]);
                let error = || failed.iter().find_map(|b| F::batch_error(b, inodes[i]));
                if results[i].is_ok()
                    && let Some(error) = error()
                {
                    results[i] = Err(error);
                }
                results[i].is_ok() && F::mapping(inodes[i]).unlanded_pages() > 0
            });
            if todo.is_empty() {
                return results;
            }
        }
        // A page that is still unrecorded was dirtied meanwhile, or the flusher took it again and
        // failed.
        for (i, mut known) in todo {
            if let Some(errno) = F::errors(inodes[i]).check(&mut known) {
                results[i] = Err(F::write_error(errno));
            }
        }
        results
    }
}
