//! The flusher of a device: decides when to write and why.
//!
//! Algorithm of a turn ([`crate::threads`] has the thread):
//! 1. Look for work, in this order: a sync that waits; stop; the tick (every `dirty_writeback`: the
//!    file system's housekeeping, then a periodic pass over what is older than `dirty_expire`); a
//!    pass that gave way to other devices; reclaim; more dirty than the background threshold;
//!    blocked inodes that are due.
//! 2. Run a pass for it ([`crate::pass`]). The weak reference to the file system is upgraded for
//!    the pass only.
//! 3. Where nothing is dirty for a minute the flusher ends. The next inode that becomes dirty
//!    starts another one.
//!
//! Errors: after a failed batch the flusher pauses, 20 ms at first, twice as long each time, 5 s at
//! most. Syncs do not wait for that. A panic of the file system ends the pass and not the thread:
//! the file system is told, the current inode is listed again, waiting syncs get an error, and the
//! next pass finishes the batches in flight.

use crate::activity;
use crate::backing_dev::BackingDev;
use crate::control::{Requests, stopped};
use crate::interface::{Reason, WritebackFs};
use crate::pass::{Pass, PassState};
use crate::sync::Group;
use crate::threads::{Lifetime, LifetimeGuard, Next, Task};
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use sync::atomic::Ordering;

/// How long a flusher with nothing to do stays.
const RETIRE: Duration = Duration::from_secs(60);
/// Interval of the tick where `dirty_writeback` is zero.
const DEFAULT_TICK: Duration = Duration::from_secs(5);
/// Interval at which a shared thread without other work looks for completed batches.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

pub(crate) enum Work {
    /// A pass that no caller waits for.
    Pass(Reason),
    /// A pass that callers wait for.
    Sync(Arc<Group>),
    /// Housekeeping, then a periodic pass.
    Tick,
    /// Finish completed batches.
    FinishCompleted,
    /// End the thread.
    Stop,
}

/// The flusher of a device.
pub(crate) struct Flusher<F: WritebackFs> {
    pub(crate) dev: Arc<BackingDev<F>>,
    pub(crate) state: PassState<F>,
    next_tick: Duration,
    idle_since: Option<Duration>,
    /// The last field: a thread that waits for its end expects that `dev` was dropped before.
    lifetime: LifetimeGuard,
}

impl<F: WritebackFs> Flusher<F> {
    pub(crate) fn new(dev: Arc<BackingDev<F>>) -> Flusher<F> {
        let next_tick = dev.clock.monotonic() + dev.tunables().dirty_writeback;
        Flusher {
            dev,
            state: PassState::new(),
            next_tick,
            idle_since: None,
            lifetime: LifetimeGuard::default(),
        }
    }
    /// For a thread that waits for this flusher's end.
    pub(crate) fn lifetime(&self) -> Arc<Lifetime> {
        self.lifetime.0.clone()
    }

    /// Carries out one piece of work. Returns `false` where the flusher has to end.
    pub(crate) fn run(&mut self, work: Work) -> bool {
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
            Work::FinishCompleted => Pass::finish_completed(&self.dev, &mut self.state, &fs),
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
            Work::Stop => Pass::finish_all(&self.dev, &mut self.state, &fs),
        }));
        let outcome = outcome.unwrap_or_else(|_| {
            fs.panicked();
            self.recover();
            Err(io::Error::other("the file system panicked in writeback"))
        });
        self.dev.control.activity.set(activity::Work::None);
        if let Some(group) = group {
            group.end(outcome);
        }
        if end {
            self.dev.control.close();
        }
        !end
    }

    fn pass(&mut self, fs: &Arc<F>, reason: Reason) -> io::Result<()> {
        let activity = &self.dev.control.activity;
        activity.set(activity::Work::Writing(reason));
        self.dev.limits.refresh(self.dev.thresholds());
        Pass::run(&self.dev, &mut self.state, fs, reason)
    }

    /// Restores order after a panic.
    fn recover(&mut self) {
        tracing::error!("{}: a panic in writeback", self.dev.queue.name());
        self.state.queues.recover(&self.dev);
        // Before the count of batches falls, as for any failed batch.
        self.state.health.note_failure(&self.dev);
        self.state.batches.recover(&self.dev);
    }

    /// Drops everything: the file system is gone.
    fn abandon(&mut self) {
        let mut rest = VecDeque::new();
        self.dev.b_dirty.lock().take(u64::MAX, &mut rest);
        for inode in rest.into_iter().filter_map(|entry| entry.inode) {
            F::dirty_state(&inode).abandon();
        }
        self.state.queues.clear();
        self.state.batches.clear();
        self.dev.listed.store(0, Ordering::SeqCst);
        self.dev.share.clear_oldest_batch();
        self.dev.control.close();
    }

    /// Returns what to do now, or else when to look again.
    fn look_for_work(&mut self) -> Result<Work, Next> {
        let dev = self.dev.clone();
        let mut requests = dev.control.lock();
        let now = dev.clock.monotonic();
        if let Some(work) = self.next_work(&mut requests, now) {
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
            && dev.control.retire(&mut requests, || dev.is_idle())
        {
            return Err(Next::Ended);
        }
        Err(Next::Sleep(self.sleep_time(now)))
    }

    /// How long to sleep without a request.
    fn sleep_time(&self, now: Duration) -> Duration {
        let backoff_until = self.state.health.backoff_until;
        let mut until = self.next_tick;
        if let Some(retry_at) = self.state.queues.next_retry() {
            until = until.min(retry_at.max(backoff_until));
        }
        if backoff_until > now {
            until = until.min(backoff_until);
        }
        until
            .saturating_sub(now)
            .clamp(Duration::from_millis(1), DEFAULT_TICK)
    }

    pub(crate) fn next_work(&mut self, requests: &mut Requests, now: Duration) -> Option<Work> {
        let dev = &self.dev;
        dev.control.clear_kicked(requests);
        if let Some(group) = requests.sync.take() {
            dev.control.sync_waits.store(false, Ordering::SeqCst);
            return Some(Work::Sync(group));
        }
        if requests.stop {
            return Some(Work::Stop);
        }
        if std::mem::take(&mut requests.tick) || now >= self.next_tick {
            return Some(Work::Tick);
        }
        if now >= self.state.health.backoff_until {
            let can_write = self.state.queues.has_work(dev, now);
            if let Some(paused) = self.state.paused
                && can_write
            {
                return Some(Work::Pass(paused.reason));
            }
            self.state.paused = None;
            if dev.control.reclaim.swap(false, Ordering::SeqCst) && can_write {
                return Some(Work::Pass(Reason::Reclaim));
            }
            if can_write && dev.limits.over_background(&dev.share, dev.thresholds()) {
                return Some(Work::Pass(Reason::Background));
            }
            if self.state.queues.has_due(now) {
                return Some(Work::Pass(Reason::Periodic));
            }
        }
        let any = self.state.batches.any_in_flight();
        any.then_some(Work::FinishCompleted)
    }
}

impl<F: WritebackFs> Task for Flusher<F> {
    fn run_once(&mut self) -> Next {
        self.lifetime.0.set_thread();
        let work = match self.look_for_work() {
            Ok(work) => work,
            Err(next) => return next,
        };
        let polls = matches!(work, Work::FinishCompleted);
        match self.run(work) {
            false => Next::Ended,
            true if polls && self.state.batches.any_in_flight() => Next::Sleep(POLL_INTERVAL),
            true => Next::Continue,
        }
    }
}
