//! The decision whether to ask for huge pages.
//!
//! A huge page saves 511 of 512 faults and, for direct I/O, 511 of 512 pins. But the first touch
//! can cost several times as much as it saves. If memory is full of page cache, the kernel moves
//! pages to make room (direct compaction, which `MADV_HUGEPAGE` allows; see `transhuge.rst`). Under
//! a virtual machine the host may have to find the memory, while small pages were in use a moment
//! ago. So the decision is made for each chunk. The first touch of a chunk with a huge page is
//! timed, and after a slow one no chunk asks for a while.

use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// CPU time beyond which a first touch is slow: zeroing 2 MiB takes a fifth of it or less.
const SLOW: Duration = Duration::from_millis(1);
/// How long small pages are used after a slow touch.
const PAUSE: Duration = Duration::from_secs(1);

/// Whether huge pages have been cheap recently.
pub(super) struct Hint {
    /// Until this time small pages are used: monotonic, in nanoseconds.
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

    /// Runs and times `touch`, the first use of a chunk that asked. It measures CPU time, because
    /// the faulting thread does the compaction, and time without a processor says nothing about it.
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
