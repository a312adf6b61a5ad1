//! The clocks. No other file of this crate reads one.

use crate::report::Time;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The monotonic clock.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Time since `start`.
pub(crate) fn since(start: Instant) -> Duration {
    now().saturating_duration_since(start)
}

/// Sleeps until `deadline`; returns at once if it has passed.
pub(crate) fn sleep_until(deadline: Instant) {
    std::thread::sleep(deadline.saturating_duration_since(now()));
}

/// Whole seconds since 1970.
pub(crate) fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Wall-clock and processor time. Only the difference of two values has a meaning.
pub(crate) fn times() -> Time {
    let seconds = |id| {
        let t = clock_gettime(id);
        t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
    };
    Time {
        wall_s: seconds(ClockId::Monotonic),
        cpu_s: seconds(ClockId::ProcessCPUTime),
        machine_cpu_s: processors().map_or(0.0, |time| time.busy_s),
    }
}

/// Seconds that the hypervisor has taken from the processors of this machine, summed, since the
/// machine started. Counted in hundredths of a second. 0 where nothing counts them.
pub(crate) fn stolen_s() -> f64 {
    processors().map_or(0.0, |time| time.stolen_s)
}

/// Times of all processors of the machine, summed.
struct Processors {
    busy_s: f64,
    stolen_s: f64,
}

fn processors() -> Option<Processors> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    // cpu user nice system idle iowait irq softirq steal …
    let fields: Vec<f64> = stat
        .lines()
        .next()?
        .split_whitespace()
        .skip(1)
        .map(|f| f.parse().ok())
        .collect::<Option<_>>()?;
    let busy: f64 = [0, 1, 2, 5, 6].iter().filter_map(|&i| fields.get(i)).sum();
    let second = rustix::param::clock_ticks_per_second() as f64;
    Some(Processors {
        busy_s: busy / second,
        stolen_s: fields.get(7).unwrap_or(&0.0) / second,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_busy_while_this_process_is() {
        let before = times();
        let start = now();
        while since(start) < Duration::from_millis(50) {
            std::hint::spin_loop();
        }
        let time = times() - before;
        assert!(time.wall_s >= 0.05 && time.cpu_s > 0.0 && time.machine_cpu_s >= 0.0);
    }
}
