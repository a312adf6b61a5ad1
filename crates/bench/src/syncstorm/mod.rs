//! Many threads sync a file system at once: beside millions of clean inodes, where nothing has to
//! be written, and during fs_mark.
//!
//! The workload is that of Dave Chinner's talk on the Linux 3.11 sync and inode cache changes
//! (2013): 100 concurrent syncs with 8.4 million clean inodes in memory, and during fs_mark with 16
//! threads. A sync here is syncfs(2) of the file system under test, or `Volume::sync`.

mod storm;
#[cfg(test)]
mod tests;

use crate::fsmark::{FsMark, Fsync, Subdirectories, SyncMethod};
use crate::latency::Recorder;
use crate::measure::{Run, measure};
use crate::storms::{During, SyncStorms};
use crate::target::{Create, Directory, Target};
use crate::{Device, Observer, Report, clock, threads};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use storm::{Schedule, storms};

/// Threads that create the clean inodes.
const CREATORS: u64 = 8;
/// Syncs of one thread, one after the other.
const ALONE: usize = 100;

/// The workload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SyncStorm {
    /// Clean inodes: empty files that are created and synced first.
    pub inodes: u64,
    /// Syncs at once, each by a thread.
    pub syncs: usize,
    /// Storms beside the clean inodes.
    pub storms: usize,
    /// fs_mark that the storms run beside, afterwards.
    pub during: Option<Creators>,
    /// Keep the files.
    pub keep: bool,
}

/// fs_mark: threads that create files, each in a directory of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Creators {
    /// Threads.
    pub threads: usize,
    /// Files of each thread.
    pub files: u64,
    /// Bytes in a file.
    pub size: u64,
    /// Time from the start of a storm to that of the next; a storm begins at once if the one before
    /// took longer.
    pub every: Duration,
}

impl Creators {
    fn work(&self, run: &str) -> FsMark {
        let directory = |thread| PathBuf::from(format!("{run}-{thread}"));
        FsMark {
            directories: (0..self.threads).map(directory).collect(),
            subdirectories: Subdirectories::None,
            files: self.files,
            size: self.size,
            sync_method: SyncMethod::None,
            fsync: Fsync::Blocking,
            fsync_depth: 1,
            loops: 1,
            threads: self.threads,
            write_size: 16 << 10,
            keep: true,
        }
    }

    /// Files of all threads.
    pub fn total(&self) -> u64 {
        self.threads as u64 * self.files
    }
}

impl SyncStorm {
    /// Checks the parameters.
    ///
    /// # Errors
    /// `InvalidInput`, with the flag and its valid values.
    pub fn checked(self) -> io::Result<SyncStorm> {
        let during = self.during.as_ref();
        for (flag, value) in [
            ("--syncs", self.syncs as u64),
            ("--storms", self.storms as u64),
            ("-t", during.map_or(1, |work| work.threads as u64)),
            ("-n", during.map_or(1, |work| work.files)),
        ] {
            if value == 0 {
                let what = format!("{flag} 0: give at least 1");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
            }
        }
        Ok(self)
    }

    /// Runs the workload. Phases: `create`, `sync`; with fs_mark `fsmark` (without storms) and
    /// `beside` (with storms), each followed by a sync; `unlink`, unless files are kept. The totals
    /// of the report cover the first two.
    ///
    /// # Errors
    /// The first error of any thread.
    pub fn run(&self, target: &dyn Target, observe: Observer<'_>) -> io::Result<Report> {
        let mut found = SyncStorms {
            inodes: self.inodes,
            syncs: self.syncs as u64,
            ..SyncStorms::default()
        };
        measure("syncstorm", target, observe, |run| {
            let before = target.cached_inodes();
            let clean = Clean::create(self.inodes, target, run)?;
            run.phase("sync", self.inodes, |_| target.sync())?;
            run.durable(self.inodes, 0);
            found.cached = before
                .zip(target.cached_inodes())
                .map(|(before, now)| now.saturating_sub(before));
            let mut alone = Recorder::default();
            for _ in 0..ALONE {
                let start = clock::now();
                target.sync()?;
                alone.record(clock::since(start));
            }
            found.alone = alone.latency().unwrap_or_default();
            found.clean = storms(target, self.syncs, Schedule::Count(self.storms))?;
            let during = self.during.as_ref();
            let during = during.map(|work| self.beside(work, target, run));
            found.during = during.transpose()?;
            if !self.keep {
                clean.remove(run)?;
            }
            run.report().storms = Some(found);
            Ok(())
        })
    }

    /// fs_mark without storms, and with storms.
    fn beside(
        &self,
        creators: &Creators,
        target: &dyn Target,
        run: &mut Run<'_>,
    ) -> io::Result<During> {
        let total = creators.total();
        let mut counted = Vec::new();
        let mut found = During {
            threads: creators.threads as u64,
            files: total,
            ..During::default()
        };
        for name in ["fsmark", "beside"] {
            let work = creators.work(name);
            let before = target.device();
            let created = match name {
                "fsmark" => run.phase(name, total, |progress| work.create(target, progress))?,
                _ => {
                    let every = creators.every;
                    let (created, storms) = run.phase(name, total, |progress| {
                        storm::beside(target, self.syncs, every, || work.create(target, progress))
                    })?;
                    found.storms = storms;
                    created
                }
            };
            let time = run.report().phase(name).map(|phase| phase.time);
            let time = time.unwrap_or_default();
            let (per_sec, cpu) = (time.per_sec(total), 1000.0 * time.cpu_s / total as f64);
            if name == "fsmark" {
                (found.alone_per_sec, found.alone_cpu_s_per_1000) = (per_sec, cpu);
            } else {
                (found.beside_per_sec, found.beside_cpu_s_per_1000) = (per_sec, cpu);
            }
            run.phase("sync", total, |_| target.sync())?;
            counted.push(
                target
                    .device()
                    .zip(before)
                    .map(|(now, then)| now.since(&then)),
            );
            if !self.keep {
                run.phase("unlink", total, |progress| created.remove(progress))?;
                target.sync()?;
            }
        }
        if let [Some(alone), Some(beside)] = &counted[..] {
            let storms = found.storms.count.max(1) as f64;
            let more = |of: &dyn Fn(&Device) -> Option<u64>| {
                let (alone, beside) = of(alone).zip(of(beside))?;
                Some((beside as f64 - alone as f64) / storms)
            };
            found.more_commits = more(&|device| device.commits);
            found.more_flushes = more(&|device| Some(device.flushes));
        }
        Ok(found)
    }
}

/// The clean inodes: a directory for each creator.
struct Clean {
    directories: Vec<(Box<dyn Directory>, u64)>,
    inodes: u64,
}

impl Clean {
    fn create(inodes: u64, target: &dyn Target, run: &mut Run<'_>) -> io::Result<Clean> {
        let directory = |creator| {
            let path = format!("clean-{creator}");
            let count = inodes / CREATORS + u64::from(creator < inodes % CREATORS);
            Ok((target.directory(Path::new(&path))?, count))
        };
        let directories = (0..CREATORS)
            .map(directory)
            .collect::<io::Result<Vec<_>>>()?;
        let clean = Clean {
            directories,
            inodes,
        };
        clean.each("create", run, |directory, name| {
            directory.create(name, Create::Keep).map(|_| ())
        })?;
        Ok(clean)
    }

    fn remove(&self, run: &mut Run<'_>) -> io::Result<()> {
        self.each("unlink", run, |directory, name| directory.unlink(name))
    }

    fn each(
        &self,
        phase: &'static str,
        run: &mut Run<'_>,
        work: impl Fn(&dyn Directory, &str) -> io::Result<()> + Sync,
    ) -> io::Result<()> {
        run.phase(phase, self.inodes, |progress| {
            threads::each(&self.directories, |(directory, count)| {
                let mut ticker = progress.ticker();
                (0..*count).try_for_each(|i| {
                    ticker.tick();
                    work(&**directory, &format!("{i:08x}"))
                })
            })
            .map(|_| ())
        })
    }
}
