//! `sluice bench interfere`.

use super::on::OnDirectory;
use crate::human;
use ::bench::Workload;
use ::bench::interfere::{Interfere, Reader};
use anyhow::Result;
use std::process::ExitCode;
use std::time::Duration;

/// Let a large writer join a reader, and measure each second how much it disturbs the reader
#[derive(clap::Args)]
#[command(mut_arg("memory", |memory| memory.default_value("256MiB")), after_help = "\
Examples:
  sluice bench interfere --volume sim:ssd,size=16GiB --fresh
  sluice bench interfere --volume disk.img --fresh --reader seq --depth 4 --report out.html
  sluice bench interfere --dir /mnt/kernel-ext4 --reader fsync --writer 20GiB --time 60s
  sluice bench interfere --volume sim:hdd,size=16GiB --fresh --reader none
  sudo sluice bench compare --device sim:ssd,size=16GiB interfere --reader rand4k

Readers (--reader):
  rand4k  4 KiB at random offsets, with direct I/O
  seq     128 KiB after 128 KiB through the page cache
  lookup  attributes of random names in a directory tree; one call in ten creates a file
  fsync   overwrite 4 KiB at a random offset, and fsync
  none    no reader: the rate of the writer alone

The reader's files are made first and dropped from the caches (as root also the kernel's, by drop_caches). The reader \
runs alone for --alone. Then the writer joins: it writes a new file as `dd bs=1M` does, until --writer bytes or --time, and \
syncs it. The reader goes on through all of that, and for --after.

The table has a line for each second: calls of the reader that ended in it, percentiles of their \
latency, MiB/s that the writer has written, and MiB/s that the device has read (in) and written \
(out). The summary has the same for each period. \
On a virtual machine, steal is the time that the hypervisor took from the processors, summed.")]
pub struct Args {
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    on: OnDirectory,
}

/// The workload.
#[derive(clap::Args)]
pub struct Flags {
    /// The reader: rand4k, seq, lookup, fsync, none
    #[arg(long, value_name = "KIND", default_value = "rand4k")]
    reader: Reader,
    /// Threads of the reader, each with one call at a time and files of its own
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    depth: usize,
    /// Calls of the reader per second, at most [default: as many as possible]
    #[arg(long, value_name = "COUNT")]
    rate: Option<f64>,
    /// Size of the reader's files together [default: 4 times --memory; for fsync 64MiB]
    #[arg(long, value_name = "SIZE", value_parser = human::parse_bytes)]
    reader_file: Option<u64>,
    /// Names in the directory tree of the reader `lookup`
    #[arg(long, value_name = "COUNT", default_value_t = 100_000)]
    names: u64,
    /// Writers at the same time, each with a file of its own
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    writers: usize,
    /// Bytes that the writer writes, or all writers together
    #[arg(long, value_name = "SIZE", value_parser = human::parse_bytes, default_value = "10GiB")]
    writer: u64,
    /// The longest time of the writer, without its sync
    #[arg(long, value_name = "TIME", value_parser = human::parse_duration, default_value = "20s")]
    time: Duration,
    /// Time of the reader before the writer joins
    #[arg(long, value_name = "TIME", value_parser = human::parse_duration, default_value = "5s")]
    alone: Duration,
    /// Time of the reader after the writer has synced
    #[arg(long, value_name = "TIME", value_parser = human::parse_duration, default_value = "2s")]
    after: Duration,
    /// Time that a line of the table covers
    #[arg(long, value_name = "TIME", value_parser = human::parse_duration, default_value = "1s")]
    interval: Duration,
}

impl Flags {
    /// The work on a file system whose caches have `memory` bytes.
    pub fn workload(self, memory: u64) -> Result<Workload> {
        let usual_bytes = || self.reader.usual_bytes(memory);
        let work = Interfere {
            reader: self.reader,
            threads: self.depth,
            rate: self.rate,
            reader_bytes: self.reader_file.unwrap_or_else(usual_bytes),
            names: match self.reader {
                Reader::Lookup => self.names,
                _ => 0,
            },
            writers: self.writers,
            writer_bytes: self.writer,
            time: self.time,
            alone: self.alone,
            after: self.after,
            interval: self.interval,
            keep: false,
        };
        Ok(Workload::Interfere(work.checked()?))
    }
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        self.on.run(&self.flags.workload(self.on.memory()?)?)
    }
}
