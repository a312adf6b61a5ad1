//! `sluice man`: man pages.

use anyhow::{Context, Result};
use std::path::PathBuf;
use std::process::ExitCode;

/// Write the man pages
#[derive(clap::Args)]
#[command(
    hide = true,
    after_help = "\
Examples:
  sluice man | man -l -                    show the page of sluice
  sluice man /usr/local/share/man/man1     write a page for each command"
)]
pub struct Args {
    /// Directory for the pages of all commands [default: the main page to standard output]
    dir: Option<PathBuf>,
}

impl Args {
    pub fn run(self, command: clap::Command) -> Result<ExitCode> {
        match self.dir {
            Some(dir) => {
                clap_mangen::generate_to(command, &dir)
                    .with_context(|| dir.display().to_string())?;
            }
            None => clap_mangen::Man::new(command).render(&mut std::io::stdout().lock())?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
