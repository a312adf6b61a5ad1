//! `sluice mv`: renames files within a volume.

use crate::target::Target;
use anyhow::{Context, Result, bail};
use sluicefs::{RenameFlags, Volume};
use std::io;
use std::process::ExitCode;

/// Rename files, or move them into a directory, within a volume
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice mv disk.img:/a disk.img:/b
  sluice mv disk.img:/a disk.img:/b disk.img:/dir    into a directory
  sluice mv -n disk.img:/a disk.img:/b               fail if the target exists
  sluice mv --exchange disk.img:/a disk.img:/b       exchange the two")]
pub struct Args {
    /// Files to move, and the target: DEVICE:/path
    #[arg(required = true, num_args = 2.., value_names = ["SOURCE", "TARGET"])]
    paths: Vec<Target>,
    /// Fail if the target exists
    #[arg(short, long)]
    no_clobber: bool,
    /// Exchange source and target atomically
    #[arg(long, conflicts_with = "no_clobber")]
    exchange: bool,
    /// Treat the target as a file name, also if it is a directory
    #[arg(short = 'T', long)]
    no_target_directory: bool,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        let (to, from) = self.paths.split_last().context("the target is missing")?;
        if let Some(other) = from.iter().find(|f| f.device != to.device) {
            bail!(
                "{other} and {to} are on different devices; copy with `sluice cp -rp`, then remove the source"
            );
        }
        let volume = to.open_read_write()?;
        let moved = self.rename(&volume, from, to);
        let closed = to.on(volume.close());
        to.on(moved)?;
        closed?;
        Ok(ExitCode::SUCCESS)
    }

    fn rename(&self, volume: &Volume, from: &[Target], to: &Target) -> io::Result<()> {
        let flags = match (self.no_clobber, self.exchange) {
            (true, _) => RenameFlags::NoReplace,
            (_, true) => RenameFlags::Exchange,
            _ => RenameFlags::Replace,
        };
        let into = !self.exchange
            && !self.no_target_directory
            && volume.metadata(&to.path).is_ok_and(|m| m.is_dir());
        if from.len() > 1 && !into {
            let text = format!("{} is not a directory", to.path.display());
            return Err(io::Error::new(io::ErrorKind::NotADirectory, text));
        }
        for source in from {
            let path = match source.path.file_name() {
                Some(name) if into => to.path.join(name),
                _ => to.path.clone(),
            };
            volume.rename_with(&source.path, volume.root(), path, flags)?;
        }
        Ok(())
    }
}
