//! `sluice cat`: prints the contents of files.

use crate::target::Target;
use anyhow::{Context, Result};
use std::io::{self, Write};
use std::process::ExitCode;

/// Write the contents of files to standard output
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice cat disk.img:/etc/fstab
  sluice cat disk.img:/var/log/a disk.img:/var/log/b | wc -l")]
pub struct Args {
    /// Files: DEVICE:/path
    #[arg(required = true)]
    files: Vec<Target>,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        let mut out = io::stdout().lock();
        let mut buf = vec![0; 1 << 20];
        for target in &self.files {
            let volume = target.open_read_only()?;
            let file = target.on(volume.open_file(&target.path))?;
            let mut at = 0;
            loop {
                let n = target.on(file.read_at(&mut buf, at))?;
                if n == 0 {
                    break;
                }
                out.write_all(&buf[..n]).context("standard output")?;
                at += n as u64;
            }
        }
        out.flush().context("standard output")?;
        Ok(ExitCode::SUCCESS)
    }
}
