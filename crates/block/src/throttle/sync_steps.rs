//! Steps of large syncs while other threads make small fsyncs.
//!
//! A flush waits for everything in flight and in the device's cache. A large sync fills both, so
//! each concurrent small fsync would take as long as that: on a disk or a SATA SSD a hundred times
//! its own time. A sync is not limited as background writes are, since a thread waits for it. It
//! makes small fsyncs wait no longer than a step.
//!
//! Algorithm: small fsyncs are announced ([`Throttle::announce_small_sync`]). While the last one is
//! less than `RECENT` ago, a large sync proceeds in steps: the data of a step completes, is
//! recorded and made durable before the next step is sent. A step is what the device takes in about
//! `STEP`, found by doubling and halving. A device that needs more than twice that even for the
//! smallest step, such as a rotating disk, gets steps of about twice its shortest time: smaller
//! ones would only be more numerous. Without concurrent small fsyncs there are no steps and no
//! extra flushes.
//!
//! A sync ends, however many small fsyncs there are: a step has `MIN_STEP` at least, and the data
//! to write were fixed when the sync began.

use super::Throttle;
use std::time::Duration;
use sync::atomic::{AtomicU64, Ordering};

/// How long after a small fsync another one is expected.
const RECENT: Duration = Duration::from_millis(250);
/// Target time of a step, and so about the time that a small fsync waits for a large sync. (1 ms is
/// less than the smallest step with its flush takes on a SATA SSD.)
const STEP: Duration = Duration::from_micros(1500);
/// Bytes of a step.
const MIN_STEP: u64 = 256 << 10;
const MAX_STEP: u64 = 16 << 20;
/// Bytes of the first step.
const FIRST_STEP: u64 = 1 << 20;
/// An fsync of at most this many bytes is small; fewer than the first step has.
pub const SMALL_SYNC: u64 = 512 << 10;

/// When the last small fsync began.
#[derive(Default)]
pub(super) struct SmallSyncs {
    /// Nanoseconds of the volume's clock, plus one; 0: never.
    last_ns: AtomicU64,
}

impl SmallSyncs {
    /// A small fsync begins.
    pub(super) fn note(&self, now: Duration) {
        let now_ns = now.as_nanos() as u64 + 1;
        self.last_ns.store(now_ns, Ordering::Relaxed);
    }

    /// Whether a small fsync is expected.
    pub(super) fn is_recent(&self, now: Duration) -> bool {
        match self.last_ns.load(Ordering::Relaxed) {
            0 => false,
            last_ns => (now.as_nanos() as u64).saturating_sub(last_ns) < RECENT.as_nanos() as u64,
        }
    }
}

/// The steps of one large sync, or none.
#[derive(Default)]
pub struct SyncSteps(Option<Steps>);

impl SyncSteps {
    /// Begins or ends to proceed in steps. Called at first and between batches, with the time of
    /// the clock that [`Throttle::announce_small_sync`] has.
    pub fn update(&mut self, throttle: &Throttle, now: Duration) {
        if !throttle.expects_small_sync(now) {
            self.0 = None;
        } else if self.0.is_none() {
            self.0 = Some(Steps::new());
        }
    }

    /// Bytes of the next step; `None` without steps.
    pub fn bytes(&self) -> Option<u64> {
        self.0.as_ref().map(|steps| steps.bytes)
    }

    /// Records how long a step took from its submission until it was durable.
    pub fn record(&mut self, took: Duration) {
        if let Some(steps) = &mut self.0 {
            steps.record(took);
        }
    }
}

/// Steps of [`MIN_STEP`] after which the device's shortest time is known.
const TRIALS: u32 = 4;

/// How large the steps of one large sync are.
struct Steps {
    /// Bytes of the next one.
    bytes: u64,
    /// The time of the shortest one so far.
    shortest: Duration,
    /// Steps of [`MIN_STEP`] so far.
    smallest: u32,
}

impl Steps {
    fn new() -> Steps {
        Steps {
            bytes: FIRST_STEP,
            shortest: Duration::MAX,
            smallest: 0,
        }
    }

    fn record(&mut self, took: Duration) {
        self.shortest = self.shortest.min(took);
        self.smallest += u32::from(self.bytes == MIN_STEP);
        let (short, long) = match self.smallest >= TRIALS && self.shortest > STEP * 2 {
            true => (self.shortest * 3 / 2, self.shortest * 3),
            false => (STEP / 2, STEP * 2),
        };
        self.bytes = match took {
            t if t < short => (self.bytes * 2).min(MAX_STEP),
            t if t > long => (self.bytes / 2).max(MIN_STEP),
            _ => self.bytes,
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
        small.note(Duration::from_secs(7));
        assert!(small.is_recent(Duration::from_millis(7200)));
        assert!(!small.is_recent(Duration::from_millis(7300)));
    }

    /// Takes twenty steps on a device that needs `time` for so many bytes. Returns how long the
    /// next one takes.
    fn settled(steps: &mut Steps, time: impl Fn(u64) -> Duration) -> Duration {
        (0..20).for_each(|_| steps.record(time(steps.bytes)));
        time(steps.bytes)
    }

    #[test]
    fn steps_on_a_disk_outweigh_its_positioning_time() {
        // 150 MB/s, and 12 ms for positioning and the flush.
        let time = |bytes: u64| Duration::from_nanos(12_000_000 + bytes * 20 / 3);
        let took = settled(&mut Steps::new(), time);
        let turn = Duration::from_millis(12);
        assert!(took >= turn * 3 / 2 && took <= 4 * turn, "{took:?}");
    }

    #[test]
    fn a_device_that_was_busy_at_first_is_not_taken_for_a_disk() {
        let mut steps = Steps::new();
        (0..TRIALS).for_each(|_| steps.record(7 * STEP));
        let time = |bytes: u64| Duration::from_nanos(1_400_000 + bytes * 20 / 9);
        assert!(settled(&mut steps, time) <= 2 * STEP);
    }

    #[test]
    fn steps_find_the_size_that_a_device_takes_in_time() {
        // 450 MB/s and a millisecond for the flush.
        let time = |bytes: u64| Duration::from_nanos(1_000_000 + bytes * 20 / 9);
        let mut steps = Steps::new();
        let took = settled(&mut steps, time);
        assert!(took <= 2 * STEP && took >= STEP / 2, "{took:?}");
        // Another user keeps the device busy.
        (0..20).for_each(|_| steps.record(Duration::from_secs(1)));
        assert_eq!(steps.bytes, MIN_STEP);
        (0..20).for_each(|_| steps.record(Duration::ZERO));
        assert_eq!(steps.bytes, MAX_STEP);
    }
}
