//! `sluice check`: finds damage on a volume, without writing to it.

use crate::human;
use crate::output::{self, Output};
use crate::target;
use anyhow::Result;
use block::{OpenMode, Queue};
use check::{Options, Progress, Report, Severity};
use indicatif::ProgressBar;
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

/// Exit code if the volume could not be checked.
const OPERATIONAL: u8 = 8;

/// Check a volume for damage, without writing to it
///
/// The command finds the damage that `e2fsck -fn` finds, and prints the object and the place. It
/// repairs nothing. A journal that needs recovery is replayed in memory, so that the check sees the
/// volume as the next mount would.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice check disk.img
  sluice check --journal journal.img disk.img    a journal on a device of its own
  sluice check --json /dev/sdb1 | jq '.findings[] | select(.severity == \"problem\")'

Exit codes, as those of e2fsck:
  0  the volume is clean
  4  problems were found; e2fsck repairs them
  8  the volume could not be read, or could not be checked completely")]
pub struct Args {
    /// Image file or block device; it should not be mounted for writing
    device: OsString,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    /// Limit of the memory for bitmaps and tables
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = block::parse_size)]
    memory: u64,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        match self.check() {
            Ok(code) => Ok(code),
            Err(error) => {
                eprintln!("sluice: {error:#}");
                Ok(ExitCode::from(OPERATIONAL))
            }
        }
    }

    fn check(&self) -> Result<ExitCode> {
        let url = sluicefs::DEVICE_SCHEMES.parse_os(&self.device)?;
        let queue =
            block::open(&url, OpenMode::ReadOnly).map_err(|e| target::named(&self.device, e))?;
        let options = Options {
            memory: self.memory,
            journal: self.open_journal()?,
        };
        let mut bar = Bar {
            bar: output::progress_bar("{msg:16} {wide_bar} {percent:>3}%"),
        };
        let report = check::check(&queue, &options, &mut bar);
        bar.bar.finish_and_clear();
        let report = report.map_err(|e| target::named(&self.device, io::Error::other(e)))?;
        let mut out = Output::new();
        if self.json {
            let mut value = serde_json::to_value(&report)?;
            if let Some(object) = value.as_object_mut() {
                object.insert("device".into(), json!(self.device.display().to_string()));
                object.insert("clean".into(), json!(report.is_clean()));
                object.insert("exit_code".into(), json!(report.exit_code()));
            }
            out.json(&value)?;
        } else {
            self.print(&report, &mut out)?;
        }
        out.flush()?;
        Ok(ExitCode::from(report.exit_code()))
    }

    /// Opens the journal of a volume whose journal is on a device of its own, if it is known.
    fn open_journal(&self) -> Result<Option<Arc<Queue>>> {
        let Ok(Some(wanted)) = sluicefs::external_journal(&self.device) else {
            return Ok(None);
        };
        let given = target::journal().map(OsStr::to_owned);
        let Some(name) = given.or_else(|| sluicefs::find_journal(&self.device, &wanted)) else {
            return Ok(None);
        };
        let url = sluicefs::DEVICE_SCHEMES.parse_os(&name)?;
        let queue = block::open(&url, OpenMode::ReadOnly);
        queue.map(Some).map_err(|e| target::named(&name, e))
    }

    fn print(&self, report: &Report, out: &mut Output) -> io::Result<()> {
        for finding in &report.findings {
            match finding.severity {
                Severity::Problem => writeln!(out, "{finding}")?,
                Severity::Note => writeln!(out, "note: {finding}")?,
            }
        }
        let problems = report
            .findings
            .iter()
            .filter(|f| f.severity == Severity::Problem);
        let kept = problems.count() as u64;
        if report.problems > kept {
            let more = human::count(report.problems - kept);
            writeln!(out, "and {more} more problems")?;
        }
        for what in &report.unchecked {
            writeln!(out, "not checked: {what}")?;
        }
        let verdict = match (report.problems, report.unchecked.is_empty()) {
            (0, true) => "clean".to_owned(),
            (0, false) => "no problems found, but not everything was checked".to_owned(),
            (1, _) => "1 problem; run e2fsck".to_owned(),
            (problems, _) => format!("{} problems; run e2fsck", human::count(problems)),
        };
        writeln!(
            out,
            "{}: {verdict} ({} inodes, {} directories, {} blocks in use)",
            self.device.display(),
            human::count(report.inodes),
            human::count(report.directories),
            human::count(report.blocks)
        )
    }
}

/// A progress bar for the current pass, on a terminal.
struct Bar {
    bar: ProgressBar,
}

impl Progress for Bar {
    fn begin(&mut self, pass: &str, total: u64) {
        self.bar.set_message(pass.to_owned());
        self.bar.set_length(total);
        self.bar.set_position(0);
    }
    fn done(&mut self, steps: u64) {
        self.bar.inc(steps);
    }
}
