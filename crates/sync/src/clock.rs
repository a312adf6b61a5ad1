//! Time as a parameter, so that tests can control it.

use crate::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

/// A clock.
pub trait Clock: Send + Sync {
    /// Time since an arbitrary fixed moment; never goes back.
    fn monotonic(&self) -> Duration;
    /// Time since 1970-01-01 UTC (seconds, nanoseconds).
    fn realtime(&self) -> (i64, u32);
    /// Pauses the calling thread.
    fn sleep(&self, pause: Duration) {
        crate::waits::waiting(|| crate::thread::sleep(pause));
    }
}

/// The system's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn monotonic(&self) -> Duration {
        crate::time::monotonic()
    }
    fn realtime(&self) -> (i64, u32) {
        match crate::time::system_now().duration_since(UNIX_EPOCH) {
            Ok(since) => (since.as_secs() as i64, since.subsec_nanos()),
            // Before 1970 seconds round down, because nanoseconds count up.
            Err(error) => {
                let before = error.duration();
                match before.subsec_nanos() {
                    0 => (-(before.as_secs() as i64), 0),
                    nanos => (-(before.as_secs() as i64) - 1, 1_000_000_000 - nanos),
                }
            }
        }
    }
}

/// A clock that moves only by [`ManualClock::advance`] and by sleeping.
#[derive(Debug, Default)]
pub struct ManualClock {
    nanos: AtomicU64,
}

impl ManualClock {
    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.nanos
            .fetch_add(by.as_nanos() as u64, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }
    fn realtime(&self) -> (i64, u32) {
        let now = self.monotonic();
        (now.as_secs() as i64, now.subsec_nanos())
    }
    fn sleep(&self, pause: Duration) {
        self.advance(pause);
    }
}
