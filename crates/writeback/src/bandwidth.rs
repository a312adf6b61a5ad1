//! A device's write bandwidth: exponentially weighted means over its busy time.
//!
//! Algorithm (after the kernel's `wb_update_write_bandwidth`, `mm/page-writeback.c`):
//! - Busy time runs from a batch's submission, or the previous completion, to its own completion.
//!   It counts only if the device had enough to do: the batch was a full one, or others were in
//!   flight behind it. A few pages now and then do not show what the device can do.
//! - 200 ms of busy time make a sample. It enters the *mean*, by which devices share the dirty
//!   limit, with the weight `busy / 10 s`, and the *recent* rate, to which writers are slowed, with
//!   `busy / 600 ms`. While less time than that has been measured, both are plain means.
//! - So both weigh time equally. A flush of a commit, for which a disk with a full cache may need
//!   seconds, counts for that time and no more. A write cache that has room again does not make a
//!   disk a fast device.
//! - The first sample replaces the initial guess after 20 ms, so that a fast device is not
//!   throttled to the guess for long.

use std::time::Duration;

/// The initial guess, in bytes per second, as in the kernel.
pub(crate) const INITIAL_BYTES_PER_SEC: u64 = 100_000_000;
/// Busy time that makes a sample.
const SAMPLE: Duration = Duration::from_millis(200);
/// Busy time that makes the first sample.
const FIRST_SAMPLE: Duration = Duration::from_millis(20);
/// Busy time that the mean covers: two commit intervals.
const MEAN: Duration = Duration::from_secs(10);
/// Busy time that the recent rate covers.
const RECENT: Duration = Duration::from_millis(600);
/// Lower bound of both rates, in bytes per second: they are divisors.
pub(crate) const MIN_RATE: f64 = 65_536.0;

/// In bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rates {
    pub(crate) mean: u64,
    pub(crate) recent: u64,
}

/// See the module.
pub(crate) struct Bandwidth {
    mean: f64,
    recent: f64,
    /// Busy time of all samples.
    measured: Duration,
    /// The beginning of the busy time that is not counted yet.
    busy_since: Option<Duration>,
    /// Busy time and bytes of the next sample.
    gathered: Duration,
    bytes: u64,
}

/// A batch that has completed.
#[derive(Clone, Copy)]
pub(crate) struct Completed {
    pub bytes: u64,
    /// Bytes of a full batch.
    pub full: u64,
    /// No other batch is open or in flight.
    pub is_last: bool,
}

impl Bandwidth {
    pub(crate) fn new() -> Bandwidth {
        Bandwidth {
            mean: INITIAL_BYTES_PER_SEC as f64,
            recent: INITIAL_BYTES_PER_SEC as f64,
            measured: Duration::ZERO,
            busy_since: None,
            gathered: Duration::ZERO,
            bytes: 0,
        }
    }
    /// Something is in flight.
    pub(crate) fn busy(&mut self, now: Duration) {
        self.busy_since.get_or_insert(now);
    }
    /// A batch has completed. Returns the rates if they have changed.
    pub(crate) fn completed(&mut self, batch: Completed, now: Duration) -> Option<Rates> {
        let since = self.busy_since.take();
        self.busy_since = (!batch.is_last).then_some(now);
        if batch.is_last && batch.bytes < batch.full {
            return None;
        }
        self.bytes += batch.bytes;
        self.gathered += since.map_or(Duration::ZERO, |since| now.saturating_sub(since));
        let enough = match self.measured {
            Duration::ZERO => FIRST_SAMPLE,
            _ => SAMPLE,
        };
        if self.gathered < enough {
            return None;
        }
        let sample = self.bytes as f64 / self.gathered.as_secs_f64();
        self.measured += self.gathered;
        for (rate, period) in [(&mut self.mean, MEAN), (&mut self.recent, RECENT)] {
            let period = period.min(self.measured);
            let weight = (self.gathered.as_secs_f64() / period.as_secs_f64()).min(1.0);
            *rate = (*rate + (sample - *rate) * weight).max(MIN_RATE);
        }
        self.gathered = Duration::ZERO;
        self.bytes = 0;
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

    const PAGE: u64 = 4096;

    fn batch(pages: u64, full: u64, others: u32) -> Completed {
        Completed {
            bytes: pages * PAGE,
            full: full * PAGE,
            is_last: others == 0,
        }
    }

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
                    .completed(batch(pages_per_batch, pages_per_batch, 0), now)
                    .map(|rates| (rates.mean / PAGE, rates.recent / PAGE))
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
        // After a second the recent rate has risen most of the way. The mean covers all the time so
        // far.
        let (mean, recent) = run(1000, 20, Duration::ZERO).unwrap();
        assert!((13_000..15_000).contains(&mean), "{mean}");
        assert!((17_000..20_000).contains(&recent), "{recent}");
        let (mean, _) = run(1000, 600, Duration::ZERO).unwrap();
        assert!((18_500..=20_000).contains(&mean), "{mean}");
        // From then on it covers ten seconds.
        let (mean, _) = run(100, 60, Duration::ZERO).unwrap();
        assert!((14_500..16_000).contains(&mean), "{mean}");
    }

    #[test]
    fn pauses_of_a_device_count_in_its_mean() {
        let mut bandwidth = Bandwidth::new();
        let mut now = Duration::ZERO;
        bandwidth.busy(now);
        for second in 0..70 {
            // A flush takes two seconds of seven. Waiting batches complete at once after it.
            let completions: &[u32] = match second % 7 {
                0 => &[],
                1 => &[2000, 1, 1, 1],
                _ => &[100; 10],
            };
            for &ms in completions {
                now += ms * MS;
                let rates = bandwidth.completed(batch(100, 100, 1), now);
                if let Some(rates) = rates.filter(|_| second > 20) {
                    let all = 54.0 * 100.0 / 7.0;
                    let off = (rates.mean / PAGE) as f64 / all;
                    assert!((0.8..1.2).contains(&off), "{off} at {now:?}");
                }
            }
        }
    }

    #[test]
    fn small_batches_alone_are_not_measured() {
        let mut bandwidth = Bandwidth::new();
        let mut now = Duration::ZERO;
        for _ in 0..100 {
            bandwidth.busy(now);
            now += 10 * MS;
            assert_eq!(bandwidth.completed(batch(1, 100, 0), now), None);
            now += 1000 * MS;
        }
        // Small batches count while others are in flight behind them.
        bandwidth.busy(now);
        now += 10 * MS;
        assert_eq!(bandwidth.completed(batch(20, 100, 1), now), None);
        now += 10 * MS;
        let rates = bandwidth.completed(batch(20, 100, 1), now).unwrap();
        assert_eq!((rates.mean, rates.recent), (2000 * PAGE, 2000 * PAGE));
    }
}
