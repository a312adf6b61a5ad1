//! Counters of a device.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Live counters (relaxed atomics, cheap to bump from many threads).
#[derive(Default)]
pub struct Stats {
    pub(crate) read_ios: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) write_ios: AtomicU64,
    pub(crate) write_bytes: AtomicU64,
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
    /// The counters now.
    pub fn snapshot(&self) -> StatsSnapshot {
        StatsSnapshot {
            read_ios: self.read_ios.load(Relaxed),
            read_bytes: self.read_bytes.load(Relaxed),
            write_ios: self.write_ios.load(Relaxed),
            write_bytes: self.write_bytes.load(Relaxed),
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
            merged: self.merged - earlier.merged,
            flushes: self.flushes - earlier.flushes,
            flushes_elided: self.flushes_elided - earlier.flushes_elided,
            queue_us: self.queue_us - earlier.queue_us,
            in_flight: self.in_flight,
            errors: self.errors - earlier.errors,
        }
    }
}
