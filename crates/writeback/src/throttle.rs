//! How writers are slowed to the bandwidth of their device. It bounds dirty memory, not I/O: the
//! throttle of requests is [`block::Throttle`].
//!
//! Algorithm (after Wu's `balance_dirty_pages`, Linux 3.2, `mm/page-writeback.c`, without per-task
//! rates). After a writer has dirtied pages:
//! 1. Up to the *background* threshold nothing happens; above it the flusher is woken. Writers are
//!    not slowed up to the middle between background and *hard* threshold, nor while their device
//!    is below its part of that ([`crate::balance`]).
//! 2. From there on the writers to a device are admitted at a common rate of
//!    `recent bandwidth × position`. The position falls along a cubic from 2 at the middle over 1
//!    half way to nearly 0 at the hard threshold, of the device's parts of them. So the dirty pages
//!    settle half way and the rate settles at the bandwidth. The known bandwidth is lowered at once
//!    while a batch is overdue.
//! 3. One virtual time per device keeps the rate: each writer advances it by `bytes / rate` and
//!    sleeps until it, once that is 10 ms away. A sleep is at most 100 ms and at most a fourth of
//!    the time for which the device has work, so that the device does not idle. The remainder is
//!    left to the writer's next call.
//! 4. A writer that dirties little does not pay for others: it sleeps at most twice as long as the
//!    pages since its last sleep take at its part of the rate. The part is taken to be one of those
//!    of the writers that sleep now, and its own. Pages that it makes durable itself do not count.
//!    A writer is a thread, or the client of a server ([`crate::payer`]).
//! 5. One sleep is the whole cost of a call, also at the hard threshold, which many writers to a
//!    slow device may exceed. A fourth above it, and above the device's part of it, writers are
//!    stopped until pages complete. If none complete for a while (a shorter one where the device
//!    reports errors; failed pages stay dirty), writers are let through: a write is never refused
//!    for want of memory.

use crate::balance::{DirtyLimits, Share, Thresholds};
use crate::bandwidth::MIN_RATE;
use crate::payer::{self, Dirtied};
use std::time::Duration;
use sync::atomic::Ordering::Relaxed;
use sync::clock::Clock;

/// Shorter pauses accumulate.
const MIN_PAUSE: Duration = Duration::from_millis(10);
/// The longest pause: half of the kernel's, so that a call takes at most 200 ms on a busy machine
/// too.
pub(crate) const MAX_PAUSE: Duration = Duration::from_millis(100);
/// A pause takes at most this part of the time for which the device has work.
const PART_OF_WORK: f64 = 0.25;
/// A pause is at most this multiple of what the writer's own pages take.
const FAIR: f64 = 2.0;
/// How far ahead the virtual time may be. Debt beyond that is dropped.
const MAX_DEBT: Duration = Duration::from_secs(1);
/// Lower bound of the position.
const MIN_POSITION: f64 = 1.0 / 256.0;
/// A batch that takes longer is overdue. It should take a tenth of a second.
const OVERDUE: Duration = Duration::from_millis(300);
/// How long a writer is stopped while nothing completes, on a device that reports errors.
const PATIENCE_FAILING: Duration = Duration::from_secs(1);
/// The same, on one that does not.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a call of [`DirtyLimits::balance`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Balanced {
    /// Below the background threshold.
    Free,
    /// Above the background threshold, not slowed.
    Background,
    /// Slowed.
    Paused,
    /// Far above the hard threshold, and the device makes no progress.
    LetThrough,
}

/// The action of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing.
    Free,
    /// Wake the flusher.
    Background,
    /// Wake the flusher and sleep; then wait while [`DirtyLimits::stopped`].
    Sleep(Duration),
}

impl DirtyLimits {
    /// The action of a writer to the device at `now`.
    pub(crate) fn action(
        &self,
        share: &Share,
        t: Thresholds,
        now: Duration,
        dirtied: Dirtied,
    ) -> Action {
        let dirty = self.dirty.approximate();
        if dirty <= t.background || share.closed.load(Relaxed) {
            return Action::Free;
        }
        if dirty <= t.freerun() {
            return Action::Background;
        }
        share.lower_if_overdue(now);
        let parts = self.parts(share, t);
        let own = share.dirty_bytes();
        if own <= parts.freerun {
            return Action::Background;
        }
        let own = own as f64;
        let bandwidth = share.recent_bandwidth.load(Relaxed) as f64;
        let rate = bandwidth * position(own, parts.freerun as f64, parts.hard as f64);
        let queue = share.admit(dirtied.bytes as f64 / rate, now);
        let sleepers = share.sleepers.load(Relaxed) as f64;
        let own_cost = dirtied.unpaid as f64 / rate * (sleepers + 1.0);
        let fair = Duration::from_secs_f64((FAIR * own_cost).min(MAX_PAUSE.as_secs_f64()));
        let pause = queue.min(fair);
        let most =
            Duration::from_secs_f64(own / bandwidth * PART_OF_WORK).clamp(MIN_PAUSE, MAX_PAUSE);
        if pause < MIN_PAUSE {
            Action::Background
        } else {
            Action::Sleep(pause.min(most))
        }
    }

    /// Whether so much is dirty, in all and of this device, that its writers are stopped.
    pub(crate) fn stopped(&self, share: &Share, t: Thresholds) -> bool {
        let far_above = |threshold: u64| threshold + threshold / 4;
        !share.closed.load(Relaxed)
            && self.dirty.exact() >= far_above(t.hard)
            && share.dirty_bytes() >= far_above(self.in_proportion(share, t.hard))
    }

    /// Slows the calling thread. `kick` wakes the flusher.
    pub(crate) fn balance(
        &self,
        share: &Share,
        thresholds: impl Fn() -> Thresholds,
        clock: &dyn Clock,
        kick: impl Fn(),
    ) -> Balanced {
        let dirtied = payer::take_dirtied();
        let bytes = dirtied.bytes;
        let action = self.action(share, thresholds(), clock.monotonic(), dirtied);
        if action == Action::Free {
            return Balanced::Free;
        }
        kick();
        let mut balanced = Balanced::Background;
        if let Action::Sleep(pause) = action {
            payer::note_paid();
            share.sleepers.fetch_add(1, Relaxed);
            clock.sleep(pause);
            share.sleepers.fetch_sub(1, Relaxed);
            balanced = Balanced::Paused;
        }
        let mut waited = Duration::ZERO;
        let mut progress = share.progress.load(Relaxed);
        while bytes > 0 && self.stopped(share, thresholds()) {
            balanced = Balanced::Paused;
            let patience = if share.failing.load(Relaxed) {
                PATIENCE_FAILING
            } else {
                PATIENCE
            };
            if waited >= patience {
                return Balanced::LetThrough;
            }
            kick();
            clock.sleep(MIN_PAUSE);
            waited += MIN_PAUSE;
            // A failed batch makes no progress: its pages are dirty as before.
            let now = share.progress.load(Relaxed);
            if now != progress && !share.failing.load(Relaxed) {
                waited = Duration::ZERO;
            }
            progress = now;
        }
        balanced
    }
}

impl Share {
    /// Lowers the recent rate while the oldest batch is overdue, to the rate that the batch shows
    /// so far. The device is slower than known for the time being: its write cache has filled up or
    /// is being flushed, or another program uses it.
    fn lower_if_overdue(&self, now: Duration) {
        let since = self.oldest_since_ns.load(Relaxed);
        let late = now.saturating_sub(Duration::from_nanos(since));
        if since == 0 || late < OVERDUE {
            return;
        }
        let most = self.oldest_bytes.load(Relaxed) as f64 / late.as_secs_f64();
        self.recent_bandwidth
            .fetch_min(most.max(MIN_RATE) as u64, Relaxed);
    }

    /// Advances the virtual time by `seconds`. Returns how far ahead of `now` it is then.
    fn admit(&self, seconds: f64, now: Duration) -> Duration {
        let now = now.as_nanos() as u64;
        let limit = now + MAX_DEBT.as_nanos() as u64;
        let cost = (seconds * 1e9) as u64;
        let due = |virtual_ns: u64| virtual_ns.max(now).saturating_add(cost).min(limit);
        let moved = |virtual_ns| Some(due(virtual_ns));
        let before = self.virtual_ns.fetch_update(Relaxed, Relaxed, moved);
        Duration::from_nanos(due(before.unwrap_or(now)) - now)
    }
}

/// The factor of the bandwidth at which writers are admitted, for `dirty` pages between `from` and
/// `hard`: a cubic from 2 over 1 half way to nearly 0.
fn position(dirty: f64, from: f64, hard: f64) -> f64 {
    let setpoint = (from + hard) / 2.0;
    let x = (setpoint - dirty) / (hard - setpoint).max(1.0);
    (1.0 + x.clamp(-1.0, 1.0).powi(3)).max(MIN_POSITION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_position_falls_smoothly() {
        assert_eq!(position(1500.0, 1500.0, 2000.0), 2.0);
        assert_eq!(position(1750.0, 1500.0, 2000.0), 1.0);
        assert_eq!(position(2500.0, 1500.0, 2000.0), MIN_POSITION);
        let steps: Vec<_> = (1500..2000)
            .map(|d| position(f64::from(d), 1500.0, 2000.0))
            .collect();
        assert!(steps.is_sorted_by(|a, b| a >= b));
    }
}
