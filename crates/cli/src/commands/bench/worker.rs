//! `sluice bench worker`: a process that `compare` starts. It reads a workload as JSON from
//! standard input and writes its report as JSON to standard output.

use super::on::OnVolume;
use super::progress::Bar;
use crate::output::Output;
use ::bench::Workload;
use anyhow::{Context, Result};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Run the workload that standard input describes as JSON
#[derive(clap::Args)]
#[command(hide = true)]
pub struct Args {
    #[command(flatten)]
    on: OnVolume,
    /// Run in this directory of any mounted file system
    #[arg(long, conflicts_with = "volume")]
    dir: Option<PathBuf>,
    /// The label of the progress bar
    #[arg(long, default_value = "")]
    label: String,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        let work: Workload = serde_json::from_reader(std::io::stdin())
            .context("standard input is not the JSON of a workload")?;
        let bar = Bar::new(work.unit(), &self.label);
        let directories: Vec<PathBuf> = self.dir.into_iter().collect();
        let report = self.on.once(&work, &directories, &bar)?;
        drop(bar);
        let mut out = Output::new();
        out.json(&report)?;
        out.flush()?;
        Ok(ExitCode::SUCCESS)
    }
}
