//! Counters of a queue. They are relaxed atomics: any thread adds to them without a lock.

use crate::io::{Op, Reason};
use std::array::from_fn;
use std::ops::{Index, Sub};
use std::time::Duration;
use sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts of values in classes of powers of two. The first class begins at `2^FIRST`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram<const FIRST: u32, const CLASSES: usize>([u64; CLASSES]);

/// Sizes of requests in bytes: from a sector to 16 MiB and more.
pub type SizeHistogram = Histogram<9, 16>;

/// Times in microseconds: from 1 µs to 8 s and more.
pub type LatencyHistogram = Histogram<0, 24>;

impl<const FIRST: u32, const CLASSES: usize> Histogram<FIRST, CLASSES> {
    /// The least value of the last class, which has no end.
    pub const LAST: u64 = 1 << (FIRST as usize + CLASSES - 1);

    /// The classes from the smallest: least value and count. A class ends where the next begins;
    /// the first also counts smaller values, and the last all larger ones.
    pub fn classes(&self) -> impl Iterator<Item = (u64, u64)> {
        (FIRST..)
            .zip(self.0)
            .map(|(log2, count)| (1 << log2, count))
    }

    /// The number of values.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    fn class_of(value: u64) -> usize {
        let log2 = value.max(1).ilog2().saturating_sub(FIRST);
        (log2 as usize).min(CLASSES - 1)
    }
}

impl<const FIRST: u32, const CLASSES: usize> Default for Histogram<FIRST, CLASSES> {
    fn default() -> Self {
        Histogram([0; CLASSES])
    }
}

impl<const FIRST: u32, const CLASSES: usize> Sub for Histogram<FIRST, CLASSES> {
    type Output = Self;
    fn sub(self, earlier: Self) -> Self {
        Histogram(from_fn(|i| self.0[i] - earlier.0[i]))
    }
}

/// The live side of a [`Histogram`].
struct Counts<const FIRST: u32, const CLASSES: usize>([AtomicU64; CLASSES]);

impl<const FIRST: u32, const CLASSES: usize> Counts<FIRST, CLASSES> {
    fn add(&self, value: u64) {
        self.0[Histogram::<FIRST, CLASSES>::class_of(value)].fetch_add(1, Relaxed);
    }

    fn snapshot(&self) -> Histogram<FIRST, CLASSES> {
        Histogram(from_fn(|i| self.0[i].load(Relaxed)))
    }
}

impl<const FIRST: u32, const CLASSES: usize> Default for Counts<FIRST, CLASSES> {
    fn default() -> Self {
        Counts(from_fn(|_| AtomicU64::new(0)))
    }
}

/// Live counters of a queue.
#[derive(Default)]
pub struct Stats {
    read_ios: AtomicU64,
    read_bytes: AtomicU64,
    write_ios: AtomicU64,
    write_bytes: AtomicU64,
    write_sizes: Counts<9, 16>,
    merged: AtomicU64,
    flushes: AtomicU64,
    flushes_elided: AtomicU64,
    errors: AtomicU64,
    by_reason: [ReasonCounters; Reason::COUNT],
}

/// Live counters of one reason. The alignment keeps the counters of two reasons off one cache line,
/// and off the pair of lines that a processor fetches together.
#[derive(Default)]
#[repr(align(128))]
struct ReasonCounters {
    in_flight: AtomicU64,
    bytes: AtomicU64,
    queue_ns: AtomicU64,
    latency: Counts<0, 24>,
}

/// The counters at one moment; subtract two for an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatsSnapshot {
    /// Read requests.
    pub read_ios: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write requests.
    pub write_ios: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Sizes of the write requests.
    pub write_sizes: SizeHistogram,
    /// Bios merged into the request of another bio.
    pub merged: u64,
    /// Flushes that reached the device.
    pub flushes: u64,
    /// Flushes that were not needed: no write had completed since the last flush began.
    pub flushes_elided: u64,
    /// Sum over requests of the time from submission to completion, in microseconds.
    pub queue_us: u64,
    /// Requests in flight now.
    pub in_flight: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Reads, writes and flushes by their reason.
    pub by_reason: ByReason,
}

/// Counters for each [`Reason`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByReason([ReasonStats; Reason::COUNT]);

/// The counters of one reason at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReasonStats {
    /// Requests completed.
    pub requests: u64,
    /// Bytes read or written by them.
    pub bytes: u64,
    /// Requests in flight now.
    pub in_flight: u64,
    /// Sum over requests of the time from submission to completion, in microseconds.
    pub queue_us: u64,
    /// Times from submission to completion, in microseconds.
    pub latency: LatencyHistogram,
}

impl Index<Reason> for ByReason {
    type Output = ReasonStats;
    fn index(&self, reason: Reason) -> &ReasonStats {
        &self.0[reason as usize]
    }
}

impl Stats {
    /// Counts a request that is handed to the device.
    pub(crate) fn count_start(&self, reason: Reason) {
        self.by_reason[reason as usize]
            .in_flight
            .fetch_add(1, Relaxed);
    }

    /// Counts the completion of a request of `len` bytes and `bios` bios that took `time`.
    pub(crate) fn count_end(&self, op: Op, len: u64, bios: usize, reason: Reason, time: Duration) {
        match op {
            Op::Read => {
                self.read_ios.fetch_add(1, Relaxed);
                self.read_bytes.fetch_add(len, Relaxed);
            }
            Op::Write => {
                self.write_ios.fetch_add(1, Relaxed);
                self.write_bytes.fetch_add(len, Relaxed);
                self.write_sizes.add(len);
            }
            Op::Flush => {
                self.flushes.fetch_add(1, Relaxed);
            }
        }
        if bios > 1 {
            self.merged.fetch_add(bios as u64 - 1, Relaxed);
        }
        let counters = &self.by_reason[reason as usize];
        counters.bytes.fetch_add(len, Relaxed);
        counters.queue_ns.fetch_add(time.as_nanos() as u64, Relaxed);
        counters.latency.add(time.as_micros() as u64);
        counters.in_flight.fetch_sub(1, Relaxed);
    }

    /// Counts a failed request.
    pub(crate) fn count_error(&self) {
        self.errors.fetch_add(1, Relaxed);
    }

    /// Counts a flush that was not needed.
    pub(crate) fn count_elided_flush(&self) {
        self.flushes_elided.fetch_add(1, Relaxed);
    }

    /// The counters now.
    pub fn snapshot(&self) -> StatsSnapshot {
        let sum = |counter: fn(&ReasonCounters) -> &AtomicU64| -> u64 {
            self.by_reason
                .iter()
                .map(|c| counter(c).load(Relaxed))
                .sum()
        };
        StatsSnapshot {
            read_ios: self.read_ios.load(Relaxed),
            read_bytes: self.read_bytes.load(Relaxed),
            write_ios: self.write_ios.load(Relaxed),
            write_bytes: self.write_bytes.load(Relaxed),
            write_sizes: self.write_sizes.snapshot(),
            merged: self.merged.load(Relaxed),
            flushes: self.flushes.load(Relaxed),
            flushes_elided: self.flushes_elided.load(Relaxed),
            queue_us: sum(|c| &c.queue_ns) / 1000,
            in_flight: sum(|c| &c.in_flight),
            errors: self.errors.load(Relaxed),
            by_reason: ByReason(from_fn(|i| self.by_reason[i].snapshot())),
        }
    }
}

impl ReasonCounters {
    fn snapshot(&self) -> ReasonStats {
        let latency = self.latency.snapshot();
        ReasonStats {
            requests: latency.count(),
            bytes: self.bytes.load(Relaxed),
            in_flight: self.in_flight.load(Relaxed),
            queue_us: self.queue_ns.load(Relaxed) / 1000,
            latency,
        }
    }
}

/// The interval between two snapshots; `in_flight` is that of the later one.
impl Sub for StatsSnapshot {
    type Output = StatsSnapshot;
    fn sub(self, earlier: StatsSnapshot) -> StatsSnapshot {
        StatsSnapshot {
            read_ios: self.read_ios - earlier.read_ios,
            read_bytes: self.read_bytes - earlier.read_bytes,
            write_ios: self.write_ios - earlier.write_ios,
            write_bytes: self.write_bytes - earlier.write_bytes,
            write_sizes: self.write_sizes - earlier.write_sizes,
            merged: self.merged - earlier.merged,
            flushes: self.flushes - earlier.flushes,
            flushes_elided: self.flushes_elided - earlier.flushes_elided,
            queue_us: self.queue_us - earlier.queue_us,
            in_flight: self.in_flight,
            errors: self.errors - earlier.errors,
            by_reason: ByReason(from_fn(|i| self.by_reason.0[i] - earlier.by_reason.0[i])),
        }
    }
}

/// The interval between two snapshots; `in_flight` is that of the later one.
impl Sub for ReasonStats {
    type Output = ReasonStats;
    fn sub(self, earlier: ReasonStats) -> ReasonStats {
        ReasonStats {
            requests: self.requests - earlier.requests,
            bytes: self.bytes - earlier.bytes,
            in_flight: self.in_flight,
            queue_us: self.queue_us - earlier.queue_us,
            latency: self.latency - earlier.latency,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(lens: &[u64]) -> StatsSnapshot {
        let stats = Stats::default();
        for &len in lens {
            stats.count_start(Reason::Sync);
            stats.count_end(Op::Write, len, 1, Reason::Sync, Duration::ZERO);
        }
        stats.snapshot()
    }

    #[test]
    fn a_size_is_counted_in_the_class_that_begins_at_or_below_it() {
        let stats = written(&[512, 4095, 4096, 4096, 8191, 1 << 20, 1 << 24, 1 << 40]);
        let classes: Vec<_> = stats.write_sizes.classes().filter(|c| c.1 > 0).collect();
        let expected = [(512, 1), (2048, 1), (4096, 3), (1 << 20, 1), (1 << 24, 2)];
        assert_eq!(classes, expected);
        assert_eq!(stats.write_ios, 8);
    }

    #[test]
    fn an_interval_has_only_its_own_sizes() {
        let (earlier, later) = (written(&[4096]), written(&[4096, 4096, 65536]));
        let classes: Vec<_> = (later - earlier).write_sizes.classes().collect();
        assert_eq!(classes.iter().map(|c| c.1).sum::<u64>(), 2);
        assert!(classes.contains(&(4096, 1)) && classes.contains(&(65536, 1)));
    }

    #[test]
    fn a_request_is_counted_under_its_reason() {
        let stats = Stats::default();
        stats.count_start(Reason::Journal);
        stats.count_start(Reason::Read);
        let before = stats.snapshot();
        assert_eq!(before.by_reason[Reason::Journal].in_flight, 1);
        assert_eq!(
            (before.in_flight, before.by_reason[Reason::Journal].requests),
            (2, 0)
        );

        let time = Duration::from_micros(100);
        stats.count_end(Op::Write, 8192, 2, Reason::Journal, time);

        let after = stats.snapshot();
        let journal = after.by_reason[Reason::Journal];
        assert_eq!(
            (journal.requests, journal.bytes, journal.in_flight),
            (1, 8192, 0)
        );
        assert_eq!(journal.queue_us, 100);
        let classes: Vec<_> = journal.latency.classes().filter(|c| c.1 > 0).collect();
        assert_eq!(classes, [(64, 1)]);
        assert_eq!((after.in_flight, after.queue_us, after.merged), (1, 100, 1));
        assert_eq!(after.by_reason[Reason::Read].requests, 0);
    }

    #[test]
    fn every_reason_has_counters_of_its_own() {
        for (index, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index, "{reason:?}");
        }
    }
}
