//! Random buffered writes to many files, on one or many devices. It is the workload of ffsb, by
//! which Linux's flusher threads for each device were measured in 2009.
//!
//! [`RandWrite::lay_out`] makes the files; [`RandWrite::run`] writes to them for some seconds and
//! then syncs. The rate of the writers is sampled every tenth of a second, for each target and for
//! all together. [`Pace`] has its mean, its variation and the longest write call. The warm-up, in
//! which writers fill memory before writeback starts, counts only for the longest call.

mod pacer;
mod writer;

use crate::latency::Recorder;
use crate::measure::measure;
use crate::pace::Pace;
use crate::target::{Create, OpenFile, Target, Together};
use crate::{Observer, Report, clock, threads};
use pacer::Pacer;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use writer::{Access, Calls, Writer};

/// The directory of the files on each target.
const DIRECTORY: &str = "randwrite";
/// Bytes of one write while files are laid out.
const LAYOUT_CALL: u64 = 1 << 20;
/// Time between two samples.
const INTERVAL: Duration = Duration::from_millis(100);

/// The order of a thread's writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Random offsets in all files of the target.
    Random,
    /// Each thread has its own files. It writes each from start to end, and begins again after the
    /// last one.
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
    /// Bytes of one write. Offsets are multiples of it.
    pub write_bytes: usize,
    /// Time in which rates are measured.
    pub duration: Duration,
    /// Time of writing before that.
    pub warm_up: Duration,
    /// The order of writes.
    pub pattern: Pattern,
    /// Write through mappings of the files. Only mounted file systems can map files.
    pub mmap: bool,
}

/// One target and its open files.
struct Site<'a> {
    target: &'a dyn Target,
    files: Vec<Box<dyn OpenFile>>,
    /// Bytes written so far, by thread.
    written: Vec<AtomicU64>,
}

impl RandWrite {
    /// Checks the parameters.
    ///
    /// # Errors
    /// `InvalidInput`, with the parameter and its valid values.
    pub fn checked(self) -> io::Result<RandWrite> {
        let refuse = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        if self.threads == 0 || self.files == 0 {
            return refuse("at least one thread and one file are needed");
        }
        if self.write_bytes == 0 || self.file_bytes < self.write_bytes as u64 {
            return refuse("a file must be at least as large as a write");
        }
        if self.duration.is_zero() {
            return refuse("the duration must be longer than 0");
        }
        let own_files = self.mmap || self.pattern == Pattern::Sequential;
        if own_files && self.files < self.threads {
            return refuse("mapped and sequential writers need at least one file for each thread");
        }
        Ok(self)
    }

    /// Makes the files and writes all of their bytes, so that all blocks are allocated.
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
    /// The first error of any thread.
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
            run.counted(bytes >> 20);
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

    /// Runs all threads. Returns the latency of the calls and the rate for each target.
    fn write(
        &self,
        sites: &[Site<'_>],
        progress: &crate::Progress,
    ) -> io::Result<Vec<(Calls, Pace)>> {
        let warm = AtomicBool::new(self.warm_up.is_zero());
        let until = clock::now() + self.warm_up + self.duration;
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
            clock::sleep_until(until - self.duration);
            warm.store(true, Relaxed);
            pacers.iter_mut().for_each(Pacer::begin);
            let mut next = clock::now() + INTERVAL;
            loop {
                clock::sleep_until(next);
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
