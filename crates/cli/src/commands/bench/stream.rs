//! `sluice bench stream`.

use super::on::OnDirectory;
use ::bench::{Stream, Workload};
use anyhow::Result;
use std::process::ExitCode;

/// Write one large file with its fsync, and read it back without cached pages
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice bench stream --volume disk.img --fresh --mib 4096
  sluice bench stream --dir /mnt/kernel-ext4 --mib 4096 --json")]
pub struct Args {
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    on: OnDirectory,
}

/// The workload.
#[derive(clap::Args)]
pub struct Flags {
    /// Size of the file in MiB
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..))]
    mib: u64,
}

impl Flags {
    pub fn workload(self) -> Workload {
        Workload::Stream(Stream { mib: self.mib })
    }
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        self.on.run(&self.flags.workload())
    }
}
