//! `sluice bench small-files`.

use super::on::OnDirectory;
use ::bench::SmallFiles;
use anyhow::Result;
use std::process::ExitCode;

/// Create, write, sync, look up, read and remove many small files, a directory for each thread
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice bench small-files --volume disk.img --fresh -t 8 -n 10000
  sluice bench small-files --dir /mnt/kernel-ext4 -t 8 -n 10000 --rounds 3")]
pub struct Args {
    #[command(flatten)]
    on: OnDirectory,
    /// Threads
    #[arg(short, long, default_value_t = 8)]
    threads: usize,
    /// Files for each thread
    #[arg(short = 'n', long, default_value_t = 10_000)]
    files: usize,
    /// Bytes in a file
    #[arg(short = 's', long = "bytes", default_value_t = 4096)]
    bytes: usize,
    /// fsync each file before it is closed
    #[arg(long)]
    fsync: bool,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        let work = SmallFiles {
            threads: self.threads,
            files: self.files,
            bytes: self.bytes,
            fsync: self.fsync,
        };
        self.on
            .run("files", &|target, observe| work.run(target, observe))
    }
}
