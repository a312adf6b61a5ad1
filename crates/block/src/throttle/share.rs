//! How much time threads lose to background writes, and so how the rate of these must change.
//!
//! A reader that waits for each read has 75 % of its rate alone if it loses a quarter of its time.
//! So this is what is held constant, and not the latency: on flash memory a background write may
//! double a read's 0.1 ms, far within any target in milliseconds.
//!
//! ```text
//!   lost = Σ (latency − latency alone) ÷ max(time, Σ latency)
//! ```
//!
//! The sums are of what threads wait for: reads of the device, and small fsyncs. With several
//! readers the time is that of all of them. A reader that pauses between its reads loses less by
//! the same latency, and leaves the writer more.
//!
//! *The latency alone* is the mean of a time without background writes. If there was none for
//! [`FRESH`], and only if the loss might be too high, background writes are held back until
//! [`PROBE_CALLS`] calls have ended without them: 5 to 50 ms mostly. Source of this idea: the phase
//! ProbeRTT of BBR (Cardwell and others, 2016).
//!
//! *The factor.* Readers wait in proportion to the rate, so the waiting `s = lost ÷ (1 − lost)` is
//! compared with the accepted one. The rate is multiplied by √(accepted ÷ s), within
//! [`FALL`] and [`RISE`]: a step that corrects half of a deviation does not oscillate.

use super::window::{Sample, Window};
use std::time::Duration;

/// Bounds of a factor.
const FALL: f64 = 0.5;
const RISE: f64 = 1.5;
/// Factors nearer to one than this are noise.
const NOISE: f64 = 0.04;
/// Calls, or else time, after which a loss is judged.
const ENOUGH: u32 = 32;
const LONGEST: Duration = Duration::from_millis(400);
/// Calls from which the mean of a kind is known.
const ENOUGH_ALONE: u32 = 4;
/// For so long the latency alone is believed.
const FRESH: Duration = Duration::from_secs(5);
/// A probe ends after so many calls, or after a time with enough of them.
const PROBE_CALLS: u32 = 32;
const PROBE_TIME: Duration = Duration::from_millis(50);
const LONGEST_PROBE: Duration = Duration::from_millis(300);
/// The length of a window in a probe.
pub(super) const PROBE_WINDOW: Duration = Duration::from_millis(5);
/// A probe does not wait longer for requests in flight.
const LONGEST_EMPTYING: Duration = Duration::from_millis(500);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Share {
    reads: Kind,
    syncs: Kind,
    /// Calls that were not judged yet, with background writes and without.
    beside: Sums,
    alone: Sums,
    /// When the last window ended, the device had background writes to complete or to write back.
    had_more: bool,
    probe: Probe,
    lost: f64,
}

/// Calls of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Kind {
    /// Their mean latency alone.
    alone: Option<Duration>,
    /// When it was looked for last.
    at: Option<Duration>,
}

/// A time in which background writes are held back.
#[derive(Clone, Copy, Debug, Default)]
enum Probe {
    /// None.
    #[default]
    Off,
    /// Writes in flight complete. Since this time.
    Emptying(Duration),
    /// Calls are measured. Since this time.
    Measuring(Duration),
}

/// Counts and times of calls.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    time: Duration,
    reads: (u32, Duration),
    syncs: (u32, Duration),
}

impl Sums {
    fn add(&mut self, window: &Window, elapsed: Duration) {
        let add = |(count, sum): &mut (u32, Duration), sample: &Sample| {
            *count += sample.count;
            *sum += sample.sum;
        };
        self.time += elapsed;
        add(&mut self.reads, &window.reads);
        add(&mut self.syncs, &window.syncs);
    }

    fn count(&self) -> u32 {
        self.reads.0 + self.syncs.0
    }
}

impl Kind {
    /// The time that calls would have taken alone. They took `sum`. All of it if that cannot be
    /// known: they are too few. None of it if that will be known.
    fn expected(&mut self, calls @ (count, sum): (u32, Duration), now: Duration) -> Duration {
        let is_stale = self.is_stale(calls, now);
        match &mut self.alone {
            Some(mean) => {
                // Alone they are no slower than beside writers.
                if count >= ENOUGH_ALONE {
                    *mean = (*mean).min(sum / count);
                }
                *mean * count
            }
            None if is_stale => Duration::ZERO,
            None => sum,
        }
    }

    /// Whether calls of this kind have to be measured alone.
    fn is_stale(&self, (count, _): (u32, Duration), now: Duration) -> bool {
        count > 0 && self.at.is_none_or(|at| now.saturating_sub(at) > FRESH)
    }

    /// Learns from calls alone, half from what was known.
    fn learn(&mut self, (count, sum): (u32, Duration), now: Duration) {
        if count >= ENOUGH_ALONE {
            let mean = sum / count;
            self.alone = Some(self.alone.map_or(mean, |old| (old + mean) / 2));
            self.at = Some(now);
        }
    }
}

impl Share {
    /// The part of their time that threads lost when it was judged last.
    pub(super) fn lost(&self) -> f64 {
        self.lost
    }

    /// The mean latency of reads alone.
    pub(super) fn read_alone(&self) -> Option<Duration> {
        self.reads.alone
    }

    /// The mean latency of small fsyncs alone.
    pub(super) fn sync_alone(&self) -> Option<Duration> {
        self.syncs.alone
    }

    /// Whether background writes are held back.
    pub(super) fn is_probing(&self) -> bool {
        !matches!(self.probe, Probe::Off)
    }

    /// A window of a probe has ended, with so many bytes of background writes in flight or in the
    /// cache.
    pub(super) fn end_probe_window(
        &mut self,
        window: &Window,
        (elapsed, now): (Duration, Duration),
        outstanding: u64,
    ) {
        match self.probe {
            Probe::Off => {}
            Probe::Emptying(since) if now.saturating_sub(since) > LONGEST_EMPTYING => {
                self.end_probe(now);
            }
            Probe::Emptying(_) if outstanding == 0 => {
                self.alone = Sums::default();
                self.probe = Probe::Measuring(now);
            }
            Probe::Emptying(_) => {}
            Probe::Measuring(since) => {
                self.alone.add(window, elapsed);
                let time = now.saturating_sub(since);
                let count = self.alone.count();
                let enough = count >= ENOUGH_ALONE && time >= PROBE_TIME;
                if count >= PROBE_CALLS || enough || time >= LONGEST_PROBE {
                    self.end_probe(now);
                }
            }
        }
    }

    fn end_probe(&mut self, now: Duration) {
        self.learn(now);
        // Calls that were too few are not looked for again at once.
        self.reads.at = Some(now);
        self.syncs.at = Some(now);
        self.probe = Probe::Off;
    }

    fn learn(&mut self, now: Duration) {
        let sums = std::mem::take(&mut self.alone);
        self.reads.learn(sums.reads, now);
        self.syncs.learn(sums.syncs, now);
    }

    /// A window has ended, with so many bytes of background writes in flight or in the cache.
    /// Threads may lose the part `accepted` of their time. Returns the factor by which the rate
    /// changes.
    pub(super) fn end_window(
        &mut self,
        window: &Window,
        (elapsed, now): (Duration, Duration),
        outstanding: u64,
        accepted: f64,
    ) -> Option<f64> {
        let has_more = outstanding > 0;
        let had_more = std::mem::replace(&mut self.had_more, has_more);
        if !window.wrote() && !has_more && !had_more {
            self.beside = Sums::default();
            self.alone.add(window, elapsed);
            if self.alone.count() >= ENOUGH_ALONE {
                self.learn(now);
                self.lost = 0.0;
            }
            return None;
        }
        self.alone = Sums::default();
        self.beside.add(window, elapsed);
        if self.beside.count() < ENOUGH && self.beside.time < LONGEST {
            return None;
        }
        let sums = std::mem::take(&mut self.beside);
        let took = sums.reads.1 + sums.syncs.1;
        let expected = self.reads.expected(sums.reads, now) + self.syncs.expected(sums.syncs, now);
        let all = sums.time.max(took).as_secs_f64().max(f64::MIN_POSITIVE);
        self.lost = took.saturating_sub(expected).as_secs_f64() / all;
        let too_much = self.lost > accepted;
        if too_much
            && (self.reads.is_stale(sums.reads, now) || self.syncs.is_stale(sums.syncs, now))
        {
            self.probe = Probe::Emptying(now);
            return None;
        }
        let waiting = |lost: f64| lost / (1.0 - lost.min(0.99));
        let factor = (waiting(accepted) / waiting(self.lost).max(0.01)).sqrt();
        let factor = factor.clamp(FALL, RISE);
        ((factor - 1.0).abs() > NOISE && (too_much || window.waited)).then_some(factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_millis(100);
    const ACCEPTED: f64 = 0.25;

    /// A reader without pauses, whose reads take 0.1 ms and longer beside background writes.
    struct Reader {
        share: Share,
        now: Duration,
        rate: f64,
        /// Its wait for so many bytes a second, as a part of its latency alone.
        wait: fn(f64) -> f64,
        /// Part of the time in which it reads.
        busy: f64,
    }

    impl Reader {
        fn new(wait: fn(f64) -> f64, busy: f64) -> Reader {
            Reader {
                share: Share::default(),
                now: Duration::from_secs(1),
                rate: 100e6,
                wait,
                busy,
            }
        }

        fn window(&mut self, rate: f64, length: Duration) -> Window {
            self.now += length;
            let latency = 100e-6 * (1.0 + (self.wait)(rate));
            let count = (length.as_secs_f64() * self.busy / latency) as u32;
            Window {
                reads: Sample {
                    count,
                    sum: Duration::from_secs_f64(f64::from(count) * latency),
                    ..Sample::default()
                },
                written: (rate * length.as_secs_f64()) as u64,
                waited: rate > 0.0,
                ..Window::default()
            }
        }

        /// Runs for so many windows beside a writer. Returns the rates.
        fn run(&mut self, windows: usize) -> Vec<f64> {
            let mut rates = Vec::new();
            for _ in 0..windows {
                if self.share.is_probing() {
                    let window = self.window(0.0, PROBE_WINDOW);
                    let times = (PROBE_WINDOW, self.now);
                    self.share.end_probe_window(&window, times, 0);
                    continue;
                }
                let window = self.window(self.rate, WINDOW);
                let factor = self
                    .share
                    .end_window(&window, (WINDOW, self.now), 1, ACCEPTED);
                self.rate *= factor.unwrap_or(1.0);
                rates.push(self.rate);
            }
            rates
        }
    }

    #[test]
    fn it_settles_within_a_second_where_readers_lose_a_quarter() {
        // At 120 MB/s reads take 4/3 of their time.
        for start in [10e6, 100e6, 1e9] {
            let mut reader = Reader::new(|rate| rate / 360e6, 1.0);
            reader.rate = start;
            reader.run(12);
            let rates = reader.run(100);
            let (low, high) = rates
                .iter()
                .fold((f64::MAX, 0.0_f64), |(l, h), &r| (l.min(r), h.max(r)));
            assert!(low > 105e6 && high < 135e6, "{start}: {low} {high}");
            assert!((reader.share.lost() - ACCEPTED).abs() < 0.03);
        }
    }

    #[test]
    fn a_reader_that_pauses_leaves_the_writer_more() {
        let mut reader = Reader::new(|rate| rate / 360e6, 0.05);
        reader.rate = 10e6;
        reader.run(50);
        // 5 % of the time may grow five times.
        assert!(reader.rate > 1e9, "{}", reader.rate);
    }

    #[test]
    fn without_calls_of_a_reader_the_rate_rises() {
        let mut reader = Reader::new(|_| 0.0, 0.0);
        reader.run(100);
        assert!(reader.rate > 1e9);
        assert!(!reader.share.is_probing());
    }

    #[test]
    fn waiting_that_writers_do_not_cause_is_not_blamed_on_them() {
        // The device is slow for another reason: alone, too.
        let mut reader = Reader::new(|rate| 9.0 + rate / 36e6, 1.0);
        reader.rate = 120e6;
        reader.run(20);
        let rates = reader.run(50);
        assert!(rates.iter().all(|rate| (105e6..135e6).contains(rate)));
    }

    #[test]
    fn a_loss_is_judged_only_with_a_fresh_latency_alone() {
        let mut reader = Reader::new(|rate| rate / 360e6, 1.0);
        reader.rate = 1e9;
        assert_eq!(reader.run(1), [1e9], "nothing is known");
        assert!(reader.share.is_probing());
        reader.run(3);
        assert!(!reader.share.is_probing());
        assert!(reader.run(1)[0] < 1e9);
        reader.now += FRESH * 2;
        reader.rate = 1e9;
        assert_eq!(reader.run(1), [1e9]);
        assert!(reader.share.is_probing());
    }

    #[test]
    fn reads_beside_a_cache_that_is_written_back_are_not_alone() {
        let mut reader = Reader::new(|rate| rate / 360e6, 1.0);
        reader.run(10);
        let alone = reader.share.read_alone();
        assert_eq!(alone.map(|a| a.as_micros()), Some(100));
        // The writer rests, and each read still takes three times as long.
        for outstanding in [1 << 20, 0] {
            let window = Window {
                written: 0,
                waited: false,
                ..reader.window(720e6, WINDOW)
            };
            let times = (WINDOW, reader.now);
            reader
                .share
                .end_window(&window, times, outstanding, ACCEPTED);
            assert_eq!(reader.share.read_alone(), alone, "{outstanding}");
        }
        let window = reader.window(0.0, WINDOW);
        let times = (WINDOW, reader.now);
        reader.share.end_window(&window, times, 0, ACCEPTED);
        assert_eq!(reader.share.lost(), 0.0, "alone again");
    }

    #[test]
    fn a_probe_ends_without_calls_and_with_writes_that_do_not_end() {
        let mut share = Share {
            probe: Probe::Emptying(Duration::ZERO),
            ..Share::default()
        };
        let window = Window::default();
        share.end_probe_window(&window, (PROBE_WINDOW, LONGEST_EMPTYING), 1);
        assert!(share.is_probing());
        let mut now = LONGEST_EMPTYING + PROBE_WINDOW;
        share.end_probe_window(&window, (PROBE_WINDOW, now), 1);
        assert!(!share.is_probing());
        share.probe = Probe::Emptying(now);
        let windows = (1..100).take_while(|_| {
            now += PROBE_WINDOW;
            share.end_probe_window(&window, (PROBE_WINDOW, now), 0);
            share.is_probing()
        });
        assert_eq!(windows.count(), 60);
    }
}
