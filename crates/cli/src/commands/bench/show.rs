//! Prints results as text or JSON, and writes the HTML page.

use crate::human;
use crate::output::Output;
use ::bench::Report;
use ::bench::compare::Outcome;
use ::bench::present::{comparison_page, comparison_text, report_page, report_text};
use anyhow::{Context, Result};
use serde::Serialize;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::SystemTime;

/// The form of a result.
#[derive(clap::Args)]
pub struct Form {
    /// Print one JSON object
    #[arg(long, global = true)]
    json: bool,
    /// Also write an HTML page with tables and charts
    #[arg(long, global = true, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

impl Form {
    /// Shows a run. `unit` is the unit that its phases count.
    pub fn show_report(&self, report: &Report, unit: &str) -> Result<()> {
        let page = || report_page(report, unit, &now());
        self.show(report, page, || report_text(report, unit))
    }

    /// Shows a comparison.
    pub fn show_comparison(&self, outcome: &Outcome) -> Result<()> {
        let page = || comparison_page(outcome, &now());
        self.show(outcome, page, || comparison_text(outcome))
    }

    /// Fails before the measurement if the page cannot be written.
    pub fn check(&self) -> Result<()> {
        match &self.report {
            Some(file) => File::options()
                .create(true)
                .append(true)
                .open(file)
                .map(drop)
                .with_context(|| file.display().to_string()),
            None => Ok(()),
        }
    }

    fn show(
        &self,
        result: &impl Serialize,
        page: impl FnOnce() -> String,
        text: impl FnOnce() -> String,
    ) -> Result<()> {
        let mut out = Output::new();
        match self.json {
            true => out.json(result)?,
            false => out.write_all(text().as_bytes())?,
        }
        out.flush()?;
        match &self.report {
            Some(file) => std::fs::write(file, page()).with_context(|| file.display().to_string()),
            None => Ok(()),
        }
    }
}

fn now() -> String {
    human::local_minute(SystemTime::now())
}
