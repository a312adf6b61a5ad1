//! `sluice completions`: for shells.

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;
use std::process::ExitCode;

/// Write completions for a shell
#[derive(clap::Args)]
#[command(
    hide = true,
    after_help = "\
Examples:
  sluice completions bash > /etc/bash_completion.d/sluice
  sluice completions zsh > ~/.zfunc/_sluice"
)]
pub struct Args {
    /// The shell
    shell: Shell,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        let mut command = crate::Cli::command();
        clap_complete::generate(self.shell, &mut command, "sluice", &mut std::io::stdout());
        Ok(ExitCode::SUCCESS)
    }
}
