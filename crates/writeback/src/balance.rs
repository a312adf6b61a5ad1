//! How much may be dirty, and each device's part of it.
//!
//! Dirty pages and pages under writeback are counted for each device, and together for all devices
//! on one memory budget. The thresholds are divided among the devices that have dirty pages, in
//! proportion to their measured bandwidth (the kernel's `wb_dirty_limits`, `mm/page-writeback.c`).
//! So a slow device cannot fill memory, and all devices need about the same time to write their
//! dirty pages. The smallest part is a few megabytes, or a fourth of an even part if that is less:
//! a disk with only a few pages to choose from becomes slower, and its part smaller still.
//!
//! A device may have more than its part, because it was the only one until now, or has become
//! slower (a disk whose write cache has filled up). Its writers are slowed until it has less, which
//! may take a while. Meanwhile the others share the remainder, so that all together do not exceed
//! the hard threshold, where writers are stopped.

use crate::Flushers;
use crate::bandwidth::{INITIAL_BYTES_PER_SEC, Rates};
use crate::window::WINDOW;
use cache::{Budget, ShardedCounter};
use std::sync::{Arc, Weak};
use std::time::Duration;
use sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use sync::{Mutex, Rank};

/// Bytes that a shard of the counters holds back, at most.
const COUNT_BATCH: u64 = 128 << 10;
/// Bytes of the smallest part, where an even part is at least four times as much.
const MIN_PART: u64 = 4 << 20;
/// Bytes of a flusher's batch, at most and at least.
const BATCH_BYTES: u64 = 16 << 20;
const MIN_BATCH_BYTES: u64 = 128 << 10;
/// Bytes of a shared thread's batch, at most: pdflush wrote 1024 pages before it turned to the next
/// device.
const SHARED_BATCH_BYTES: u64 = 4 << 20;

/// Dirty thresholds, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thresholds {
    pub(crate) background: u64,
    pub(crate) hard: u64,
}

impl Thresholds {
    /// Up to here writers are not slowed.
    pub(crate) fn freerun(&self) -> u64 {
        (self.background + self.hard) / 2
    }
}

/// The dirty pages of all devices on one memory budget, and their limits, in bytes: the pages of
/// volumes differ in size.
pub struct DirtyLimits {
    budget: Arc<Budget>,
    pub(crate) dirty: ShardedCounter,
    /// Of them, those that are in batches.
    submitted: AtomicU64,
    shares: Mutex<Vec<Weak<Share>>>,
    /// Bandwidth, in bytes per second, and number of the devices that had dirty pages at the last
    /// refresh.
    active_bandwidth: AtomicU64,
    active_devices: AtomicU64,
    /// Bytes that these had beyond their parts of the hard threshold.
    excess: AtomicU64,
}

/// A device's parts of the thresholds, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) freerun: u64,
    pub(crate) hard: u64,
}

/// One device in [`DirtyLimits`].
pub(crate) struct Share {
    /// Bytes of its dirty pages.
    dirty: ShardedCounter,
    /// Of them, those that are in batches.
    submitted: AtomicU64,
    /// Bytes per second, over some seconds.
    pub(crate) bandwidth: AtomicU64,
    /// Bytes per second, over the last 600 ms.
    pub(crate) recent_bandwidth: AtomicU64,
    /// Bytes of the oldest batch in flight, and since when it is the oldest, in nanoseconds of the
    /// device's clock; 0: nothing is in flight.
    pub(crate) oldest_bytes: AtomicU64,
    pub(crate) oldest_since_ns: AtomicU64,
    /// When the next writer is admitted, in nanoseconds of the device's clock.
    pub(crate) virtual_ns: AtomicU64,
    /// Writers that sleep.
    pub(crate) sleepers: AtomicUsize,
    /// Changes whenever pages leave.
    pub(crate) progress: AtomicU64,
    /// Whether the last batch failed.
    pub(crate) failing: AtomicBool,
    /// Whether writers are no longer slowed (the volume is being unmounted).
    pub(crate) closed: AtomicBool,
}

fn batch(budget: &Budget) -> i64 {
    (budget.limit() / 4096).min(COUNT_BATCH) as i64
}

impl DirtyLimits {
    /// Makes the limits of a budget.
    pub fn new(budget: Arc<Budget>) -> Arc<DirtyLimits> {
        Arc::new(DirtyLimits {
            dirty: ShardedCounter::new(batch(&budget)),
            budget,
            submitted: AtomicU64::new(0),
            shares: Rank::DirtyShares.mutex(Vec::new()),
            active_bandwidth: AtomicU64::new(0),
            active_devices: AtomicU64::new(0),
            excess: AtomicU64::new(0),
        })
    }
    /// Returns the limits that all devices on this budget share.
    pub fn of(budget: &Arc<Budget>) -> Arc<DirtyLimits> {
        static KNOWN: Mutex<Vec<Weak<DirtyLimits>>> = Rank::DirtyLimitsList.mutex(Vec::new());
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
    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }
    /// Dirty bytes of all devices that are in no batch yet, approximately; two loads.
    pub(crate) fn to_write(&self) -> u64 {
        let submitted = self.submitted.load(Relaxed);
        self.dirty.approximate().saturating_sub(submitted)
    }
    /// Whether the device's flusher has background work: more bytes than the background threshold
    /// are dirty and in no batch, or writers to this device are slowed.
    pub(crate) fn over_background(&self, share: &Share, t: Thresholds) -> bool {
        self.to_write() > t.background || self.over_freerun(share, t)
    }
    /// Whether writers to the device are slowed.
    pub(crate) fn over_freerun(&self, share: &Share, t: Thresholds) -> bool {
        self.dirty.approximate() > t.freerun() && share.dirty_bytes() > self.parts(share, t).freerun
    }
    /// So many bytes of the device were submitted in a batch.
    pub(crate) fn submit(&self, share: &Share, bytes: u64) {
        self.submitted.fetch_add(bytes, Relaxed);
        share.submitted.fetch_add(bytes, Relaxed);
    }
    /// So many bytes of a batch have completed or failed.
    pub(crate) fn settle(&self, share: &Share, bytes: u64) {
        self.submitted.fetch_sub(bytes, Relaxed);
        share.submitted.fetch_sub(bytes, Relaxed);
    }
    /// Adds a device.
    pub(crate) fn join(&self) -> Arc<Share> {
        let share = Arc::new(Share {
            dirty: ShardedCounter::new(batch(&self.budget)),
            submitted: AtomicU64::new(0),
            bandwidth: AtomicU64::new(INITIAL_BYTES_PER_SEC),
            recent_bandwidth: AtomicU64::new(INITIAL_BYTES_PER_SEC),
            oldest_bytes: AtomicU64::new(0),
            oldest_since_ns: AtomicU64::new(0),
            virtual_ns: AtomicU64::new(0),
            sleepers: AtomicUsize::new(0),
            progress: AtomicU64::new(0),
            failing: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        });
        let mut shares = self.shares.lock();
        shares.retain(|held| held.strong_count() > 0);
        shares.push(Arc::downgrade(&share));
        share
    }
    /// Recomputes the parts: a bandwidth or the set of busy devices changed.
    pub(crate) fn refresh(&self, t: Thresholds) {
        let shares = self.shares.lock();
        let active: Vec<_> = shares
            .iter()
            .filter_map(Weak::upgrade)
            .map(|share| (share.dirty_bytes(), share))
            .filter(|(dirty, _)| *dirty > 0)
            .collect();
        let bandwidth = active.iter().map(|(_, share)| share.bandwidth()).sum();
        self.active_bandwidth.store(bandwidth, Relaxed);
        self.active_devices.store(active.len() as u64, Relaxed);
        let excess = |(dirty, share): &(u64, Arc<Share>)| {
            dirty.saturating_sub(self.in_proportion(share, t.hard))
        };
        let excess = active.iter().map(excess).sum();
        self.excess.store(excess, Relaxed);
    }
    pub(crate) fn add(&self, share: &Share, bytes: u64) {
        self.dirty.add(bytes as i64);
        share.dirty.add(bytes as i64);
    }
    pub(crate) fn sub(&self, share: &Share, bytes: u64) {
        self.dirty.add(-(bytes as i64));
        share.dirty.add(-(bytes as i64));
        share.progress.fetch_add(1, Relaxed);
    }

    /// The device's parts of the thresholds.
    pub(crate) fn parts(&self, share: &Share, t: Thresholds) -> Parts {
        let own = share.dirty_bytes();
        let own_excess = own.saturating_sub(self.in_proportion(share, t.hard));
        let excess = self.excess.load(Relaxed).saturating_sub(own_excess);
        let left = t.hard - excess.min(t.hard - t.hard / 4);
        let of = |whole: u64| {
            let part = u128::from(whole) * u128::from(left) / u128::from(t.hard);
            self.in_proportion(share, part as u64)
        };
        Parts {
            freerun: of(t.freerun()),
            hard: of(t.hard),
        }
    }
    /// The device's part of `whole` by its bandwidth alone.
    pub(crate) fn in_proportion(&self, share: &Share, whole: u64) -> u64 {
        let own = share.bandwidth();
        let all = self.active_bandwidth.load(Relaxed).max(own);
        let part = u128::from(whole) * u128::from(own) / u128::from(all);
        let devices = self.active_devices.load(Relaxed).max(1);
        (part as u64).max((whole / (4 * devices)).min(MIN_PART))
    }
    /// Bytes of a batch for the device. A batch counts as dirty until all of it has completed. So
    /// it must be small compared with the range in which writers are slowed, and take the device at
    /// most a tenth of a second. A thread that serves many devices does not return by then; its
    /// batches are the same for all.
    pub(crate) fn batch_bytes(&self, share: &Share, t: Thresholds, flushers: Flushers) -> u64 {
        let parts = self.parts(share, t);
        let room = (parts.hard - parts.freerun) / WINDOW as u64;
        let most = match flushers {
            Flushers::PerDevice => BATCH_BYTES.min(share.bandwidth() / 10),
            Flushers::Shared => SHARED_BATCH_BYTES,
        };
        room.min(most).max(MIN_BATCH_BYTES)
    }
}

impl Share {
    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.dirty.exact()
    }
    /// Bytes that are in batches. Those of a batch that is being finished may be clean already.
    pub(crate) fn submitted_bytes(&self) -> u64 {
        self.submitted.load(Relaxed)
    }
    /// Bytes per second, over some seconds.
    pub(crate) fn bandwidth(&self) -> u64 {
        self.bandwidth.load(Relaxed)
    }
    /// A batch of `bytes` is the oldest in flight from now on.
    pub(crate) fn set_oldest_batch(&self, bytes: u64, now: Duration) {
        self.oldest_bytes.store(bytes, Relaxed);
        self.oldest_since_ns.store(now.as_nanos() as u64, Relaxed);
    }
    /// Nothing is in flight.
    pub(crate) fn clear_oldest_batch(&self) {
        self.oldest_since_ns.store(0, Relaxed);
    }
    pub(crate) fn set_bandwidth(&self, rates: Rates) {
        self.bandwidth.store(rates.mean, Relaxed);
        self.recent_bandwidth.store(rates.recent, Relaxed);
    }
}
