//! `sluice mv`: names changed within a volume.

use crate::target::Target;
use anyhow::{Context, Result, bail};
use sluicefs::{RenameFlags, Volume};
use std::io;
use std::process::ExitCode;

/// Rename, or move into a directory, within a volume
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice mv disk.img:/a disk.img:/b
  sluice mv disk.img:/a disk.img:/b disk.img:/dir    into a directory
  sluice mv -n disk.img:/a disk.img:/b               never over something
  sluice mv --exchange disk.img:/a disk.img:/b       the two swap places")]
pub struct Args {
    /// What to move, and last where to: DEVICE:/path
    #[arg(required = true, num_args = 2.., value_names = ["SOURCE", "TARGET"])]
    paths: Vec<Target>,
    /// Fail if the target exists
    #[arg(short, long)]
    no_clobber: bool,
    /// Swap source and target in one step
    #[arg(long, conflicts_with = "no_clobber")]
    exchange: bool,
    /// Take the target for a file's name even if it is a directory
    #[arg(short = 'T', long)]
    no_target_directory: bool,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        let (to, from) = self.paths.split_last().context("a target is missing")?;
        if let Some(other) = from.iter().find(|f| f.device != to.device) {
            bail!(
                "{other} and {to} are on different devices; copy with `sluice cp -rp` and remove"
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
