//! The counters of one window of time: latencies of what threads wait for, and background writes.

use std::array::from_fn;
use std::time::Duration;
use sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Classes of latency: four to each power of two, so a percentile is exact within 25 %.
const PER_DOUBLING: usize = 4;
/// The first class begins at `2^FIRST` nanoseconds (about 8 µs).
const FIRST: u32 = 13;
/// The last class begins above 16 s.
const CLASSES: usize = 22 * PER_DOUBLING;
/// Calls from which a percentile is meaningful.
const MANY: u32 = 100;

/// Counters that any thread adds to without a lock.
#[derive(Default)]
pub(super) struct Counters {
    /// Reads of the device.
    pub(super) reads: Latencies,
    /// Small fsyncs, as a whole.
    pub(super) syncs: Latencies,
    written: AtomicU64,
    waited: AtomicBool,
}

/// The counters of one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Window {
    /// Reads that completed.
    pub(super) reads: Sample,
    /// Small fsyncs that ended.
    pub(super) syncs: Sample,
    /// Bytes of background writes that completed.
    pub(super) written: u64,
    /// The time for which some were in flight.
    pub(super) busy: Duration,
    /// Whether a writer waited for room.
    pub(super) waited: bool,
}

impl Window {
    /// Whether threads waited for the device.
    pub(super) fn judged(&self) -> bool {
        self.reads.count + self.syncs.count > 0
    }

    /// Whether there were background writes, or would have been with more room.
    pub(super) fn wrote(&self) -> bool {
        self.written > 0 || self.waited
    }
}

impl Counters {
    pub(super) fn count_written(&self, bytes: u64) {
        self.written.fetch_add(bytes, Relaxed);
    }

    pub(super) fn note_wait(&self) {
        self.waited.store(true, Relaxed);
    }

    /// Ends a window: returns its counters and sets them to zero. A count that another thread makes
    /// meanwhile belongs to this window or to the next.
    pub(super) fn take(&self) -> Window {
        Window {
            reads: self.reads.take(),
            syncs: self.syncs.take(),
            written: self.written.swap(0, Relaxed),
            busy: Duration::ZERO,
            waited: self.waited.swap(false, Relaxed),
        }
    }
}

/// Latencies of one kind of call.
pub(super) struct Latencies {
    classes: [AtomicU32; CLASSES],
    sum_ns: AtomicU64,
    min_ns: AtomicU64,
    max_ns: AtomicU64,
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies {
            classes: from_fn(|_| AtomicU32::new(0)),
            sum_ns: AtomicU64::new(0),
            min_ns: AtomicU64::new(u64::MAX),
            max_ns: AtomicU64::new(0),
        }
    }
}

/// Latencies of one kind of call in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sample {
    /// Calls that ended.
    pub(super) count: u32,
    /// Their time together.
    pub(super) sum: Duration,
    /// Their shortest time.
    pub(super) min: Duration,
    /// Their 99th percentile.
    pub(super) p99: Duration,
    /// Their longest time.
    pub(super) max: Duration,
}

impl Sample {
    /// The latency by which a window is judged: with few calls the slowest one.
    pub(super) fn percentile(&self) -> Duration {
        match self.count >= MANY {
            true => self.p99,
            false => self.max,
        }
    }
}

impl Latencies {
    pub(super) fn count(&self, time: Duration) {
        let ns = (time.as_nanos() as u64).max(1);
        self.classes[class_of(ns)].fetch_add(1, Relaxed);
        self.sum_ns.fetch_add(ns, Relaxed);
        self.min_ns.fetch_min(ns, Relaxed);
        self.max_ns.fetch_max(ns, Relaxed);
    }

    fn take(&self) -> Sample {
        if self.sum_ns.load(Relaxed) == 0 {
            return Sample::default();
        }
        let counts: [u32; CLASSES] = from_fn(|i| match self.classes[i].load(Relaxed) {
            0 => 0,
            _ => self.classes[i].swap(0, Relaxed),
        });
        let count = counts.iter().sum();
        let min_ns = self.min_ns.swap(u64::MAX, Relaxed);
        let max = Duration::from_nanos(self.max_ns.swap(0, Relaxed));
        Sample {
            count,
            sum: Duration::from_nanos(self.sum_ns.swap(0, Relaxed)),
            min: Duration::from_nanos(min_ns).min(max),
            p99: percentile(&counts, count).min(max),
            max,
        }
    }
}

fn class_of(ns: u64) -> usize {
    let log2 = ns.ilog2();
    if log2 < FIRST {
        return 0;
    }
    let part = (ns >> (log2 - 2)) as usize & (PER_DOUBLING - 1);
    (((log2 - FIRST) as usize) * PER_DOUBLING + part).min(CLASSES - 1)
}

/// The end of a class.
fn end_of(class: usize) -> Duration {
    let (doublings, part) = (class / PER_DOUBLING, class % PER_DOUBLING);
    let begin = 1_u64 << (FIRST as usize + doublings);
    Duration::from_nanos(begin + begin / PER_DOUBLING as u64 * (part as u64 + 1))
}

/// The 99th percentile: the end of the class that has it.
fn percentile(counts: &[u32; CLASSES], calls: u32) -> Duration {
    let mut above = calls / 100;
    for (class, &count) in counts.iter().enumerate().rev() {
        if count > above {
            return end_of(class);
        }
        above -= count;
    }
    Duration::ZERO
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(times: impl IntoIterator<Item = u64>) -> Sample {
        let counters = Counters::default();
        for us in times {
            counters.reads.count(Duration::from_micros(us));
        }
        let window = counters.take();
        assert_eq!(counters.take(), Window::default());
        window.reads
    }

    #[test]
    fn a_percentile_is_within_a_quarter() {
        let all = sample(1..=10_000);
        assert_eq!(all.count, 10_000);
        assert_eq!(all.sum, Duration::from_micros(50_005_000));
        assert_eq!(all.min, Duration::from_micros(1));
        assert_eq!(all.max, Duration::from_millis(10));
        let p99 = all.p99.as_secs_f64();
        assert!((0.0099..0.0099 * 1.25).contains(&p99), "{p99}");
    }

    #[test]
    fn few_calls_are_judged_by_the_slowest() {
        let few = sample((0..99).map(|_| 100).chain([50_000]));
        assert_eq!(few.percentile(), few.p99);
        assert!(few.p99 < Duration::from_micros(126));
        let fewer = sample((0..98).map(|_| 100).chain([50_000]));
        assert_eq!(fewer.percentile(), Duration::from_millis(50));
    }

    #[test]
    fn times_of_any_length_have_a_class() {
        for (ns, class) in [(1, 0), (8191, 0), (8192, 0), (10_240, 1), (16_384, 4)] {
            assert_eq!(class_of(ns), class, "{ns}");
        }
        assert_eq!(class_of(u64::MAX), CLASSES - 1);
    }
}
