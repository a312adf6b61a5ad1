//! `sluice bench inodes`.

use super::on::OnDirectory;
use crate::human;
use ::bench::{Inodes, Workload};
use anyhow::Result;
use std::process::ExitCode;
use std::time::Duration;

/// Create many files, find them with cold and hot caches, look them up, scan and remove them
///
/// Phases: create, sync; bulkstat (the attributes of all inodes by one call, caches cold); find
/// cold and find hot (read all directories and look up each entry, as `find -ctime`); readdir
/// (without attributes); look-up N (random names, by N threads); unlink; last sync.
///
/// On a volume, caches are made cold by opening it again. In a directory of a mounted file system
/// they are dropped by /proc/sys/vm/drop_caches, which needs root; without it the cold phases are
/// left out. bulkstat is Volume::inodes on a volume and XFS_IOC_BULKSTAT on XFS, with a thread for
/// each allocation group; other file systems have no such call.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice bench inodes --volume disk.img --fresh -t 16 -n 50000 --memory 4GiB
  sudo sluice bench inodes --dir /mnt/kernel-ext4 -t 16 -n 50000 --rounds 3
  sluice bench inodes --volume disk.img --fresh -t 1 -n 1000000 --one-directory --memory 4GiB")]
pub struct Args {
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    on: OnDirectory,
}

/// The workload.
#[derive(clap::Args)]
pub struct Flags {
    /// Threads, each with directories of its own
    #[arg(short, long, default_value_t = 16)]
    threads: usize,
    /// Files for each thread
    #[arg(short = 'n', long, default_value_t = 10_000)]
    files: u64,
    /// Bytes in a file
    #[arg(short = 's', long = "bytes", value_name = "SIZE", value_parser = human::parse_bytes, default_value = "0")]
    bytes: u64,
    /// Files in a directory
    #[arg(short = 'N', long, value_name = "FILES", default_value_t = 10_000)]
    per_directory: u64,
    /// Put the files of all threads into one directory, which one thread reads
    #[arg(long, conflicts_with = "per_directory")]
    one_directory: bool,
    /// Duration of each phase of look-ups, such as 2s
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = human::parse_duration)]
    look_up: Duration,
}

impl Flags {
    pub fn workload(self) -> Result<Workload> {
        let work = Inodes {
            threads: self.threads,
            files: self.files,
            bytes: usize::try_from(self.bytes)?,
            per_directory: self.per_directory,
            one_directory: self.one_directory,
            look_up: self.look_up,
        };
        Ok(Workload::Inodes(work.checked()?))
    }
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        self.on.run(&self.flags.workload()?)
    }
}
