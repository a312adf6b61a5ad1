//! Counters of a device.

/// Live counters (relaxed atomics, cheap to bump from many threads).
#[derive(Default)]
pub struct Stats {}

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
    /// Sum over requests of the time from submission to completion, in microseconds.
    pub queue_us: u64,
    /// Requests in flight now.
    pub in_flight: u64,
}
impl Stats {
    /// The counters now.
    pub fn snapshot(&self) -> StatsSnapshot {
        todo!()
    }
}
