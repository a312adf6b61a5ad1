//! Precise sleep at low cost.
//!
//! A sleeping thread runs 15 to 60 µs after the time that it asked for (timer slack, leaving the
//! idle state, the scheduler). Each wake-up measures this delay; the next sleep asks for an earlier
//! time by that much, and the remainder is a busy wait.

use crate::io::Ns;
use std::num::NonZeroU64;
use std::time::Duration;
use sync::atomic::{AtomicU64, Ordering};
use sync::clock::{Clock, SystemClock};

/// The longest busy wait. A longer wait is a sleep, which may end late.
const MAX_SPIN: Ns = 5_000;
/// The change of the lead after one wake-up.
const STEP: Ns = 400;

/// The time of the system's clock.
pub(crate) fn now() -> Ns {
    SystemClock.monotonic().as_nanos() as Ns
}

/// How much earlier than needed a sleep must end: the delay that three of four wake-ups exceed.
#[derive(Default)]
pub(crate) struct Lead(AtomicU64);

impl Lead {
    /// The time to ask for in order to run at `moment`; `None` if `moment` is so near that a busy
    /// wait is right.
    pub(crate) fn ask(&self, now: Ns, moment: Ns) -> Option<Ns> {
        let asked = moment.saturating_sub(self.0.load(Ordering::Relaxed));
        (moment > now + MAX_SPIN).then(|| asked.max(now))
    }

    /// Notes that a sleep until `asked` ended at `woken`.
    pub(crate) fn learn(&self, asked: Ns, woken: Ns) {
        let lead = self.0.load(Ordering::Relaxed);
        let lead = match woken.saturating_sub(asked) > lead {
            true => lead + STEP,
            false => lead.saturating_sub(3 * STEP),
        };
        self.0.store(lead, Ordering::Relaxed);
    }

    /// The calling thread sleeps until `moment`.
    pub(crate) fn sleep_until(&self, moment: Ns) {
        if let Some(asked) = self.ask(now(), moment) {
            let slack = rustix::thread::current_timer_slack().ok();
            let _ = rustix::thread::set_current_timer_slack(Some(SLACK));
            SystemClock.sleep(Duration::from_nanos(asked.saturating_sub(now())));
            self.learn(asked, now());
            let _ = rustix::thread::set_current_timer_slack(slack.and_then(NonZeroU64::new));
        }
        spin_until(moment);
    }
}

/// Timer slack of a thread that needs precise sleep, in nanoseconds: the least.
const SLACK: NonZeroU64 = NonZeroU64::MIN;

/// Makes the calling thread wake up on time, like an interrupt: no timer slack, and real-time
/// priority if the process may have it (root, or a limit for it). Without the priority, busy
/// processors make devices late.
pub(crate) fn become_punctual() {
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

/// Busy wait until `moment`, for the few microseconds by which a wake-up is early.
pub(crate) fn spin_until(moment: Ns) {
    while now() < moment {
        std::hint::spin_loop();
    }
}
