//! A large sync beside somebody who makes one small file after another durable.
//!
//! A flush waits for all that is in flight and in the device's cache, whosesoever it is. A large
//! sync fills both, so everybody's flushes would take as long as that: on a disk or a SATA SSD a
//! hundred times their own time.
//!
//! Algorithm: whoever syncs little says so ([`BackingDev::note_small_sync`]). While that was less
//! than `RECENT` ago, a large sync, the flusher's as well as a file system's own of many files
//! ([`Pace`]), goes in steps: the data of a step lands, is recorded and made durable before the
//! next step is sent. A step is what the device takes in about `STEP`, found by doubling and
//! halving. A device that takes longer than twice that even for the least, as a disk that has to
//! turn first, gets steps of about twice its shortest: smaller ones would only be more. Where
//! nobody else syncs there are no steps and no such flushes.
//!
//! A sync ends, whoever syncs little beside it and however often: a step takes `LEAST_PAGES` at
//! least, and what it has to write was fixed when it began.

use crate::backing_dev::{BackingDev, WritebackFs};
use std::time::Duration;
use sync::atomic::{AtomicU64, Ordering};

/// How long after a small fsync another one is expected.
const RECENT: Duration = Duration::from_millis(250);
/// What a step should take, and so about what a small fsync waits for a large one. (1 ms is less
/// than the least step with its flush takes on a SATA SSD.)
const STEP: Duration = Duration::from_micros(1500);
/// Pages of a step (256 KiB to 16 MiB).
const LEAST_PAGES: usize = 64;
const MOST_PAGES: usize = 4096;
/// Pages of the first one (1 MiB).
const FIRST_PAGES: usize = 256;

/// Pages of a sync that is small, at most; fewer than a step has at first.
pub const SMALL_PAGES: u64 = 128;

/// When somebody synced little, last.
#[derive(Default)]
pub(crate) struct SmallSyncs {
    /// Nanoseconds of the volume's clock, and one; 0: never.
    last_ns: AtomicU64,
}

impl SmallSyncs {
    /// Somebody syncs little.
    fn note(&self, now: Duration) {
        self.last_ns
            .store(now.as_nanos() as u64 + 1, Ordering::Relaxed);
    }

    /// Whether somebody did lately, and probably does it again soon.
    fn are_about(&self, now: Duration) -> bool {
        match self.last_ns.load(Ordering::Relaxed) {
            0 => false,
            last_ns => (now.as_nanos() as u64).saturating_sub(last_ns) < RECENT.as_nanos() as u64,
        }
    }
}

impl<F: WritebackFs> BackingDev<F> {
    /// Says that somebody makes a little durable, [`SMALL_PAGES`] at most, and waits for it.
    pub fn note_small_sync(&self) {
        self.small_syncs.note(self.clock.monotonic());
    }
}

/// How one large sync goes: as fast as it can, or in steps.
#[derive(Default)]
pub struct Pace(Option<Steps>);

impl Pace {
    /// Begins or ends to go in steps: to be called at first, and between batches.
    pub fn look_around<F: WritebackFs>(&mut self, dev: &BackingDev<F>) {
        if !dev.small_syncs.are_about(dev.clock.monotonic()) {
            self.0 = None;
        } else if self.0.is_none() {
            self.0 = Some(Steps::new());
        }
    }
    /// Pages of the step that comes next; `None` where it need not go in steps.
    pub fn step(&self) -> Option<usize> {
        self.0.as_ref().map(|steps| steps.pages)
    }
    /// A step took so long from when it was sent until it was durable.
    pub fn took(&mut self, time: Duration) {
        if let Some(steps) = &mut self.0 {
            steps.took(time);
        }
    }
}

/// Steps of [`LEAST_PAGES`] that show how long the device takes at least.
const TRIALS: u32 = 4;

/// How large the steps of one large sync are.
struct Steps {
    /// Pages of the next one.
    pages: usize,
    /// The time of the shortest one so far.
    shortest: Duration,
    /// Those of [`LEAST_PAGES`] so far.
    least: u32,
}

impl Steps {
    fn new() -> Steps {
        Steps {
            pages: FIRST_PAGES,
            shortest: Duration::MAX,
            least: 0,
        }
    }

    /// One of that size took so long until it was on the device.
    fn took(&mut self, time: Duration) {
        self.shortest = self.shortest.min(time);
        self.least += u32::from(self.pages == LEAST_PAGES);
        let (short, long) = match self.least >= TRIALS && self.shortest > STEP * 2 {
            true => (self.shortest * 3 / 2, self.shortest * 3),
            false => (STEP / 2, STEP * 2),
        };
        self.pages = match time {
            t if t < short => (self.pages * 2).min(MOST_PAGES),
            t if t > long => (self.pages / 2).max(LEAST_PAGES),
            _ => self.pages,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_fsync_is_expected_again_for_a_while() {
        let small = SmallSyncs::default();
        assert!(!small.are_about(Duration::ZERO));
        small.note(Duration::from_secs(7));
        assert!(small.are_about(Duration::from_millis(7200)));
        assert!(!small.are_about(Duration::from_millis(7300)));
    }

    /// Twenty steps on a device that takes `time` for so many pages; how long the next one takes.
    fn settled(steps: &mut Steps, time: impl Fn(usize) -> Duration) -> Duration {
        (0..20).for_each(|_| steps.took(time(steps.pages)));
        time(steps.pages)
    }

    #[test]
    fn steps_on_a_disk_outweigh_its_turns() {
        // 150 MB/s, and 12 ms for the way there and the flush.
        let time = |pages: usize| Duration::from_nanos(12_000_000 + pages as u64 * 4096 * 20 / 3);
        let took = settled(&mut Steps::new(), time);
        let turn = Duration::from_millis(12);
        assert!(took >= turn * 3 / 2 && took <= 4 * turn, "{took:?}");
    }

    #[test]
    fn a_device_that_was_busy_at_first_is_not_taken_for_a_disk() {
        let mut steps = Steps::new();
        (0..TRIALS).for_each(|_| steps.took(7 * STEP));
        let time = |pages: usize| Duration::from_nanos(1_400_000 + pages as u64 * 4096 * 20 / 9);
        assert!(settled(&mut steps, time) <= 2 * STEP);
    }

    #[test]
    fn steps_find_the_size_that_a_device_takes_in_time() {
        // 450 MB/s and a millisecond for the flush.
        let time = |pages: usize| Duration::from_nanos(1_000_000 + pages as u64 * 4096 * 20 / 9);
        let mut steps = Steps::new();
        let took = settled(&mut steps, time);
        assert!(took <= 2 * STEP && took >= STEP / 2, "{took:?}");
        // Somebody else keeps the device busy.
        (0..20).for_each(|_| steps.took(Duration::from_secs(1)));
        assert_eq!(steps.pages, LEAST_PAGES);
        (0..20).for_each(|_| steps.took(Duration::ZERO));
        assert_eq!(steps.pages, MOST_PAGES);
    }
}
