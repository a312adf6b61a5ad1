//! Creates many small files, a directory for each thread, then looks up, reads and removes them.

use crate::latency::Recorder;
use crate::measure::measure;
use crate::target::{Create, Directory, Target};
use crate::{Observer, Progress, Report, clock, threads};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// The workload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SmallFiles {
    /// Threads, each with a directory of its own.
    pub threads: usize,
    /// Files in each directory.
    pub files: usize,
    /// Bytes in a file.
    pub bytes: usize,
    /// fsync each file before it is closed.
    pub fsync: bool,
}

impl SmallFiles {
    /// Runs the workload. Phases: `create`, `sync`, `stat`, `read`, `unlink`. The totals of the
    /// report cover the first two. Its latencies are those of the creation of a file, its data
    /// included, and of its removal.
    ///
    /// # Errors
    /// The first error of any thread.
    pub fn run(&self, target: &dyn Target, observe: Observer<'_>) -> io::Result<Report> {
        let directories = (0..self.threads)
            .map(|thread| target.directory(Path::new(&format!("small-{thread}"))))
            .collect::<io::Result<Vec<_>>>()?;
        let files = (self.threads * self.files) as u64;
        let data = vec![0x5a; self.bytes];
        measure("small-files", target, observe, |run| {
            let created = run.phase("create", files, |progress| {
                self.each_timed(&directories, progress, |directory, name| {
                    let file = directory.create(name, Create::New)?;
                    file.write_all_at(&data, 0)?;
                    if self.fsync { file.sync_all() } else { Ok(()) }
                })
            })?;
            run.phase("sync", files, |_| target.sync())?;
            run.durable(files, files * self.bytes as u64);
            run.phase("stat", files, |progress| {
                self.each(&directories, progress, |directory, name| {
                    directory.stat(name)
                })
            })?;
            run.phase("read", files, |progress| {
                self.each(&directories, progress, |directory, name| {
                    let mut buf = [0; 4096];
                    directory.open(name)?.read_at(&mut buf, 0).map(|_| ())
                })
            })?;
            let removed = run.phase("unlink", files, |progress| {
                self.each_timed(&directories, progress, |directory, name| {
                    directory.unlink(name)
                })
            })?;
            for (name, calls) in [("create", created), ("unlink", removed)] {
                let latency = calls.latency().map(|latency| (name.to_owned(), latency));
                run.report().latency.extend(latency);
            }
            Ok(())
        })
    }

    /// As [`SmallFiles::each`], with the duration of each call.
    fn each_timed(
        &self,
        directories: &[Box<dyn Directory>],
        progress: &Progress,
        work: impl Fn(&dyn Directory, &str) -> io::Result<()> + Sync,
    ) -> io::Result<Recorder> {
        let threads = threads::each(directories, |directory| {
            let mut ticker = progress.ticker();
            let mut calls = Recorder::default();
            for i in 0..self.files {
                ticker.tick();
                let start = clock::now();
                work(&**directory, &name(i))?;
                calls.record(clock::since(start));
            }
            Ok(calls)
        })?;
        let mut all = Recorder::default();
        threads.iter().for_each(|calls| all.add(calls));
        Ok(all)
    }

    /// Runs `work` for every file, with a thread for each directory.
    fn each(
        &self,
        directories: &[Box<dyn Directory>],
        progress: &Progress,
        work: impl Fn(&dyn Directory, &str) -> io::Result<()> + Sync,
    ) -> io::Result<()> {
        threads::each(directories, |directory| {
            let mut ticker = progress.ticker();
            (0..self.files).try_for_each(|i| {
                ticker.tick();
                work(&**directory, &name(i))
            })
        })
        .map(|_| ())
    }
}

/// A name of 24 bytes: a number and padding, similar to fs_mark's.
fn name(i: usize) -> String {
    format!("{i:08x}~~~~~~~~~~~~~~~~")
}
