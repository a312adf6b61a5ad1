//! The target of a workload, its rounds and the form of its results.

use super::progress::Bar;
use super::show::Form;
use crate::human;
use crate::target;
use ::bench::target::{MountedTarget, VolumeTarget};
use ::bench::{Report, Workload};
use anyhow::{Context, Result};
use fuse::{MountOptions, SyncScope};
use sluicefs::{FormatOptions, MemoryBudget, Tunables, Volume, VolumeOptions};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A volume in this process.
#[derive(clap::Args)]
pub struct OnVolume {
    /// Run on a volume in this process
    #[arg(long, value_name = "DEVICE")]
    volume: Option<OsString>,
    #[command(flatten)]
    opening: Opening,
}

/// How volumes are opened.
#[derive(clap::Args)]
pub struct Opening {
    /// Format the volume before each round; all its data is lost
    #[arg(long, requires = "volume")]
    fresh: bool,
    /// Size of an image file that --fresh creates
    #[arg(long = "size", value_name = "SIZE", value_parser = human::parse_bytes, default_value = "64GiB")]
    image_size: u64,
    /// Size of the journal that --fresh makes [default: as mkfs]
    #[arg(short = 'J', long, value_name = "SIZE", value_parser = human::parse_bytes, requires = "fresh")]
    journal_size: Option<u64>,
    /// Memory for the caches of all volumes together
    #[arg(long, value_name = "SIZE", value_parser = human::parse_bytes, default_value = "1GiB")]
    memory: u64,
    /// Options of `sluice mount`, such as parameters of writeback; also plug=off and
    /// flushers=shared
    #[arg(short, value_name = "OPTIONS", requires = "volume")]
    options: Vec<String>,
}

/// Rounds and the form of the result.
#[derive(clap::Args)]
pub struct Repeat {
    /// Rounds; the median is shown
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    #[command(flatten)]
    form: Form,
}

impl OnVolume {
    pub fn is_given(&self) -> bool {
        self.volume.is_some()
    }

    /// Runs `work` once: on the volume, or in `directories` if there is no volume.
    pub fn once(&self, work: &Workload, directories: &[PathBuf], bar: &Bar) -> Result<Report> {
        let Some(device) = &self.volume else {
            let target = mounted(directories)?;
            return Ok(work.run(&target, &|progress| bar.show(progress))?);
        };
        let options = self.opening.options()?;
        let target = VolumeTarget::new(self.opening.open(device, &options)?).opened_with(options);
        let report = work.run(&target, &|progress| bar.show(progress))?;
        target.into_volume().close()?;
        Ok(report)
    }
}

/// Directories of mounted file systems. Mounts of `sluice mount` are synced as by `sluice sync`.
pub fn mounted(directories: &[PathBuf]) -> Result<MountedTarget> {
    let target = MountedTarget::new(directories)?;
    let sync = |dir: &Path| fuse::sync(dir, SyncScope::Volume).map_err(io::Error::other);
    Ok(target.syncing_sluice_by(sync))
}

impl Opening {
    /// Options for one volume or several.
    pub fn options(&self) -> Result<VolumeOptions> {
        let options = self.mount_options()?;
        let budget = MemoryBudget::new(self.memory_of(&options));
        Ok(target::options(&options).budget(budget))
    }

    /// The options of a mount, but with the library's defaults of writeback.
    fn mount_options(&self) -> Result<MountOptions> {
        let mut options = MountOptions {
            tunables: Tunables::default(),
            ..MountOptions::default()
        };
        options.apply_list(&self.options.join(","))?;
        Ok(options)
    }

    fn memory_of(&self, options: &MountOptions) -> u64 {
        options.memory.unwrap_or(self.memory)
    }

    pub fn open(&self, device: &OsString, options: &VolumeOptions) -> Result<Volume> {
        if !self.fresh {
            return target::open(device, options.clone());
        }
        let mut format = FormatOptions::new().force(true);
        if let Some(bytes) = self.journal_size {
            format = format.journal_bytes(bytes);
        }
        let is_url = device.to_str().is_some_and(|d| d.contains(':'));
        if !is_url && !Path::new(device).exists() {
            format = format.size(self.image_size);
        }
        options
            .format(device, &format)
            .map_err(|e| target::named(device, e))
    }
}

impl Repeat {
    /// Runs all rounds of `work` and shows the median. Without a volume it runs in `directories`.
    pub fn run(&self, on: &OnVolume, directories: &[PathBuf], work: &Workload) -> Result<ExitCode> {
        self.form.check()?;
        let mut reports = Vec::new();
        for round in 1..=self.rounds {
            let bar = Bar::of_round(work.unit(), round, self.rounds);
            reports.push(on.once(work, directories, &bar)?);
        }
        let report = Report::median(reports);
        self.form.show_report(&report, work.unit())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A volume, or a directory of any mounted file system in which the workload makes its own.
#[derive(clap::Args)]
pub struct OnDirectory {
    #[command(flatten)]
    volume: OnVolume,
    /// Run in this directory of any mounted file system; all files made in it are removed
    #[arg(long, required_unless_present = "volume", conflicts_with = "volume")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    repeat: Repeat,
}

impl OnDirectory {
    /// Memory for the caches of a volume in this process.
    pub fn memory(&self) -> Result<u64> {
        let opening = &self.volume.opening;
        Ok(opening.memory_of(&opening.mount_options()?))
    }

    pub fn run(&self, work: &Workload) -> Result<ExitCode> {
        let Some(dir) = &self.dir else {
            return self.repeat.run(&self.volume, &[], work);
        };
        let scratch = dir.join(format!("sluice-bench-{}", std::process::id()));
        let named = || scratch.display().to_string();
        std::fs::create_dir(&scratch).with_context(named)?;
        let directories = std::slice::from_ref(&scratch);
        let result = self.repeat.run(&self.volume, directories, work);
        let removed = std::fs::remove_dir_all(&scratch).with_context(named);
        result.and_then(|code| removed.map(|()| code))
    }
}
