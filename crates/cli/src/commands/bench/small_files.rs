//! `sluice bench small-files`.

use super::on::OnDirectory;
use crate::human;
use ::bench::{SmallFiles, Workload};
use anyhow::Result;
use std::process::ExitCode;

/// Create, sync, look up, read and remove many small files, with a directory for each thread
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice bench small-files --volume disk.img --fresh -t 8 -n 10000
  sluice bench small-files --dir /mnt/kernel-ext4 -t 8 -n 10000 --rounds 3")]
pub struct Args {
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    on: OnDirectory,
}

/// The workload.
#[derive(clap::Args)]
pub struct Flags {
    /// Threads
    #[arg(short, long, default_value_t = 8)]
    threads: usize,
    /// Files for each thread
    #[arg(short = 'n', long, default_value_t = 10_000)]
    files: usize,
    /// Bytes in a file
    #[arg(short = 's', long = "bytes", value_name = "SIZE", value_parser = human::parse_bytes, default_value = "4096")]
    bytes: u64,
    /// fsync each file before it is closed
    #[arg(long)]
    fsync: bool,
}

impl Flags {
    pub fn workload(self) -> Result<Workload> {
        Ok(Workload::SmallFiles(SmallFiles {
            threads: self.threads,
            files: self.files,
            bytes: usize::try_from(self.bytes)?,
            fsync: self.fsync,
        }))
    }
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        self.on.run(&self.flags.workload()?)
    }
}
