//! The account of a volatile write cache: bytes that the device has acknowledged and not yet
//! written to its media.
//!
//! A flush waits until they are written, and on many devices so does every request behind it. No
//! limit of requests in flight bounds that time.
//!
//! The device does not say how full its cache is. The model is a leaky bucket: a completed write
//! adds its bytes, and the device writes them back at a rate. Flushes correct the rate, so that a
//! flush takes the time of the target and not more:
//! - A flush that took longer found a backlog. The rate was too high; it falls in proportion.
//! - A flush that took less, although writes were held back on this account, raises the rate, but
//!   hardly to one that was too high before.
//!
//! So the rate is that of the device beside its readers, whatever share of it they take.

use std::time::Duration;

/// The rate before any flush, in bytes a second.
const FIRST_RATE: f64 = 100e6;
/// Rates outside of these are noise.
const RATES: std::ops::RangeInclusive<f64> = 1e6..=100e9;
/// A flush of fewer bytes says nothing about the rate: its time is that of any flush.
const MIN_SAMPLE: u64 = 256 << 10;
/// The rate before any flush on a rotating disk, which also moves its head for reads.
const ROTATING_RATE: f64 = 25e6;
/// A flush changes the rate by these factors at most.
const FALL: f64 = 0.5;
const RAISE: f64 = 1.25;
/// Each raise moves the bound of the rate by this factor.
const EASE: f64 = 1.05;
/// The rate is uncertain this long after a flush, doubled for each of the last flushes that agreed.
const FIRST_INTERVAL: Duration = Duration::from_millis(100);
/// Flushes that only correct the rate take at most this part of the time: one 20th.
const FLUSH_SHARE: u32 = 20;
const MAX_DOUBLINGS: u32 = 2;
/// Flushes agree if they change the rate by less than this part.
const AGREEMENT: f64 = 0.15;

/// See the module. Totals count the bytes of all writes that completed since the device was opened.
#[derive(Debug)]
pub(super) struct Debt {
    bytes: f64,
    /// The time and the total for which `bytes` is right.
    at: Duration,
    total: u64,
    /// Bytes a second.
    rate: f64,
    /// The end of the last flush, and the total that it covered.
    flushed_at: Duration,
    flushed_total: u64,
    /// A rate that was too high.
    too_high: f64,
    /// The time of the shortest flush that had little to write back.
    base: Option<Duration>,
    /// The time of the shortest other flush.
    shortest_flush: Option<Duration>,
    /// Writes were held back on this account since the last flush.
    pub(super) held_back: bool,
    /// Flushes in a row that changed the rate little.
    agreeing: u32,
}

impl Debt {
    pub(super) fn new(now: Duration) -> Debt {
        Debt {
            bytes: 0.0,
            at: now,
            total: 0,
            rate: FIRST_RATE,
            flushed_at: now,
            flushed_total: 0,
            too_high: *RATES.end(),
            base: None,
            shortest_flush: None,
            held_back: false,
            agreeing: 0,
        }
    }

    #[cfg(test)]
    pub(super) fn set_rate(&mut self, rate: f64) {
        self.rate = rate;
    }

    /// The device has a rotating disk. The rate that flushes showed is forgotten.
    pub(super) fn set_rotating(&mut self) {
        self.rate = ROTATING_RATE;
        self.too_high = *RATES.end();
    }

    /// Brings the account up to date: writes of `total` bytes have completed, evenly since the last
    /// call.
    pub(super) fn update(&mut self, total: u64, now: Duration) {
        let elapsed = now.saturating_sub(self.at).as_secs_f64();
        let more = total.saturating_sub(self.total) as f64;
        self.bytes = (self.bytes + more - self.rate * elapsed).max(0.0);
        self.at = self.at.max(now);
        self.total = self.total.max(total);
    }

    /// Bytes in the cache.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Bytes a second that the device writes back.
    pub(super) fn rate(&self) -> u64 {
        self.rate as u64
    }

    /// Bytes that the device writes back in `time`.
    pub(super) fn bytes_within(&self, time: Duration) -> u64 {
        (self.rate * time.as_secs_f64()) as u64
    }

    /// How long the device takes to write back all but `rest` bytes.
    pub(super) fn time_until(&self, rest: u64) -> Duration {
        Duration::from_secs_f64((self.bytes - rest as f64).max(0.0) / self.rate)
    }

    /// The time of the shortest flush.
    fn shortest_flush(&self) -> Duration {
        self.shortest_flush.unwrap_or_default()
    }

    /// Whether the rate deserves another flush: the last ones differed, or were long ago.
    pub(super) fn is_uncertain(&self) -> bool {
        let patience = FIRST_INTERVAL.max(self.shortest_flush() * FLUSH_SHARE);
        let interval = patience * 2_u32.pow(self.agreeing.min(MAX_DOUBLINGS));
        self.at.saturating_sub(self.flushed_at) > interval
    }

    /// Records a flush that began at `began`, when `covered` bytes had completed, and has ended
    /// now. [`Debt::update`] comes first. A flush should take no longer than `target`.
    pub(super) fn note_flush(&mut self, began: Duration, covered: u64, target: Duration) {
        let now = self.at;
        let took = now.saturating_sub(began);
        let bytes = covered.saturating_sub(self.flushed_total);
        let small = bytes < MIN_SAMPLE;
        if small && bytes > 0 {
            self.base = Some(self.base.map_or(took, |base| base.min(took)));
        }
        if !small {
            self.shortest_flush = Some(self.shortest_flush.map_or(took, |s| s.min(took)));
            let before = self.rate;
            let goal = target + self.base.unwrap_or(target);
            if took > goal {
                self.too_high = self.rate;
                self.rate *= (goal.as_secs_f64() / took.as_secs_f64()).max(FALL);
            } else if self.held_back {
                self.too_high *= EASE;
                self.rate = (self.rate * RAISE).min(self.too_high * 0.95).max(self.rate);
            }
            self.rate = self.rate.clamp(*RATES.start(), *RATES.end());
            let agrees = (self.rate / before - 1.0).abs() < AGREEMENT;
            self.agreeing = if agrees { self.agreeing + 1 } else { 0 };
        }
        self.held_back = false;
        self.bytes = self.total.saturating_sub(covered) as f64;
        self.flushed_total = covered;
        self.flushed_at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Duration = Duration::from_millis(2);

    /// A cache that is written back at a rate, and a flush that takes a base time and the rest.
    struct Cache {
        rate: f64,
        base: f64,
        bytes: f64,
    }

    /// Writes for 100 ms as fast as the account allows, and flushes. Returns the time of the flush.
    fn write_and_flush(debt: &mut Debt, cache: &mut Cache, now: &mut f64) -> Duration {
        let at = |now: f64| Duration::from_secs_f64(now);
        for _ in 0..100 {
            *now += 0.001;
            debt.update(debt.total, at(*now));
            let room = debt.bytes_within(TARGET).saturating_sub(debt.bytes());
            cache.bytes = (cache.bytes - cache.rate * 0.001).max(0.0) + room as f64;
            debt.update(debt.total + room, at(*now));
            debt.held_back = true;
        }
        let began = at(*now);
        *now += cache.base + cache.bytes / cache.rate;
        cache.bytes = 0.0;
        debt.update(debt.total, at(*now));
        debt.note_flush(began, debt.total, TARGET);
        at(*now).saturating_sub(began)
    }

    #[test]
    fn flushes_find_the_rate_and_then_meet_the_target() {
        for rate in [30e6, 150e6, 450e6, 2e9] {
            let mut cache = Cache {
                rate,
                base: 0.001,
                bytes: 0.0,
            };
            let (mut debt, mut now) = (Debt::new(Duration::ZERO), 0.0);
            debt.base = Some(Duration::from_millis(1));
            for _ in 0..30 {
                write_and_flush(&mut debt, &mut cache, &mut now);
            }
            let found = debt.rate / rate;
            assert!((0.5..1.15).contains(&found), "{rate}: {found}");
            let mut times: Vec<_> = (0..40)
                .map(|_| write_and_flush(&mut debt, &mut cache, &mut now))
                .collect();
            times.sort();
            assert!(times[20] <= 2 * TARGET, "{rate}: {:?}", times[20]);
            assert!(times[39] <= 10 * TARGET, "{rate}: {:?}", times[39]);
        }
    }

    #[test]
    fn small_flushes_show_the_time_of_any_flush() {
        let mut debt = Debt::new(Duration::ZERO);
        let rate = debt.rate();
        debt.update(4096, Duration::from_millis(7));
        debt.note_flush(Duration::ZERO, 4096, TARGET);
        assert_eq!(debt.base, Some(Duration::from_millis(7)));
        debt.update(1 << 20, Duration::from_millis(15));
        debt.note_flush(Duration::from_millis(7), 1 << 20, TARGET);
        assert_eq!(debt.rate(), rate, "8 ms are within 7 ms and the target");
    }

    #[test]
    fn the_cache_empties_with_time() {
        let mut debt = Debt::new(Duration::ZERO);
        debt.update(50_000_000, Duration::ZERO);
        debt.update(50_000_000, Duration::from_millis(250));
        assert_eq!(debt.bytes(), 25_000_000);
        assert_eq!(debt.time_until(5_000_000), Duration::from_millis(200));
        debt.update(50_000_000, Duration::from_secs(3));
        assert_eq!(debt.bytes(), 0);
    }
}
