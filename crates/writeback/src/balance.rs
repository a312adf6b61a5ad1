//! How much may be dirty, and how writers are slowed toward what the device can take.
//!
//! Algorithm (after Wu's `balance_dirty_pages`, Linux 3.2, `mm/page-writeback.c`, without per-task rates):
//! 1. Dirty pages and pages under writeback of all devices on one memory budget are counted together. Up to the
//!    *background* threshold nothing happens; above it the flusher writes; writers run freely up to the middle between
//!    background and *hard* threshold.
//! 2. Each device has its share of the thresholds, in proportion to its measured bandwidth among the devices that have
//!    something dirty; a writer to a device that is below its share is never slowed for the others.
//! 3. Between the middle and the hard threshold, writers to a device are admitted at a common rate of
//!    `bandwidth × position`. The position falls along a cubic from 2 at the middle over 1 half way to nearly 0 at the hard
//!    threshold, so that what is dirty settles half way and the rate at the bandwidth.
//! 4. The rate is kept by one virtual time per device: each writer moves it on by `pages / rate` and sleeps until it,
//!    as soon as that is 10 ms away, and 200 ms at most; what remains is left to the next call.
//! 5. At the hard threshold a writer waits until landings bring it down. If nothing lands for a while (at once, if the
//!    device reports errors; failed pages stay dirty), it is let through: a writer is never refused for want of memory.

use crate::Clock;
use crate::bandwidth::INITIAL_PAGES_PER_SEC;
use block::PAGE_SIZE;
use cache::{Budget, ShardedCounter};
use parking_lot::{Condvar, Mutex};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Pauses shorter than this are left to gather.
const MIN_PAUSE: Duration = Duration::from_millis(10);
/// One pause at most.
pub(crate) const MAX_PAUSE: Duration = Duration::from_millis(200);
/// How far ahead the virtual time may run; what goes beyond is forgiven.
const MAX_DEBT: Duration = Duration::from_secs(1);
/// How long a writer waits at the hard threshold without a landing, from a device that reports errors.
const PATIENCE_FAILING: Duration = Duration::from_secs(1);
/// The same, from one that does not.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pages that a shard of the counters gathers, at most.
const COUNT_BATCH: u64 = 32;

thread_local! {
    /// Pages that the thread dirtied since it was last slowed (or found that it need not be).
    static DIRTIED: Cell<u64> = const { Cell::new(0) };
}

/// Pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thresholds {
    pub(crate) background: u64,
    pub(crate) hard: u64,
}
impl Thresholds {
    /// Up to here writers run freely.
    fn freerun(&self) -> u64 {
        (self.background + self.hard) / 2
    }
}

/// What several devices on one memory budget have dirty together.
pub struct DirtyLimits {
    budget: Arc<Budget>,
    dirty: ShardedCounter,
    /// Of them, those that flushers have submitted.
    submitted: AtomicU64,
    shares: Mutex<Vec<Weak<Share>>>,
    /// Bandwidth of the devices that had something dirty when last looked at, in pages a second.
    active_bandwidth: AtomicU64,
    /// Writers that wait at the hard threshold.
    waiting: AtomicUsize,
    lock: Mutex<()>,
    landed: Condvar,
}

/// One device's part in [`DirtyLimits`].
pub(crate) struct Share {
    dirty: ShardedCounter,
    /// Pages a second.
    bandwidth: AtomicU64,
    /// When the next writer is admitted, in nanoseconds of the device's clock.
    virtual_ns: AtomicU64,
    /// Moves whenever pages leave.
    progress: AtomicU64,
    /// Whether the last batch failed.
    pub(crate) failing: AtomicBool,
    /// Whether writers are let through (the volume goes away).
    pub(crate) closed: AtomicBool,
}

/// Why a writer went on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Balanced {
    /// Below the background threshold.
    Free,
    /// Above the background threshold, not slowed.
    Background,
    /// Slowed.
    Paused,
    /// The hard threshold is exceeded, and the device makes no progress.
    LetThrough,
}

fn batch(budget: &Budget) -> i64 {
    let pages = budget.limit() / PAGE_SIZE as u64;
    (pages / 4096).min(COUNT_BATCH) as i64
}

impl DirtyLimits {
    /// Limits of their own for a budget.
    pub fn new(budget: Arc<Budget>) -> Arc<DirtyLimits> {
        Arc::new(DirtyLimits {
            dirty: ShardedCounter::new(batch(&budget)),
            budget,
            submitted: AtomicU64::new(0),
            shares: Mutex::default(),
            active_bandwidth: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            lock: Mutex::default(),
            landed: Condvar::new(),
        })
    }
    /// The limits that every device on this budget shares.
    pub fn of(budget: &Arc<Budget>) -> Arc<DirtyLimits> {
        static KNOWN: Mutex<Vec<Weak<DirtyLimits>>> = Mutex::new(Vec::new());
        let mut known = KNOWN.lock();
        known.retain(|limits| limits.strong_count() > 0);
        let found = known
            .iter()
            .filter_map(Weak::upgrade)
            .find(|limits| Arc::ptr_eq(&limits.budget, budget));
        found.unwrap_or_else(|| {
            let limits = DirtyLimits::new(budget.clone());
            known.push(Arc::downgrade(&limits));
            limits
        })
    }
    /// Dirty and under-writeback pages of all devices.
    pub fn dirty_pages(&self) -> u64 {
        self.dirty.exact()
    }
    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }
    /// Dirty pages of all devices that no flusher has submitted yet, off by a few; two loads.
    pub(crate) fn to_write(&self) -> u64 {
        let submitted = self.submitted.load(Relaxed);
        self.dirty.approximate().saturating_sub(submitted)
    }
    /// A flusher submitted pages.
    pub(crate) fn submit(&self, pages: u64) {
        self.submitted.fetch_add(pages, Relaxed);
    }
    /// A flusher's pages have landed or failed.
    pub(crate) fn settle(&self, pages: u64) {
        self.submitted.fetch_sub(pages, Relaxed);
    }
    pub(crate) fn join(&self) -> Arc<Share> {
        let share = Arc::new(Share {
            dirty: ShardedCounter::new(batch(&self.budget)),
            bandwidth: AtomicU64::new(INITIAL_PAGES_PER_SEC),
            virtual_ns: AtomicU64::new(0),
            progress: AtomicU64::new(0),
            failing: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        });
        let mut shares = self.shares.lock();
        shares.retain(|held| held.strong_count() > 0);
        shares.push(Arc::downgrade(&share));
        share
    }
    /// A bandwidth or the set of busy devices changed.
    pub(crate) fn refresh(&self) {
        let shares = self.shares.lock();
        let active = shares
            .iter()
            .filter_map(Weak::upgrade)
            .filter(|share| share.dirty_pages() > 0)
            .map(|share| share.bandwidth())
            .sum();
        self.active_bandwidth.store(active, Relaxed);
    }
    /// Wakes the writers at the hard threshold.
    pub(crate) fn wake(&self) {
        if self.waiting.load(SeqCst) > 0 {
            drop(self.lock.lock());
            self.landed.notify_all();
        }
    }
    pub(crate) fn add(&self, share: &Share, pages: u64) {
        self.dirty.add(pages as i64);
        share.dirty.add(pages as i64);
        DIRTIED.set(DIRTIED.get() + pages);
    }
    pub(crate) fn sub(&self, share: &Share, pages: u64) {
        self.dirty.add(-(pages as i64));
        share.dirty.add(-(pages as i64));
        share.progress.fetch_add(1, Relaxed);
        self.wake();
    }

    /// The device's part of `whole`.
    fn part(&self, share: &Share, whole: u64) -> u64 {
        let own = share.bandwidth();
        let all = self.active_bandwidth.load(Relaxed).max(own);
        (u128::from(whole) * u128::from(own) / u128::from(all)) as u64
    }

    /// Slows the calling thread; see the module. `kick` starts the flusher.
    pub(crate) fn balance(
        &self,
        share: &Share,
        thresholds: impl Fn() -> Thresholds,
        clock: &dyn Clock,
        kick: impl Fn(),
    ) -> Balanced {
        let dirty = self.dirty.approximate();
        let now = thresholds();
        if dirty <= now.background {
            DIRTIED.set(0);
            return Balanced::Free;
        }
        kick();
        if dirty <= now.freerun() || share.dirty_pages() <= self.part(share, now.freerun()) {
            DIRTIED.set(0);
            return Balanced::Background;
        }
        if !self.wait_below_hard(share, &thresholds, &kick) {
            DIRTIED.set(0);
            return Balanced::LetThrough;
        }
        match self.pause(share, thresholds(), clock.monotonic(), DIRTIED.take()) {
            Some(pause) => {
                clock.sleep(pause);
                Balanced::Paused
            }
            None => Balanced::Background,
        }
    }

    /// How long a writer of `pages` is to sleep now, if at all.
    fn pause(&self, share: &Share, t: Thresholds, now: Duration, pages: u64) -> Option<Duration> {
        let from = self.part(share, t.freerun()) as f64;
        let hard = self.part(share, t.hard) as f64;
        let rate = share.bandwidth() as f64 * position(share.dirty_pages() as f64, from, hard);
        let cost = (pages as f64 / rate * 1e9) as u64;
        let now = now.as_nanos() as u64;
        let limit = now + MAX_DEBT.as_nanos() as u64;
        let moved = |virtual_ns: u64| Some((virtual_ns.max(now) + cost).min(limit));
        let before = share
            .virtual_ns
            .fetch_update(Relaxed, Relaxed, moved)
            .unwrap_or(now);
        let due = (before.max(now) + cost).min(limit);
        let pause = Duration::from_nanos(due - now);
        (pause >= MIN_PAUSE).then(|| pause.min(MAX_PAUSE))
    }

    /// Waits while the hard threshold is exceeded; `false` where it still is but nothing moves.
    fn wait_below_hard(
        &self,
        share: &Share,
        thresholds: &impl Fn() -> Thresholds,
        kick: &impl Fn(),
    ) -> bool {
        let over = || {
            let t = thresholds();
            self.dirty.exact() >= t.hard && share.dirty_pages() > self.part(share, t.freerun())
        };
        if !over() {
            return true;
        }
        self.waiting.fetch_add(1, SeqCst);
        let slice = Duration::from_millis(50);
        let mut waited = Duration::ZERO;
        let mut progress = share.progress.load(Relaxed);
        let mut guard = self.lock.lock();
        let below = loop {
            if !over() {
                break true;
            }
            let patience = if share.failing.load(Relaxed) {
                PATIENCE_FAILING
            } else {
                PATIENCE
            };
            if waited >= patience || share.closed.load(Relaxed) {
                break false;
            }
            if self.landed.wait_for(&mut guard, slice).timed_out() {
                waited += slice;
                kick();
            }
            // A failed batch makes no progress: its pages are dirty as before.
            let now = share.progress.load(Relaxed);
            if now != progress && !share.failing.load(Relaxed) {
                waited = Duration::ZERO;
            }
            progress = now;
        };
        drop(guard);
        self.waiting.fetch_sub(1, SeqCst);
        below
    }
}

impl Share {
    pub(crate) fn dirty_pages(&self) -> u64 {
        self.dirty.exact()
    }
    /// Pages a second.
    pub(crate) fn bandwidth(&self) -> u64 {
        self.bandwidth.load(Relaxed)
    }
    pub(crate) fn set_bandwidth(&self, pages_per_sec: u64) {
        self.bandwidth.store(pages_per_sec, Relaxed);
    }
}

/// What part of its bandwidth a device's writers get where it has `dirty` pages between `from` and `hard`: a cubic from
/// 2 over 1 half way to 1/16.
fn position(dirty: f64, from: f64, hard: f64) -> f64 {
    let setpoint = (from + hard) / 2.0;
    let x = (setpoint - dirty) / (hard - setpoint).max(1.0);
    (1.0 + x.clamp(-1.0, 1.0).powi(3)).max(1.0 / 16.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ManualClock;

    const PAGES: u64 = 10_000;
    fn limits() -> (Arc<DirtyLimits>, Arc<Share>) {
        let budget = Budget::new(PAGES * PAGE_SIZE as u64);
        let limits = DirtyLimits::of(&budget);
        assert!(Arc::ptr_eq(&limits, &DirtyLimits::of(&budget)));
        let share = limits.join();
        (limits, share)
    }
    fn thresholds() -> Thresholds {
        Thresholds {
            background: 1000,
            hard: 2000,
        }
    }

    #[test]
    fn the_position_falls_smoothly() {
        assert_eq!(position(1500.0, 1500.0, 2000.0), 2.0);
        assert_eq!(position(1750.0, 1500.0, 2000.0), 1.0);
        assert_eq!(position(2500.0, 1500.0, 2000.0), 1.0 / 16.0);
        let steps: Vec<_> = (1500..2000)
            .map(|d| position(f64::from(d), 1500.0, 2000.0))
            .collect();
        assert!(steps.is_sorted_by(|a, b| a >= b));
    }

    #[test]
    fn thresholds_are_met_in_turn() {
        let (limits, share) = limits();
        let clock = ManualClock::default();
        let kicks = Cell::new(0);
        let balance = || limits.balance(&share, thresholds, &clock, || kicks.set(kicks.get() + 1));
        limits.add(&share, 1000);
        assert_eq!(balance(), Balanced::Free);
        assert_eq!(kicks.get(), 0);
        limits.add(&share, 400);
        assert_eq!(balance(), Balanced::Background);
        assert_eq!(kicks.get(), 1);
        share.set_bandwidth(1000);
        limits.add(&share, 350);
        assert_eq!(balance(), Balanced::Paused);
        assert_eq!(clock.monotonic(), MAX_PAUSE);
    }

    #[test]
    fn writers_settle_at_the_bandwidth_without_long_pauses() {
        let (limits, share) = limits();
        let clock = ManualClock::default();
        share.set_bandwidth(5000);
        let mut written = 0;
        let mut drained = 0;
        let mut longest = Duration::ZERO;
        // The device takes 5,000 pages a second; a writer dirties 16 at a time in no time at all.
        while clock.monotonic() < Duration::from_secs(20) {
            limits.add(&share, 16);
            written += 16;
            let before = clock.monotonic();
            limits.balance(&share, thresholds, &clock, || ());
            longest = longest.max(clock.monotonic() - before);
            let due = (clock.monotonic().as_secs_f64() * 5000.0) as u64;
            let landed = (due - drained).min(limits.dirty_pages());
            limits.sub(&share, landed);
            drained += landed;
        }
        assert!(longest <= MAX_PAUSE, "{longest:?}");
        assert!((95_000..=103_000).contains(&written), "{written}");
        let dirty = limits.dirty_pages();
        assert!((1600..1900).contains(&dirty), "{dirty}");
    }

    #[test]
    fn a_slow_device_does_not_slow_a_fast_one() {
        let (limits, slow) = limits();
        let fast = limits.join();
        slow.set_bandwidth(100);
        fast.set_bandwidth(9900);
        limits.add(&slow, 1700);
        limits.add(&fast, 200);
        limits.refresh();
        let clock = ManualClock::default();
        assert_eq!(
            limits.balance(&fast, thresholds, &clock, || ()),
            Balanced::Background
        );
        assert_eq!(clock.monotonic(), Duration::ZERO);
        limits.add(&slow, 10);
        assert_eq!(
            limits.balance(&slow, thresholds, &clock, || ()),
            Balanced::Paused
        );
    }

    #[test]
    fn the_hard_threshold_stops_until_pages_land_or_the_device_fails() {
        let (limits, share) = limits();
        limits.add(&share, 2100);
        let clock = ManualClock::default();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| limits.balance(&share, thresholds, &clock, || ()));
            std::thread::sleep(Duration::from_millis(100));
            assert!(!writer.is_finished());
            limits.sub(&share, 200);
            assert_ne!(writer.join().unwrap(), Balanced::LetThrough);
        });
        limits.add(&share, 200);
        share.failing.store(true, Relaxed);
        assert_eq!(
            limits.balance(&share, thresholds, &clock, || ()),
            Balanced::LetThrough
        );
    }
}
