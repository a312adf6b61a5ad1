//! `sluice rm`: removes files and trees.

use crate::target::Target;
use anyhow::{Result, bail};
use sluicefs::Volume;
use std::io;
use std::process::ExitCode;

/// Remove files or, with -r, directories and everything in them
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice rm disk.img:/var/log/old
  sluice rm -r disk.img:/home/guest
  sluice rm -rf disk.img:/tmp/a disk.img:/tmp/b    no error if one is missing")]
pub struct Args {
    /// Files to remove: DEVICE:/path
    #[arg(required = true)]
    targets: Vec<Target>,
    /// Remove directories and everything in them
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Ignore missing files
    #[arg(short, long)]
    force: bool,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        for target in &self.targets {
            if target.path == std::path::Path::new("/") {
                bail!(
                    "{target}: the root of the volume cannot be removed; name the entries to remove"
                );
            }
            let volume = target.open_read_write()?;
            let removed = self.remove(&volume, target);
            // Close the volume also after an error, so that earlier removals are kept.
            let closed = target.on(volume.close());
            target.on(removed)?;
            closed?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn remove(&self, volume: &Volume, target: &Target) -> io::Result<()> {
        let meta = match volume.symlink_metadata(&target.path) {
            Err(e) if self.force && e.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        if !meta.is_dir() {
            return volume.remove_file(&target.path);
        }
        if !self.recursive {
            let text = format!(
                "{} is a directory; -r removes it and everything in it",
                target.path.display()
            );
            return Err(io::Error::new(io::ErrorKind::IsADirectory, text));
        }
        volume.remove_dir_all(&target.path)
    }
}
