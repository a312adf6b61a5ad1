//! `sluice bench stream`.

use super::on::OnDirectory;
use ::bench::Stream;
use anyhow::Result;
use std::process::ExitCode;

/// Write one large file with its fsync, and read it back cold
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice bench stream --volume disk.img --fresh --mib 4096
  sluice bench stream --dir /mnt/kernel-ext4 --mib 4096 --json")]
pub struct Args {
    #[command(flatten)]
    on: OnDirectory,
    /// Size of the file in MiB
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..))]
    mib: u64,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        let work = Stream { mib: self.mib };
        self.on
            .run("MiB", &|target, observe| work.run(target, observe))
    }
}
