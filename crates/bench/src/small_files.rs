//! Many small files: what fs_mark does, in process, and then look-ups, reads and removal.

use crate::target::Directory;
use crate::{Report, Target};
use std::io;

/// The workload.
#[derive(Clone, Debug)]
pub struct SmallFiles {
    /// Threads, each with a directory of its own.
    pub threads: usize,
    /// Files in each directory.
    pub files: usize,
    /// Bytes in a file.
    pub bytes: usize,
    /// fsync each file before it is closed.
    pub fsync: bool,
    /// Look up, read and remove the files afterwards.
    pub then_use: bool,
}

impl Default for SmallFiles {
    fn default() -> Self {
        SmallFiles {
            threads: 8,
            files: 10_000,
            bytes: 4096,
            fsync: false,
            then_use: true,
        }
    }
}

impl SmallFiles {
    /// Runs it. Phases: `create`, `sync`, `durable` (both), `stat`, `read`, `unlink`.
    ///
    /// # Errors
    /// The first of any thread.
    pub fn run(&self, target: &dyn Target) -> io::Result<Report> {
        let directories = (0..self.threads)
            .map(|thread| target.directory(&format!("small-{thread}")))
            .collect::<io::Result<Vec<_>>>()?;
        let total = (self.threads * self.files) as u64;
        let data = vec![0x5a; self.bytes];
        let mut report = Report::new(target);
        report.time("create", total, || {
            self.each(&directories, |directory, name| {
                directory.create(name, &data, self.fsync)
            })
        })?;
        report.time("sync", total, || target.sync())?;
        let (create, sync) = (report.phases[0].clone(), report.phases[1].clone());
        let (wall_s, cpu_s) = (create.wall_s + sync.wall_s, create.cpu_s + sync.cpu_s);
        let per_sec = total as f64 / wall_s;
        report.phases.push(crate::Phase {
            name: "durable",
            count: total,
            wall_s,
            cpu_s,
            per_sec,
        });
        report.device = target.device();
        if self.then_use {
            report.time("stat", total, || {
                self.each(&directories, |directory, name| directory.stat(name))
            })?;
            report.time("read", total, || {
                self.each(&directories, |directory, name| {
                    let mut buf = [0; 4096];
                    directory.read(name, &mut buf).map(|_| ())
                })
            })?;
            report.time("unlink", total, || {
                self.each(&directories, |directory, name| directory.unlink(name))
            })?;
        }
        Ok(report)
    }

    /// Runs `work` for every file, a thread a directory.
    fn each(
        &self,
        directories: &[Box<dyn Directory>],
        work: impl Fn(&dyn Directory, &str) -> io::Result<()> + Sync,
    ) -> io::Result<()> {
        let work = &work;
        std::thread::scope(|scope| {
            let workers: Vec<_> = directories
                .iter()
                .map(|directory| {
                    scope.spawn(|| (0..self.files).try_for_each(|i| work(&**directory, &name(i))))
                })
                .collect();
            workers.into_iter().try_for_each(|w| {
                w.join()
                    .unwrap_or_else(|_| Err(io::Error::other("a worker panicked")))
            })
        })
    }
}

/// fs_mark's kind of name: a number and padding, 24 bytes.
fn name(i: usize) -> String {
    format!("{i:08x}~~~~~~~~~~~~~~~~")
}
