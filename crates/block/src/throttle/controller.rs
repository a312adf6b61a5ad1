//! How many bytes of background writes may be in flight: the algorithm, without time or locks.
//!
//! ```text
//!                  ┌── reads too slow: halve ◀──┐
//!                  ▼                            │
//!   idle ─ read ─▶ last good limit ───────▶ with reads ── in time: grow, up to 3/4 of what was too much
//!     ▲                                         │
//!     │ drift to the default                    │ no more reads
//!     │                                         ▼
//!     └──────────────────────────────────── writes only: another limit, and this one is kept
//! ```
//!
//! Time is cut into windows of 100 ms, shorter as the limit shrinks (÷ √(step + 1), where a step is
//! a halving of the default). At the end of each window:
//! - *Reads and background writes.* If the reads were slower than the target, the limit is halved.
//!   Otherwise it grows by half, if a writer waited for room. It grows no further than 3/4 of the
//!   last limit that was too much, and tries more only after [`HOLD`] windows. So it settles
//!   instead of oscillating.
//! - *Reads alone*: their latency says nothing about the limit.
//! - *Background writes alone* have a limit by the speed of the device
//!   ([`super::state::State::limit_alone`]), and this one is kept.
//! - *Neither*: the limit drifts back to the default.
//!
//! Source: Jens Axboe, "blk-wbt: buffered writeback throttling" (Linux 4.10), itself after CoDel
//! (Nichols and Jacobson, 2012). It differs in two points: the judged latency
//! ([`super::LatencyRule`]) and the memory of what was too much.

use super::options::{LatencyRule, ThrottleOptions};
use super::window::{Sample, Window};
use std::time::Duration;

/// The limit in the middle.
pub(super) const DEFAULT: u64 = 4 << 20;
/// The largest limit.
pub(super) const CEILING: u64 = 32 << 20;
/// Length of a window at the default limit or above.
const WINDOW: Duration = Duration::from_millis(100);
/// Windows after which a settled limit tries to grow beyond what was too much.
const HOLD: u32 = 20;

/// Why the limit is what it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThrottleCause {
    /// Nothing has happened yet, or not for a while.
    #[default]
    Idle,
    /// Reads were slower than the target.
    TooSlow,
    /// Reads were within the target, and writers waited.
    InTime,
    /// The first read after a while: the last limit that was good.
    FirstRead,
    /// Nobody reads: what the device accepts in a few targets.
    WritesOnly,
    /// The parameters were changed.
    Configured,
}

impl ThrottleCause {
    /// Every cause.
    pub const ALL: [ThrottleCause; 6] = [
        ThrottleCause::Idle,
        ThrottleCause::TooSlow,
        ThrottleCause::InTime,
        ThrottleCause::FirstRead,
        ThrottleCause::WritesOnly,
        ThrottleCause::Configured,
    ];

    /// The name in statistics.
    pub fn name(self) -> &'static str {
        match self {
            ThrottleCause::Idle => "idle",
            ThrottleCause::TooSlow => "too slow",
            ThrottleCause::InTime => "in time",
            ThrottleCause::FirstRead => "first read",
            ThrottleCause::WritesOnly => "writes only",
            ThrottleCause::Configured => "configured",
        }
    }
}

/// The latencies that are defended.
pub(super) struct Targets {
    /// Of reads.
    pub(super) reads: Duration,
    /// Of small fsyncs, where their latency alone is known.
    pub(super) syncs: Option<Duration>,
}

/// See the module.
pub(super) struct Controller {
    floor: u64,
    rule: LatencyRule,
    limit: u64,
    cause: ThrottleCause,
    /// The last limit with which reads were in time.
    good: Option<u64>,
    /// The last limit with which they were not.
    too_much: Option<u64>,
    /// Windows in a row in which the limit stood still below `too_much`.
    settled: u32,
    /// Reads came in the last window that had anything.
    reading: bool,
}

impl Controller {
    pub(super) fn new(options: &ThrottleOptions) -> Controller {
        Controller {
            floor: options.floor,
            rule: options.rule,
            limit: DEFAULT.max(options.floor),
            cause: ThrottleCause::Idle,
            good: None,
            too_much: None,
            settled: 0,
            reading: false,
        }
    }

    /// Takes new parameters and forgets what was learnt.
    pub(super) fn configure(&mut self, options: &ThrottleOptions) {
        *self = Controller {
            cause: ThrottleCause::Configured,
            ..Controller::new(options)
        };
    }

    /// Bytes of background writes that may be in flight.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    pub(super) fn cause(&self) -> ThrottleCause {
        self.cause
    }

    /// How often the default was halved, rounded; negative above the default.
    pub(super) fn step(&self) -> i32 {
        (DEFAULT as f64 / self.limit as f64).log2().round() as i32
    }

    /// The length of the next window.
    pub(super) fn window_length(&self) -> Duration {
        let step = self.step().max(0);
        WINDOW.div_f64(f64::from(step + 1).sqrt())
    }

    /// A read came after a time without.
    pub(super) fn first_read(&mut self) {
        if !self.reading {
            self.reading = true;
            self.settled = 0;
            let good = self.good.unwrap_or(DEFAULT);
            self.set(self.limit.min(good), ThrottleCause::FirstRead);
        }
    }

    /// A window has ended.
    pub(super) fn end_window(&mut self, window: &Window, targets: &Targets) {
        match (window.judged(), window.wrote()) {
            (true, true) => self.judge(window, targets),
            (true, false) => self.reading = true,
            (false, true) => {
                self.reading = false;
                self.cause = ThrottleCause::WritesOnly;
            }
            (false, false) => {
                self.reading = false;
                let middle = (self.limit as f64 * DEFAULT as f64).sqrt() as u64;
                self.set(middle, ThrottleCause::Idle);
            }
        }
    }

    fn judge(&mut self, window: &Window, targets: &Targets) {
        self.reading = true;
        let latency = |sample: &Sample| match self.rule {
            LatencyRule::Percentile => sample.percentile(),
            LatencyRule::Minimum => sample.min,
        };
        let slow_syncs = targets
            .syncs
            .is_some_and(|target| latency(&window.syncs) > target);
        if latency(&window.reads) > targets.reads || slow_syncs {
            self.too_much = Some(self.limit);
            self.settled = 0;
            return self.set(self.limit / 2, ThrottleCause::TooSlow);
        }
        self.good = Some(self.limit);
        if !window.waited {
            return;
        }
        let bound = match self.too_much {
            Some(_) if self.settled >= HOLD => {
                self.settled = 0;
                self.too_much = self.too_much.map(|bytes| bytes + bytes / 4);
                u64::MAX
            }
            Some(bytes) => bytes / 4 * 3,
            None => u64::MAX,
        };
        let grown = (self.limit + self.limit / 2).min(bound);
        match grown > self.limit {
            true => self.set(grown, ThrottleCause::InTime),
            false => self.settled += 1,
        }
    }

    fn set(&mut self, limit: u64, cause: ThrottleCause) {
        self.limit = limit.clamp(self.floor, CEILING.max(self.floor));
        self.cause = cause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Duration = Duration::from_millis(2);
    const TARGETS: Targets = Targets {
        reads: TARGET,
        syncs: Some(TARGET),
    };

    fn controller() -> Controller {
        Controller::new(&ThrottleOptions::default())
    }

    /// A window with many reads that took `latency`, beside writers that wait.
    fn reads(latency: Duration) -> Window {
        Window {
            reads: Sample {
                count: 500,
                sum: 100 * latency,
                min: latency / 10,
                p99: latency,
                max: latency,
            },
            written: 1 << 20,
            waited: true,
            ..Window::default()
        }
    }

    /// Windows on a device whose reads take a base time and that of the bytes in flight. Returns
    /// the limits.
    fn run(c: &mut Controller, windows: usize, latency: impl Fn(u64) -> Duration) -> Vec<u64> {
        let mut limits = Vec::new();
        for _ in 0..windows {
            c.end_window(&reads(latency(c.limit())), &TARGETS);
            limits.push(c.limit());
        }
        limits
    }

    /// 450 MB/s behind 150 us.
    fn ssd(in_flight: u64) -> Duration {
        Duration::from_nanos(150_000 + in_flight * 1000 / 450)
    }

    #[test]
    fn it_settles_within_a_second_and_stays() {
        for start in [DEFAULT, CEILING, 128 << 10] {
            let mut c = controller();
            c.limit = start;
            run(&mut c, 10, ssd);
            let later = run(&mut c, 100, ssd);
            let mean = later.iter().sum::<u64>() as f64 / later.len() as f64;
            let square = |&l: &u64| (l as f64 - mean).powi(2);
            let deviation = (later.iter().map(square).sum::<f64>() / later.len() as f64).sqrt();
            assert!(deviation / mean <= 0.2, "{start}: {mean} {deviation}");
            let slow = later.iter().filter(|&&l| ssd(l) > TARGET).count();
            assert!(slow <= 10, "{start}: {slow} windows too slow");
            assert!(mean > 400_000.0, "{start}: {mean}");
        }
    }

    #[test]
    fn reads_that_are_always_slow_leave_the_floor() {
        let mut c = controller();
        run(&mut c, 20, |_| 2 * TARGET);
        assert_eq!(c.limit(), ThrottleOptions::default().floor);
        assert_eq!(c.step(), 5);
        assert!(c.window_length() < WINDOW / 2);
        assert_eq!(c.cause(), ThrottleCause::TooSlow);
    }

    #[test]
    fn one_fast_read_satisfies_only_the_rule_of_the_minimum() {
        let window = reads(10 * TARGET);
        let limit = |rule| {
            let mut c = Controller::new(&ThrottleOptions {
                rule,
                ..ThrottleOptions::default()
            });
            c.end_window(&window, &TARGETS);
            c.limit()
        };
        assert_eq!(limit(LatencyRule::Percentile), DEFAULT / 2);
        assert_eq!(limit(LatencyRule::Minimum), DEFAULT / 2 * 3);
    }

    #[test]
    fn a_first_read_finds_the_last_good_limit() {
        let mut c = controller();
        run(&mut c, 20, ssd);
        let good = c.limit();
        let writes = Window {
            written: 1 << 20,
            ..Window::default()
        };
        (0..20).for_each(|_| c.end_window(&writes, &TARGETS));
        assert_eq!(c.cause(), ThrottleCause::WritesOnly);
        c.first_read();
        assert!(c.limit() <= good && c.limit() >= good / 2);
        assert_eq!(c.cause(), ThrottleCause::FirstRead);
    }

    #[test]
    fn slow_fsyncs_are_slow_reads() {
        let mut c = controller();
        let slow = reads(2 * TARGET);
        let window = Window {
            reads: Sample::default(),
            syncs: slow.reads,
            ..slow
        };
        c.end_window(&window, &TARGETS);
        assert_eq!(c.limit(), DEFAULT / 2);
        let unknown = Targets {
            syncs: None,
            ..TARGETS
        };
        c.end_window(&window, &unknown);
        assert_eq!(c.limit(), DEFAULT / 4 * 3, "3/4 of what was too much");
    }

    #[test]
    fn an_idle_device_forgets() {
        let mut c = controller();
        run(&mut c, 20, |_| 2 * TARGET);
        for _ in 0..20 {
            c.end_window(&Window::default(), &TARGETS);
        }
        assert!(c.limit() > DEFAULT / 10 * 9);
        assert_eq!(c.cause(), ThrottleCause::Idle);
    }

    #[test]
    fn a_writer_that_does_not_wait_changes_nothing() {
        let mut c = controller();
        let window = Window {
            waited: false,
            ..reads(TARGET / 2)
        };
        c.end_window(&window, &TARGETS);
        assert_eq!(c.limit(), DEFAULT);
    }
}
