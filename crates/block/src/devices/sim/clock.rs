//! Real time, and waiting for a moment of it precisely and cheaply.
//!
//! A sleeping thread runs some 15 to 60 µs after the moment that it asked for (timer slack, leaving
//! the idle state, the scheduler). How much is measured at each waking; one asks for so much less,
//! and what is left over is spun.

use super::model::Ns;
use rustix::thread::ClockId;
use rustix::time::Timespec;
use std::num::NonZeroU64;
use sync::atomic::{AtomicU64, Ordering};

/// More than this is not spun: it is slept, and may end later.
const MAX_SPIN: Ns = 5_000;
/// What is learned from one waking.
const STEP: Ns = 400;

/// The time of the system, monotonic.
pub(super) fn now() -> Ns {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// How much earlier than the moment one has to ask to be woken: what three of four wakings are late
/// at least.
#[derive(Default)]
pub(super) struct Lead(AtomicU64);

impl Lead {
    /// What to ask for, now, in order to run at `moment`; `None` where that is so near that it is
    /// spun.
    pub(super) fn ask(&self, now: Ns, moment: Ns) -> Option<Ns> {
        let asked = moment.saturating_sub(self.0.load(Ordering::Relaxed));
        (moment > now + MAX_SPIN).then(|| asked.max(now))
    }

    /// A waking that had been asked for `asked` happened at `woken`.
    pub(super) fn learn(&self, asked: Ns, woken: Ns) {
        let lead = self.0.load(Ordering::Relaxed);
        let lead = match woken.saturating_sub(asked) > lead {
            true => lead + STEP,
            false => lead.saturating_sub(3 * STEP),
        };
        self.0.store(lead, Ordering::Relaxed);
    }

    /// Lets the calling thread sleep until `moment`.
    pub(super) fn sleep_until(&self, moment: Ns) {
        if let Some(asked) = self.ask(now(), moment) {
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
const SLACK: NonZeroU64 = NonZeroU64::MIN;

/// Makes the calling thread run when its time has come, as an interrupt would: no timer slack, and
/// real-time priority where the process may have that (root, or a limit for it). Without, busy
/// processors make devices late.
pub(super) fn become_punctual() {
    let _ = rustix::thread::set_current_timer_slack(Some(SLACK));
    let lowest = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: 0 means the calling thread, and the parameters outlive the call.
    if unsafe { libc::sched_setscheduler(0, policy, &raw const lowest) } != 0 {
        tracing::debug!(
            "no real-time priority for a modelled device: it is late when the processors are busy"
        );
    }
}

/// Runs until `moment`; for the few microseconds that a waking was early.
pub(super) fn spin_until(moment: Ns) {
    while now() < moment {
        std::hint::spin_loop();
    }
}
