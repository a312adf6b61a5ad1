//! `sluice bench fsmark`.

use super::on::{OnVolume, Repeat};
use crate::human;
use ::bench::fsmark::{Fsync, Subdirectories, SyncMethod};
use ::bench::{FsMark, Workload};
use anyhow::{Result, bail};
use std::path::PathBuf;
use std::process::ExitCode;

/// Create many small files as fs_mark does, with its flags and its columns
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice bench fsmark --volume disk.img --fresh -D 10000 -S0 -n 10000 -s 4096 -L 10 -t 8
  sluice bench fsmark --volume disk.img --fresh -S5 -n 10000 -s 4096 --fsync bulk
  sluice bench fsmark -S5 -n 1000 -s 4096 -d /mnt/a -d /mnt/b --json

Sync methods:
  0  none
  1  fsync of each file before it is closed
  2  when all are written, sync, then fsync of one file
  3  when all are written, each is opened, fsynced and closed, the last one first
  4  sync, then as 3
  5  when all are written, each is opened, fsynced and closed
  6  sync, then as 5

Files/sec is what fs_mark prints: the sum of the threads' rates, without what is still in memory at the end. Beneath \
stand the same files with a final sync (durable). FSUse%, Count and App Overhead (microseconds outside calls to the \
file system) are fs_mark's, too. Files are removed after a single iteration, unless -k keeps them.")]
pub struct Args {
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    on: OnVolume,
    #[command(flatten)]
    repeat: Repeat,
}

/// fs_mark's own flags.
#[derive(clap::Args)]
pub struct Flags {
    /// Directory to work in, may be repeated: on the volume, or of any mounted file system. Made if
    /// it is not there. On a volume the default is one for each thread
    #[arg(short = 'd', value_name = "DIR")]
    directories: Vec<PathBuf>,
    /// Subdirectories of each directory; without -N, files go to one for three minutes, then to
    /// another
    #[arg(short = 'D', value_name = "COUNT", default_value_t = 0)]
    subdirectories: u64,
    /// Files in a subdirectory before it is the next one's turn
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
    /// How fsync is called: blocking as the system call; async, begun for each file and waited for
    /// at the end; bulk, one call for all files of a thread. The last two are SluiceFS's own and
    /// need --volume. A comparison takes several
    #[arg(
        long,
        value_name = "blocking|async|bulk",
        value_delimiter = ',',
        default_value = "blocking"
    )]
    pub fsync: Vec<Fsync>,
    /// Iterations
    #[arg(short = 'L', value_name = "COUNT", default_value_t = 1)]
    loops: u64,
    /// Threads, a multiple of the directories; at least one for each
    #[arg(short = 't', value_name = "COUNT", default_value_t = 1)]
    threads: usize,
    /// Bytes of one write call
    #[arg(short = 'w', value_name = "SIZE", value_parser = human::parse_bytes, default_value = "16384")]
    write_size: u64,
    /// Keep the files; they are kept anyway where there is more than one iteration
    #[arg(short = 'k')]
    keep: bool,
}

impl Flags {
    /// The work, and the directories of mounted file systems to do it in.
    fn checked(self, on_volume: bool) -> Result<(Workload, Vec<PathBuf>)> {
        if self.fsync.len() != 1 {
            bail!("--fsync: one way at a time; `bench compare fsmark` takes several");
        }
        if on_volume {
            return Ok((self.workload()?, Vec::new()));
        }
        if self.directories.is_empty() {
            bail!(
                "nothing to run on: give --volume DEVICE, or -d DIR for a directory of any mounted file system"
            );
        }
        if self.fsync != [Fsync::Blocking] {
            bail!(
                "--fsync: a mounted file system has only blocking fsync; the others need --volume"
            );
        }
        let absolute = self.directories.iter().map(std::path::absolute);
        let directories = absolute.collect::<std::io::Result<Vec<_>>>()?;
        let flags = Flags {
            directories: directories.clone(),
            ..self
        };
        Ok((flags.workload()?, directories))
    }

    /// What is compared unless something else is asked for.
    pub fn usual() -> Flags {
        Flags {
            directories: Vec::new(),
            subdirectories: 10_000,
            files_per_subdirectory: None,
            files: 10_000,
            size: 4096,
            sync_method: SyncMethod::None,
            fsync: vec![Fsync::Blocking],
            loops: 1,
            threads: 8,
            write_size: 16 << 10,
            keep: false,
        }
    }

    /// The work on one file system; without -d, in a directory for each thread.
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
