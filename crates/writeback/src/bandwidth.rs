//! How fast a device takes pages: exponentially weighted means over the time in which it was kept
//! busy.
//!
//! Algorithm (after the kernel's `wb_update_write_bandwidth`, `mm/page-writeback.c`): time counts
//! from a batch's submission or the landing before it to its own landing, and only if the device
//! had enough to do meanwhile: the batch was a whole one, or others were in flight behind it. What
//! a device makes of a few pages now and then says little about what it could do. Whenever 200 ms
//! have gathered, the pages that landed in them are a sample. It enters the *mean*, by which
//! devices share the dirty limit, with the weight `gathered / 10 s`, and the *recent* rate, to
//! which writers are slowed, with `gathered / 600 ms`; while less time than that has been measured,
//! both are plain means over what there was. So they look back over time alike in both directions:
//! the flush of a commit, for which a disk with a full cache may be gone for seconds, counts for
//! the time it takes and no more, and a write cache that has room again does not make a disk a fast
//! device. The first sample replaces the guess and comes after 20 ms, so that a fast device is not
//! throttled to the guess for long.

use std::time::Duration;

/// The guess before anything was measured, in pages a second: 100 MB/s, as in the kernel.
pub(crate) const INITIAL_PAGES_PER_SEC: u64 = 100_000_000 / block::PAGE_SIZE as u64;
/// Busy time that makes a sample.
const SAMPLE: Duration = Duration::from_millis(200);
/// Busy time that makes the first one.
const FIRST_SAMPLE: Duration = Duration::from_millis(20);
/// Busy time that the mean looks back on: two intervals of commits.
const MEAN: Duration = Duration::from_secs(10);
/// Busy time that the recent rate looks back on.
const RECENT: Duration = Duration::from_millis(600);
/// Neither rate is ever less, in pages a second: they divide.
pub(crate) const MIN_RATE: f64 = 16.0;

/// In pages a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rates {
    pub(crate) mean: u64,
    pub(crate) recent: u64,
}

/// See the module.
pub(crate) struct Bandwidth {
    mean: f64,
    recent: f64,
    /// Busy time that has been measured so far.
    measured: Duration,
    /// Since when the device has been busy without a break that was counted already.
    busy_since: Option<Duration>,
    gathered: Duration,
    landed: u64,
}

impl Bandwidth {
    pub(crate) fn new() -> Bandwidth {
        Bandwidth {
            mean: INITIAL_PAGES_PER_SEC as f64,
            recent: INITIAL_PAGES_PER_SEC as f64,
            measured: Duration::ZERO,
            busy_since: None,
            gathered: Duration::ZERO,
            landed: 0,
        }
    }
    /// Something is in flight.
    pub(crate) fn busy(&mut self, now: Duration) {
        self.busy_since.get_or_insert(now);
    }
    /// A batch of `pages` landed; `whole` says whether it was a whole one, and `idle` whether
    /// nothing is in flight any more. The rates, where they are new.
    pub(crate) fn landed(
        &mut self,
        pages: u64,
        whole: bool,
        idle: bool,
        now: Duration,
    ) -> Option<Rates> {
        let since = self.busy_since.take();
        self.busy_since = (!idle).then_some(now);
        if idle && !whole {
            return None;
        }
        self.landed += pages;
        self.gathered += since.map_or(Duration::ZERO, |since| now.saturating_sub(since));
        let enough = match self.measured {
            Duration::ZERO => FIRST_SAMPLE,
            _ => SAMPLE,
        };
        if self.gathered < enough {
            return None;
        }
        let sample = self.landed as f64 / self.gathered.as_secs_f64();
        self.measured += self.gathered;
        for (rate, period) in [(&mut self.mean, MEAN), (&mut self.recent, RECENT)] {
            let period = period.min(self.measured);
            let weight = (self.gathered.as_secs_f64() / period.as_secs_f64()).min(1.0);
            *rate = (*rate + (sample - *rate) * weight).max(MIN_RATE);
        }
        self.gathered = Duration::ZERO;
        self.landed = 0;
        Some(Rates {
            mean: self.mean as u64,
            recent: self.recent as u64,
        })
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
                last = bandwidth
                    .landed(pages_per_batch, true, true, now)
                    .map(|rates| (rates.mean, rates.recent))
                    .or(last);
                now += pause;
            }
            last
        };
        let even = Some((2000, 2000));
        assert_eq!(run(100, 1, Duration::ZERO), even);
        assert_eq!(run(100, 3, Duration::ZERO), None);
        assert_eq!(run(100, 1, Duration::ZERO), even);
        assert_eq!(run(100, 4, Duration::from_secs(60)), even);
        // After a second the recent rate has risen most of the way; the mean is that of all the
        // time so far.
        let (mean, recent) = run(1000, 20, Duration::ZERO).unwrap();
        assert!((13_000..15_000).contains(&mean), "{mean}");
        assert!((17_000..20_000).contains(&recent), "{recent}");
        let (mean, _) = run(1000, 600, Duration::ZERO).unwrap();
        assert!((18_500..=20_000).contains(&mean), "{mean}");
        // From then on it looks back ten seconds.
        let (mean, _) = run(100, 60, Duration::ZERO).unwrap();
        assert!((14_500..16_000).contains(&mean), "{mean}");
    }

    #[test]
    fn a_device_that_is_gone_now_and_then_has_its_mean_over_time() {
        let mut bandwidth = Bandwidth::new();
        let mut now = Duration::ZERO;
        bandwidth.busy(now);
        for second in 0..70 {
            // A flush takes two seconds of seven. What has waited meanwhile lands at once.
            let landings: &[u32] = match second % 7 {
                0 => &[],
                1 => &[2000, 1, 1, 1],
                _ => &[100; 10],
            };
            for &ms in landings {
                now += ms * MS;
                let rates = bandwidth.landed(100, true, false, now);
                if let Some(rates) = rates.filter(|_| second > 20) {
                    let all = 54.0 * 100.0 / 7.0;
                    let off = rates.mean as f64 / all;
                    assert!((0.8..1.2).contains(&off), "{off} at {now:?}");
                }
            }
        }
    }

    #[test]
    fn what_lands_alone_in_small_batches_says_nothing() {
        let mut bandwidth = Bandwidth::new();
        let mut now = Duration::ZERO;
        for _ in 0..100 {
            bandwidth.busy(now);
            now += 10 * MS;
            assert_eq!(bandwidth.landed(1, false, true, now), None);
            now += 1000 * MS;
        }
        // Small ones count while others are behind them.
        bandwidth.busy(now);
        now += 10 * MS;
        assert_eq!(bandwidth.landed(20, false, false, now), None);
        now += 10 * MS;
        let rates = bandwidth.landed(20, false, false, now).unwrap();
        assert_eq!((rates.mean, rates.recent), (2000, 2000));
    }
}
