//! The data of files that somebody waits for: written through one plug, landed, recorded.
//!
//! Algorithm:
//! 1. *Sweep*: the dirty pages of each file, in the order given, go into the plug on behalf of the
//!    open batch, so that files which were written one after another get adjacent blocks and leave
//!    in large requests. A batch that has enough is sent; a few are in flight, and the oldest is
//!    finished first, so that memory is bounded however much is written ([`writeback::window`]).
//! 2. *Wait* for what others have in flight of the same files.
//! 3. *Once more*, for files that still have unlanded pages: such a page was under writeback with
//!    an earlier content. A page that is unlanded after that was dirtied since the call.
//!
//! Nothing of other files is written or waited for, except where the flusher has put it into one
//! batch with these.

use crate::writepages::{Batch, Route, Sweep};
use crate::{Error, Fs, Inode, Result, writepages};
use block::{IoError, Op, PAGE_SIZE, Plug};
use ext4_format::types::Ino;
use smallvec::SmallVec;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use sync::atomic::Ordering;
use writeback::Pace;
use writeback::window::{WINDOW, is_oldest_due};

/// Pages of a batch at most (4 MiB).
const BATCH_PAGES: usize = (4 << 20) / PAGE_SIZE;
/// Files of a batch at most.
const BATCH_INODES: usize = 1024;
/// Sweeps over the files: see the module's third step.
const SWEEPS: usize = 2;

/// One result for each of the files, in their order.
pub(super) type Results = SmallVec<[Result<()>; 1]>;

impl Fs {
    /// Writes what is dirty in `inode` now and waits for it to land and be recorded in the running
    /// transaction, so that no later change of metadata becomes durable without it.
    pub(crate) fn land(&self, inode: &Arc<Inode>) -> Result<()> {
        self.write_and_wait(&[inode], Route::Home)
            .pop()
            .unwrap_or(Ok(()))
    }

    /// Writes what is dirty in `inodes` now and waits for it to land and be recorded in the running
    /// transaction.
    pub(super) fn write_and_wait(&self, inodes: &[&Arc<Inode>], route: Route) -> Results {
        let mut results: Results = inodes.iter().map(|_| Ok(())).collect();
        // Each with the errors that were known before.
        let mut todo: SmallVec<[(usize, u64); 1]> = (0..inodes.len())
            .filter(|&i| inodes[i].has_unlanded())
            .map(|i| (i, inodes[i].errors.sample()))
            .collect();
        if todo.is_empty() {
            return results;
        }
        // A sync that runs beside this waits for it too.
        let _foreground = self.bdi.begin_foreground();
        for _ in 0..SWEEPS {
            let dirty = |&(i, _): &(usize, u64)| inodes[i].mapping.dirty_pages();
            let mut writer = Writer::new(self, route, todo.iter().map(dirty).sum());
            for &(i, _) in &todo {
                results[i] = writer.write(inodes[i]);
            }
            let failures = writer.finish();
            todo.retain(|&mut (i, _)| {
                let inode = inodes[i];
                self.wait_writeback(inode);
                if let (Ok(()), Some(error)) = (&results[i], failures.get(&inode.ino)) {
                    results[i] = Err(error.clone());
                }
                results[i].is_ok() && inode.has_unlanded()
            });
            if todo.is_empty() {
                return results;
            }
        }
        // A page that is unlanded still was dirtied meanwhile, or the flusher took it once more and
        // failed.
        for (i, mut known) in todo {
            if let Some(errno) = inodes[i].errors.check(&mut known) {
                results[i] = Err(Error::Io(IoError {
                    op: Op::Write,
                    offset: 0,
                    len: 0,
                    errno,
                }));
            }
        }
        results
    }
}

/// Step 1.
struct Writer<'fs> {
    fs: &'fs Fs,
    route: Route,
    plug: Plug<'fs>,
    open: Option<Arc<Batch>>,
    /// Pages that there are to write, and that have not been written.
    left: u64,
    /// Pages and files in the open batch.
    pages: usize,
    inodes: usize,
    /// Oldest first.
    in_flight: VecDeque<Arc<Batch>>,
    failures: HashMap<Ino, Error>,
    /// Pages that the open batch may have.
    room: usize,
    /// In steps while somebody syncs little.
    pace: Pace,
}

impl<'fs> Writer<'fs> {
    fn new(fs: &'fs Fs, route: Route, dirty: u64) -> Writer<'fs> {
        let mut writer = Writer {
            fs,
            route,
            plug: fs.queue.plug(),
            open: None,
            left: dirty,
            pages: 0,
            inodes: 0,
            in_flight: VecDeque::new(),
            failures: HashMap::new(),
            room: BATCH_PAGES,
            pace: Pace::default(),
        };
        writer.look_around();
        writer
    }

    /// Submits what is dirty in `inode`, in one sweep from its first page to its last.
    fn write(&mut self, inode: &Arc<Inode>) -> Result<()> {
        self.plug.boundary();
        let (mut from, mut end) = (0, u64::MAX);
        while inode.mapping.dirty_pages() > 0 {
            let lock = match inode.writeback_lock.try_lock() {
                Some(lock) => lock,
                None => {
                    // Its holder may wait for I/O that this plug holds back, or for the open batch
                    // to be closed.
                    self.send();
                    inode.writeback_lock.lock()
                }
            };
            let room = self.room - self.pages;
            let expected = self.left.min(room as u64);
            let (fs, plug) = (self.fs, &mut self.plug);
            let batch = self
                .open
                .get_or_insert_with(|| Batch::new(&fs.small_files, expected));
            let sweep = Sweep {
                from,
                end,
                max: room,
                sync: true,
                route: match inode.write_failed.load(Ordering::Acquire) {
                    true => Route::Home,
                    false => self.route,
                },
            };
            let submitted = fs.submit_pages(inode, &lock, sweep, plug, batch)?;
            drop(lock);
            self.pages += submitted.pages;
            self.left = self.left.saturating_sub(submitted.pages as u64);
            self.inodes += 1;
            if self.pages == self.room || self.inodes == BATCH_INODES {
                self.send();
            }
            if submitted.pages < room {
                break;
            }
            from = submitted.next;
            // A file that grows all the time must not keep the sweep from ending.
            end = end.min(writepages::end(inode));
        }
        Ok(())
    }

    /// Sends what is gathered on its way, and finishes batches that are due.
    fn send(&mut self) {
        let began = self.fs.options.clock.monotonic();
        self.plug.flush();
        self.close();
        if self.pace.step().is_some() {
            while !self.in_flight.is_empty() {
                self.finish_oldest();
            }
            self.fs.make_step_durable();
            let now = self.fs.options.clock.monotonic();
            self.pace.took(now.saturating_sub(began));
        }
        while is_oldest_due(self.in_flight.iter().map(|b| b.has_landed()), WINDOW) {
            self.finish_oldest();
        }
        self.look_around();
    }

    /// Begins or ends to go in steps.
    fn look_around(&mut self) {
        self.pace.look_around(&self.fs.bdi);
        self.room = self.pace.step().unwrap_or(BATCH_PAGES);
    }

    fn close(&mut self) {
        if let Some(batch) = self.open.take() {
            batch.close();
            self.in_flight.push_back(batch);
        }
        self.pages = 0;
        self.inodes = 0;
    }

    fn finish_oldest(&mut self) {
        let Some(batch) = self.in_flight.pop_front() else {
            return;
        };
        if self.fs.finish_for_sync(&batch).is_err() {
            self.failures.extend(batch.failures());
        }
    }

    /// Waits for everything; what did not land, by inode.
    fn finish(mut self) -> HashMap<Ino, Error> {
        // A lone request is carried out by this thread, which waits for it anyway.
        self.plug.flush_inline();
        self.close();
        while !self.in_flight.is_empty() {
            self.finish_oldest();
        }
        self.failures
    }
}
