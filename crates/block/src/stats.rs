//! Counters of a device.

use sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Classes of [`SizeHistogram`].
const SIZE_CLASSES: usize = 16;

/// The smallest size that the first class is meant for: a sector.
const SMALLEST_SIZE_LOG2: u32 = 9;

/// How many requests there were of which size, in powers of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeHistogram([u64; SIZE_CLASSES]);

impl SizeHistogram {
    /// The classes from the smallest: least size in bytes and number of requests. A class ends
    /// where the next begins; the first holds what is smaller, too, and the last (16 MiB) whatever
    /// is larger.
    pub fn classes(&self) -> impl Iterator<Item = (u64, u64)> {
        (SMALLEST_SIZE_LOG2..)
            .zip(self.0)
            .map(|(log2, count)| (1 << log2, count))
    }

    fn class_of(len: u64) -> usize {
        let log2 = len.max(1).ilog2().saturating_sub(SMALLEST_SIZE_LOG2);
        (log2 as usize).min(SIZE_CLASSES - 1)
    }
}

/// Live counters (relaxed atomics, cheap to bump from many threads).
#[derive(Default)]
pub struct Stats {
    pub(crate) read_ios: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) write_ios: AtomicU64,
    pub(crate) write_bytes: AtomicU64,
    write_sizes: [AtomicU64; SIZE_CLASSES],
    pub(crate) merged: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) flushes_elided: AtomicU64,
    pub(crate) queue_ns: AtomicU64,
    pub(crate) in_flight: AtomicU64,
    pub(crate) errors: AtomicU64,
}

/// The counters at one moment; subtract two for an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatsSnapshot {
    /// Requests that read.
    pub read_ios: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Requests that wrote.
    pub write_ios: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Sizes of the requests that wrote.
    pub write_sizes: SizeHistogram,
    /// Bios merged into another's request.
    pub merged: u64,
    /// Flushes that reached the device.
    pub flushes: u64,
    /// Flushes that were not needed: nothing had completed since the last one began.
    pub flushes_elided: u64,
    /// Sum over requests of the time from submission to completion, in microseconds.
    pub queue_us: u64,
    /// Requests in flight now.
    pub in_flight: u64,
    /// Requests that failed.
    pub errors: u64,
}

impl Stats {
    /// Counts a request that wrote `len` bytes.
    pub(crate) fn count_write(&self, len: u64) {
        self.write_ios.fetch_add(1, Relaxed);
        self.write_bytes.fetch_add(len, Relaxed);
        self.write_sizes[SizeHistogram::class_of(len)].fetch_add(1, Relaxed);
    }

    /// The counters now.
    pub fn snapshot(&self) -> StatsSnapshot {
        StatsSnapshot {
            read_ios: self.read_ios.load(Relaxed),
            read_bytes: self.read_bytes.load(Relaxed),
            write_ios: self.write_ios.load(Relaxed),
            write_bytes: self.write_bytes.load(Relaxed),
            write_sizes: SizeHistogram(std::array::from_fn(|i| self.write_sizes[i].load(Relaxed))),
            merged: self.merged.load(Relaxed),
            flushes: self.flushes.load(Relaxed),
            flushes_elided: self.flushes_elided.load(Relaxed),
            queue_us: self.queue_ns.load(Relaxed) / 1000,
            in_flight: self.in_flight.load(Relaxed),
            errors: self.errors.load(Relaxed),
        }
    }
}

/// The interval between two snapshots; `in_flight` is that of the later one.
impl std::ops::Sub for StatsSnapshot {
    type Output = StatsSnapshot;
    fn sub(self, earlier: StatsSnapshot) -> StatsSnapshot {
        StatsSnapshot {
            read_ios: self.read_ios - earlier.read_ios,
            read_bytes: self.read_bytes - earlier.read_bytes,
            write_ios: self.write_ios - earlier.write_ios,
            write_bytes: self.write_bytes - earlier.write_bytes,
            write_sizes: SizeHistogram(std::array::from_fn(|i| {
                self.write_sizes.0[i] - earlier.write_sizes.0[i]
            })),
            merged: self.merged - earlier.merged,
            flushes: self.flushes - earlier.flushes,
            flushes_elided: self.flushes_elided - earlier.flushes_elided,
            queue_us: self.queue_us - earlier.queue_us,
            in_flight: self.in_flight,
            errors: self.errors - earlier.errors,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(lens: &[u64]) -> StatsSnapshot {
        let stats = Stats::default();
        lens.iter().for_each(|&len| stats.count_write(len));
        stats.snapshot()
    }

    #[test]
    fn sizes_fall_into_the_class_that_begins_at_or_below_them() {
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
}
