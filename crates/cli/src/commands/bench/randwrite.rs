//! `sluice bench randwrite`.

use super::on::{Opening, mounted};
use super::progress::Bar;
use super::show::Form;
use crate::human;
use ::bench::Report;
use ::bench::randwrite::{Pattern, RandWrite};
use ::bench::target::{Target, VolumeTarget};
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Write to many files on one or many devices at the same time, and measure how steady the rate is
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice bench randwrite --volume disk.img --fresh -t 8 -n 64 -s 16MiB
  sluice bench randwrite --volume sim:ssd,size=4GiB --volume sim:hdd,size=4GiB --fresh -o flushers=shared
  sluice bench randwrite --dir /mnt/a --dir /mnt/b --mmap --seconds 30
  sluice bench randwrite --volume sim:hdd,size=16GiB --fresh -t 1 -n 1 -s 480MiB -w 64KiB --sequential -o dirty_bytes=48MiB

All blocks of the files are written first. Then all devices are written to concurrently. After the warm-up, in which the
writers fill memory, their rate is sampled every tenth of a second. All volumes share one memory budget. The longest pause
is the longest single write call; it includes the warm-up.")]
pub struct Args {
    /// Run on a volume in this process; may be repeated
    #[arg(
        long = "volume",
        id = "volume",
        value_name = "DEVICE",
        required_unless_present = "dir",
        conflicts_with = "dir"
    )]
    volumes: Vec<OsString>,
    #[command(flatten)]
    opening: Opening,
    /// Run in this directory of any mounted file system; may be repeated; all files made in it are
    /// removed
    #[arg(long = "dir", id = "dir", value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Threads for each device
    #[arg(short, long, default_value_t = 4)]
    threads: usize,
    /// Files on each device
    #[arg(short = 'n', long, default_value_t = 64)]
    files: usize,
    /// Bytes in a file
    #[arg(short = 's', long, value_name = "SIZE", value_parser = human::parse_bytes, default_value = "4MiB")]
    file_size: u64,
    /// Bytes of one write
    #[arg(short = 'w', long, value_name = "SIZE", value_parser = human::parse_bytes, default_value = "4096")]
    write_size: u64,
    /// Seconds in which rates are measured
    #[arg(long, default_value_t = 10.0, value_parser = seconds)]
    seconds: f64,
    /// Seconds of writing before that
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = seconds)]
    warm_up: f64,
    /// Each thread writes its own files from start to end
    #[arg(long)]
    sequential: bool,
    /// Write through mappings of the files
    #[arg(long, conflicts_with = "volume")]
    mmap: bool,
    /// Rounds; the one with the median rate is shown
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    #[command(flatten)]
    form: Form,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("give seconds from 0 to 86400".into()),
    }
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        let work = RandWrite {
            threads: self.threads,
            files: self.files,
            file_bytes: self.file_size,
            write_bytes: usize::try_from(self.write_size)?,
            duration: Duration::from_secs_f64(self.seconds),
            warm_up: Duration::from_secs_f64(self.warm_up),
            pattern: match self.sequential {
                true => Pattern::Sequential,
                false => Pattern::Random,
            },
            mmap: self.mmap,
        };
        let work = work.checked()?;
        self.form.check()?;
        let mut reports = (1..=self.rounds)
            .map(|round| {
                let bar = Bar::of_round("MiB", round, self.rounds);
                if self.dirs.is_empty() {
                    self.on_volumes(&work, &bar)
                } else {
                    self.in_directories(&work, &bar)
                }
            })
            .collect::<Result<Vec<_>>>()?;
        let rate = |report: &Report| report.paces.first().map_or(0.0, |pace| pace.bytes_per_sec);
        reports.sort_by(|a, b| rate(a).total_cmp(&rate(b)));
        self.form.show_report(&reports[reports.len() / 2], "MiB")?;
        Ok(ExitCode::SUCCESS)
    }

    fn on_volumes(&self, work: &RandWrite, bar: &Bar) -> Result<Report> {
        let options = self.opening.options()?;
        let targets = self
            .volumes
            .iter()
            .map(|device| Ok(VolumeTarget::new(self.opening.open(device, &options)?)))
            .collect::<Result<Vec<_>>>()?;
        work.lay_out(&refs(&targets))?;
        // New targets have new counters.
        let targets: Vec<_> = targets
            .into_iter()
            .map(|target| VolumeTarget::new(target.into_volume()))
            .collect();
        let report = work.run(&refs(&targets), &|progress| bar.show(progress))?;
        work.clean_up(&refs(&targets))?;
        for target in targets {
            target.into_volume().close()?;
        }
        Ok(report)
    }

    fn in_directories(&self, work: &RandWrite, bar: &Bar) -> Result<Report> {
        let scratch = format!("sluice-bench-{}", std::process::id());
        let scratch: Vec<_> = self.dirs.iter().map(|dir| dir.join(&scratch)).collect();
        if let Some(there) = scratch.iter().find(|dir| dir.exists()) {
            bail!("{} already exists; remove it", there.display());
        }
        let report = in_scratch(work, &scratch, bar);
        let removed: Vec<_> = scratch.iter().map(|dir| remove(dir)).collect();
        let report = report?;
        removed.into_iter().collect::<Result<()>>()?;
        Ok(report)
    }
}

fn in_scratch(work: &RandWrite, dirs: &[PathBuf], bar: &Bar) -> Result<Report> {
    let open = || {
        dirs.iter()
            .map(|dir| mounted(std::slice::from_ref(dir)))
            .collect::<Result<Vec<_>>>()
    };
    work.lay_out(&refs(&open()?))?;
    Ok(work.run(&refs(&open()?), &|progress| bar.show(progress))?)
}

fn remove(dir: &Path) -> Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).with_context(|| dir.display().to_string())
        }
        _ => Ok(()),
    }
}

fn refs<T: Target>(targets: &[T]) -> Vec<&dyn Target> {
    targets.iter().map(|target| target as &dyn Target).collect()
}
