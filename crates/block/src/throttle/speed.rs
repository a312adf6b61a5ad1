//! The speed at which the device accepts background writes: their bytes over the time in which some
//! of them are in flight.
//!
//! A read that comes while a write is carried to the device waits for the rest of it, on flash
//! memory mostly longer than it takes by itself. So while threads read, no more is in flight than
//! the device accepts in the time of one read ([`super::state::State::limit`]).

use std::time::Duration;
use sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes from which a window shows the speed.
const ENOUGH: u64 = 512 << 10;

/// Bytes of limited writes in flight, and the time for which there were any.
#[derive(Default)]
pub(super) struct InFlight {
    bytes: AtomicU64,
    /// When they became more than none, in nanoseconds.
    since_ns: AtomicU64,
    busy_ns: AtomicU64,
}

impl InFlight {
    /// Bytes in flight.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// A write is handed to the device.
    pub(super) fn start(&self, bytes: u64, now: Duration) {
        if self.bytes.fetch_add(bytes, Relaxed) == 0 {
            self.since_ns.store(now.as_nanos() as u64, Relaxed);
        }
    }

    /// A write has completed. One that starts at the same moment may be counted as busy too long or
    /// too short, by the time of one write.
    pub(super) fn finish(&self, bytes: u64, now: Duration) {
        let since = self.since_ns.load(Relaxed);
        if self.bytes.fetch_sub(bytes, Relaxed) == bytes {
            let busy = (now.as_nanos() as u64).saturating_sub(since);
            self.busy_ns.fetch_add(busy, Relaxed);
        }
    }

    /// Ends a window: returns the time in which writes were in flight until the last one completed.
    pub(super) fn take_busy(&self) -> Duration {
        Duration::from_nanos(self.busy_ns.swap(0, Relaxed))
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Speed {
    /// Bytes a second, once known.
    mean: Option<f64>,
}

impl Speed {
    /// A window has ended in which so many bytes completed in so much time.
    pub(super) fn end_window(&mut self, bytes: u64, busy: Duration) {
        if bytes >= ENOUGH && !busy.is_zero() {
            let speed = bytes as f64 / busy.as_secs_f64();
            self.mean = Some(self.mean.map_or(speed, |mean| (mean * 3.0 + speed) / 4.0));
        }
    }

    /// Bytes a second, once known.
    pub(super) fn per_sec(&self) -> Option<f64> {
        self.mean
    }

    /// Bytes that the device accepts in `time`.
    pub(super) fn bytes_within(&self, time: Duration) -> Option<u64> {
        Some((self.mean? * time.as_secs_f64()) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    #[test]
    fn the_time_without_writes_does_not_count() {
        let in_flight = InFlight::default();
        // Two that overlap, a pause, and one more.
        for (start, bytes) in [(10, 1), (20, 2)] {
            in_flight.start(bytes, US * start);
        }
        in_flight.finish(1, US * 30);
        assert_eq!(
            (in_flight.bytes(), in_flight.take_busy()),
            (2, Duration::ZERO)
        );
        in_flight.finish(2, US * 50);
        in_flight.start(3, US * 90);
        in_flight.finish(3, US * 100);
        assert_eq!((in_flight.bytes(), in_flight.take_busy()), (0, US * 50));
        assert_eq!(in_flight.take_busy(), Duration::ZERO);
    }

    #[test]
    fn few_bytes_show_no_speed() {
        let mut speed = Speed::default();
        speed.end_window(ENOUGH - 1, US);
        speed.end_window(ENOUGH, Duration::ZERO);
        assert_eq!(speed.bytes_within(US), None);
        speed.end_window(1_000_000, US * 1000);
        assert_eq!(speed.bytes_within(US * 100), Some(100_000));
        speed.end_window(5_000_000, US * 1000);
        assert_eq!(
            speed.bytes_within(US * 100),
            Some(200_000),
            "a quarter of it"
        );
    }
}
