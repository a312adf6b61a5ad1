//! `sluice bench`: workloads on a volume in process or in directories of any mounted file system.
//! Each subcommand has a file. The crate `bench` runs the workloads and renders the results.

mod compare;
mod disk;
mod fsmark;
mod inodes;
mod interfere;
mod on;
mod progress;
mod randwrite;
mod saved;
mod show;
mod small_files;
mod stream;
mod syncstorm;
mod worker;

use anyhow::Result;
use std::process::ExitCode;

/// Run benchmarks on a volume or on any mounted directory, or compare file systems
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice bench fsmark --volume disk.img --fresh -D 10000 -S0 -n 10000 -s 4096 -L 10 -t 8
  sluice bench fsmark -S5 -n 1000 -s 4096 -d /mnt/a -d /mnt/b --json
  sluice bench randwrite --volume sim:ssd,size=8GiB --volume sim:hdd,size=8GiB --fresh
  sluice bench small-files --volume disk.img --fresh -t 8 -n 10000
  sluice bench stream --dir /mnt/kernel-ext4 --mib 4096
  sluice bench interfere --volume sim:ssd,size=16GiB --fresh --reader rand4k --writer 10GiB
  sluice bench inodes --volume disk.img --fresh -t 16 -n 50000 --memory 4GiB
  sluice bench syncstorm --volume disk.img --fresh --inodes 1M --during fsmark
  sudo sluice bench compare --scratch /var/tmp

Each workload runs on a volume in this process (--volume) or in directories of mounted file systems, with the same \
calls. Wall-clock time, processor time and device counters include a final sync.")]
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
    Interfere(interfere::Args),
    Inodes(inodes::Args),
    #[command(name = "syncstorm")]
    SyncStorm(syncstorm::Args),
    Compare(compare::Args),
    Table(saved::Table),
    Picture(saved::Picture),
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
            What::Interfere(args) => args.run(),
            What::Inodes(args) => args.run(),
            What::SyncStorm(args) => args.run(),
            What::Compare(args) => args.run(),
            What::Table(args) => args.run(),
            What::Picture(args) => args.run(),
            What::Disk(args) => args.run(),
            What::Worker(args) => args.run(),
        }
    }
}
