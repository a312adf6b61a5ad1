//! `sluice bench fsmark`.

use super::on::{OnVolume, Repeat};
use crate::human;
use ::bench::Workload;
use ::bench::fsmark::{FsMark, Fsync, Subdirectories, SyncMethod};
use anyhow::{Result, bail};
use std::path::PathBuf;
use std::process::ExitCode;

/// Create many small files as fs_mark does, with its flags and columns
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice bench fsmark --volume disk.img --fresh -D 10000 -S0 -n 10000 -s 4096 -L 10 -t 8
  sluice bench fsmark --volume disk.img --fresh -S5 -n 10000 -s 4096 --fsync bulk
  sluice bench fsmark -S5 -n 1000 -s 4096 -d /mnt/a -d /mnt/b --json

Sync methods:
  0  none
  1  fsync of each file before it is closed
  2  once all are written: one sync, then fsync of one file
  3  once all are written: open, fsync and close each, in reverse order
  4  sync, then as 3
  5  once all are written: open, fsync and close each
  6  sync, then as 5

Ways to call fsync (--fsync):
  blocking  fsync(2) or its equivalent, one file after another
  async     many in flight; in mounted directories through io_uring, at most --fsync-depth for each thread
  bulk      one call for all files of a thread (Volume::sync_files); only on a volume (--volume)

Files/sec is the rate that fs_mark prints: the sum of the threads' rates, without data that is still in memory at \
the end. The line \"durable\" has the rate with a final sync. App Overhead is the time outside calls to the file system, in \
microseconds. Files are removed after a single iteration, unless -k keeps them.")]
pub struct Args {
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    on: OnVolume,
    #[command(flatten)]
    repeat: Repeat,
}

/// The default of --fsync-depth.
const FSYNC_DEPTH: usize = 128;

/// The flags of fs_mark, and how fsync is called.
#[derive(clap::Args)]
pub struct Flags {
    /// Directory on the volume or of any mounted file system; may be repeated. It is made if it
    /// does not exist [default on a volume: one for each thread]
    #[arg(short = 'd', value_name = "DIR")]
    directories: Vec<PathBuf>,
    /// Subdirectories of each directory; without -N, each is used for three minutes
    #[arg(short = 'D', value_name = "COUNT", default_value_t = 0)]
    subdirectories: u64,
    /// Consecutive files in one subdirectory
    #[arg(short = 'N', value_name = "COUNT")]
    files_per_subdirectory: Option<u64>,
    /// Files for each thread in an iteration
    #[arg(short = 'n', value_name = "COUNT", default_value_t = 1000)]
    files: u64,
    /// Bytes in a file
    #[arg(short = 's', value_name = "SIZE", value_parser = human::parse_bytes, default_value = "51200")]
    size: u64,
    /// How files are made durable, 0 to 6
    #[arg(short = 'S', value_name = "METHOD", default_value = "1")]
    sync_method: SyncMethod,
    /// How fsync is called; `compare` accepts several
    #[arg(
        long,
        value_name = "blocking|async|bulk",
        value_delimiter = ',',
        default_value = "blocking"
    )]
    pub fsync: Vec<Fsync>,
    /// Asynchronous fsyncs in flight for each thread in mounted directories
    #[arg(long, value_name = "COUNT", default_value_t = FSYNC_DEPTH)]
    fsync_depth: usize,
    /// Iterations
    #[arg(short = 'L', value_name = "COUNT", default_value_t = 1)]
    loops: u64,
    /// Threads, a multiple of the directories; at least one for each
    #[arg(short = 't', value_name = "COUNT", default_value_t = 1)]
    threads: usize,
    /// Bytes of one write call
    #[arg(short = 'w', value_name = "SIZE", value_parser = human::parse_bytes, default_value = "16384")]
    write_size: u64,
    /// Keep the files; more than one iteration keeps them, too
    #[arg(short = 'k')]
    keep: bool,
}

impl Flags {
    /// The work, and its directories of mounted file systems.
    fn checked(self, on_volume: bool) -> Result<(Workload, Vec<PathBuf>)> {
        if self.fsync.len() != 1 {
            bail!("--fsync: give one way at a time; `bench compare fsmark` accepts several");
        }
        if on_volume {
            return Ok((self.workload()?, Vec::new()));
        }
        if self.directories.is_empty() {
            bail!(
                "no file system: give --volume DEVICE, or -d DIR for a directory of any mounted file system"
            );
        }
        if self.fsync == [Fsync::Bulk] {
            bail!("--fsync bulk: a mounted file system has no bulk fsync; use --volume, or async");
        }
        let absolute = self.directories.iter().map(std::path::absolute);
        let directories = absolute.collect::<std::io::Result<Vec<_>>>()?;
        let flags = Flags {
            directories: directories.clone(),
            ..self
        };
        Ok((flags.workload()?, directories))
    }

    /// The default work of `bench compare`.
    pub fn usual() -> Flags {
        Flags {
            directories: Vec::new(),
            subdirectories: 10_000,
            files_per_subdirectory: None,
            files: 10_000,
            size: 4096,
            sync_method: SyncMethod::None,
            fsync: vec![Fsync::Blocking],
            fsync_depth: FSYNC_DEPTH,
            loops: 1,
            threads: 8,
            write_size: 16 << 10,
            keep: false,
        }
    }

    /// The work on one file system. Without -d each thread has a directory.
    pub fn workload(self) -> Result<Workload> {
        let spread = Subdirectories::new(self.subdirectories, self.files_per_subdirectory);
        let directories = match self.directories.is_empty() {
            true => (0..self.threads.max(1))
                .map(|i| i.to_string().into())
                .collect(),
            false => self.directories,
        };
        let work = FsMark {
            directories,
            subdirectories: spread.map_err(anyhow::Error::msg)?,
            files: self.files,
            size: self.size,
            sync_method: self.sync_method,
            fsync: self.fsync.first().copied().unwrap_or_default(),
            fsync_depth: self.fsync_depth,
            loops: self.loops,
            threads: self.threads,
            write_size: usize::try_from(self.write_size)?,
            keep: self.keep,
        };
        Ok(Workload::FsMark(work.checked()?))
    }
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        let (work, directories) = self.flags.checked(self.on.is_given())?;
        self.repeat.run(&self.on, &directories, &work)
    }
}
