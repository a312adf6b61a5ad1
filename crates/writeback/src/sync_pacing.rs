//! Pacing of large syncs while other threads make small fsyncs.
//!
//! A flush waits for everything in flight and in the device's cache. A large sync fills both, so
//! each concurrent small fsync would take as long as that: on a disk or a SATA SSD a hundred times
//! its own time.
//!
//! Algorithm: small fsyncs call [`crate::BackingDev::begin_fsync`]. While the last one is less than
//! `RECENT` ago, a large sync proceeds in steps: the data of a step completes, is recorded and made
//! durable before the next step is sent. A step is what the device takes in about `STEP`, found by
//! doubling and halving. A device that needs more than twice that even for the smallest step, such
//! as a rotating disk, gets steps of about twice its shortest time: smaller ones would only be more
//! numerous. Without concurrent small fsyncs there are no steps and no extra flushes.
//!
//! A sync ends, however many small fsyncs there are: a step has `MIN_PAGES` at least, and the pages
//! to write were fixed when the sync began.

use std::time::Duration;
use sync::atomic::{AtomicU64, Ordering};

/// How long after a small fsync another one is expected.
const RECENT: Duration = Duration::from_millis(250);
/// Target time of a step, and so about the time that a small fsync waits for a large sync. (1 ms is
/// less than the smallest step with its flush takes on a SATA SSD.)
const STEP: Duration = Duration::from_micros(1500);
/// Pages of a step (256 KiB to 16 MiB).
const MIN_PAGES: u64 = 64;
const MAX_PAGES: u64 = 4096;
/// Pages of the first step (1 MiB).
const FIRST_PAGES: u64 = 256;
/// An fsync of at most this many pages is small; fewer than the first step has.
const SMALL_PAGES: u64 = 128;

/// When the last small fsync began.
#[derive(Default)]
pub(crate) struct SmallSyncs {
    /// Nanoseconds of the volume's clock, plus one; 0: never.
    last_ns: AtomicU64,
}

impl SmallSyncs {
    /// An fsync of so many pages begins. Returns whether it is small.
    pub(crate) fn note(&self, pages: u64, now: Duration) -> bool {
        let small = is_small(pages);
        if small {
            let now_ns = now.as_nanos() as u64 + 1;
            self.last_ns.store(now_ns, Ordering::Relaxed);
        }
        small
    }

    /// Whether a small fsync is expected.
    pub(crate) fn is_recent(&self, now: Duration) -> bool {
        match self.last_ns.load(Ordering::Relaxed) {
            0 => false,
            last_ns => (now.as_nanos() as u64).saturating_sub(last_ns) < RECENT.as_nanos() as u64,
        }
    }
}

/// Whether an fsync of so many pages is small.
pub(crate) fn is_small(pages: u64) -> bool {
    pages <= SMALL_PAGES
}

/// The pacing of one large sync: none, or steps.
#[derive(Default)]
pub(crate) struct SyncPacing(Option<Steps>);

impl SyncPacing {
    /// Begins or ends to pace. Called at first and between batches.
    pub(crate) fn update(&mut self, small_syncs: &SmallSyncs, now: Duration) {
        if !small_syncs.is_recent(now) {
            self.0 = None;
        } else if self.0.is_none() {
            self.0 = Some(Steps::new());
        }
    }
    /// Pages of the next step; `None` without pacing.
    pub(crate) fn step_pages(&self) -> Option<u64> {
        self.0.as_ref().map(|steps| steps.pages)
    }
    /// Records how long a step took from its submission until it was durable.
    pub(crate) fn record_step(&mut self, took: Duration) {
        if let Some(steps) = &mut self.0 {
            steps.record(took);
        }
    }
}

/// Steps of [`MIN_PAGES`] after which the device's shortest time is known.
const TRIALS: u32 = 4;

/// How large the steps of one large sync are.
struct Steps {
    /// Pages of the next one.
    pages: u64,
    /// The time of the shortest one so far.
    shortest: Duration,
    /// Steps of [`MIN_PAGES`] so far.
    smallest: u32,
}

impl Steps {
    fn new() -> Steps {
        Steps {
            pages: FIRST_PAGES,
            shortest: Duration::MAX,
            smallest: 0,
        }
    }

    fn record(&mut self, took: Duration) {
        self.shortest = self.shortest.min(took);
        self.smallest += u32::from(self.pages == MIN_PAGES);
        let (short, long) = match self.smallest >= TRIALS && self.shortest > STEP * 2 {
            true => (self.shortest * 3 / 2, self.shortest * 3),
            false => (STEP / 2, STEP * 2),
        };
        self.pages = match took {
            t if t < short => (self.pages * 2).min(MAX_PAGES),
            t if t > long => (self.pages / 2).max(MIN_PAGES),
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
        assert!(!small.is_recent(Duration::ZERO));
        small.note(SMALL_PAGES + 1, Duration::from_secs(1));
        assert!(!small.is_recent(Duration::from_secs(1)));
        small.note(SMALL_PAGES, Duration::from_secs(7));
        assert!(small.is_recent(Duration::from_millis(7200)));
        assert!(!small.is_recent(Duration::from_millis(7300)));
    }

    /// Takes twenty steps on a device that needs `time` for so many pages. Returns how long the
    /// next one takes.
    fn settled(steps: &mut Steps, time: impl Fn(u64) -> Duration) -> Duration {
        (0..20).for_each(|_| steps.record(time(steps.pages)));
        time(steps.pages)
    }

    #[test]
    fn steps_on_a_disk_outweigh_its_positioning_time() {
        // 150 MB/s, and 12 ms for positioning and the flush.
        let time = |pages: u64| Duration::from_nanos(12_000_000 + pages * 4096 * 20 / 3);
        let took = settled(&mut Steps::new(), time);
        let turn = Duration::from_millis(12);
        assert!(took >= turn * 3 / 2 && took <= 4 * turn, "{took:?}");
    }

    #[test]
    fn a_device_that_was_busy_at_first_is_not_taken_for_a_disk() {
        let mut steps = Steps::new();
        (0..TRIALS).for_each(|_| steps.record(7 * STEP));
        let time = |pages: u64| Duration::from_nanos(1_400_000 + pages * 4096 * 20 / 9);
        assert!(settled(&mut steps, time) <= 2 * STEP);
    }

    #[test]
    fn steps_find_the_size_that_a_device_takes_in_time() {
        // 450 MB/s and a millisecond for the flush.
        let time = |pages: u64| Duration::from_nanos(1_000_000 + pages * 4096 * 20 / 9);
        let mut steps = Steps::new();
        let took = settled(&mut steps, time);
        assert!(took <= 2 * STEP && took >= STEP / 2, "{took:?}");
        // Another user keeps the device busy.
        (0..20).for_each(|_| steps.record(Duration::from_secs(1)));
        assert_eq!(steps.pages, MIN_PAGES);
        (0..20).for_each(|_| steps.record(Duration::ZERO));
        assert_eq!(steps.pages, MAX_PAGES);
    }
}
