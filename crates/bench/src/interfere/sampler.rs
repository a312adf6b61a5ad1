//! Samples a run: the reader's calls, the writer's bytes and the device, by interval and by period.

use crate::clock;
use crate::interference::{Interval, Period, Throttle, Transfer};
use crate::latency::Recorder;
use crate::target::Target;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// An interval shorter than this part of a whole one is added to the one before it, as its rates
/// would mean nothing.
const SHORTEST: f64 = 0.1;

/// The calls of one thread of the reader since the last sample.
#[derive(Default)]
pub(super) struct Meter(Mutex<Recorder>);

impl Meter {
    pub(super) fn record(&self, time: Duration) {
        self.lock().record(time);
    }

    fn take(&self) -> Recorder {
        let empty = Recorder::default();
        std::mem::replace(&mut *self.lock(), empty)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Recorder> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An interval as it was counted.
#[derive(Clone)]
struct Counted {
    period: Period,
    from_s: f64,
    at_s: f64,
    stolen_s: f64,
    calls: Recorder,
    written: u64,
    /// Bytes that the device read and wrote.
    device: Option<(u64, u64)>,
    throttle: Option<Throttle>,
}

impl Counted {
    fn seconds(&self) -> f64 {
        self.at_s - self.from_s
    }

    /// Adds the next interval.
    fn add(&mut self, next: &Counted) {
        self.at_s = next.at_s;
        self.stolen_s += next.stolen_s;
        self.calls.add(&next.calls);
        self.written += next.written;
        let device = self.device.zip(next.device);
        self.device = device.map(|(a, b)| (a.0 + b.0, a.1 + b.1));
        self.throttle.clone_from(&next.throttle);
    }

    fn interval(&self, call_bytes: u64) -> Interval {
        let per_sec = |count: u64| count as f64 / self.seconds().max(1e-9);
        let reader = self.calls.latency();
        let calls = reader.map_or(0, |reader| reader.count);
        Interval {
            period: self.period,
            from_s: self.from_s,
            at_s: self.at_s,
            stolen_s: self.stolen_s,
            reader_per_sec: per_sec(calls),
            reader_bytes_per_sec: per_sec(calls * call_bytes),
            reader,
            writer_bytes_per_sec: per_sec(self.written),
            device: self.device.map(|(read, written)| Transfer {
                read_bytes_per_sec: per_sec(read),
                write_bytes_per_sec: per_sec(written),
            }),
            throttle: self.throttle.clone(),
        }
    }
}

/// Totals since the start of the run.
struct Totals {
    stolen_s: f64,
    written: u64,
    device: Option<(u64, u64)>,
}

pub(super) struct Sampler<'a> {
    interval: Duration,
    target: &'a dyn Target,
    meters: &'a [Meter],
    call_bytes: u64,
    written: &'a AtomicU64,
    start: Instant,
    /// At the last sample.
    at_s: f64,
    totals: Totals,
    calls: Recorder,
    periods: Vec<Interval>,
    seconds: Vec<Interval>,
}

impl<'a> Sampler<'a> {
    /// Starts the clock of the run. `call_bytes` is the size of the reader's calls.
    pub(super) fn new(
        interval: Duration,
        target: &'a dyn Target,
        meters: &'a [Meter],
        call_bytes: u64,
        written: &'a AtomicU64,
    ) -> Sampler<'a> {
        Sampler {
            interval,
            target,
            meters,
            call_bytes,
            written,
            start: clock::now(),
            at_s: 0.0,
            totals: totals(target, written),
            calls: Recorder::default(),
            periods: Vec::new(),
            seconds: Vec::new(),
        }
    }

    /// Runs `job` on a thread of its own, and takes samples until it ends.
    pub(super) fn during<T: Send>(
        &mut self,
        period: Period,
        job: impl FnOnce() -> io::Result<T> + Send,
    ) -> io::Result<T> {
        let (running, ended) = channel::<()>();
        let mut intervals = Intervals::new(self.interval);
        let done = std::thread::scope(|scope| {
            let job = scope.spawn(move || {
                let _running = running;
                job()
            });
            let mut next = clock::now() + self.interval;
            let left = |next: Instant| next.saturating_duration_since(clock::now());
            while ended.recv_timeout(left(next)) == Err(RecvTimeoutError::Timeout) {
                intervals.push(self.sample(period));
                next += self.interval;
            }
            let done = job.join();
            done.unwrap_or_else(|_| Err(io::Error::other("the writer panicked")))
        })?;
        intervals.push(self.sample(period));
        let sum = intervals.sum.map(|sum| sum.interval(self.call_bytes));
        self.periods.extend(sum);
        let seconds = intervals.all.iter();
        let seconds = seconds.map(|one| one.interval(self.call_bytes));
        self.seconds.extend(seconds);
        Ok(done)
    }

    /// All calls of the reader so far.
    pub(super) fn calls(&self) -> &Recorder {
        &self.calls
    }

    /// The periods and the seconds.
    pub(super) fn end(self) -> (Vec<Interval>, Vec<Interval>) {
        (self.periods, self.seconds)
    }

    fn sample(&mut self, period: Period) -> Counted {
        let from_s = self.at_s;
        self.at_s = clock::since(self.start).as_secs_f64();
        let mut calls = Recorder::default();
        self.meters
            .iter()
            .for_each(|meter| calls.add(&meter.take()));
        self.calls.add(&calls);
        let now = totals(self.target, self.written);
        let before = std::mem::replace(&mut self.totals, now);
        let device = self.totals.device.zip(before.device);
        Counted {
            period,
            from_s,
            at_s: self.at_s,
            stolen_s: self.totals.stolen_s - before.stolen_s,
            calls,
            written: self.totals.written - before.written,
            device: device.map(|(now, then)| {
                let (read, written) = (now.0.saturating_sub(then.0), now.1.saturating_sub(then.1));
                (read, written)
            }),
            throttle: self.target.throttle(),
        }
    }
}

fn totals(target: &dyn Target, written: &AtomicU64) -> Totals {
    Totals {
        stolen_s: clock::stolen_s(),
        written: written.load(Relaxed),
        device: target.device().map(|d| (d.read_bytes, d.write_bytes)),
    }
}

/// The intervals of one period and their sum.
struct Intervals {
    shortest_s: f64,
    sum: Option<Counted>,
    all: Vec<Counted>,
}

impl Intervals {
    fn new(whole: Duration) -> Intervals {
        Intervals {
            shortest_s: whole.as_secs_f64() * SHORTEST,
            sum: None,
            all: Vec::new(),
        }
    }

    fn push(&mut self, counted: Counted) {
        match &mut self.sum {
            Some(sum) => sum.add(&counted),
            None => self.sum = Some(counted.clone()),
        }
        match self.all.last_mut() {
            Some(last) if counted.seconds() < self.shortest_s => last.add(&counted),
            _ => self.all.push(counted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(from_s: f64, at_s: f64, calls_us: &[u64], written: u64) -> Counted {
        let mut calls = Recorder::default();
        let each = calls_us.iter().copied().map(Duration::from_micros);
        each.for_each(|time| calls.record(time));
        Counted {
            period: Period::Writer,
            from_s,
            at_s,
            stolen_s: 0.01,
            calls,
            written,
            device: Some((written / 2, written)),
            throttle: None,
        }
    }

    #[test]
    fn rates_and_percentiles_are_those_of_each_second_and_of_the_period() {
        let mut intervals = Intervals::new(Duration::from_secs(1));
        intervals.push(counted(5.0, 6.0, &[100; 99], 1000));
        intervals.push(counted(6.0, 8.0, &[100, 100, 90_000], 4000));
        let Intervals { sum, all, .. } = intervals;
        let seconds: Vec<_> = all.iter().map(|one| one.interval(4096)).collect();
        assert_eq!(seconds.len(), 2);
        assert_eq!((seconds[0].from_s, seconds[0].at_s), (5.0, 6.0));
        assert_eq!(seconds[0].reader_per_sec, 99.0);
        assert_eq!(seconds[0].reader_bytes_per_sec, 99.0 * 4096.0);
        assert_eq!(seconds[1].reader_per_sec, 1.5);
        assert_eq!(seconds[1].writer_bytes_per_sec, 2000.0);
        let near = |value: f64, us: f64| (value / us - 1.0).abs() < 0.02;
        let (first, second) = (seconds[0].reader.unwrap(), seconds[1].reader.unwrap());
        assert!(near(first.max_us, 100.0) && near(second.max_us, 90_000.0));
        assert!(near(second.p50_us, 100.0) && near(second.p99_us, 90_000.0));
        let period = sum.unwrap().interval(4096);
        let all = period.reader.unwrap();
        assert_eq!((period.from_s, period.at_s, all.count), (5.0, 8.0, 102));
        assert!(near(all.p99_us, 100.0) && near(all.p999_us, 90_000.0));
        assert_eq!((period.reader_per_sec, period.stolen_s), (34.0, 0.02));
        let device = period.device.unwrap();
        assert!(near(device.write_bytes_per_sec, 5000.0 / 3.0));
        assert!(near(device.read_bytes_per_sec, 2500.0 / 3.0));
    }

    #[test]
    fn a_short_rest_is_added_to_the_last_second() {
        let mut intervals = Intervals::new(Duration::from_secs(1));
        intervals.push(counted(0.0, 0.05, &[5], 5));
        assert_eq!(intervals.all.len(), 1, "there is none before it");
        intervals.push(counted(0.05, 1.0, &[5], 10));
        intervals.push(counted(1.0, 1.09, &[7], 30));
        intervals.push(counted(1.09, 1.5, &[], 0));
        let ends: Vec<_> = intervals.all.iter().map(|one| one.at_s).collect();
        assert_eq!(ends, [0.05, 1.09, 1.5]);
        let second = &intervals.all[1];
        assert_eq!((second.written, second.device), (40, Some((20, 40))));
        assert_eq!(second.interval(1).reader.unwrap().count, 2);
        assert!(intervals.all[2].interval(1).reader.is_none());
    }
}
