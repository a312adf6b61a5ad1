//! Time: virtual in a run, the system's outside of one.

use super::scheduler::current;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time of day at which runs begin: 2024-01-01 00:00 UTC.
const BEGIN: Duration = Duration::from_secs(1_704_067_200);

fn base() -> Instant {
    static BASE: OnceLock<Instant> = OnceLock::new();
    *BASE.get_or_init(Instant::now)
}

/// Virtual nanoseconds at `instant`.
pub(super) fn nanos(instant: Instant) -> u64 {
    instant.saturating_duration_since(base()).as_nanos() as u64
}

/// The monotonic clock.
pub fn now() -> Instant {
    match current() {
        Some((scheduler, _)) => base() + Duration::from_nanos(scheduler.now()),
        None => Instant::now(),
    }
}

/// Time since the beginning of the run; outside of a run, since the first call in this process.
pub fn monotonic() -> Duration {
    match current() {
        Some((scheduler, _)) => Duration::from_nanos(scheduler.now()),
        None => base().elapsed(),
    }
}

/// The time of day.
pub fn system_now() -> SystemTime {
    match current() {
        Some((scheduler, _)) => UNIX_EPOCH + BEGIN + Duration::from_nanos(scheduler.now()),
        None => SystemTime::now(),
    }
}
