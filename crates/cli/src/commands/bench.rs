//! `sluice bench`: workloads on a volume in process, or in a directory of any mounted file system.

use crate::human;
use crate::output::Output;
use crate::target;
use ::bench::{DirectoryTarget, Report, SmallFiles, Stream, Target, VolumeTarget};
use anyhow::{Context, Result};
use sluicefs::{FormatOptions, Volume, VolumeOptions};
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Measure a volume, or any mounted directory with the same work
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice bench small-files --volume disk.img --fresh -t 8 -n 10000
  sluice bench small-files --dir /mnt/kernel-ext4 -t 8 -n 10000
  sluice bench stream --volume disk.img --fresh --mib 4096 --json")]
pub struct Args {
    #[command(subcommand)]
    workload: Workload,
}

#[derive(clap::Subcommand)]
enum Workload {
    /// Create, write, sync, look up, read and remove many small files, a directory for each thread
    SmallFiles {
        #[command(flatten)]
        on: On,
        /// Threads
        #[arg(short, long, default_value_t = 8)]
        threads: usize,
        /// Files for each thread
        #[arg(short = 'n', long, default_value_t = 10_000)]
        files: usize,
        /// Bytes in a file
        #[arg(short, long, default_value_t = 4096)]
        size: usize,
        /// fsync each file before it is closed
        #[arg(long)]
        fsync: bool,
    },
    /// Write one large file with its fsync, and read it back cold
    Stream {
        #[command(flatten)]
        on: On,
        /// Size of the file in MiB
        #[arg(long, default_value_t = 1024)]
        mib: u64,
    },
}

/// What to run on.
#[derive(clap::Args)]
struct On {
    /// A volume, in this process
    #[arg(
        long,
        value_name = "DEVICE",
        required_unless_present = "dir",
        conflicts_with = "dir"
    )]
    volume: Option<OsString>,
    /// An empty directory of any mounted file system
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Format the volume before each round: all that is on it is lost
    #[arg(long, requires = "volume")]
    fresh: bool,
    /// Memory for the volume's caches
    #[arg(long, value_parser = human::parse_bytes, default_value = "1GiB")]
    memory: u64,
    /// Times to run it; the median of each phase is shown
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        match self.workload {
            Workload::SmallFiles {
                on,
                threads,
                files,
                size,
                fsync,
            } => {
                let work = SmallFiles {
                    threads,
                    files,
                    bytes: size,
                    fsync,
                    then_use: true,
                };
                on.run("files", |target| work.run(target))
            }
            Workload::Stream { on, mib } => on.run("MiB", |target| Stream { mib }.run(target)),
        }
    }
}

impl On {
    fn run(
        &self,
        unit: &str,
        work: impl Fn(&dyn Target) -> std::io::Result<Report>,
    ) -> Result<ExitCode> {
        let mut reports = Vec::new();
        for round in 0..self.rounds.max(1) {
            reports.push(match (&self.volume, &self.dir) {
                (Some(device), _) => {
                    let target = VolumeTarget::new(self.volume_on(device)?);
                    let report = work(&target)?;
                    target.into_volume().close()?;
                    report
                }
                (None, Some(dir)) => {
                    let dir = dir.join(format!("sluice-bench-{round}"));
                    std::fs::create_dir(&dir).with_context(|| dir.display().to_string())?;
                    let report = work(&DirectoryTarget::new(&dir))?;
                    std::fs::remove_dir_all(&dir).with_context(|| dir.display().to_string())?;
                    report
                }
                (None, None) => unreachable!("clap asks for one of them"),
            });
        }
        let report = Report::median(reports);
        let mut out = Output::new();
        if self.json {
            out.json(&report)?;
        } else {
            print(&report, unit, &mut out)?;
        }
        out.flush()?;
        Ok(ExitCode::SUCCESS)
    }

    fn volume_on(&self, device: &OsString) -> Result<Volume> {
        let options = VolumeOptions::new().memory(self.memory);
        Ok(if self.fresh {
            options.format(device, &FormatOptions::new().force(true))?
        } else {
            target::open(device, options)?
        })
    }
}

fn print(report: &Report, unit: &str, out: &mut Output) -> Result<()> {
    writeln!(out, "{}", report.target)?;
    writeln!(
        out,
        "{:<10} {:>10} {:>10} {:>10} {:>14}",
        "phase",
        unit,
        "wall s",
        "cpu s",
        format!("{unit}/s")
    )?;
    for p in &report.phases {
        writeln!(
            out,
            "{:<10} {:>10} {:>10.3} {:>10.3} {:>14.0}",
            p.name, p.count, p.wall_s, p.cpu_s, p.per_sec
        )?;
    }
    if let Some(d) = &report.device {
        let mean = d.write_bytes.checked_div(d.write_ios).unwrap_or(0);
        writeln!(
            out,
            "device: {} writes of {} on average, {} merged, {} flushes, {} written, {} read",
            d.write_ios,
            human::bytes(mean),
            d.merged,
            d.flushes,
            human::bytes(d.write_bytes),
            human::bytes(d.read_bytes)
        )?;
    }
    Ok(())
}
