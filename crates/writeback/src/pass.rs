//! One pass of the flusher over dirty inodes, under one plug.
//!
//! Algorithm:
//! 1. Move inodes from `b_dirty` to `b_io`: all of them (background, reclaim, sync) or those that
//!    are old (periodic). See [`crate::dirty_inodes`] for the queues before and after.
//! 2. Take the oldest, have the file system submit a slice of its pages into the plug, on behalf of
//!    the open batch. What has more goes to `b_more_io`, what is blocked to `waiting`, what was
//!    dirtied meanwhile to the end of `b_dirty`.
//! 3. A batch is closed when it has enough inodes or pages: the plug is flushed, and up to four
//!    batches are under way. What has landed is finished beside them, and the oldest waited for
//!    when the window is full ([`crate::window`]).
//! 4. When `b_io` is empty, `b_more_io` and what became eligible since are next (not for a sync,
//!    which ends there): every inode has its turn, whatever others have dirty.
//! 5. The pass ends when nothing is eligible, when the reason is gone, when a sync waits, after an
//!    error, or after `dirty_writeback`, so that the tick is kept. Then all batches are finished.
//!    Where the thread is shared with other devices, it gives way to them after each batch, with
//!    that still in flight, and goes on in its next turn.
//!
//! A sync sweeps each inode once. Pages that were under writeback with an earlier content are taken
//! in a second round, after everything in flight was finished; inodes that are still blocked are
//! tried again for a second. Beside small syncs it goes in steps ([`crate::courtesy`]): a batch has
//! the pages of a step, and nothing is in flight behind it.

use crate::backing_dev::{BackingDev, PassLimits, Progress, Reason, WritebackFs};
use crate::balance::{DirtyLimits, Thresholds};
use crate::courtesy::Pace;
use crate::dirty_inodes::{Entry, Written};
use crate::flusher::{BACKOFF, Flusher, Rest};
use crate::threads::Flushers;
use crate::window::{WINDOW, is_oldest_due};
use block::{Plug, Queue};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use sync::atomic::Ordering;

/// Inodes of a batch at most.
const BATCH_INODES: usize = 1024;
/// Batches that a shared thread leaves in flight on a device.
const SHARED_WINDOW: usize = 1;
/// Instead of the time at which an inode became dirty, for one that had its turn: it is eligible
/// whatever its age.
pub(crate) const HAD_ITS_TURN: u64 = 0;
/// How often a sync comes back to inodes that are blocked while nothing of this flusher's is in
/// flight.
const SYNC_RETRIES: u32 = 50;

/// A batch, open or in flight.
pub(crate) struct OpenBatch<F: WritebackFs> {
    batch: Arc<F::Batch>,
    inodes: Vec<Arc<F::Inode>>,
    pages: u64,
    limits: Arc<DirtyLimits>,
}

impl<F: WritebackFs> OpenBatch<F> {
    fn add(&mut self, inode: Arc<F::Inode>, pages: u64) {
        self.inodes.push(inode);
        self.pages += pages;
        self.limits.submit(pages);
    }
    /// Puts its inodes that are dirty (again) on a list.
    pub(crate) fn mark_dirty(&self, dev: &BackingDev<F>) {
        for inode in self.inodes.iter().filter(|inode| F::is_dirty(inode)) {
            dev.mark_dirty(inode);
        }
    }
}

impl<F: WritebackFs> Drop for OpenBatch<F> {
    fn drop(&mut self) {
        self.limits.settle(self.pages);
    }
}

/// See the module.
pub(crate) struct Pass<'a, F: WritebackFs> {
    flusher: &'a mut Flusher<F>,
    fs: &'a Arc<F>,
    reason: Reason,
    /// Pages of a batch, and of a slice of one inode, at most.
    batch_pages: u64,
    thresholds: Thresholds,
    /// For a reclaim: dirty pages that are not in flight at which the pass may stop.
    enough: u64,
    until: Duration,
    /// Inodes that became dirty later than this are too young, in nanoseconds.
    until_ns: u64,
    /// The first error.
    outcome: io::Result<()>,
    /// How often a sync came back to inodes.
    round: u32,
    /// Inodes that a sync comes back to.
    again: VecDeque<Entry<F::Inode>>,
    /// Of a sync.
    pace: Pace,
    /// Whether the thread has other devices to serve.
    shared: bool,
    /// Whether it is their turn.
    turn_over: bool,
}

impl<'a, F: WritebackFs> Pass<'a, F> {
    /// Runs a pass. The first error of any batch that was finished in it.
    pub(crate) fn run(
        flusher: &'a mut Flusher<F>,
        fs: &'a Arc<F>,
        queue: &Queue,
        reason: Reason,
    ) -> io::Result<()> {
        let mut pass = Pass::new(flusher, fs, reason);
        // The one plug: callees add to it, batches flush it.
        let mut plug = queue.plug();
        pass.write_inodes(&mut plug);
        pass.close_batch(&mut plug);
        pass.flusher.rest = pass.turn_over.then_some(Rest {
            reason,
            enough: pass.enough,
        });
        if pass.shared {
            pass.reap();
        } else {
            pass.finish_all();
        }
        if reason == Reason::Sync {
            pass.write_again(&mut plug);
        }
        pass.outcome
    }
    /// Finishes what an earlier pass left in flight and has landed.
    pub(crate) fn reap_landed(flusher: &'a mut Flusher<F>, fs: &'a Arc<F>) -> io::Result<()> {
        let mut pass = Pass::new(flusher, fs, Reason::Background);
        pass.reap();
        pass.outcome
    }
    /// Finishes what an earlier pass left in flight.
    pub(crate) fn finish(flusher: &'a mut Flusher<F>, fs: &'a Arc<F>) -> io::Result<()> {
        let mut pass = Pass::new(flusher, fs, Reason::Sync);
        pass.finish_all();
        pass.outcome
    }

    fn new(flusher: &'a mut Flusher<F>, fs: &'a Arc<F>, reason: Reason) -> Pass<'a, F> {
        let dev = &flusher.dev;
        let t = dev.thresholds();
        let batch_pages = dev.limits.batch_pages(&dev.share, t, dev.flushers);
        let period = dev.tunables().dirty_writeback.max(BACKOFF);
        let half = dev.limits.to_write() / 2;
        let rest = flusher.rest.take().filter(|rest| rest.reason == reason);
        Pass {
            thresholds: t,
            enough: rest.map_or(half, |rest| rest.enough),
            shared: dev.flushers == Flushers::Shared && reason != Reason::Sync,
            turn_over: false,
            until: dev.clock.monotonic() + period,
            until_ns: 0,
            fs,
            reason,
            batch_pages,
            outcome: Ok(()),
            round: 0,
            again: VecDeque::new(),
            pace: Pace::default(),
            flusher,
        }
    }

    fn write_inodes(&mut self, plug: &mut Plug<'_>) {
        self.look_around();
        self.queue_io();
        while !self.is_over() {
            let Some(entry) = self.next_inode() else {
                return;
            };
            self.write_inode(entry, plug);
            self.send_if_full(plug);
        }
    }

    /// Sends the open batch on its way where it has enough, and finishes what is too much in
    /// flight.
    fn send_if_full(&mut self, plug: &mut Plug<'_>) {
        let most = self.most_pages();
        let full = |open: &OpenBatch<F>| open.pages >= most || open.inodes.len() >= BATCH_INODES;
        if !self.flusher.open.as_ref().is_some_and(full) {
            return;
        }
        let clock = self.flusher.dev.clock.clone();
        let began = clock.monotonic();
        self.close_batch(plug);
        if self.pace.step().is_some() {
            self.finish_all();
            self.fs.end_step();
            self.pace.took(clock.monotonic().saturating_sub(began));
        }
        while self.is_oldest_due() {
            self.finish_oldest();
        }
        self.turn_over = self.shared;
        self.look_around();
    }

    /// Pages of the open batch.
    fn most_pages(&self) -> u64 {
        match self.pace.step() {
            Some(step) => step as u64,
            None => self.batch_pages,
        }
    }

    /// A sync begins or ends to go in steps.
    fn look_around(&mut self) {
        if self.reason == Reason::Sync {
            self.pace.look_around(&self.flusher.dev);
        }
    }

    /// Whether a batch is to be finished before another one is gathered.
    fn is_oldest_due(&self) -> bool {
        let window = if self.shared { SHARED_WINDOW } else { WINDOW };
        let in_flight = self.flusher.in_flight.iter();
        is_oldest_due(in_flight.map(|b| self.fs.batch_landed(&b.batch)), window)
    }

    /// Whether the pass ends although there may be more to write.
    fn is_over(&self) -> bool {
        let dev = &self.flusher.dev;
        if self.reason == Reason::Sync {
            return false;
        }
        let now = dev.clock.monotonic();
        self.turn_over
            || dev.control.sync_waits.load(Ordering::Relaxed)
            || dev.share.closed.load(Ordering::Relaxed)
            || self.flusher.backoff_until > now
            || now >= self.until
            || match self.reason {
                Reason::Background => !dev.limits.over_background(&dev.share, self.thresholds),
                Reason::Reclaim => dev.limits.to_write() <= self.enough,
                Reason::Periodic | Reason::Sync => false,
            }
    }

    /// Moves what is eligible to `b_io`.
    fn queue_io(&mut self) {
        self.until_ns = self.eligible_until();
        let until_ns = self.until_ns;
        let all = self.reason == Reason::Sync;
        let flusher = &mut *self.flusher;
        let now = flusher.dev.clock.monotonic();
        let due = flusher
            .waiting
            .extract_if(.., |waiting| all || waiting.retry_at <= now);
        flusher.b_more_io.extend(due.map(|waiting| waiting.entry));
        if flusher.b_io.is_empty() {
            std::mem::swap(&mut flusher.b_io, &mut flusher.b_more_io);
        } else {
            for entry in flusher.b_more_io.drain(..).rev() {
                flusher.b_io.push_front(entry);
            }
        }
        flusher.dev.b_dirty.lock().take(until_ns, &mut flusher.b_io);
    }
    /// Inodes that became dirty up to here are written in this pass, in nanoseconds.
    fn eligible_until(&self) -> u64 {
        let dev = &self.flusher.dev;
        match self.reason {
            Reason::Periodic => {
                let expire = dev.tunables().dirty_expire.as_nanos() as u64;
                dev.now_ns().saturating_sub(expire)
            }
            _ => u64::MAX,
        }
    }
    fn next_inode(&mut self) -> Option<Entry<F::Inode>> {
        if self.flusher.b_io.is_empty() && self.reason != Reason::Sync {
            self.queue_io();
        }
        let b_io = &mut self.flusher.b_io;
        // What a background pass left may be too young for a periodic one.
        let young = |first: &Entry<F::Inode>| first.dirtied_ns > self.until_ns;
        if b_io.front().is_none_or(young) {
            return None;
        }
        b_io.pop_front()
    }

    /// Writes a slice of an inode and says where it goes next.
    fn write_inode(&mut self, mut entry: Entry<F::Inode>, plug: &mut Plug<'_>) {
        let Some(inode) = entry.inode.clone() else {
            return;
        };
        let state = F::dirty_state(&inode);
        if !state.begin_write() {
            return self.flusher.unlisted();
        }
        self.flusher.in_hand = Some(Entry {
            inode: Some(inode.clone()),
            ..entry
        });
        let progress = match self.reason {
            Reason::Sync => self.sweep(&inode, plug),
            reason => {
                let limits = PassLimits {
                    pages: self.batch_pages as usize,
                    reason,
                    from: 0,
                    end: u64::MAX,
                };
                self.write_slice(&inode, limits, plug)
            }
        };
        plug.boundary();
        self.flusher.in_hand = None;
        let remains = progress.more || progress.blocked;
        let stuck = progress.pages == 0;
        if !stuck {
            entry.blocked = 0;
        }
        // A sync comes back once even where nothing more can be written now: a page may be under
        // writeback with an earlier content. After the second sweep the rest was dirtied after the
        // sync began.
        let sync = self.reason == Reason::Sync;
        if let Some(errno) = progress.failed {
            if sync && self.outcome.is_ok() {
                self.outcome = Err(io::Error::from_raw_os_error(errno));
            }
            let now = self.flusher.dev.clock.monotonic();
            self.flusher.put_aside(entry, now);
        } else if sync && (remains || F::is_dirty(&inode)) && (self.round == 0 || stuck) {
            if self.flusher.list_again(&entry) {
                self.again.push_back(entry);
            }
        } else if remains && stuck {
            let now = self.flusher.dev.clock.monotonic();
            self.flusher.put_aside(entry, now);
        } else if remains {
            if self.flusher.list_again(&entry) {
                entry.dirtied_ns = HAD_ITS_TURN;
                self.flusher.b_more_io.push_back(entry);
            }
        } else {
            let written = if F::is_dirty(&inode) {
                state.list_again()
            } else {
                state.end_write()
            };
            match written {
                Written::Clean | Written::Forgotten => self.flusher.unlisted(),
                Written::Redirtied => self.flusher.list_dirty(inode),
            }
        }
    }

    /// One sweep of a sync over an inode, of as many slices as it fills batches.
    fn sweep(&mut self, inode: &Arc<F::Inode>, plug: &mut Plug<'_>) -> Progress {
        let mut limits = PassLimits {
            pages: 0,
            reason: Reason::Sync,
            from: 0,
            end: u64::MAX,
        };
        let mut pages = 0;
        loop {
            let gathered = self.flusher.open.as_ref().map_or(0, |open| open.pages);
            limits.pages = self.most_pages().saturating_sub(gathered).max(1) as usize;
            let slice = self.write_slice(inode, limits, plug);
            pages += slice.pages;
            if !slice.more || slice.pages < limits.pages {
                return Progress {
                    pages,
                    blocked: slice.blocked && pages == 0,
                    ..slice
                };
            }
            self.send_if_full(plug);
            limits.from = slice.next;
            limits.end = limits.end.min(F::end(inode));
        }
    }
    /// Has the file system submit a slice of an inode on behalf of the open batch.
    fn write_slice(
        &mut self,
        inode: &Arc<F::Inode>,
        limits: PassLimits,
        plug: &mut Plug<'_>,
    ) -> Progress {
        if self.flusher.open.is_none() {
            self.open_batch();
        }
        let Some(open) = &mut self.flusher.open else {
            unreachable!("opened above")
        };
        let progress = self.fs.write_pages(inode, limits, plug, &open.batch);
        open.add(inode.clone(), progress.pages as u64);
        progress
    }

    fn open_batch(&mut self) {
        self.flusher.dev.in_flight.fetch_add(1, Ordering::SeqCst);
        self.flusher.open = Some(OpenBatch {
            batch: self.fs.new_batch(),
            inodes: Vec::new(),
            pages: 0,
            limits: self.flusher.dev.limits.clone(),
        });
    }
    /// Sends what is gathered on its way.
    fn close_batch(&mut self, plug: &mut Plug<'_>) {
        plug.flush();
        let Some(open) = self.flusher.open.take() else {
            return;
        };
        let now = self.flusher.dev.clock.monotonic();
        self.flusher.bandwidth.busy(now);
        self.flusher.in_flight.push_back(open);
        if self.flusher.in_flight.len() == 1 {
            self.note_front(now);
        }
    }
    /// Another batch lands next. A shared thread hears of landings when it comes by, and cannot say
    /// when one is overdue.
    fn note_front(&self, now: Duration) {
        let dev = &self.flusher.dev;
        match self.flusher.in_flight.front() {
            Some(next) if dev.flushers == Flushers::PerDevice => {
                dev.share.set_front(next.pages, now);
            }
            _ => dev.share.no_front(),
        }
    }
    /// Finishes what has landed, from the oldest on.
    fn reap(&mut self) {
        while let Some(oldest) = self.flusher.in_flight.front() {
            if !self.fs.batch_landed(&oldest.batch) {
                return;
            }
            self.finish_oldest();
        }
    }
    fn finish_all(&mut self) {
        while !self.flusher.in_flight.is_empty() {
            self.finish_oldest();
        }
    }
    fn finish_oldest(&mut self) {
        let Some(oldest) = self.flusher.in_flight.pop_front() else {
            return;
        };
        let dev = self.flusher.dev.clone();
        let _count = CountDown(&dev.in_flight);
        let batch = oldest.batch.clone();
        self.flusher.finishing = Some(oldest);
        let result = self.fs.finish_batch(&batch, self.reason == Reason::Sync);
        let Some(oldest) = self.flusher.finishing.take() else {
            unreachable!("put there above")
        };
        let now = self.flusher.dev.clock.monotonic();
        self.note_front(now);
        let flusher = &mut *self.flusher;
        let idle = flusher.in_flight.is_empty() && flusher.open.is_none();
        let whole = oldest.pages >= self.batch_pages;
        let measured = flusher.bandwidth.landed(oldest.pages, whole, idle, now);
        if let Some(rates) = measured {
            flusher.dev.share.set_bandwidth(rates);
            flusher.dev.limits.refresh(self.thresholds);
            let dev = &flusher.dev;
            let t = self.thresholds;
            self.batch_pages = dev.limits.batch_pages(&dev.share, t, dev.flushers);
        }
        match result {
            Ok(()) => {
                flusher.failures = 0;
                flusher.dev.share.failing.store(false, Ordering::Relaxed);
            }
            Err(error) => {
                flusher.failed(now);
                oldest.mark_dirty(&dev);
                if self.outcome.is_ok() {
                    self.outcome = Err(error);
                }
            }
        }
    }

    /// The second round of a sync, and more for what is blocked.
    fn write_again(&mut self, plug: &mut Plug<'_>) {
        while !self.again.is_empty() && self.round < SYNC_RETRIES {
            if self.round > 0 {
                self.flusher.dev.clock.sleep(BACKOFF);
            }
            self.round += 1;
            for entry in std::mem::take(&mut self.again) {
                self.write_inode(entry, plug);
                self.send_if_full(plug);
            }
            self.close_batch(plug);
            self.finish_all();
        }
        let now = self.flusher.dev.clock.monotonic();
        for entry in std::mem::take(&mut self.again) {
            if self.outcome.is_ok() {
                self.outcome = Err(io::Error::other(
                    "dirty pages could not be written: no space, or held by others for too long",
                ));
            }
            self.flusher.put_aside(entry, now);
        }
    }
}

/// Takes one off on drop.
struct CountDown<'a>(&'a sync::atomic::AtomicUsize);
impl Drop for CountDown<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
