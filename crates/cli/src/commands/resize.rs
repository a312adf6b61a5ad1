//! `sluice resize`: grows a volume.

use crate::human;
use crate::output::{Output, progress_bar};
use crate::target;
use anyhow::{Result, anyhow};
use indicatif::ProgressBar;
use serde_json::json;
use sluicefs::VolumeOptions;
use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Interval at which the size of a mounted volume is shown.
const INTERVAL: Duration = Duration::from_millis(200);

/// Grow a volume, also while it is mounted
///
/// Without SIZE, the volume grows to the size of its device or image file. With a SIZE larger than
/// the image file, the file is extended first; it takes no space for that. A crash leaves a sound
/// volume of the old size, the new size or one between. On an ext2 volume, which has no journal,
/// e2fsck has to repair what a crash leaves.
///
/// A volume is made smaller by resize2fs, while it is not mounted.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice resize disk.img 20GiB        also extends the image file
  sluice resize /mnt 20GiB            a mounted volume; programs use the new space at once
  sluice resize /dev/vg/data          to the size of the device, after lvextend")]
pub struct Args {
    /// Image file, partition, block device, or directory on a mounted volume
    target: OsString,
    /// Bytes of the volume; without it, as many as the device has
    #[arg(value_name = "SIZE", value_parser = sluicefs::parse_size)]
    size: Option<u64>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        let dir = Path::new(&self.target);
        let bytes = match dir.is_dir() {
            true => self.resize_mounted(dir)?,
            false => self.resize_device()?,
        };
        let mut out = Output::new();
        match self.json {
            true => out.json(&json!({ "bytes": bytes }))?,
            false => writeln!(
                out,
                "{}: the volume has {}",
                self.target.display(),
                human::bytes(bytes)
            )?,
        }
        out.flush()?;
        Ok(ExitCode::SUCCESS)
    }

    fn bar(&self) -> ProgressBar {
        progress_bar("resize {wide_bar} {bytes} of {total_bytes}")
    }

    fn resize_device(&self) -> Result<u64> {
        let volume = target::open(&self.target, VolumeOptions::new());
        let volume = volume.map_err(|e| self.explain(e))?;
        let (bar, block_size) = (self.bar(), u64::from(volume.info().block_size));
        let grown = volume.resize_with(self.size, &mut |progress| {
            bar.set_length(progress.target * block_size);
            bar.set_position(progress.blocks * block_size);
        });
        bar.finish_and_clear();
        let bytes = grown.map_err(|e| target::named(&self.target, e))?;
        volume.close()?;
        Ok(bytes)
    }

    /// Adds the way to resize a mounted volume to the error that it is in use.
    fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        let kind = error
            .chain()
            .find_map(|e| e.downcast_ref::<std::io::Error>())
            .map(std::io::Error::kind);
        match kind {
            Some(ErrorKind::ResourceBusy) => anyhow!(
                "{error:#}, or name the directory where it is mounted: `sluice resize DIRECTORY`"
            ),
            _ => error,
        }
    }

    /// Asks the server of the mount. Shows the size that statfs reports meanwhile.
    fn resize_mounted(&self, dir: &Path) -> Result<u64> {
        let bar = self.bar();
        if let Some(size) = self.size {
            bar.set_length(size);
        }
        let (sender, over) = channel::<()>();
        std::thread::scope(|scope| {
            let shown = bar.clone();
            scope.spawn(move || {
                while over.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    if let Ok(now) = rustix::fs::statvfs(dir) {
                        shown.set_position(now.f_blocks * now.f_frsize);
                    }
                }
            });
            let grown = fuse::resize(dir, self.size);
            drop(sender);
            bar.finish_and_clear();
            grown
        })
    }
}
