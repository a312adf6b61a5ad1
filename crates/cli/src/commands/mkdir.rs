//! `sluice mkdir`: creates directories.

use crate::target::Target;
use anyhow::Result;
use sluicefs::NewNode;
use std::process::ExitCode;

/// Create directories
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice mkdir disk.img:/srv
  sluice mkdir -p disk.img:/srv/www/data    with missing parents; no error if it exists
  sluice mkdir -m 1777 disk.img:/tmp")]
pub struct Args {
    /// Directories: DEVICE:/path
    #[arg(required = true)]
    dirs: Vec<Target>,
    /// Create missing parents, and accept an existing directory
    #[arg(short, long)]
    parents: bool,
    /// Mode in octal digits
    #[arg(short, long, value_parser = parse_mode)]
    mode: Option<u32>,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        for target in &self.dirs {
            let volume = target.open_read_write()?;
            if self.parents {
                if let Some(parent) = target.path.parent() {
                    target.on(volume.create_dir_all(parent))?;
                }
                if volume.metadata(&target.path).is_ok_and(|m| m.is_dir()) {
                    target.on(volume.close())?;
                    continue;
                }
            }
            let new = match self.mode {
                Some(mode) => NewNode::new().mode(mode),
                None => NewNode::new(),
            };
            drop(target.on(volume.create_dir_with(&target.path, new))?);
            target.on(volume.close())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn parse_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err(format!(
            "\"{text}\" is not a mode in octal digits (for example 755)"
        )),
    }
}
