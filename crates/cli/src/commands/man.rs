//! `sluice man`: manual pages.

use anyhow::{Context, Result};
use clap::CommandFactory;
use std::path::PathBuf;
use std::process::ExitCode;

/// Write the manual pages
#[derive(clap::Args)]
#[command(
    hide = true,
    after_help = "\
Examples:
  sluice man | man -l -                    read the page of sluice
  sluice man /usr/local/share/man/man1     write one page for each command"
)]
pub struct Args {
    /// Where to write a page for each command; without it the main page goes to standard output
    dir: Option<PathBuf>,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        let command = crate::Cli::command();
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
