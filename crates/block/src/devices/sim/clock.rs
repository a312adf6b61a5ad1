//! Real time, and waiting for a moment of it precisely and cheaply.
//!
//! A sleeping thread runs some 15 to 60 µs after the moment that it asked for (timer slack, leaving the idle state, the
//! scheduler). How much is measured at each waking; one asks for so much less, and what is left over is spun.

use super::model::Ns;
use rustix::thread::ClockId;
use rustix::time::Timespec;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

/// Waking early by more than this would cost more spinning than it gains.
const MAX_LEAD: Ns = 60_000;
/// What one waking counts for in the average of lateness.
const WEIGHT: u64 = 16;

/// The time of the system, monotonic.
pub(super) fn now() -> Ns {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// How much earlier than the moment one has to ask to be woken.
pub(super) struct Lead(AtomicU64);

impl Default for Lead {
    fn default() -> Lead {
        Lead(AtomicU64::new(0))
    }
}

impl Lead {
    /// What to ask for in order to run at `moment`.
    pub(super) fn ask(&self, moment: Ns) -> Ns {
        moment.saturating_sub(self.0.load(Ordering::Relaxed))
    }

    /// A waking that had been asked for `asked` happened at `woken`.
    pub(super) fn learn(&self, asked: Ns, woken: Ns) {
        let late = woken.saturating_sub(asked).min(MAX_LEAD);
        let lead = self.0.load(Ordering::Relaxed);
        let lead = (lead * (WEIGHT - 1) + late) / WEIGHT;
        self.0.store(lead, Ordering::Relaxed);
    }

    /// Lets the calling thread sleep until `moment`.
    pub(super) fn sleep_until(&self, moment: Ns) {
        let asked = self.ask(moment);
        if now() < asked {
            let slack = rustix::thread::current_timer_slack().ok();
            let _ = rustix::thread::set_current_timer_slack(Some(SLACK));
            let request = Timespec {
                tv_sec: (asked / 1_000_000_000) as i64,
                tv_nsec: (asked % 1_000_000_000) as _,
            };
            while rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &request)
                == Err(rustix::io::Errno::INTR)
            {}
            self.learn(asked, now());
            let _ = rustix::thread::set_current_timer_slack(slack.and_then(NonZeroU64::new));
        }
        spin_until(moment);
    }
}

/// Timer slack of a thread that waits for a moment, in nanoseconds: none.
pub(super) const SLACK: NonZeroU64 = NonZeroU64::MIN;

/// Runs until `moment`; for the few microseconds that a waking was early.
pub(super) fn spin_until(moment: Ns) {
    while now() < moment {
        std::hint::spin_loop();
    }
}
