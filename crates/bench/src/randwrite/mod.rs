//! Random buffered writers over many files, on one or many devices: what ffsb does, and what
//! per-device flushers were measured with in 2009.
//!
//! [`RandWrite::lay_out`] makes the files, once; [`RandWrite::run`] writes all over them for a
//! while and then syncs. The rate of the writers is taken every tenth of a second, for each target
//! and for all together, and told as its mean, how it varies and the longest pause of a writer
//! ([`Pace`]). The first seconds, in which writers fill memory before anything is written back, are
//! left out of that, except for pauses.

mod pace;
mod writer;

pub use pace::{DevicePace, Pace};

use crate::latency::Recorder;
use crate::target::{Create, OpenFile, Together};
use crate::{Observer, Report, Target, measure, threads};
use pace::Pacer;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use writer::{Access, Calls, Writer};

/// Where the files are, on each target.
const DIRECTORY: &str = "randwrite";
/// Bytes of one call while files are laid out.
const LAYOUT_CALL: u64 = 1 << 20;
/// Between two samples.
pub const INTERVAL: Duration = Duration::from_millis(100);

/// Where in its files a writer writes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Anywhere in any file of the target.
    Random,
    /// Each thread in files of its own, from the beginning of each to its end, and around again.
    Sequential,
}

/// The workload.
#[derive(Clone, Debug)]
pub struct RandWrite {
    /// Threads on each target.
    pub threads: usize,
    /// Files on each target.
    pub files: usize,
    /// Bytes in a file.
    pub file_bytes: u64,
    /// Bytes of one write, which is aligned to as much.
    pub write_bytes: usize,
    /// How long to write.
    pub duration: Duration,
    /// How long to write before what is told about the rate begins.
    pub warm_up: Duration,
    /// Where to write.
    pub pattern: Pattern,
    /// Through mappings of the files instead of by calls; for targets that can map files.
    pub mmap: bool,
}

/// One target, ready.
struct Site<'a> {
    target: &'a dyn Target,
    files: Vec<Box<dyn OpenFile>>,
    /// Bytes written so far, by thread.
    written: Vec<AtomicU64>,
}

impl RandWrite {
    /// The workload, if it makes sense.
    ///
    /// # Errors
    /// `InvalidInput` says what does not.
    pub fn checked(self) -> io::Result<RandWrite> {
        let refuse = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        if self.threads == 0 || self.files == 0 {
            return refuse("at least one thread and one file are needed");
        }
        if self.write_bytes == 0 || self.file_bytes < self.write_bytes as u64 {
            return refuse("a file must be at least as large as a write");
        }
        if self.duration.is_zero() {
            return refuse("the duration must be more than nothing");
        }
        let own_files = self.mmap || self.pattern == Pattern::Sequential;
        if own_files && self.files < self.threads {
            return refuse("mapped and sequential writers need a file for each thread at least");
        }
        Ok(self)
    }

    /// Makes the files and writes them whole, so that there is a block for each byte.
    ///
    /// # Errors
    /// The file system's.
    pub fn lay_out(&self, targets: &[&dyn Target]) -> io::Result<()> {
        let data = vec![0x5a; LAYOUT_CALL.min(self.file_bytes) as usize];
        threads::each(targets, |target| {
            let directory = target.directory(Path::new(DIRECTORY))?;
            for i in 0..self.files {
                let file = directory.create(&name(i), Create::New)?;
                let mut at = 0;
                while at < self.file_bytes {
                    let len = (self.file_bytes - at).min(data.len() as u64);
                    file.write_all_at(&data[..len as usize], at)?;
                    at += len;
                }
            }
            target.sync()
        })
        .map(drop)
    }

    /// Removes the files.
    ///
    /// # Errors
    /// The file system's.
    pub fn clean_up(&self, targets: &[&dyn Target]) -> io::Result<()> {
        threads::each(targets, |target| {
            let directory = target.directory(Path::new(DIRECTORY))?;
            (0..self.files).try_for_each(|i| directory.unlink(&name(i)))
        })
        .map(drop)
    }

    /// Writes to the files that were laid out. Phases, in MiB: `write`, `sync`.
    ///
    /// # Errors
    /// The first of any thread.
    pub fn run(&self, targets: &[&dyn Target], observe: Observer<'_>) -> io::Result<Report> {
        let sites = targets
            .iter()
            .map(|target| self.site(*target))
            .collect::<io::Result<Vec<_>>>()?;
        let together = Together(targets);
        let mut paces = Vec::new();
        let mut report = measure("randwrite", &together, observe, |run| {
            let calls = run.phase("write", 0, |progress| self.write(&sites, progress))?;
            let bytes: u64 = calls.iter().map(|(_, pace)| pace.bytes).sum();
            let written = run.report().phases.last_mut().expect("a phase has ended");
            written.count = bytes >> 20;
            written.per_sec = written.count as f64 / written.time.wall_s;
            run.phase("sync", bytes >> 20, |_| together.sync())?;
            run.durable((self.files * sites.len()) as u64, bytes);
            let mut latency = Recorder::default();
            for (calls, pace) in calls {
                latency.add(&calls.latency);
                paces.push(pace);
            }
            let latency = latency.latency();
            run.report()
                .latency
                .extend(latency.map(|l| ("write".to_owned(), l)));
            Ok(())
        })?;
        if sites.len() > 1 {
            paces.insert(0, Pace::together(&paces));
        }
        report.paces = paces;
        Ok(report)
    }

    fn site<'a>(&self, target: &'a dyn Target) -> io::Result<Site<'a>> {
        let directory = target.directory(Path::new(DIRECTORY))?;
        let open = |i| directory.create(&name(i), Create::Keep);
        Ok(Site {
            target,
            files: (0..self.files).map(open).collect::<io::Result<_>>()?,
            written: (0..self.threads).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    /// Lets all threads write: what their calls took, and each target's pace.
    fn write(
        &self,
        sites: &[Site<'_>],
        progress: &crate::Progress,
    ) -> io::Result<Vec<(Calls, Pace)>> {
        let warm = AtomicBool::new(self.warm_up.is_zero());
        let until = Instant::now() + self.warm_up + self.duration;
        let threads: Vec<(usize, usize)> = (0..sites.len())
            .flat_map(|site| (0..self.threads).map(move |thread| (site, thread)))
            .collect();
        let mut pacers: Vec<Pacer<'_>> = sites.iter().map(Pacer::new).collect();
        let calls = std::thread::scope(|scope| {
            let writers = scope.spawn(|| {
                threads::each(&threads, |&(site, thread)| {
                    let site = &sites[site];
                    let writer = Writer {
                        work: self,
                        thread,
                        written: &site.written[thread],
                        warm: &warm,
                        until,
                        ticker: progress.ticker(),
                    };
                    writer.run(&mut Access::new(self, &site.files, thread)?)
                })
            });
            let begin = until - self.duration;
            std::thread::sleep(begin.saturating_duration_since(Instant::now()));
            warm.store(true, Relaxed);
            pacers.iter_mut().for_each(Pacer::begin);
            let mut next = Instant::now() + INTERVAL;
            loop {
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
                pacers.iter_mut().for_each(Pacer::sample);
                next += INTERVAL;
                if next > until + INTERVAL / 2 || writers.is_finished() {
                    break;
                }
            }
            let calls = writers.join();
            calls.unwrap_or_else(|_| Err(io::Error::other("a writer panicked")))
        })?;
        let mut calls = calls.into_iter();
        let of_site = |pacer: Pacer<'_>| {
            let mut sum = Calls::default();
            calls
                .by_ref()
                .take(self.threads)
                .for_each(|calls| sum.add(&calls));
            let pace = pacer.pace(sum.longest);
            (sum, pace)
        };
        Ok(pacers.into_iter().map(of_site).collect())
    }
}

impl Site<'_> {
    fn written(&self) -> u64 {
        self.written.iter().map(|bytes| bytes.load(Relaxed)).sum()
    }
}

fn name(i: usize) -> String {
    format!("{i:06}")
}

#[cfg(test)]
mod tests;
