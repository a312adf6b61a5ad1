//! One pass of the flusher over dirty inodes, under one plug.
//!
//! Algorithm:
//! 1. Move inodes from `b_dirty` to `b_io`: all of them (background, reclaim, sync) or those that
//!    are old (periodic). [`crate::dirty_list`] draws the queues before and after.
//! 2. Take the oldest inode and write a slice of its pages through the batch engine
//!    ([`crate::batches`]). An inode with more pages goes to `b_more_io`, a blocked one to
//!    `blocked`, and one that was dirtied meanwhile to the end of `b_dirty`.
//! 3. When `b_io` is empty, take `b_more_io` and the inodes that became eligible since (not for a
//!    sync, which ends here). So each inode gets a slice in turn, however much the others have.
//! 4. The pass ends when no inode is eligible, when its reason no longer holds, when a sync waits,
//!    after an error, or after `dirty_writeback`, so that the tick is kept. Then all batches are
//!    finished. On a thread that is shared with other devices the pass ends after each batch, which
//!    stays in flight, and continues in the next turn.
//!
//! A sync sweeps each inode once, and goes round a second time after everything in flight was
//! finished. The second round takes pages that were under writeback with an earlier content, and
//! waits for inodes that another thread writes. An inode that is dirty after that was dirtied since
//! the sync began.

use crate::activity::Work;
use crate::backing_dev::BackingDev;
use crate::balance::Thresholds;
use crate::bandwidth::{Bandwidth, Completed};
use crate::batches::{BatchCount, BatchOwner, BatchWriter, Batches, PendingBatch};
use crate::dirty_list::{Entry, Written};
use crate::interface::{OnLocked, Progress, Reason, Slice, WritebackFs};
use crate::io_queues::{BACKOFF, IoQueues, Retry, backoff, list_redirtied};
use crate::threads::Flushers;
use crate::window::WINDOW;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use sync::atomic::Ordering;
use units::PageIndex;

/// Batches that a shared thread leaves in flight on a device.
const SHARED_WINDOW: usize = 1;

/// The bandwidth and the failures of the device.
pub(crate) struct DeviceHealth {
    bandwidth: Bandwidth,
    /// Failed batches in a row.
    failures: u32,
    /// No pass but a sync runs before.
    pub(crate) backoff_until: Duration,
}

impl DeviceHealth {
    pub(crate) fn new() -> DeviceHealth {
        DeviceHealth {
            bandwidth: Bandwidth::new(),
            failures: 0,
            backoff_until: Duration::ZERO,
        }
    }
    /// A batch failed.
    pub(crate) fn note_failure<F: WritebackFs>(&mut self, dev: &BackingDev<F>) {
        self.backoff_until = dev.clock.monotonic() + backoff(self.failures);
        self.failures = self.failures.saturating_add(1);
        dev.share.failing.store(true, Ordering::Relaxed);
        dev.failed_batches.fetch_add(1, Ordering::SeqCst);
    }
    fn note_success<F: WritebackFs>(&mut self, dev: &BackingDev<F>) {
        self.failures = 0;
        dev.share.failing.store(false, Ordering::Relaxed);
    }
}

/// A pass that gave way to other devices, and continues in the next turn.
#[derive(Clone, Copy)]
pub(crate) struct PausedPass {
    pub(crate) reason: Reason,
    /// For a reclaim: dirty pages at which it may stop.
    pub(crate) enough: u64,
}

/// The state of the flusher between passes. It outlives a pass that panics.
pub(crate) struct PassState<F: WritebackFs> {
    pub(crate) queues: IoQueues<F>,
    pub(crate) batches: Batches<F>,
    pub(crate) health: DeviceHealth,
    pub(crate) paused: Option<PausedPass>,
}

impl<F: WritebackFs> PassState<F> {
    pub(crate) fn new() -> PassState<F> {
        PassState {
            queues: IoQueues::new(),
            batches: Batches::new(),
            health: DeviceHealth::new(),
            paused: None,
        }
    }
}

/// The flusher as the owner of batches: it measures the device and backs off after failures.
struct PassOwner<'a, F: WritebackFs> {
    dev: &'a BackingDev<F>,
    health: &'a mut DeviceHealth,
    thresholds: Thresholds,
    batch_bytes: u64,
    thread: Thread,
    /// Batches are as large as the device has room for.
    limited: bool,
    /// The first error.
    outcome: io::Result<()>,
}

/// Whose thread a pass runs on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Thread {
    /// This device's, or a sync's turn on a shared one: the pass runs to its end.
    Own,
    /// Other devices are served after each batch.
    Shared,
}

impl<F: WritebackFs> PassOwner<'_, F> {
    fn update_batch_bytes(&mut self) {
        let (limits, share) = (&self.dev.limits, &self.dev.share);
        self.batch_bytes = limits.batch_bytes(share, self.thresholds, self.dev.flushers);
    }
    fn note_error(&mut self, error: io::Error) {
        if self.outcome.is_ok() {
            self.outcome = Err(error);
        }
    }
    /// Records which batch completes next, and since when. A shared thread sees completions late,
    /// so it cannot tell when a batch is overdue.
    fn note_oldest(&self, batches: &Batches<F>, now: Duration) {
        match batches.oldest() {
            Some(oldest) if self.dev.flushers == Flushers::PerDevice => {
                self.dev.share.set_oldest_batch(oldest.bytes(), now);
            }
            _ => self.dev.share.clear_oldest_batch(),
        }
    }
}

impl<F: WritebackFs> BatchOwner<F> for PassOwner<'_, F> {
    fn route(&self) -> F::Route {
        F::Route::default()
    }
    fn batch_bytes(&self) -> u64 {
        self.batch_bytes
    }
    fn window(&self) -> usize {
        match self.thread {
            Thread::Own => WINDOW,
            Thread::Shared => SHARED_WINDOW,
        }
    }
    fn begun(&mut self) -> Option<BatchCount> {
        Some(BatchCount::new(&self.dev.flusher_batches))
    }
    fn waits_for_room(&mut self, now: Duration) {
        self.health.bandwidth.busy(now);
        self.dev.control.activity.wait_for_room();
    }
    fn sent(&mut self, batches: &Batches<F>, now: Duration) {
        self.health.bandwidth.busy(now);
        if batches.in_flight() == 1 {
            self.note_oldest(batches, now);
        }
    }
    fn finished(
        &mut self,
        batch: PendingBatch<F>,
        result: Result<(), F::Error>,
        batches: &Batches<F>,
        now: Duration,
    ) {
        self.note_oldest(batches, now);
        let completed = Completed {
            bytes: batch.bytes(),
            // A batch that the throttle cut is as large as the device took.
            full: match self.limited {
                true => batch.bytes(),
                false => self.batch_bytes,
            },
            is_last: batches.is_empty(),
        };
        if let Some(rates) = self.health.bandwidth.completed(completed, now) {
            self.dev.share.set_bandwidth(rates);
            self.dev.limits.refresh(self.thresholds);
            self.update_batch_bytes();
        }
        match result {
            Ok(()) => self.health.note_success(self.dev),
            Err(error) => {
                batch.mark_dirty(self.dev);
                self.health.note_failure(self.dev);
                self.note_error(io::Error::from_raw_os_error(F::errno(&error)));
            }
        }
    }
}

/// The rounds of a sync. Other passes have one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    /// An inode that cannot be written now holds back no other.
    First,
    /// Such an inode is waited for.
    Second,
}

/// See the module.
pub(crate) struct Pass<'a, F: WritebackFs> {
    dev: &'a BackingDev<F>,
    queues: &'a mut IoQueues<F>,
    paused: &'a mut Option<PausedPass>,
    writer: BatchWriter<'a, F, PassOwner<'a, F>>,
    reason: Reason,
    /// For a reclaim: dirty bytes that are not in flight at which the pass may stop.
    enough: u64,
    until: Duration,
    /// Inodes that became dirty later than this are too young, in nanoseconds.
    until_ns: u64,
    round: Round,
    /// Whether other devices are served before this pass continues.
    turn_over: bool,
}

impl<'a, F: WritebackFs> Pass<'a, F> {
    /// Runs a pass. Returns the first error of any batch that was finished in it.
    pub(crate) fn run(
        dev: &'a BackingDev<F>,
        state: &'a mut PassState<F>,
        fs: &'a F,
        reason: Reason,
    ) -> io::Result<()> {
        let mut pass = Pass::new(dev, state, fs, reason);
        pass.write_inodes();
        pass.writer.close();
        *pass.paused = pass.turn_over.then_some(PausedPass {
            reason,
            enough: pass.enough,
        });
        match pass.writer.owner.thread {
            Thread::Own => pass.writer.finish_all(),
            Thread::Shared => pass.writer.finish_completed(),
        }
        if reason == Reason::Sync {
            pass.write_second_round();
        }
        pass.writer.owner.outcome
    }
    /// Finishes batches of an earlier pass that have completed.
    pub(crate) fn finish_completed(
        dev: &'a BackingDev<F>,
        state: &'a mut PassState<F>,
        fs: &'a F,
    ) -> io::Result<()> {
        let mut pass = Pass::new(dev, state, fs, Reason::Background);
        pass.writer.finish_completed();
        pass.writer.owner.outcome
    }
    /// Finishes all batches of an earlier pass.
    pub(crate) fn finish_all(
        dev: &'a BackingDev<F>,
        state: &'a mut PassState<F>,
        fs: &'a F,
    ) -> io::Result<()> {
        let mut pass = Pass::new(dev, state, fs, Reason::Sync);
        pass.writer.finish_all();
        pass.writer.owner.outcome
    }

    fn new(
        dev: &'a BackingDev<F>,
        state: &'a mut PassState<F>,
        fs: &'a F,
        reason: Reason,
    ) -> Pass<'a, F> {
        let thresholds = dev.thresholds();
        let paused = state.paused.take().filter(|paused| paused.reason == reason);
        let half = dev.limits.to_write() / 2;
        let mut owner = PassOwner {
            dev,
            health: &mut state.health,
            thresholds,
            batch_bytes: 0,
            thread: match dev.flushers {
                Flushers::Shared if reason != Reason::Sync => Thread::Shared,
                _ => Thread::Own,
            },
            limited: false,
            outcome: Ok(()),
        };
        owner.update_batch_bytes();
        Pass {
            dev,
            queues: &mut state.queues,
            paused: &mut state.paused,
            writer: BatchWriter::new(fs, dev, reason, &mut state.batches, owner),
            reason,
            enough: paused.map_or(half, |paused| paused.enough),
            until: dev.clock.monotonic() + dev.tunables().dirty_writeback.max(BACKOFF),
            until_ns: 0,
            round: Round::First,
            turn_over: false,
        }
    }

    fn write_inodes(&mut self) {
        self.refill();
        while !self.is_over() {
            let Some(entry) = self.next_inode() else {
                return;
            };
            self.write_inode(entry);
            let sent = self.writer.send_if_full();
            self.turn_over |= sent && self.writer.owner.thread == Thread::Shared;
        }
    }

    /// Whether the pass ends although there may be more to write.
    fn is_over(&self) -> bool {
        let dev = self.dev;
        if self.reason == Reason::Sync {
            return false;
        }
        let owner = &self.writer.owner;
        let now = dev.clock.monotonic();
        self.turn_over
            || dev.control.sync_waits.load(Ordering::Relaxed)
            || dev.share.closed.load(Ordering::Relaxed)
            || owner.health.backoff_until > now
            || now >= self.until
            || match self.reason {
                Reason::Background | Reason::Throttled => {
                    !dev.limits.over_background(&dev.share, owner.thresholds)
                }
                Reason::Reclaim => dev.limits.to_write() <= self.enough,
                Reason::Periodic | Reason::Sync => false,
            }
    }

    /// Moves the eligible inodes to `b_io`.
    fn refill(&mut self) {
        let dev = self.dev;
        self.until_ns = match self.reason {
            Reason::Periodic => {
                let expire = dev.tunables().dirty_expire.as_nanos() as u64;
                dev.now_ns().saturating_sub(expire)
            }
            _ => u64::MAX,
        };
        let retry = match self.reason {
            Reason::Sync => Retry::All,
            _ => Retry::Due,
        };
        self.queues.refill(dev, self.until_ns, retry);
    }

    fn next_inode(&mut self) -> Option<Entry<F::Inode>> {
        if self.queues.is_b_io_empty() && self.reason != Reason::Sync {
            self.refill();
        }
        self.queues.next(self.until_ns)
    }

    /// Writes a slice of an inode (all of it for a sync), and lists the inode where it belongs
    /// next.
    fn write_inode(&mut self, mut entry: Entry<F::Inode>) {
        let Some(inode) = entry.inode.clone() else {
            return;
        };
        let state = F::dirty_state(&inode);
        if !state.begin_write() {
            return self.dev.note_unlisted();
        }
        self.queues.begin(&entry);
        let progress = self.write_pages(&inode);
        self.writer.end_inode();
        self.queues.end();
        let remains = progress.more || progress.blocked;
        let stuck = progress.pages == 0;
        if !stuck {
            entry.blocked = 0;
        }
        let sync = self.reason == Reason::Sync;
        if let Some(error) = &progress.failed {
            if sync {
                let errno = F::errno(error);
                self.writer
                    .owner
                    .note_error(io::Error::from_raw_os_error(errno));
            }
            self.queues.requeue_blocked(self.dev, entry);
        } else if sync && (remains || F::is_dirty(&inode)) && self.round == Round::First {
            self.queues.requeue_second_round(self.dev, entry);
        } else if remains && stuck {
            self.queues.requeue_blocked(self.dev, entry);
        } else if remains {
            self.queues.requeue_more(self.dev, entry);
        } else {
            let written = match F::is_dirty(&inode) {
                true => state.list_again(),
                false => state.end_write(),
            };
            match written {
                Written::Clean | Written::Forgotten => self.dev.note_unlisted(),
                Written::Redirtied => list_redirtied(self.dev, inode),
            }
        }
    }

    fn write_pages(&mut self, inode: &Arc<F::Inode>) -> Progress<F::Error> {
        if self.reason == Reason::Sync {
            return match self.round {
                Round::First => self.writer.sweep(inode, OnLocked::Skip, u64::MAX),
                Round::Second => self.writer.wait_and_sweep(inode),
            };
        }
        let most = self.writer.batch_pages();
        let mut pages = 0;
        loop {
            let room = self.wait_for_room(most - pages as u64, F::end(inode));
            let slice = Slice {
                pages: room as usize,
                reason: self.slice_reason(),
                from: PageIndex::FIRST,
                end: PageIndex::END,
                on_locked: OnLocked::Skip,
            };
            let progress = self.writer.write_slice(inode, slice, u64::MAX);
            pages += progress.pages;
            let whole = pages as u64 >= most || progress.pages < slice.pages;
            if whole || !progress.more || self.is_over() {
                return Progress { pages, ..progress };
            }
        }
    }

    /// Pages that may be written now, from 1 to `most`. A shared thread does not wait for one
    /// device's room while others are idle.
    fn wait_for_room(&mut self, most: u64, end: PageIndex) -> u64 {
        if self.writer.owner.thread == Thread::Shared {
            return most;
        }
        let dev = self.dev;
        let reason = match dev.control.reclaim.load(Ordering::Relaxed) {
            true => Reason::Reclaim,
            false => self.slice_reason(),
        };
        let is_urgent = || {
            dev.control.sync_waits.load(Ordering::Relaxed)
                || dev.share.closed.load(Ordering::Relaxed)
        };
        let activity = &dev.control.activity;
        activity.set(Work::Writing(reason));
        let pages = self
            .writer
            .wait_for_room(reason.into(), most, end, is_urgent);
        activity.set(Work::Writing(reason));
        self.writer.owner.limited |= pages < most;
        pages
    }

    /// Why the next slice is written: a background pass may begin before writers are slowed, and
    /// end after that.
    fn slice_reason(&self) -> Reason {
        let dev = self.dev;
        match self.reason {
            Reason::Background | Reason::Throttled => {
                let thresholds = self.writer.owner.thresholds;
                match dev.limits.over_freerun(&dev.share, thresholds) {
                    true => Reason::Throttled,
                    false => Reason::Background,
                }
            }
            other => other,
        }
    }

    /// The second round of a sync.
    fn write_second_round(&mut self) {
        self.round = Round::Second;
        while let Some(entry) = self.queues.next_of_second_round() {
            self.write_inode(entry);
            self.writer.send_if_full();
        }
        self.writer.close();
        self.writer.finish_all();
    }
}
