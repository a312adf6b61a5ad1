//! The speed at which the device accepts background writes: their bytes over the time in which some
//! of them are in flight.
//!
//! A read that comes while a write is carried to the device waits for the rest of it, on flash
//! memory mostly longer than it takes by itself. So while threads read, no more is in flight than
//! the device accepts in the time of one read ([`super::state::State::limit`]).
//!
//! While nobody reads, throughput grows with the bytes in flight up to the *knee*: the bytes that
//! the device accepts in the time of one write. More in flight only wait
//! ([`super::state::State::limit_alone`]).
//!
//! Source of the knee: L. Kleinrock, "Power and deterministic rules of thumb for probabilistic
//! problems in computer communications" (1979). TCP uses it as BBR (N. Cardwell et al., 2016).

use std::time::Duration;
use sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes from which a window shows the speed.
const ENOUGH: u64 = 512 << 10;

/// Bytes of limited writes in flight, and the time for which there were any.
pub(super) struct InFlight {
    bytes: AtomicU64,
    /// The time from when there were some is not in `busy_ns` yet, in nanoseconds.
    since_ns: AtomicU64,
    busy_ns: AtomicU64,
    /// The shortest time of a write.
    shortest_ns: AtomicU64,
}

impl Default for InFlight {
    fn default() -> InFlight {
        InFlight {
            bytes: AtomicU64::new(0),
            since_ns: AtomicU64::new(0),
            busy_ns: AtomicU64::new(0),
            shortest_ns: AtomicU64::new(u64::MAX),
        }
    }
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

    /// A write that was handed over at `began` has completed. One that starts at the same moment
    /// may be counted as busy too long or too short, by the time of one write.
    pub(super) fn finish(&self, bytes: u64, (began, now): (Duration, Duration)) {
        let took = now.saturating_sub(began).as_nanos() as u64;
        if took < self.shortest_ns.load(Relaxed) {
            self.shortest_ns.fetch_min(took, Relaxed);
        }
        if self.bytes.fetch_sub(bytes, Relaxed) == bytes {
            self.count_busy(now);
        }
    }

    /// Ends a window at `now`: returns the time in which writes were in flight.
    pub(super) fn take_busy(&self, now: Duration) -> Duration {
        if self.bytes() > 0 {
            self.count_busy(now);
        }
        Duration::from_nanos(self.busy_ns.swap(0, Relaxed))
    }

    /// The shortest time that a write has taken since the device was opened.
    pub(super) fn shortest(&self) -> Option<Duration> {
        match self.shortest_ns.load(Relaxed) {
            u64::MAX => None,
            ns => Some(Duration::from_nanos(ns)),
        }
    }

    fn count_busy(&self, now: Duration) {
        let now_ns = now.as_nanos() as u64;
        let since = self.since_ns.swap(now_ns, Relaxed);
        self.busy_ns
            .fetch_add(now_ns.saturating_sub(since), Relaxed);
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Speed {
    /// Bytes a second, once known: a moving mean, and that of the last window.
    mean: Option<f64>,
    last: f64,
}

impl Speed {
    /// A window has ended in which so many bytes completed in so much time.
    pub(super) fn end_window(&mut self, bytes: u64, busy: Duration) {
        if bytes >= ENOUGH && !busy.is_zero() {
            let speed = bytes as f64 / busy.as_secs_f64();
            self.mean = Some(self.mean.map_or(speed, |mean| (mean * 3.0 + speed) / 4.0));
            self.last = speed;
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

    /// Bytes that the device accepts in `time` now: its cache may have become full.
    pub(super) fn bytes_within_now(&self, time: Duration) -> Option<u64> {
        Some((self.mean?.min(self.last) * time.as_secs_f64()) as u64)
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
        in_flight.finish(1, (US * 10, US * 30));
        in_flight.finish(2, (US * 20, US * 50));
        in_flight.start(3, US * 90);
        in_flight.finish(3, (US * 90, US * 100));
        let busy = in_flight.take_busy(US * 150);
        assert_eq!((in_flight.bytes(), busy), (0, US * 50));
        assert_eq!(in_flight.take_busy(US * 200), Duration::ZERO);
        assert_eq!(in_flight.shortest(), Some(US * 10));
    }

    #[test]
    fn writes_that_are_always_in_flight_count_in_each_window() {
        let in_flight = InFlight::default();
        in_flight.start(1, US * 10);
        assert_eq!(in_flight.take_busy(US * 100), US * 90);
        assert_eq!(in_flight.take_busy(US * 200), US * 100);
        in_flight.finish(1, (US * 10, US * 250));
        assert_eq!(in_flight.take_busy(US * 300), US * 50);
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
        speed.end_window(1_000_000, US * 10_000);
        assert_eq!(speed.bytes_within(US * 100), Some(152_500));
        assert_eq!(speed.bytes_within_now(US * 100), Some(10_000));
    }
}
