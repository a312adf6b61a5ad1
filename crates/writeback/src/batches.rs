//! The batch engine: dirty pages of many inodes leave in batches, a few of which are in flight.
//!
//! The flusher and every fsync use it. The file system does two things: it puts pages of an inode
//! into a batch ([`WritebackFs::write_pages`]), and it records the metadata of a batch whose I/O
//! has completed ([`WritebackFs::finish_batch`]). The engine decides how many pages a batch has and
//! when it is sent and finished.
//!
//! ```text
//!  write_slice          close            I/O completes        finish_oldest
//! ─────────────▶ open ─────────▶ in flight ─────────▶ completed ─────────────▶ finished
//! ```
//!
//! Algorithm:
//! 1. Slices of inodes go into the open batch and their bios into one plug, so that files which
//!    were written one after another get adjacent blocks and leave in large requests.
//! 2. A batch that has enough pages or inodes is closed: the plug is flushed.
//! 3. Batches are finished from the oldest on. A completed batch is finished while others are in
//!    flight, and the oldest is waited for where the window is full ([`crate::window`]). So memory
//!    is bounded, however much is dirty.
//! 4. A batch of the flusher is smaller where the device has no room for more background writes
//!    ([`block::Throttle`]). The flusher then waits with nothing held back.
//! 5. While other threads make small fsyncs, a sync proceeds in steps ([`block::SyncSteps`]): a
//!    batch has the pages of one step, and it is finished and made durable before the next one. The
//!    flusher finishes its batches together then: the next commit, which one of these fsyncs waits
//!    for, flushes the device for what was recorded.

use crate::backing_dev::BackingDev;
use crate::balance::{DirtyLimits, Share};
use crate::interface::{OnLocked, Progress, Reason, Slice, WritebackFs};
use crate::window::is_oldest_due;
use block::{Plug, SyncSteps};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use sync::atomic::{AtomicUsize, Ordering};
use units::{PageIndex, PageSize};

/// Slices of inodes in a batch at most.
const BATCH_SLICES: usize = 1024;

/// Batches' worth of data that is recorded together while threads make small fsyncs.
const RECORDED_TOGETHER: u64 = 3;
/// A file of at most this many bytes is not cut where the device's room ends.
const WHOLE_FILE: u64 = 256 << 10;

/// A batch that is open or in flight.
pub(crate) struct PendingBatch<F: WritebackFs> {
    pub(crate) batch: Arc<F::Batch>,
    inodes: SmallVec<[Arc<F::Inode>; 1]>,
    pages: u64,
    page_size: PageSize,
    limits: Arc<DirtyLimits>,
    share: Arc<Share>,
    _count: Option<BatchCount>,
}

impl<F: WritebackFs> PendingBatch<F> {
    fn add(&mut self, inode: Arc<F::Inode>, pages: u64) {
        self.inodes.push(inode);
        self.pages += pages;
        let bytes = pages * self.page_size.bytes();
        self.limits.submit(&self.share, bytes);
    }
    /// Bytes of its pages.
    pub(crate) fn bytes(&self) -> u64 {
        self.pages * self.page_size.bytes()
    }
    /// Those of its inodes that are dirty (again).
    fn dirty_inodes(&self) -> impl Iterator<Item = &Arc<F::Inode>> {
        self.inodes.iter().filter(|inode| F::is_dirty(inode))
    }
    /// Lists its inodes that are dirty (again). The flusher runs.
    pub(crate) fn mark_dirty(&self, dev: &BackingDev<F>) {
        for inode in self.dirty_inodes() {
            dev.list_if_dirty(inode);
        }
    }
}

impl<F: WritebackFs> Drop for PendingBatch<F> {
    fn drop(&mut self) {
        // It is open where its owner panics. Other threads wait for its files.
        F::close_batch(&self.batch);
        self.limits.settle(&self.share, self.bytes());
    }
}

/// Counts a batch from its beginning to its end.
pub(crate) struct BatchCount(Arc<AtomicUsize>);

impl BatchCount {
    pub(crate) fn new(counter: &Arc<AtomicUsize>) -> BatchCount {
        counter.fetch_add(1, Ordering::SeqCst);
        BatchCount(counter.clone())
    }
}

impl Drop for BatchCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The batches of one owner. They outlive a [`BatchWriter`] and a panic in the file system.
pub(crate) struct Batches<F: WritebackFs> {
    open: Option<PendingBatch<F>>,
    /// Oldest first.
    in_flight: VecDeque<PendingBatch<F>>,
    /// Held here while the file system finishes it.
    finishing: Option<PendingBatch<F>>,
}

impl<F: WritebackFs> Batches<F> {
    pub(crate) fn new() -> Batches<F> {
        Batches {
            open: None,
            in_flight: VecDeque::new(),
            finishing: None,
        }
    }
    /// The batch that has been in flight for longest.
    pub(crate) fn oldest(&self) -> Option<&PendingBatch<F>> {
        self.in_flight.front()
    }
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }
    pub(crate) fn any_in_flight(&self) -> bool {
        !self.in_flight.is_empty()
    }
    /// Whether nothing is open or in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.in_flight.is_empty() && self.open.is_none()
    }
    /// Restores order after a panic: the next writer finishes what was sent.
    pub(crate) fn recover(&mut self, dev: &BackingDev<F>) {
        self.in_flight.extend(self.open.take());
        if let Some(batch) = self.finishing.take() {
            batch.mark_dirty(dev);
        }
    }
    /// Drops all of them: the file system is gone.
    pub(crate) fn clear(&mut self) {
        self.in_flight.clear();
    }
}

/// The flusher or an fsync, on whose behalf batches are written.
pub(crate) trait BatchOwner<F: WritebackFs> {
    /// How batches go to the device.
    fn route(&self) -> F::Route;
    /// Bytes of a batch at most. A batch has at least one page.
    fn batch_bytes(&self) -> u64;
    /// Batches in flight while another one is gathered, at most.
    fn window(&self) -> usize;
    /// A batch begins; the guard counts it where the owner keeps count.
    fn begun(&mut self) -> Option<BatchCount>;
    /// The device is asked for room: it is busy, even if nothing is in flight.
    fn waits_for_room(&mut self, _now: Duration) {}
    /// The newest batch in flight was sent.
    fn sent(&mut self, batches: &Batches<F>, now: Duration);
    /// A batch is finished, with the first error of any of its inodes.
    fn finished(
        &mut self,
        batch: PendingBatch<F>,
        result: Result<(), F::Error>,
        batches: &Batches<F>,
        now: Duration,
    );
}

/// Writes batches for an owner, through one plug.
pub(crate) struct BatchWriter<'a, F: WritebackFs, O> {
    fs: &'a F,
    dev: &'a BackingDev<F>,
    reason: Reason,
    plug: Plug<'a>,
    batches: &'a mut Batches<F>,
    steps: SyncSteps,
    /// Bytes that may be gathered before the device is asked for room again. Without a limit it is
    /// asked for each batch, as a reader may have come.
    room: u64,
    pub(crate) owner: O,
}

impl<'a, F: WritebackFs, O: BatchOwner<F>> BatchWriter<'a, F, O> {
    pub(crate) fn new(
        fs: &'a F,
        dev: &'a BackingDev<F>,
        reason: Reason,
        batches: &'a mut Batches<F>,
        owner: O,
    ) -> BatchWriter<'a, F, O> {
        let mut writer = BatchWriter {
            fs,
            dev,
            reason,
            plug: dev.queue.plug(),
            batches,
            steps: SyncSteps::default(),
            room: 0,
            owner,
        };
        writer.update_steps();
        writer
    }

    /// Waits until the device has room for background writes ([`block::Throttle`]), and returns
    /// how many pages may be gathered, `most` at most. No lock is held. Nothing is held back
    /// meanwhile: the plug is flushed, and the open batch is sent, so that others can finish it.
    /// The pages are those of a file that ends at `end`; a small one is not cut. `is_urgent` is
    /// true once a thread waits for these writes.
    pub(crate) fn wait_for_room(
        &mut self,
        reason: block::Reason,
        most: u64,
        end: PageIndex,
        is_urgent: impl Fn() -> bool,
    ) -> u64 {
        let page = self.dev.page_size;
        if self.room < page.bytes() {
            self.send();
            self.owner.waits_for_room(self.dev.clock.monotonic());
            let want = most * page.bytes();
            self.room = self.dev.queue.wait_for_room(reason, want, is_urgent);
        }
        let least = match page.offset_of(end) <= WHOLE_FILE {
            true => page.count_in(WHOLE_FILE),
            false => 1,
        };
        page.count_in(self.room).max(least).min(most)
    }

    /// Puts a slice of an inode into the open batch.
    pub(crate) fn write_slice(
        &mut self,
        inode: &Arc<F::Inode>,
        slice: Slice,
        expected: u64,
    ) -> Progress<F::Error> {
        let open = match &mut self.batches.open {
            Some(open) => open,
            none => none.insert(PendingBatch {
                batch: self.fs.new_batch(expected, self.owner.route()),
                inodes: SmallVec::new(),
                pages: 0,
                page_size: self.dev.page_size,
                limits: self.dev.limits.clone(),
                share: self.dev.share.clone(),
                _count: self.owner.begun(),
            }),
        };
        let progress = self
            .fs
            .write_pages(inode, slice, &mut self.plug, &open.batch);
        open.add(inode.clone(), progress.pages as u64);
        if self.room != u64::MAX {
            let bytes = progress.pages as u64 * self.dev.page_size.bytes();
            self.room = self.room.saturating_sub(bytes);
        }
        progress
    }

    /// Writes an inode from its first dirty page to its last, in as many batches as that takes. The
    /// sweep ends although the file grows: it has the pages that were there when it began its
    /// second slice. `expected` is how many pages the caller is about to write in all, if it knows.
    pub(crate) fn sweep(
        &mut self,
        inode: &Arc<F::Inode>,
        on_locked: OnLocked,
        expected: u64,
    ) -> Progress<F::Error> {
        let mut slice = Slice {
            pages: 0,
            reason: Reason::Sync,
            from: PageIndex::FIRST,
            end: PageIndex::END,
            on_locked: OnLocked::Skip,
        };
        let mut pages = 0;
        loop {
            let gathered = self.batches.open.as_ref().map_or(0, |open| open.pages);
            let room = self.batch_pages().saturating_sub(gathered).max(1);
            slice.pages = room as usize;
            let left = expected.saturating_sub(pages as u64).min(room);
            let progress = self.write_slice(inode, slice, left);
            if progress.locked && slice.on_locked != on_locked {
                // The holder of the lock may wait for I/O that this plug holds back, or for the
                // open batch.
                self.send();
                slice.on_locked = on_locked;
                continue;
            }
            slice.on_locked = OnLocked::Skip;
            pages += progress.pages;
            if !progress.more || progress.pages < slice.pages {
                return Progress {
                    pages,
                    blocked: progress.blocked && pages == 0,
                    ..progress
                };
            }
            self.send_if_full();
            slice.from = progress.next;
            slice.end = slice.end.min(F::end(inode));
        }
    }

    /// [`BatchWriter::sweep`] after the end of the writes of the inode that other threads have in
    /// flight. Waits while another thread writes the inode.
    pub(crate) fn wait_and_sweep(&mut self, inode: &Arc<F::Inode>) -> Progress<F::Error> {
        if F::mapping(inode).writeback_pages() > 0 {
            self.close();
            self.fs.wait_writeback(inode);
        }
        self.sweep(inode, OnLocked::Wait, u64::MAX)
    }

    /// Ends a file, so that the plug may send what it holds where plugging is per file.
    pub(crate) fn end_inode(&mut self) {
        self.plug.boundary();
    }

    /// Sends the open batch if it has enough. Returns whether it did.
    pub(crate) fn send_if_full(&mut self) -> bool {
        let most = self.batch_pages();
        let open = self.batches.open.as_ref();
        let full = open.is_some_and(|b| b.pages >= most || b.inodes.len() >= BATCH_SLICES);
        if full {
            self.send();
        }
        full
    }

    /// Sends the open batch, and finishes batches that are due.
    fn send(&mut self) {
        if self.room == u64::MAX {
            self.room = 0;
        }
        let began = self.dev.clock.monotonic();
        self.close();
        if self.steps.bytes().is_some() {
            self.finish_all();
            self.fs.make_step_durable();
            let took = self.dev.clock.monotonic().saturating_sub(began);
            self.steps.record(took);
        }
        if !self.records_later() {
            while self.is_oldest_due() {
                self.finish_oldest();
            }
        }
        self.update_steps();
    }

    /// Whether completed batches are not finished yet. Recorded data becomes part of the running
    /// transaction, and the next commit flushes the device for it. So while other threads make
    /// small fsyncs, the flusher records small batches together.
    fn records_later(&mut self) -> bool {
        let now = self.dev.clock.monotonic();
        if self.reason == Reason::Sync || !self.dev.queue.throttle().expects_small_sync(now) {
            return false;
        }
        let bytes: u64 = self.batches.in_flight.iter().map(PendingBatch::bytes).sum();
        if bytes < RECORDED_TOGETHER * self.owner.batch_bytes() {
            return true;
        }
        self.finish_completed();
        false
    }

    /// Sends the open batch.
    pub(crate) fn close(&mut self) {
        self.plug.flush();
        self.note_sent();
    }

    /// Sends the last batch and finishes all. A lone request is carried out by the calling thread,
    /// which waits for it anyway.
    pub(crate) fn finish_inline(&mut self) {
        self.plug.flush_inline();
        self.note_sent();
        self.finish_all();
    }

    fn note_sent(&mut self) {
        if let Some(open) = self.batches.open.take() {
            // A thread that needs one of its files finishes it, whatever this one waits for next.
            F::close_batch(&open.batch);
            self.batches.in_flight.push_back(open);
            self.owner.sent(self.batches, self.dev.clock.monotonic());
        }
    }

    /// Finishes batches that have completed, from the oldest on.
    pub(crate) fn finish_completed(&mut self) {
        while let Some(oldest) = self.batches.oldest()
            && self.fs.batch_completed(&oldest.batch)
        {
            self.finish_oldest();
        }
    }

    /// Finishes every batch that is in flight.
    pub(crate) fn finish_all(&mut self) {
        while self.batches.any_in_flight() {
            self.finish_oldest();
        }
    }

    fn finish_oldest(&mut self) {
        let Some(oldest) = self.batches.in_flight.pop_front() else {
            return;
        };
        let batch = oldest.batch.clone();
        self.batches.finishing = Some(oldest);
        let result = self.fs.finish_batch(&batch, self.reason);
        if let Some(oldest) = self.batches.finishing.take() {
            let now = self.dev.clock.monotonic();
            self.owner.finished(oldest, result, self.batches, now);
        }
    }

    /// Whether a batch is to be finished before another one is gathered.
    fn is_oldest_due(&self) -> bool {
        let in_flight = self.batches.in_flight.iter();
        let completed = in_flight.map(|b| self.fs.batch_completed(&b.batch));
        is_oldest_due(completed, self.owner.window())
    }

    /// Pages of a batch at most, at least one.
    pub(crate) fn batch_pages(&self) -> u64 {
        let step = self.steps.bytes();
        let bytes = step.unwrap_or_else(|| self.owner.batch_bytes());
        self.dev.page_size.count_in(bytes).max(1)
    }

    fn update_steps(&mut self) {
        if self.reason == Reason::Sync {
            let now = self.dev.clock.monotonic();
            self.steps.update(self.dev.queue.throttle(), now);
        }
    }
}
