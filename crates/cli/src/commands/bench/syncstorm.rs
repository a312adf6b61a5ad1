//! `sluice bench syncstorm`.

use super::on::OnDirectory;
use crate::human;
use ::bench::Workload;
use ::bench::syncstorm::{Creators, SyncStorm};
use anyhow::Result;
use std::process::ExitCode;
use std::time::Duration;

/// Memory for each clean inode, by which the default of --inodes fits into --memory (1 KiB).
const BYTES_PER_INODE: u64 = 1024;

/// Let many threads sync at once, beside clean inodes and during fs_mark
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice bench syncstorm --volume disk.img --fresh --memory 12GiB --inodes 8M --syncs 100
  sluice bench syncstorm --volume mem:16GiB --fresh --during fsmark --rounds 3
  sluice bench syncstorm --dir /mnt/kernel-ext4 --inodes 1M --during fsmark
  sudo sluice bench compare --only sluice,ext4,xfs syncstorm --inodes 1M --during fsmark

The clean inodes are empty files that are created and synced first. Then --syncs threads call sync (syncfs(2) in \
mounted directories) at the same moment, --storms times. The title has the inodes that were in memory then, and the \
time of one sync without others.

With --during fsmark, -t threads then create -n files each: once without syncs, and once with --syncs syncs at the same \
moment every --every.

Columns: wall is the time from the start of the first sync of a storm to the end of its last one, median and longest. \
cpu is the processor time of this process in a storm, and machine cpu that of all processors, in hundredths of a second; \
during fs_mark they include fs_mark. Commits and flushes are those of a storm's time. \"More\" are those of the run with \
storms minus those of the run without, for each storm.")]
pub struct Args {
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    on: OnDirectory,
}

/// The workload that runs during the syncs.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Beside {
    #[value(name = "fsmark")]
    FsMark,
}

/// The workload.
#[derive(clap::Args)]
pub struct Flags {
    /// Clean inodes, such as 500000, 800k or 8M [default: --memory divided by 1 KiB]
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    inodes: Option<u64>,
    /// Syncs at once
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    syncs: usize,
    /// Times that they begin at once beside the clean inodes
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    storms: usize,
    /// Then run this workload without and with syncs
    #[arg(long, value_name = "WORKLOAD")]
    during: Option<Beside>,
    /// Threads of fs_mark, each with a directory of its own
    #[arg(short, long, value_name = "COUNT", default_value_t = 16)]
    threads: usize,
    /// Files that each thread of fs_mark creates
    #[arg(short = 'n', long, value_name = "COUNT", default_value = "50k", value_parser = parse_count)]
    files: u64,
    /// Bytes in a file of fs_mark
    #[arg(short = 's', long = "bytes", value_name = "SIZE", value_parser = human::parse_bytes, default_value = "0")]
    bytes: u64,
    /// Time from the start of a storm to that of the next during fs_mark
    #[arg(long, value_name = "TIME", value_parser = human::parse_duration, default_value = "500ms")]
    every: Duration,
}

impl Flags {
    /// The work on a file system whose caches have `memory` bytes.
    pub fn workload(self, memory: u64) -> Result<Workload> {
        let work = SyncStorm {
            inodes: self.inodes.unwrap_or(memory / BYTES_PER_INODE),
            syncs: self.syncs,
            storms: self.storms,
            during: self.during.map(|Beside::FsMark| Creators {
                threads: self.threads,
                files: self.files,
                size: self.bytes,
                every: self.every,
            }),
            keep: false,
        };
        Ok(Workload::SyncStorm(work.checked()?))
    }
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        let memory = self.on.memory()?;
        self.on.run(&self.flags.workload(memory)?)
    }
}

/// Parses a count with an optional decimal unit: `500000`, `800k`, `8M`.
fn parse_count(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1000),
        None => match text.strip_suffix('M') {
            Some(number) => (number, 1_000_000),
            None => (text, 1),
        },
    };
    let parsed = number.parse::<u64>().ok();
    let count = parsed.and_then(|number| number.checked_mul(unit));
    count.ok_or_else(|| format!("\"{text}\" is not a count, such as 500000, 800k or 8M"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_decimal_units() {
        let good = [("0", 0), ("123", 123), ("50k", 50_000), ("8M", 8_000_000)];
        good.iter()
            .for_each(|&(text, count)| assert_eq!(parse_count(text), Ok(count)));
        for bad in ["", "k", "-1", "8G", "1.5M", "99999999999999999999M"] {
            assert!(parse_count(bad).unwrap_err().contains("800k"), "{bad}");
        }
    }
}
