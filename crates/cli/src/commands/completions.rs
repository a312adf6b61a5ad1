//! `sluice completions`: completions for a shell.

use anyhow::Result;
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
    shell: Shell,
}

impl Args {
    pub fn run(self, mut command: clap::Command) -> Result<ExitCode> {
        clap_complete::generate(self.shell, &mut command, "sluice", &mut std::io::stdout());
        Ok(ExitCode::SUCCESS)
    }
}
