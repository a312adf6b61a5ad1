//! Measures one run: its time, its phases, and a sample every tenth of a second.

use crate::target::Target;
use crate::{Device, Phase, Report, Sample, Time, clock};
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Time between two samples.
const INTERVAL: Duration = Duration::from_millis(100);

/// The last interval of a run is dropped if it is shorter, as its rates would mean nothing.
const SHORTEST: Duration = Duration::from_millis(20);

/// A thread adds this many files to the shared counter at once.
const BATCH: u64 = 16;

/// The progress of a run.
#[derive(Default)]
pub struct Progress {
    /// Files (or MiB) completed by all phases so far.
    done: AtomicU64,
    /// The current phase: its name, and the values of `done` at its start and at its end.
    phase: Mutex<(&'static str, u64, u64)>,
}

impl Progress {
    /// Files (or MiB) completed by all phases.
    pub fn done(&self) -> u64 {
        self.done.load(Relaxed)
    }

    /// The current phase: its name, its completed files, and all of its files.
    pub fn phase(&self) -> (&'static str, u64, u64) {
        let (name, before, after) = *self.lock();
        let done = self.done().clamp(before, after);
        (name, done - before, after - before)
    }

    /// Starts a phase of `count` files.
    fn begin(&self, name: &'static str, count: u64) {
        let before = self.done();
        *self.lock() = (name, before, before + count);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (&'static str, u64, u64)> {
        self.phase
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Returns a counter for one thread.
    pub fn ticker(&self) -> Ticker<'_> {
        Ticker {
            progress: self,
            pending: 0,
        }
    }
}

/// Counts the files of one thread. Updates the shared counter in batches, so that threads do not
/// contend for its cache line.
pub struct Ticker<'a> {
    progress: &'a Progress,
    pending: u64,
}

impl Ticker<'_> {
    /// Counts one file.
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

/// A callback, such as a progress bar's. It is called on another thread every tenth of a second.
pub type Observer<'a> = &'a (dyn Fn(&Progress) + Sync);

/// A run in progress.
pub struct Run<'a> {
    target: &'a dyn Target,
    progress: &'a Progress,
    start: Time,
    report: Report,
}

/// Runs `work` on `target` and measures it.
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
            start: clock::times(),
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
    /// Runs and times one phase of `count` files. `step` counts them by a [`Ticker`].
    ///
    /// # Errors
    /// Those of `step`.
    pub fn phase<T>(
        &mut self,
        name: &'static str,
        count: u64,
        step: impl FnOnce(&Progress) -> io::Result<T>,
    ) -> io::Result<T> {
        self.progress.begin(name, count);
        let before = clock::times();
        let done = step(self.progress)?;
        let time = clock::times() - before;
        self.report.phases.push(Phase {
            name: name.to_owned(),
            count,
            time,
            per_sec: time.per_sec(count),
        });
        Ok(done)
    }

    /// Corrects the count of the phase that has just ended.
    pub fn counted(&mut self, count: u64) {
        if let Some(phase) = self.report.phases.last_mut() {
            phase.count = count;
            phase.per_sec = phase.time.per_sec(count);
        }
    }

    /// Now, as the start of the work that the totals of the report cover.
    pub fn mark(&self) -> Mark {
        Mark {
            time: clock::times(),
            device: self.target.device(),
        }
    }

    /// Sets the totals of the report: `files` with `bytes` of data together are durable now.
    pub fn durable(&mut self, files: u64, bytes: u64) {
        let start = Mark {
            time: self.start,
            device: None,
        };
        self.durable_since(&start, files, bytes);
    }

    /// As [`Run::durable`], but the totals cover only the work since `start`.
    pub fn durable_since(&mut self, start: &Mark, files: u64, bytes: u64) {
        let time = clock::times() - start.time;
        self.report.files = files;
        self.report.bytes = bytes;
        self.report.files_per_sec = time.per_sec(files);
        self.report.bytes_per_sec = time.per_sec(bytes);
        self.report.time = time;
        self.report.device = self.target.device().map(|now| match &start.device {
            Some(before) => now.since(before),
            None => now,
        });
    }

    /// The report so far.
    pub fn report(&mut self) -> &mut Report {
        &mut self.report
    }
}

/// Times and device counters at one moment of a run.
pub struct Mark {
    time: Time,
    device: Option<Device>,
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
            start: clock::now(),
            at_s: 0.0,
            done: 0,
            write_bytes: target.device().map_or(0, |d| d.write_bytes),
            taken: Vec::new(),
        }
    }

    fn take(&mut self) {
        let at_s = clock::since(self.start).as_secs_f64();
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
        let rest = clock::since(self.start).as_secs_f64() - self.at_s;
        if self.taken.is_empty() || rest >= SHORTEST.as_secs_f64() {
            self.take();
        }
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_counts_from_the_end_of_the_previous_one() {
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
}
