//! Whether to ask for huge pages.
//!
//! A huge page makes 512 faults one and, for direct I/O, 512 pins one. But it can cost several
//! times what it saves, in the fault of whoever touches it first: where memory is full of other
//! programs' page cache the kernel moves pages about to make room (direct compaction, which
//! `MADV_HUGEPAGE` allows; see `transhuge.rst`), and beneath a virtual machine the host may have to
//! find the memory, while small pages come from what was in use a moment ago. So each chunk asks
//! anew, the first touch of a chunk that asked is timed, and after a slow one nobody asks for a
//! while.

use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// CPU time beyond which a first touch is slow: zeroing 2 MiB takes a fifth of it or less.
const SLOW: Duration = Duration::from_millis(1);
/// How long small pages are used after a slow touch.
const PAUSE: Duration = Duration::from_secs(1);

/// Whether huge pages have been cheap of late.
pub(super) struct Hint {
    /// Of the monotonic clock, in nanoseconds.
    not_before: AtomicU64,
}

impl Hint {
    pub(super) const fn new() -> Self {
        Self {
            not_before: AtomicU64::new(0),
        }
    }

    /// Whether a new chunk should ask for a huge page.
    pub(super) fn wanted(&self) -> bool {
        let not_before = self.not_before.load(Relaxed);
        not_before == 0 || now(ClockId::Monotonic).as_nanos() as u64 >= not_before
    }

    /// Runs `touch`, the first use of a chunk that asked. CPU time is what counts: compaction is
    /// done by the thread that faults, and a thread that merely had to wait for its turn proves
    /// nothing.
    pub(super) fn first_touch(&self, touch: impl FnOnce()) {
        let before = now(ClockId::ThreadCPUTime);
        touch();
        self.touched(now(ClockId::ThreadCPUTime).saturating_sub(before));
    }

    fn touched(&self, cost: Duration) {
        if cost > SLOW {
            let until = now(ClockId::Monotonic) + PAUSE;
            self.not_before.store(until.as_nanos() as u64, Relaxed);
        }
    }
}

fn now(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_touch_stops_the_asking_for_a_while() {
        let hint = Hint::new();
        assert!(hint.wanted());
        hint.touched(SLOW);
        assert!(hint.wanted());
        hint.touched(SLOW + Duration::from_nanos(1));
        assert!(!hint.wanted());
        let resumes = hint.not_before.load(Relaxed);
        let in_future = Duration::from_nanos(resumes).saturating_sub(now(ClockId::Monotonic));
        assert!(in_future <= PAUSE && in_future > PAUSE / 2);
    }
}
