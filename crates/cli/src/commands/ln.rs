//! `sluice ln`: links.

use crate::target;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::process::ExitCode;

/// Make a hard or, with -s, a symbolic link
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice ln disk.img:/bin/busybox disk.img:/bin/sh
  sluice ln -s ../usr/lib disk.img:/lib      the target is taken as it is written")]
pub struct Args {
    /// The file: DEVICE:/path, or with -s any text
    original: OsString,
    /// The new name: DEVICE:/path (in a directory: under the original's name)
    link: OsString,
    /// A symbolic link
    #[arg(short, long)]
    symbolic: bool,
    /// Replace an existing link or file
    #[arg(short, long)]
    force: bool,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        let Some(link) = target::split(&self.link) else {
            bail!("{}: write the link as DEVICE:/path", self.link.display());
        };
        let original = target::split(&self.original);
        let original = match (&original, self.symbolic) {
            (Some(original), false) if original.device == link.device => original.path.clone(),
            (Some(original), false) => {
                bail!("{original} and {link} are on different devices; only -s could link them")
            }
            (None, false) => bail!(
                "{}: write the file as DEVICE:/path",
                self.original.display()
            ),
            // The text of a symbolic link; a device before it would mean nothing on the volume.
            (Some(original), true) if original.device == link.device => original.path.clone(),
            (_, true) => self.original.into(),
        };
        let volume = link.open_read_write()?;
        let mut path = link.path.clone();
        if volume.metadata(&path).is_ok_and(|m| m.is_dir()) {
            path.push(original.file_name().context("the original has no name")?);
        }
        if self.force && volume.symlink_metadata(&path).is_ok_and(|m| !m.is_dir()) {
            link.on(volume.remove_file(&path))?;
        }
        let made = if self.symbolic {
            volume.symlink(&original, &path)
        } else {
            volume.hard_link(&original, &path)
        };
        let closed = link.on(volume.close());
        link.on(made)?;
        closed?;
        Ok(ExitCode::SUCCESS)
    }
}
