//! `sluice ln`: creates links.

use crate::target;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::process::ExitCode;

/// Create a hard link or, with -s, a symbolic link
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice ln disk.img:/bin/busybox disk.img:/bin/sh
  sluice ln -s ../usr/lib disk.img:/lib      the target is stored unchanged")]
pub struct Args {
    /// The existing file: DEVICE:/path, or with -s any text
    original: OsString,
    /// The new link: DEVICE:/path. In a directory, it gets the name of the existing file
    link: OsString,
    /// Create a symbolic link
    #[arg(short, long)]
    symbolic: bool,
    /// Replace an existing file or link
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
                bail!("{original} and {link} are on different devices; hard links need one volume")
            }
            (None, false) => bail!(
                "{}: write the file as DEVICE:/path",
                self.original.display()
            ),
            // A symbolic link contains a path. The name of the device is removed from it.
            (Some(original), true) if original.device == link.device => original.path.clone(),
            (_, true) => self.original.into(),
        };
        let volume = link.open_read_write()?;
        let mut path = link.path.clone();
        if volume.metadata(&path).is_ok_and(|m| m.is_dir()) {
            path.push(
                original
                    .file_name()
                    .context("the existing file has no name; give the link one")?,
            );
        }
        if self.force && volume.symlink_metadata(&path).is_ok_and(|m| !m.is_dir()) {
            link.on(volume.remove_file(&path))?;
        }
        let created = if self.symbolic {
            volume.symlink(&original, &path)
        } else {
            volume.hard_link(&original, &path)
        };
        let closed = link.on(volume.close());
        link.on(created)?;
        closed?;
        Ok(ExitCode::SUCCESS)
    }
}
