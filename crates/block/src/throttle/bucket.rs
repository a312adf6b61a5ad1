//! The rate of background writes while threads read, as a leaky bucket.
//!
//! A device acknowledges a write when it is in its volatile cache, and pays for it later: reads,
//! flushes and later writes wait while it is written to the media. No limit of requests in flight
//! bounds that. So background writes also have a rate, and a bucket that each of them fills and
//! that leaks at this rate. The bytes in the bucket are the cache's debt: the device may still have
//! to write them back.
//!
//! Two observations set the rate:
//! - *Lost time* ([`super::share`]). Every window multiplies the rate by a factor, so that readers
//!   keep their share of the device.
//! - *Flushes*. A flush that takes longer than any flush does by itself and the target found a
//!   backlog: the device writes back more slowly than this rate. The rate falls in proportion, and
//!   rises above it again only slowly. A flush of writes that were not limited says nothing.
//!
//! Twice the speed of the device ([`super::speed`]) bounds it.

use std::time::Duration;

/// The rate before anything is known, in bytes a second.
const FIRST_RATE: f64 = 100e6;
/// The same on a rotating disk, which also moves its head for reads.
const ROTATING_RATE: f64 = 25e6;
/// Bounds of the rate.
const RATES: std::ops::RangeInclusive<f64> = 2e6..=100e9;
/// A flush of fewer bytes says nothing about the rate: its time is that of any flush.
const MIN_SAMPLE: u64 = 256 << 10;
/// A flush multiplies the rate by this at least.
const FALL: f64 = 0.5;
/// A flush in time moves the bound that an earlier one set by this factor.
const EASE: f64 = 1.1;
/// Background bytes after which a flush is due while threads read.
const MIN_FLUSH: u64 = 16 << 20;
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// See the module. Totals count bytes since the device was opened.
#[derive(Debug)]
pub(super) struct Bucket {
    bytes: f64,
    /// The time and the total of background writes for which `bytes` is right.
    at: Duration,
    total: u64,
    /// Bytes a second.
    rate: f64,
    /// A rate that was too high for the cache.
    too_high: f64,
    /// The total of all writes that the last flush covered, and that of background writes then.
    flushed: u64,
    flushed_background: u64,
    /// Since the last flush, some were not limited.
    unlimited: bool,
    /// The time of the shortest flush that had little to write back.
    base: Option<Duration>,
}

impl Bucket {
    pub(super) fn new(now: Duration) -> Bucket {
        Bucket {
            bytes: 0.0,
            at: now,
            total: 0,
            rate: FIRST_RATE,
            too_high: *RATES.end(),
            flushed: 0,
            flushed_background: 0,
            unlimited: false,
            base: None,
        }
    }

    #[cfg(test)]
    pub(super) fn set_rate(&mut self, rate: f64) {
        self.rate = rate;
    }

    /// The device has a rotating disk. The rate is forgotten.
    pub(super) fn set_rotating(&mut self) {
        self.rate = ROTATING_RATE;
        self.too_high = *RATES.end();
    }

    /// Brings the bucket up to date: background writes of `total` bytes have completed, evenly
    /// since the last call. The bucket has `most` bytes at most: a device does not cache all that
    /// is written without a limit.
    pub(super) fn update(&mut self, total: u64, most: u64, now: Duration) {
        let elapsed = now.saturating_sub(self.at).as_secs_f64();
        let more = total.saturating_sub(self.total) as f64;
        self.bytes = (self.bytes + more - self.rate * elapsed).clamp(0.0, most as f64);
        self.at = self.at.max(now);
        self.total = self.total.max(total);
    }

    /// Bytes in the bucket.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Bytes a second.
    pub(super) fn rate(&self) -> u64 {
        self.rate as u64
    }

    /// Multiplies the rate, within its bounds. It does not rise above `most`.
    pub(super) fn scale_rate(&mut self, factor: f64, most: f64) {
        let most = (self.too_high * 0.95).min(most);
        let most = most.max(self.rate.min(self.rate * factor));
        self.rate = (self.rate * factor)
            .min(most)
            .clamp(*RATES.start(), *RATES.end());
    }

    /// Bytes that leak in `time`.
    pub(super) fn bytes_within(&self, time: Duration) -> u64 {
        (self.rate * time.as_secs_f64()) as u64
    }

    /// How long it takes until `rest` bytes are left.
    pub(super) fn time_until(&self, rest: u64) -> Duration {
        Duration::from_secs_f64((self.bytes - rest as f64).max(0.0) / self.rate)
    }

    /// A background write is not limited.
    pub(super) fn note_unlimited(&mut self) {
        self.unlimited = true;
    }

    /// Whether a flush is due only to bound the next one, when `written` bytes have been written in
    /// all.
    pub(super) fn wants_flush(&self, written: u64) -> bool {
        written.saturating_sub(self.flushed) > MIN_FLUSH.max(self.bytes_within(FLUSH_INTERVAL))
    }

    /// Records a flush that took so long and covered the first `covered` bytes of all writes.
    /// [`Bucket::update`] comes first. It should take no longer than `target`.
    pub(super) fn note_flush(&mut self, took: Duration, covered: u64, target: Duration) {
        let bytes = covered.saturating_sub(self.flushed);
        let background = self.total - self.flushed_background;
        self.flushed = self.flushed.max(covered);
        self.flushed_background = self.total;
        let unlimited = std::mem::take(&mut self.unlimited);
        if bytes == 0 {
            return;
        }
        if bytes < MIN_SAMPLE {
            self.base = Some(self.base.map_or(took, |base| base.min(took)));
            return;
        }
        if unlimited || background < bytes / 2 {
            return;
        }
        let goal = target + self.base.unwrap_or(target);
        if took > goal {
            let before = self.rate;
            let factor = goal.as_secs_f64() / took.as_secs_f64();
            self.rate = (self.rate * factor.max(FALL)).max(*RATES.start());
            self.too_high = (before + self.rate) / 2.0;
        } else {
            self.too_high = (self.too_high * EASE).min(*RATES.end());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Duration = Duration::from_millis(2);

    /// A cache that is written back at a rate, and a flush that takes a base time and the rest.
    struct Cache {
        rate: f64,
        bytes: f64,
    }

    /// Writes for 100 ms as fast as the bucket allows, and flushes. Returns the time of the flush.
    fn write_and_flush(bucket: &mut Bucket, cache: &mut Cache, now: &mut f64) -> Duration {
        for _ in 0..100 {
            *now += 0.001;
            bucket.update(bucket.total, u64::MAX, Duration::from_secs_f64(*now));
            let room = bucket.bytes_within(TARGET).saturating_sub(bucket.bytes());
            cache.bytes = (cache.bytes - cache.rate * 0.001).max(0.0) + room as f64;
            let total = bucket.total + room;
            bucket.update(total, u64::MAX, Duration::from_secs_f64(*now));
        }
        let took = Duration::from_secs_f64(0.001 + cache.bytes / cache.rate);
        *now += took.as_secs_f64();
        cache.bytes = 0.0;
        bucket.note_flush(took, bucket.total, TARGET);
        took
    }

    #[test]
    fn flushes_keep_the_rate_below_that_of_the_cache() {
        for rate in [30e6, 150e6, 450e6, 2e9] {
            let mut cache = Cache { rate, bytes: 0.0 };
            let (mut bucket, mut now) = (Bucket::new(Duration::ZERO), 0.0);
            bucket.base = Some(Duration::from_millis(1));
            let mut times = Vec::new();
            for i in 0..60 {
                // Readers lose nothing.
                bucket.scale_rate(1.5, f64::MAX);
                let took = write_and_flush(&mut bucket, &mut cache, &mut now);
                times.extend((i >= 20).then_some(took));
            }
            assert!(bucket.rate >= rate / 2.0, "{rate}: {}", bucket.rate);
            times.sort();
            assert!(times[20] <= 4 * TARGET, "{rate}: {:?}", times[20]);
            assert!(times[39] <= 15 * TARGET, "{rate}: {:?}", times[39]);
        }
    }

    #[test]
    fn small_flushes_show_the_time_of_any_flush() {
        let mut bucket = Bucket::new(Duration::ZERO);
        let rate = bucket.rate();
        bucket.note_flush(Duration::from_millis(7), 4096, TARGET);
        assert_eq!(bucket.base, Some(Duration::from_millis(7)));
        bucket.total = 1 << 20;
        bucket.note_flush(Duration::from_millis(8), 1 << 20, TARGET);
        assert_eq!(bucket.rate(), rate, "8 ms are within 7 ms and the target");
        bucket.total = 2 << 20;
        bucket.note_flush(Duration::from_millis(18), 2 << 20, TARGET);
        assert_eq!(bucket.rate(), rate / 2);
    }

    #[test]
    fn flushes_of_writes_without_a_limit_say_nothing() {
        let mut bucket = Bucket::new(Duration::ZERO);
        let rate = bucket.rate();
        bucket.total = 40 << 20;
        bucket.note_unlimited();
        bucket.note_flush(Duration::from_secs(1), 40 << 20, TARGET);
        assert_eq!(bucket.rate(), rate, "background writes while nobody read");
        bucket.total = 50 << 20;
        bucket.note_flush(Duration::from_secs(1), 80 << 20, TARGET);
        assert_eq!(bucket.rate(), rate, "mostly a sync");
        bucket.total = 60 << 20;
        bucket.note_flush(Duration::from_secs(1), 90 << 20, TARGET);
        assert_eq!(bucket.rate(), rate / 2);
    }

    #[test]
    fn a_rate_that_was_too_high_is_reached_again_only_slowly() {
        let mut bucket = Bucket::new(Duration::ZERO);
        let rate = bucket.rate;
        bucket.total = 1 << 20;
        bucket.note_flush(Duration::from_secs(1), 1 << 20, TARGET);
        bucket.total = 2 << 20;
        (0..10).for_each(|_| bucket.scale_rate(1.5, f64::MAX));
        assert_eq!(bucket.rate, rate * 0.95 * 0.75);
        bucket.note_flush(TARGET, 2 << 20, TARGET);
        bucket.scale_rate(1.5, f64::MAX);
        assert!((bucket.rate / rate - 0.95 * 0.75 * EASE).abs() < 1e-9);
        bucket.scale_rate(0.5, f64::MAX);
        assert!((bucket.rate / rate - 0.475 * 0.75 * EASE).abs() < 1e-9);
    }

    #[test]
    fn the_bucket_leaks() {
        let mut bucket = Bucket::new(Duration::ZERO);
        let most = 20_000_000;
        bucket.update(50_000_000, most, Duration::ZERO);
        assert_eq!(bucket.bytes(), most);
        let time = bucket.time_until(0);
        assert_eq!(time, Duration::from_millis(200));
        bucket.update(50_000_000, most, time / 2);
        assert_eq!(bucket.bytes(), most / 2);
        assert_eq!(bucket.time_until(most / 4), time / 4);
        bucket.update(50_000_000, most, time);
        assert_eq!(bucket.bytes(), 0);
    }

    #[test]
    fn a_flush_is_due_after_a_second_of_writes() {
        let mut bucket = Bucket::new(Duration::ZERO);
        assert!(!bucket.wants_flush(FIRST_RATE as u64));
        assert!(bucket.wants_flush(FIRST_RATE as u64 + 1));
        bucket.note_flush(TARGET, FIRST_RATE as u64, TARGET);
        assert!(!bucket.wants_flush(FIRST_RATE as u64 + 1));
    }
}
