//! Flushes that no thread waits for: the commit at an interval, those of checkpoints, and those
//! that only keep later ones short.
//!
//! Reads wait while a flush empties the device's cache. So such a flush waits until little is in
//! the cache, and limited writes wait until it is over.

use super::Throttle;
use std::time::Duration;
use sync::atomic::Ordering::{Relaxed, SeqCst};

/// The longest time for which a flush without a waiter lets the cache empty, and the longest for
/// which it then holds back limited writes.
pub(super) const LONGEST_DRAIN: Duration = Duration::from_secs(1);
pub(super) const LONGEST_HOLD: Duration = Duration::from_millis(250);

impl Throttle {
    /// Waits until the device's cache is nearly empty, so that the flush that the caller is about
    /// to make delays no read for long. Returns at once while nobody reads, if `is_urgent`, and
    /// after a second at the latest. Limited writes wait from now on, until the caller
    /// drops the result, and for no longer than a quarter of a second after the return.
    pub fn wait_for_flush(&self, is_urgent: impl Fn() -> bool) -> Option<QuietFlush<'_>> {
        let began = sync::time::monotonic();
        if !self.enabled.load(Relaxed) || !self.is_active(began) {
            return None;
        }
        let quiet = QuietFlush::new(self);
        let mut now = began;
        let mut state = self.state.lock();
        state.hold_until = now + LONGEST_DRAIN;
        loop {
            self.update(&mut state, now);
            let rest = state.limit(2) / 4;
            let waited = now.saturating_sub(began);
            if state.bucket.bytes() <= rest || waited >= LONGEST_DRAIN || is_urgent() {
                state.hold_until = now + LONGEST_HOLD;
                return Some(quiet);
            }
            let wait = state.bucket.time_until(rest);
            self.sleep(&mut state, wait);
            now = sync::time::monotonic();
        }
    }
}

/// A flush that holds back limited writes, so that it is short ([`Throttle::wait_for_flush`]).
#[must_use = "limited writes are held back until it is dropped"]
pub struct QuietFlush<'a> {
    throttle: &'a Throttle,
}

impl QuietFlush<'_> {
    fn new(throttle: &Throttle) -> QuietFlush<'_> {
        throttle.quiet_flushes.fetch_add(1, SeqCst);
        QuietFlush { throttle }
    }
}

impl Drop for QuietFlush<'_> {
    fn drop(&mut self) {
        self.throttle.quiet_flushes.fetch_sub(1, SeqCst);
        // A waiter that misses this looks again soon.
        self.throttle.changed.notify_all();
    }
}
