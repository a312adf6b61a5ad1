//! One run, from outside: its clock, its phases, and a sample every tenth of a second.

use crate::{Phase, Report, Sample, Target, Time};
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Between two samples.
const INTERVAL: Duration = Duration::from_millis(100);

/// What is shorter at the end of a run makes no sample: rates over it would mean nothing.
const SHORTEST: Duration = Duration::from_millis(20);

/// Files that a thread does before it says so.
const BATCH: u64 = 16;

/// How far a run is.
#[derive(Default)]
pub struct Progress {
    /// Files (or MiB) that all phases so far have done.
    done: AtomicU64,
    /// What the current phase is called, what was done before it, and what will be done when it
    /// ends.
    phase: Mutex<(&'static str, u64, u64)>,
}

impl Progress {
    /// Files (or MiB) done by all phases.
    pub fn done(&self) -> u64 {
        self.done.load(Relaxed)
    }

    /// The current phase: its name, how many files it has done and how many it will have done.
    pub fn phase(&self) -> (&'static str, u64, u64) {
        let (name, before, after) = *self.lock();
        let done = self.done().clamp(before, after);
        (name, done - before, after - before)
    }

    /// Begins a phase of `count` files.
    fn begin(&self, name: &'static str, count: u64) {
        let before = self.done();
        *self.lock() = (name, before, before + count);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (&'static str, u64, u64)> {
        self.phase
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A thread's counter.
    pub fn ticker(&self) -> Ticker<'_> {
        Ticker {
            progress: self,
            pending: 0,
        }
    }
}

/// Counts what one thread does, and passes it on now and then, so that threads do not share a cache
/// line all the time.
pub struct Ticker<'a> {
    progress: &'a Progress,
    pending: u64,
}

impl Ticker<'_> {
    /// One more is done.
    pub fn tick(&mut self) {
        self.pending += 1;
        if self.pending == BATCH {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.progress.done.fetch_add(self.pending, Relaxed);
        self.pending = 0;
    }
}

impl Drop for Ticker<'_> {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Called on another thread every tenth of a second (a progress bar, for instance).
pub type Observer<'a> = &'a (dyn Fn(&Progress) + Sync);

/// A run in progress.
pub struct Run<'a> {
    target: &'a dyn Target,
    progress: &'a Progress,
    start: Time,
    report: Report,
}

/// Runs `work` on `target` and reports on it.
///
/// # Errors
/// Those of `work`.
pub fn measure(
    workload: &str,
    target: &dyn Target,
    observe: Observer<'_>,
    work: impl FnOnce(&mut Run<'_>) -> io::Result<()>,
) -> io::Result<Report> {
    let progress = Progress::default();
    let (over, ended) = channel::<()>();
    std::thread::scope(|scope| {
        let progress = &progress;
        let sampler = scope.spawn(move || {
            let mut samples = Sampler::start(target, progress);
            while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                samples.take();
                observe(progress);
            }
            samples.end()
        });
        let mut run = Run {
            target,
            progress,
            start: now(),
            report: Report {
                workload: workload.to_owned(),
                target: target.name(),
                ..Report::default()
            },
        };
        let result = work(&mut run);
        drop(over);
        run.report.samples = sampler.join().unwrap_or_default();
        result.map(|()| run.report)
    })
}

impl Run<'_> {
    /// What it runs on.
    pub fn target(&self) -> &dyn Target {
        self.target
    }

    /// Runs and times one step that handles `count` files and ticks for each.
    ///
    /// # Errors
    /// The step's.
    pub fn phase<T>(
        &mut self,
        name: &'static str,
        count: u64,
        step: impl FnOnce(&Progress) -> io::Result<T>,
    ) -> io::Result<T> {
        self.progress.begin(name, count);
        let before = now();
        let done = step(self.progress)?;
        let time = now() - before;
        self.report.phases.push(Phase {
            name: name.to_owned(),
            count,
            time,
            per_sec: per_sec(count, time),
        });
        Ok(done)
    }

    /// `files` with `bytes` of data in all are on the device now: this is what the report's top is
    /// about.
    pub fn durable(&mut self, files: u64, bytes: u64) {
        let time = now() - self.start;
        self.report.files = files;
        self.report.bytes = bytes;
        self.report.files_per_sec = per_sec(files, time);
        self.report.bytes_per_sec = per_sec(bytes, time);
        self.report.time = time;
        self.report.device = self.target.device();
    }

    /// The report so far.
    pub fn report(&mut self) -> &mut Report {
        &mut self.report
    }
}

/// Per second of wall-clock time.
pub(crate) fn per_sec(count: u64, time: Time) -> f64 {
    count as f64 / time.wall_s.max(1e-9)
}

struct Sampler<'a> {
    target: &'a dyn Target,
    progress: &'a Progress,
    start: Instant,
    at_s: f64,
    done: u64,
    write_bytes: u64,
    taken: Vec<Sample>,
}

impl<'a> Sampler<'a> {
    fn start(target: &'a dyn Target, progress: &'a Progress) -> Sampler<'a> {
        Sampler {
            target,
            progress,
            start: Instant::now(),
            at_s: 0.0,
            done: 0,
            write_bytes: target.device().map_or(0, |d| d.write_bytes),
            taken: Vec::new(),
        }
    }

    fn take(&mut self) {
        let at_s = self.start.elapsed().as_secs_f64();
        let done = self.progress.done();
        let write_bytes = self.target.device().map_or(0, |d| d.write_bytes);
        self.taken.push(Sample {
            at_s,
            files_per_sec: done.saturating_sub(self.done) as f64 / (at_s - self.at_s).max(1e-9),
            device_write_bytes: write_bytes.saturating_sub(self.write_bytes),
        });
        (self.at_s, self.done, self.write_bytes) = (at_s, done, write_bytes);
    }

    fn end(mut self) -> Vec<Sample> {
        let rest = self.start.elapsed().as_secs_f64() - self.at_s;
        if self.taken.is_empty() || rest >= SHORTEST.as_secs_f64() {
            self.take();
        }
        self.taken
    }
}

/// The clocks now; subtract two for an interval.
pub(crate) fn now() -> Time {
    let seconds = |id| {
        let t = rustix::time::clock_gettime(id);
        t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
    };
    Time {
        wall_s: seconds(rustix::time::ClockId::Monotonic),
        cpu_s: seconds(rustix::time::ClockId::ProcessCPUTime),
        machine_cpu_s: machine_cpu_s().unwrap_or(0.0),
    }
}

/// Seconds that the machine's processors have been busy, summed up.
fn machine_cpu_s() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    // cpu user nice system idle iowait irq softirq …
    let fields: Vec<f64> = stat
        .lines()
        .next()?
        .split_whitespace()
        .skip(1)
        .map(|f| f.parse().ok())
        .collect::<Option<_>>()?;
    let busy: f64 = [0, 1, 2, 5, 6].iter().filter_map(|&i| fields.get(i)).sum();
    Some(busy / rustix::param::clock_ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_counts_from_where_the_last_one_ended() {
        let progress = Progress::default();
        progress.begin("create", 100);
        let mut ticker = progress.ticker();
        (0..20).for_each(|_| ticker.tick());
        assert_eq!(progress.phase(), ("create", 16, 100), "a batch");
        drop(ticker);
        assert_eq!(progress.phase(), ("create", 20, 100), "and the rest");
        progress.begin("sync", 100);
        assert_eq!(progress.phase(), ("sync", 0, 100));
        progress.begin("stat", 10);
        progress.ticker().tick();
        assert_eq!(progress.phase(), ("stat", 1, 10));
    }

    #[test]
    fn the_machine_is_busy_when_we_are() {
        let before = now();
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(50) {
            std::hint::spin_loop();
        }
        let time = now() - before;
        assert!(time.wall_s >= 0.05 && time.cpu_s > 0.0 && time.machine_cpu_s >= 0.0);
    }
}
