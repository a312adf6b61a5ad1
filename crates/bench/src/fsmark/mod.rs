//! The workload of fs_mark, with its flags: threads create, write and close many files and make
//! them durable by one of seven methods.
//!
//! The facts are from the manual page and README of fs_mark 3.3 and from strace. Its rate is the
//! sum of its threads' rates, without the removal of the files and without data that is still in
//! memory at the end. Here a final sync follows, so that the cost of that data is measured, too.
//! There are three differences: threads are not processes, a subdirectory is made once and not
//! before each file, and `sync` reaches only the file systems under test.

mod layout;
mod sync_method;
mod worker;

pub use layout::Subdirectories;
pub use sync_method::{Fsync, SyncMethod};

use crate::clock;
use crate::measure::measure;
use crate::target::{Directory, Target};
use crate::{Loop, Observer, Progress, Report, threads};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use worker::{Calls, Outcome, Worker};

/// The workload. The letters are fs_mark's flags.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FsMark {
    /// Directories to work in (-d).
    pub directories: Vec<PathBuf>,
    /// Subdirectories of each, and how files are spread over them (-D, -N).
    pub subdirectories: Subdirectories,
    /// Files that each thread makes in an iteration (-n).
    pub files: u64,
    /// Bytes in a file (-s).
    pub size: u64,
    /// How files are made durable (-S).
    pub sync_method: SyncMethod,
    /// How fsync is called; fs_mark itself has only blocking fsync.
    pub fsync: Fsync,
    /// The most asynchronous fsyncs in flight for each thread in mounted directories.
    pub fsync_depth: usize,
    /// Iterations (-L).
    pub loops: u64,
    /// Threads (-t): a multiple of the directories, over which they are spread.
    pub threads: usize,
    /// Bytes of one call of write (-w).
    pub write_size: usize,
    /// Keep the files (-k). As with fs_mark, more than one iteration keeps them, too.
    pub keep: bool,
}

impl FsMark {
    /// Checks the parameters. As with fs_mark there is at least one thread for each directory.
    ///
    /// # Errors
    /// `InvalidInput`, with the flag and its valid values.
    pub fn checked(mut self) -> io::Result<FsMark> {
        let refuse = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        let directories = self.directories.len();
        if directories == 0 {
            return refuse("no directory to work in: give at least one -d".into());
        }
        self.threads = self.threads.max(directories);
        if !self.threads.is_multiple_of(directories) {
            return refuse(format!(
                "-t {}: threads are spread evenly over the {directories} directories; give a multiple of {directories}",
                self.threads
            ));
        }
        for (flag, value) in [
            ("n", self.files),
            ("L", self.loops),
            ("w", self.write_size as u64),
            ("-fsync-depth", self.fsync_depth as u64),
        ] {
            if value == 0 {
                return refuse(format!("-{flag} 0: give at least 1"));
            }
        }
        Ok(self)
    }

    /// Files of all threads and iterations.
    pub fn total(&self) -> u64 {
        self.threads as u64 * self.files * self.loops
    }

    /// Runs the workload. Phases: `write` (the iterations), `sync`, `unlink` (unless files are
    /// kept). The totals of the report cover the first two.
    ///
    /// # Errors
    /// The first error of any thread.
    pub fn run(&self, target: &dyn Target, observe: Observer<'_>) -> io::Result<Report> {
        let directories = self.open(target)?;
        let total = self.total();
        measure("fsmark", target, observe, |run| {
            let written = run.phase("write", total, |progress| {
                self.write(target, &directories, progress)
            })?;
            run.phase("sync", total, |_| target.sync())?;
            run.durable(total, total * self.size);
            let report = run.report();
            report.loops = written.loops;
            report.latency = written.calls.latencies();
            if self.keep || self.loops > 1 {
                return Ok(());
            }
            let created = Created {
                directories,
                names: written.names,
            };
            run.phase("unlink", total, |progress| created.remove(progress))
        })
    }

    /// Runs the iterations alone, without a final sync and without the removal of the files.
    ///
    /// # Errors
    /// The first error of any thread.
    pub(crate) fn create(&self, target: &dyn Target, progress: &Progress) -> io::Result<Created> {
        let directories = self.open(target)?;
        let names = self.write(target, &directories, progress)?.names;
        Ok(Created { directories, names })
    }

    /// Opens the directory of each thread.
    fn open(&self, target: &dyn Target) -> io::Result<Vec<Box<dyn Directory>>> {
        let directories = &self.directories;
        let open = |thread: usize| target.directory(&directories[thread % directories.len()]);
        (0..self.threads).map(open).collect()
    }

    /// Runs the iterations.
    fn write(
        &self,
        target: &dyn Target,
        directories: &[Box<dyn Directory>],
        progress: &Progress,
    ) -> io::Result<Written> {
        let mut written = Written::default();
        for iteration in 1..=self.loops {
            let fs_use_percent = target.used_percent()?;
            let before = clock::times();
            let outcomes = threads::each(directories, |directory| {
                Worker::new(self, target, &**directory)?.run(progress.ticker())
            })?;
            let time = clock::times() - before;
            written.loops.push(Loop {
                fs_use_percent,
                count: iteration * self.threads as u64 * self.files,
                size: self.size,
                files_per_sec: outcomes.iter().map(|o| o.files_per_sec(self.files)).sum(),
                app_overhead_us: outcomes.iter().map(Outcome::app_overhead_us).sum(),
                time,
            });
            outcomes.iter().for_each(|o| written.calls.add(&o.calls));
            written.names = outcomes.into_iter().map(|o| o.names).collect();
        }
        Ok(written)
    }
}

/// The files of the last iteration.
pub(crate) struct Created {
    directories: Vec<Box<dyn Directory>>,
    /// Those of each directory.
    names: Vec<Vec<String>>,
}

impl Created {
    /// Removes them.
    pub(crate) fn remove(&self, progress: &Progress) -> io::Result<()> {
        let jobs: Vec<_> = self.directories.iter().zip(&self.names).collect();
        let removed = threads::each(&jobs, |(directory, names)| {
            let mut ticker = progress.ticker();
            names.iter().try_for_each(|name| {
                ticker.tick();
                directory.unlink(name)
            })
        });
        removed.map(|_| ())
    }
}

/// The results of the iterations.
#[derive(Default)]
struct Written {
    loops: Vec<Loop>,
    calls: Calls,
    /// Each thread's files of the last iteration.
    names: Vec<Vec<String>>,
}

#[cfg(test)]
mod tests;
