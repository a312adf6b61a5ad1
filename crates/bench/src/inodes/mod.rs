//! Creates many files, finds them with cold and hot caches, looks them up, scans their inodes and
//! removes them: the columns of the tables of "Metadata performance" talks about XFS and ext4
//! (Dave Chinner, 2012 and 2013).
//!
//! | phase | work of each thread |
//! |---|---|
//! | `create` | creates its files |
//! | `sync` | one sync of the file system |
//! | `bulkstat` | attributes of all inodes by one call, caches cold; left out where there is none |
//! | `find cold` | reads its directories and looks up each entry, as `find -ctime`; caches cold |
//! | `find hot` | the same again |
//! | `readdir` | reads its directories without attributes |
//! | `lstat all` | lstat of each name once, in the order of creation |
//! | `look-up 1`, `2`, `16` | lstat of random names of all threads, by so many threads |
//! | `look-up` | the same by the threads of the workload, if their number is another |
//! | `unlink` | removes its files and directories |
//! | `last sync` | one sync of the file system |

mod names;
#[cfg(test)]
mod tests;

use crate::measure::{Progress, Run, measure};
use crate::target::{Create, Directory, Reading, Target};
use crate::{Observer, Report, clock, threads};
use names::{Names, subdirectory};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use std::time::Duration;

/// Look-ups between two readings of the clock.
const LOOK_UPS: u64 = 256;

/// The workload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Inodes {
    /// Threads.
    pub threads: usize,
    /// Files of each thread.
    pub files: u64,
    /// Bytes in a file.
    pub bytes: usize,
    /// Files in a directory. Each thread has as many directories as it needs.
    pub per_directory: u64,
    /// All files of all threads are in one directory.
    pub one_directory: bool,
    /// Duration of each phase of look-ups.
    pub look_up: Duration,
}

/// The open directories of all threads.
type Directories = Vec<Box<dyn Directory>>;

impl Inodes {
    /// Checks the parameters.
    ///
    /// # Errors
    /// `InvalidInput` if a number is zero or there are too many directories or files.
    pub fn checked(self) -> io::Result<Inodes> {
        let invalid = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        if self.threads == 0 || self.files == 0 || self.per_directory == 0 {
            return invalid("threads, files and files in a directory must be at least 1");
        }
        if self.total() > u64::from(u32::MAX) {
            return invalid("ext4 has at most 4,294,967,295 inodes");
        }
        if self.subdirectories() > 1 << 16 {
            return invalid("a thread has at most 65,536 directories; give more files for each");
        }
        Ok(self)
    }

    /// The number of files.
    pub fn total(&self) -> u64 {
        self.threads as u64 * self.files
    }

    /// Directories of each thread.
    fn subdirectories(&self) -> u64 {
        match self.one_directory {
            true => 0,
            false => self.files.div_ceil(self.per_directory),
        }
    }

    /// Runs the workload. The totals of the report cover the phases `create` and `sync`.
    ///
    /// # Errors
    /// The first error of any thread. `InvalidData` if a directory or a scan of all inodes does not
    /// have all files.
    pub fn run(&self, target: &dyn Target, observe: Observer<'_>) -> io::Result<Report> {
        let total = self.total();
        measure("inodes", target, observe, |run| {
            let directories = self.open(target)?;
            for (thread, directory) in directories.iter().enumerate() {
                if thread == 0 || !self.one_directory {
                    let mut names = (0..self.subdirectories()).map(subdirectory);
                    names.try_for_each(|name| directory.make_subdirectory(&name))?;
                }
            }
            run.phase("create", total, |p| self.create(&directories, p))?;
            run.phase("sync", total, |_| target.sync())?;
            run.durable(total, total * self.bytes as u64);
            drop(directories);

            let cold = target.make_cold();
            if cold.is_ok() {
                self.bulkstat(run, target)?;
                // The scan may have left something in a cache.
                target.make_cold()?;
            }
            let directories = self.open(target)?;
            match &cold {
                Ok(how) => {
                    run.phase("find cold", total, |p| self.find(&directories, p))?;
                    run.report().notes.push(format!("cold: {how}"));
                }
                Err(why) => {
                    let note = format!("without cold phases: {why}");
                    run.report().notes.push(note);
                }
            }
            run.phase("find hot", total, |p| self.find(&directories, p))?;
            run.phase("readdir", total, |p| {
                self.read(&directories, Reading::Names, p)
            })?;
            run.phase("lstat all", total, |p| {
                self.each_file(&directories, p, |directory, path| directory.stat(path))
            })?;
            for threads in self.looking_up() {
                let found = run.phase(look_up_name(threads), 0, |p| {
                    self.look_up(&directories, threads, p)
                })?;
                run.counted(found);
            }
            run.phase("unlink", total, |p| self.unlink(&directories, p))?;
            drop(directories);
            run.phase("last sync", total, |_| target.sync())
        })
    }

    fn open(&self, target: &dyn Target) -> io::Result<Directories> {
        let threads = 0..self.threads;
        threads
            .map(|thread| match self.one_directory {
                true => target.directory(Path::new("inodes")),
                false => target.directory(Path::new(&format!("inodes-{thread}"))),
            })
            .collect()
    }

    fn create(&self, directories: &Directories, progress: &Progress) -> io::Result<()> {
        let data = vec![0x5a; self.bytes];
        self.each_file(directories, progress, |directory, path| {
            let file = directory.create(path, Create::New)?;
            match data.is_empty() {
                true => Ok(()),
                false => file.write_all_at(&data, 0),
            }
        })
    }

    /// Runs `work` for each file, with the threads of the workload.
    fn each_file(
        &self,
        directories: &Directories,
        progress: &Progress,
        work: impl Fn(&dyn Directory, &str) -> io::Result<()> + Sync,
    ) -> io::Result<()> {
        let threads: Vec<_> = (0..self.threads).collect();
        threads::each(&threads, |&thread| {
            let mut ticker = progress.ticker();
            let mut names = Names::new(self, thread);
            let directory = &*directories[thread];
            (0..self.files).try_for_each(|i| {
                ticker.tick();
                work(directory, names.path(i))
            })
        })
        .map(drop)
    }

    fn find(&self, directories: &Directories, progress: &Progress) -> io::Result<()> {
        self.read(directories, Reading::Attributes, progress)
    }

    /// Reads all directories. One directory is read by one thread, as find(1) reads it.
    fn read(
        &self,
        directories: &Directories,
        reading: Reading,
        progress: &Progress,
    ) -> io::Result<()> {
        let (readers, expected) = match self.one_directory {
            true => (&directories[..1], self.total()),
            false => (&directories[..], self.files),
        };
        threads::each(readers, |directory| {
            let mut ticker = progress.ticker();
            let mut found = 0;
            let mut count = || {
                found += 1;
                ticker.tick();
            };
            match self.one_directory {
                true => directory.read_directory(".", reading, &mut count)?,
                false => (0..self.subdirectories()).try_for_each(|i| {
                    directory.read_directory(&subdirectory(i), reading, &mut count)
                })?,
            }
            check(found == expected, "directories", found, expected)
        })
        .map(drop)
    }

    /// The numbers of threads that look up names, one after another.
    fn looking_up(&self) -> Vec<usize> {
        let mut threads = vec![1, 2, 16, self.threads];
        threads.sort_unstable();
        threads.dedup();
        threads
    }

    /// Looks up names until the time is over. Returns the number of look-ups.
    fn look_up(
        &self,
        directories: &Directories,
        threads: usize,
        progress: &Progress,
    ) -> io::Result<u64> {
        let end = clock::now() + self.look_up;
        let threads: Vec<_> = (0..threads).collect();
        let found = threads::each(&threads, |&thread| {
            let mut ticker = progress.ticker();
            let mut random = fastrand::Rng::with_seed(thread as u64);
            let owners = 0..directories.len();
            let mut names: Vec<_> = owners.map(|owner| Names::new(self, owner)).collect();
            let mut found = 0;
            loop {
                for _ in 0..LOOK_UPS {
                    let owner = random.usize(..directories.len());
                    let path = names[owner].path(random.u64(..self.files));
                    directories[owner].stat(path)?;
                    ticker.tick();
                }
                found += LOOK_UPS;
                if clock::now() >= end {
                    return Ok(found);
                }
            }
        })?;
        Ok(found.into_iter().sum())
    }

    fn bulkstat(&self, run: &mut Run<'_>, target: &dyn Target) -> io::Result<()> {
        let total = self.total();
        // Without the call there is no phase.
        if !target.has_bulkstat() {
            return Ok(());
        }
        let found = run.phase("bulkstat", total, |_| target.bulkstat(self.threads))?;
        check(found >= total, "inodes", found, total)?;
        run.counted(found);
        Ok(())
    }

    fn unlink(&self, directories: &Directories, progress: &Progress) -> io::Result<()> {
        self.each_file(directories, progress, |directory, path| {
            directory.unlink(path)
        })?;
        let subdirectories = 0..self.subdirectories();
        threads::each(directories, |directory| {
            let mut names = subdirectories.clone().map(subdirectory);
            names.try_for_each(|name| directory.remove_subdirectory(&name))
        })
        .map(drop)
    }
}

/// The name of a phase of look-ups.
fn look_up_name(threads: usize) -> &'static str {
    match threads {
        1 => "look-up 1",
        2 => "look-up 2",
        16 => "look-up 16",
        _ => "look-up",
    }
}

fn check(right: bool, of: &str, found: u64, expected: u64) -> io::Result<()> {
    let wrong = || {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{found} {of} found, not {expected}"),
        )
    };
    if right { Ok(()) } else { Err(wrong()) }
}
