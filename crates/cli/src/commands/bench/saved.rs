//! `sluice bench table` and `sluice bench picture`: comparisons that were saved as JSON.

use crate::output::Output;
use ::bench::compare::Outcome;
use ::bench::present::{comparison_markdown, picture};
use anyhow::{Context, Result};
use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Print a saved comparison as a Markdown table
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  sudo sluice bench compare --json >result.json && sluice bench table result.json")]
pub struct Table {
    /// The output of `bench compare --json`
    file: PathBuf,
}

/// Draw two saved comparisons as one SVG, for a README
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  sluice bench picture fsync.json nosync.json >docs/benchmarks.svg")]
pub struct Picture {
    /// `bench compare --json … fsmark -S5 … --fsync bulk,async,blocking`
    with_fsync: PathBuf,
    /// `bench compare --json … fsmark -S0 …`
    without_sync: PathBuf,
}

impl Table {
    pub fn run(self) -> Result<ExitCode> {
        print(&comparison_markdown(&read(&self.file)?))
    }
}

impl Picture {
    pub fn run(self) -> Result<ExitCode> {
        print(&picture(
            &read(&self.with_fsync)?,
            &read(&self.without_sync)?,
        ))
    }
}

fn read(path: &Path) -> Result<Outcome> {
    let named = || path.display().to_string();
    let file = File::open(path).with_context(named)?;
    let outcome = serde_json::from_reader(BufReader::new(file));
    outcome.with_context(|| format!("{}: not the JSON of `bench compare`", named()))
}

fn print(text: &str) -> Result<ExitCode> {
    let mut out = Output::new();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
