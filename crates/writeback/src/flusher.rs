//! The flusher of a device: decides when to write and why.
//!
//! Algorithm of a turn (on which thread: [`crate::threads`]):
//! 1. Look for work, in this order: a sync that waits; stop; the tick (every `dirty_writeback`: the
//!    file system's housekeeping, then what is older than `dirty_expire`); the rest of a pass that
//!    gave way to other devices; memory wanted; more dirty than the background threshold; blocked
//!    inodes that are due.
//! 2. Run a pass for it ([`crate::pass`]) with the file system upgraded from a weak reference, and
//!    let go of it after.
//! 3. Where nothing is dirty for a minute, the flusher ends; the next inode that becomes dirty
//!    starts one.
//!
//! Errors: after a failed batch the flusher pauses, 20 ms at first, twice as long each time, 5 s at
//! most. Syncs do not wait for that. A panic of the file system ends the pass and not the thread:
//! the inode in hand goes back on a list, waiting syncs are told, and batches in flight are
//! finished by the next pass.

use crate::backing_dev::{BackingDev, Reason, WritebackFs};
use crate::bandwidth::Bandwidth;
use crate::control::stopped;
use crate::dirty_inodes::{Entry, Written};
use crate::pass::{HAD_ITS_TURN, OpenBatch, Pass};
use crate::sync::Group;
use crate::threads::{Alive, Life, Next, Turns};
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use sync::atomic::Ordering;

/// First pause after an error, and delay after which a blocked inode is tried again; both double
/// each time.
pub(crate) const BACKOFF: Duration = Duration::from_millis(20);
/// The longest of both.
const MAX_BACKOFF: Duration = Duration::from_secs(5);
/// How long a flusher with nothing to do stays.
const RETIRE: Duration = Duration::from_secs(60);
/// How often the file system is ticked where `dirty_writeback` says never.
const DEFAULT_TICK: Duration = Duration::from_secs(5);

/// How long a shared thread with nothing else to do lets a batch fly before it looks whether it has
/// landed.
const LANDING: Duration = Duration::from_millis(2);

/// The `n`th pause, from 0.
pub(crate) fn backoff(n: u32) -> Duration {
    (BACKOFF * (1 << n.min(10))).min(MAX_BACKOFF)
}

/// What to do next.
pub(crate) enum Work {
    /// A pass.
    Pass(Reason),
    /// A pass that callers wait for.
    Sync(Arc<Group>),
    /// The housekeeping, and a pass over what is old.
    Tick,
    /// Finish what has landed.
    Reap,
    /// End the thread.
    Stop,
}

/// An inode of which nothing could be written.
pub(crate) struct Waiting<I> {
    pub(crate) entry: Entry<I>,
    /// When it is tried again.
    pub(crate) retry_at: Duration,
}

/// A pass that ended with its turn, and is to go on with the next one.
#[derive(Clone, Copy)]
pub(crate) struct Rest {
    pub(crate) reason: Reason,
    /// For a reclaim: dirty pages at which it may stop.
    pub(crate) enough: u64,
}

/// The flusher's own state, which survives a pass that panics.
pub(crate) struct Flusher<F: WritebackFs> {
    pub(crate) dev: Arc<BackingDev<F>>,
    /// Inodes of this pass, oldest first; after a background pass some may be left.
    pub(crate) b_io: VecDeque<Entry<F::Inode>>,
    /// Inodes that had their slice and have more.
    pub(crate) b_more_io: VecDeque<Entry<F::Inode>>,
    pub(crate) waiting: Vec<Waiting<F::Inode>>,
    /// The inode being written.
    pub(crate) in_hand: Option<Entry<F::Inode>>,
    pub(crate) open: Option<OpenBatch<F>>,
    pub(crate) in_flight: VecDeque<OpenBatch<F>>,
    /// The batch being finished.
    pub(crate) finishing: Option<OpenBatch<F>>,
    pub(crate) bandwidth: Bandwidth,
    /// Failed batches in a row.
    pub(crate) failures: u32,
    pub(crate) backoff_until: Duration,
    pub(crate) rest: Option<Rest>,
    next_tick: Duration,
    idle_since: Option<Duration>,
    /// The last field: whoever waits for the flusher to be gone counts on its device being let go
    /// of.
    alive: Alive,
}

impl<F: WritebackFs> Flusher<F> {
    pub(crate) fn new(dev: Arc<BackingDev<F>>) -> Flusher<F> {
        let next_tick = dev.clock.monotonic() + dev.tunables().dirty_writeback;
        Flusher {
            dev,
            b_io: VecDeque::new(),
            b_more_io: VecDeque::new(),
            waiting: Vec::new(),
            in_hand: None,
            open: None,
            in_flight: VecDeque::new(),
            finishing: None,
            bandwidth: Bandwidth::new(),
            failures: 0,
            backoff_until: Duration::ZERO,
            rest: None,
            next_tick,
            idle_since: None,
            alive: Alive(Arc::default()),
        }
    }
    /// For whoever wants to know when it is gone.
    pub(crate) fn life(&self) -> Arc<Life> {
        self.alive.0.clone()
    }

    /// Does it; `false` where the flusher has to end.
    pub(crate) fn carry_out(&mut self, work: Work) -> bool {
        let Some(fs) = self.dev.fs.upgrade() else {
            if let Work::Sync(group) = work {
                group.end(Err(stopped()));
            }
            self.abandon();
            return false;
        };
        let group = match &work {
            Work::Sync(group) => Some(group.clone()),
            _ => None,
        };
        let end = matches!(work, Work::Stop);
        let outcome = catch_unwind(AssertUnwindSafe(|| match work {
            Work::Pass(reason) => self.pass(&fs, reason),
            Work::Reap => Pass::reap_landed(self, &fs),
            Work::Sync(_) => self.pass(&fs, Reason::Sync),
            Work::Tick => {
                let tunables = self.dev.tunables();
                let period = match tunables.dirty_writeback {
                    Duration::ZERO => DEFAULT_TICK,
                    period => period,
                };
                self.next_tick = self.dev.clock.monotonic() + period;
                fs.tick();
                if tunables.dirty_writeback.is_zero() {
                    return Ok(());
                }
                self.pass(&fs, Reason::Periodic)
            }
            Work::Stop => Pass::finish(self, &fs),
        }));
        let outcome = outcome.unwrap_or_else(|_| {
            self.recover();
            Err(io::Error::other("the file system panicked in writeback"))
        });
        if let Some(group) = group {
            group.end(outcome);
        }
        if end {
            self.dev.control.gone();
        }
        !end
    }

    fn pass(&mut self, fs: &Arc<F>, reason: Reason) -> io::Result<()> {
        self.dev.limits.refresh(self.dev.thresholds());
        let dev = self.dev.clone();
        Pass::run(self, fs, &dev.queue, reason)
    }

    /// Puts things in order after a panic.
    fn recover(&mut self) {
        tracing::error!("{}: a panic in writeback", self.dev.queue.name());
        let now = self.dev.clock.monotonic();
        if let Some(entry) = self.in_hand.take() {
            self.put_aside(entry, now);
        }
        self.in_flight.extend(self.open.take());
        if let Some(batch) = self.finishing.take() {
            batch.mark_dirty(&self.dev);
        }
        self.failed(now);
    }
    /// Puts an inode in hand on the waiting list, later the more often it was there in a row.
    pub(crate) fn put_aside(&mut self, mut entry: Entry<F::Inode>, now: Duration) {
        if !self.list_again(&entry) {
            return;
        }
        let retry_at = now + backoff(entry.blocked.into());
        entry.blocked = entry.blocked.saturating_add(1);
        entry.dirtied_ns = HAD_ITS_TURN;
        self.waiting.push(Waiting { entry, retry_at });
    }
    /// Gives an inode in hand the state of one on a list; `false` where it was deleted.
    pub(crate) fn list_again(&self, entry: &Entry<F::Inode>) -> bool {
        let Some(inode) = &entry.inode else {
            return false;
        };
        let listed = F::dirty_state(inode).list_again() != Written::Forgotten;
        if !listed {
            self.unlisted();
        }
        listed
    }
    /// Puts an inode in hand at the end of `b_dirty`: it was dirtied meanwhile.
    pub(crate) fn list_dirty(&self, inode: Arc<F::Inode>) {
        let (state, now_ns) = (F::dirty_state(&inode), self.dev.now_ns());
        let mut b_dirty = self.dev.b_dirty.lock();
        b_dirty.push(inode.clone(), state, now_ns);
    }
    /// An inode is on no list any more.
    pub(crate) fn unlisted(&self) {
        self.dev.listed.fetch_sub(1, Ordering::SeqCst);
    }
    /// A batch failed.
    pub(crate) fn failed(&mut self, now: Duration) {
        self.backoff_until = now + backoff(self.failures);
        self.failures = self.failures.saturating_add(1);
        self.dev.share.failing.store(true, Ordering::Relaxed);
    }

    /// The file system is gone: lets go of everything.
    fn abandon(&mut self) {
        self.dev.b_dirty.lock().take(u64::MAX, &mut self.b_io);
        let waiting = self.waiting.drain(..).map(|waiting| waiting.entry);
        let entries = self.b_io.drain(..).chain(self.b_more_io.drain(..));
        for inode in entries.chain(waiting).filter_map(|entry| entry.inode) {
            F::dirty_state(&inode).abandon();
        }
        self.dev.listed.store(0, Ordering::SeqCst);
        self.dev.in_flight.store(0, Ordering::SeqCst);
        self.in_flight.clear();
        self.dev.share.no_front();
        self.dev.control.gone();
    }

    /// What to do now; where that is nothing, what becomes of the flusher.
    fn look_for_work(&mut self) -> Result<Work, Next> {
        let dev = self.dev.clone();
        let mut asked = dev.control.lock();
        let now = dev.clock.monotonic();
        if let Some(work) = self.next_work(&mut asked, now) {
            return Ok(work);
        }
        let idle = dev.is_idle();
        let idle_since = match self.idle_since {
            Some(since) if idle => since,
            _ => now,
        };
        self.idle_since = idle.then_some(idle_since);
        if idle
            && now.saturating_sub(idle_since) >= RETIRE
            && dev.control.retire(&mut asked, || dev.is_idle())
        {
            return Err(Next::Over);
        }
        Err(Next::After(self.nap(now)))
    }

    /// How long to wait where nobody asks for anything.
    fn nap(&self, now: Duration) -> Duration {
        let mut until = self.next_tick;
        if let Some(retry_at) = self.waiting.iter().map(|waiting| waiting.retry_at).min() {
            until = until.min(retry_at.max(self.backoff_until));
        }
        if self.backoff_until > now {
            until = until.min(self.backoff_until);
        }
        until
            .saturating_sub(now)
            .clamp(Duration::from_millis(1), DEFAULT_TICK)
    }

    /// What there is to do now.
    pub(crate) fn next_work(
        &mut self,
        asked: &mut crate::control::Asked,
        now: Duration,
    ) -> Option<Work> {
        let dev = &self.dev;
        dev.control.looked(asked);
        if let Some(group) = asked.sync.take() {
            dev.control.sync_waits.store(false, Ordering::SeqCst);
            return Some(Work::Sync(group));
        }
        if asked.stop {
            return Some(Work::Stop);
        }
        if std::mem::take(&mut asked.tick) || now >= self.next_tick {
            return Some(Work::Tick);
        }
        if now >= self.backoff_until {
            let can_write = self.has_work(now);
            if let Some(rest) = self.rest
                && can_write
            {
                return Some(Work::Pass(rest.reason));
            }
            self.rest = None;
            if dev.control.reclaim.swap(false, Ordering::SeqCst) && can_write {
                return Some(Work::Pass(Reason::Reclaim));
            }
            if can_write && dev.limits.over_background(&dev.share, dev.thresholds()) {
                return Some(Work::Pass(Reason::Background));
            }
            if self.waiting.iter().any(|waiting| waiting.retry_at <= now) {
                return Some(Work::Pass(Reason::Periodic));
            }
        }
        (!self.in_flight.is_empty()).then_some(Work::Reap)
    }
    /// Whether an inode could be written now.
    pub(crate) fn has_work(&self, now: Duration) -> bool {
        !self.b_io.is_empty()
            || !self.b_more_io.is_empty()
            || self.waiting.iter().any(|waiting| waiting.retry_at <= now)
            || !self.dev.b_dirty.lock().is_empty()
    }
}

impl<F: WritebackFs> Turns for Flusher<F> {
    fn turn(&mut self) -> Next {
        self.alive.0.runs_here();
        let work = match self.look_for_work() {
            Ok(work) => work,
            Err(next) => return next,
        };
        let reap = matches!(work, Work::Reap);
        match self.carry_out(work) {
            false => Next::Over,
            true if reap && !self.in_flight.is_empty() => Next::After(LANDING),
            true => Next::Again,
        }
    }
}
