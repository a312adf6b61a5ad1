//! `sluice bench`: workloads on a volume in process, or in directories of any mounted file system.
//! A file a workload.

mod compare;
mod disk;
mod fsmark;
mod html;
mod on;
mod pace;
mod progress;
mod randwrite;
mod show;
mod small_files;
mod stream;
mod table;
mod worker;

use anyhow::Result;
use std::process::ExitCode;

/// Measure a volume, any mounted directory with the same work, or both and others beside each other
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice bench fsmark --volume disk.img --fresh -D 10000 -S0 -n 10000 -s 4096 -L 10 -t 8
  sluice bench fsmark -S5 -n 1000 -s 4096 -d /mnt/a -d /mnt/b --json
  sluice bench randwrite --volume sim:ssd,size=8GiB --volume sim:hdd,size=8GiB --fresh
  sluice bench small-files --volume disk.img --fresh -t 8 -n 10000
  sluice bench stream --dir /mnt/kernel-ext4 --mib 4096
  sudo sluice bench compare --scratch /var/tmp

Every workload runs on a volume in this process (--volume) or, with the same calls, in directories of mounted file \
systems. What is printed about wall-clock and processor time and the device covers the work and a final sync.")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    #[command(name = "fsmark")]
    FsMark(fsmark::Args),
    #[command(name = "randwrite")]
    RandWrite(randwrite::Args),
    SmallFiles(small_files::Args),
    Stream(stream::Args),
    Compare(compare::Args),
    Disk(disk::Args),
    Worker(worker::Args),
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        match self.what {
            What::FsMark(args) => args.run(),
            What::RandWrite(args) => args.run(),
            What::SmallFiles(args) => args.run(),
            What::Stream(args) => args.run(),
            What::Compare(args) => args.run(),
            What::Disk(args) => args.run(),
            What::Worker(args) => args.run(),
        }
    }
}
