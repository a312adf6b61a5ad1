//! `sluice trim`: gives the free space of a volume back to the device.

use crate::human;
use crate::output::Output;
use crate::target;
use anyhow::Result;
use serde_json::json;
use sluicefs::VolumeOptions;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// Discard free space, so that an image file gets small again
///
/// Blocks of deleted files stay allocated in an image file, and in use for an SSD, until they are
/// discarded. `sluice mount -o discard` discards them as they are freed.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice trim disk.img
  sluice trim /mnt                    a mounted volume, as fstrim(8)
  sluice trim --minimum 1MiB /dev/sdb1")]
pub struct Args {
    /// Image file, partition, block device, or directory on a mounted volume
    target: OsString,
    /// Leave out shorter runs of free blocks
    #[arg(short, long, value_name = "SIZE", value_parser = sluicefs::parse_size, default_value = "0")]
    minimum: u64,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        let dir = Path::new(&self.target);
        let bytes = match dir.is_dir() {
            true => fuse::trim(dir, self.minimum)?,
            false => {
                let volume = target::open(&self.target, VolumeOptions::new())?;
                let trimmed = volume.trim(self.minimum);
                let bytes = trimmed.map_err(|e| target::named(&self.target, e))?;
                volume.close()?;
                bytes
            }
        };
        let mut out = Output::new();
        match self.json {
            true => out.json(&json!({ "discarded_bytes": bytes }))?,
            false => writeln!(
                out,
                "{}: {} of free space discarded",
                self.target.display(),
                human::bytes(bytes)
            )?,
        }
        out.flush()?;
        Ok(ExitCode::SUCCESS)
    }
}
