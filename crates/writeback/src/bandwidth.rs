//! How fast a device takes pages: an exponentially weighted mean over the time in which it had something to do.
//!
//! Algorithm (the kernel's `wb_update_write_bandwidth`, `mm/page-writeback.c`, without its second filter): time counts
//! only while a batch is in flight. Whenever 200 ms of such time have gathered, the pages that landed in them are a
//! sample, which enters the mean with the weight `gathered / 3 s`. The first sample replaces the guess and comes after
//! 20 ms, so that a fast device is not throttled to the guess for long.

use std::time::Duration;

/// The guess before anything was measured, in pages a second: 100 MB/s, as in the kernel.
pub(crate) const INITIAL_PAGES_PER_SEC: u64 = 100_000_000 / block::PAGE_SIZE as u64;
/// Busy time that makes a sample.
const SAMPLE: Duration = Duration::from_millis(200);
/// Busy time that makes the first one.
const FIRST_SAMPLE: Duration = Duration::from_millis(20);
/// Busy time that the mean looks back on.
const PERIOD: Duration = Duration::from_secs(3);

/// See the module.
pub(crate) struct Bandwidth {
    pages_per_sec: f64,
    measured: bool,
    /// Since when the device has been busy without a break that was counted already.
    busy_since: Option<Duration>,
    gathered: Duration,
    landed: u64,
}

impl Bandwidth {
    pub(crate) fn new() -> Bandwidth {
        Bandwidth {
            pages_per_sec: INITIAL_PAGES_PER_SEC as f64,
            measured: false,
            busy_since: None,
            gathered: Duration::ZERO,
            landed: 0,
        }
    }
    /// Something is in flight.
    pub(crate) fn busy(&mut self, now: Duration) {
        self.busy_since.get_or_insert(now);
    }
    /// `pages` landed, and `idle` says whether nothing is in flight any more. The mean in pages a second, where it is new.
    pub(crate) fn landed(&mut self, pages: u64, idle: bool, now: Duration) -> Option<u64> {
        self.landed += pages;
        if let Some(since) = self.busy_since {
            self.gathered += now.saturating_sub(since);
            self.busy_since = (!idle).then_some(now);
        }
        let enough = if self.measured { SAMPLE } else { FIRST_SAMPLE };
        if self.gathered < enough {
            return None;
        }
        let sample = self.landed as f64 / self.gathered.as_secs_f64();
        let weight = if self.measured {
            (self.gathered.as_secs_f64() / PERIOD.as_secs_f64()).min(1.0)
        } else {
            1.0
        };
        self.pages_per_sec += (sample - self.pages_per_sec) * weight;
        self.measured = true;
        self.gathered = Duration::ZERO;
        self.landed = 0;
        // Never zero: it divides.
        Some((self.pages_per_sec as u64).max(16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn follows_the_device_and_ignores_idle_time() {
        let mut bandwidth = Bandwidth::new();
        let mut now = Duration::ZERO;
        let mut run = |pages_per_batch: u64, batches: u32, pause: Duration| {
            let mut last = None;
            for _ in 0..batches {
                bandwidth.busy(now);
                now += 50 * MS;
                last = bandwidth.landed(pages_per_batch, true, now).or(last);
                now += pause;
            }
            last
        };
        assert_eq!(run(100, 1, Duration::ZERO), Some(2000));
        assert_eq!(run(100, 3, Duration::ZERO), None);
        assert_eq!(run(100, 1, Duration::ZERO), Some(2000));
        assert_eq!(run(100, 4, Duration::from_secs(60)), Some(2000));
        let risen = run(1000, 4 * 40, Duration::ZERO).unwrap();
        assert!((18_000..=20_000).contains(&risen), "{risen}");
    }
}
