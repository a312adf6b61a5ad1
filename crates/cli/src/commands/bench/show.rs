//! Results, as text, JSON or a page.

use super::{html, pace, table};
use crate::human;
use crate::output::Output;
use ::bench::compare::Outcome;
use ::bench::{Device, Report, Time};
use anyhow::{Context, Result};
use serde::Serialize;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

/// The form of a result.
#[derive(clap::Args)]
pub struct Form {
    /// One JSON object
    #[arg(long, global = true)]
    json: bool,
    /// Write a page with tables and plots to this file, too
    #[arg(long, global = true, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

impl Form {
    /// Tells of a run; `unit` is what its phases count.
    pub fn show_report(&self, report: &Report, unit: &str) -> Result<()> {
        self.show(
            report,
            || html::of_report(report, unit),
            |out| text(report, unit, out),
        )
    }

    /// Tells of a comparison.
    pub fn show_comparison(&self, outcome: &Outcome) -> Result<()> {
        let text = |out: &mut Output| Ok(write!(out, "{}", table::comparison(outcome))?);
        self.show(outcome, || html::of_comparison(outcome), text)
    }

    /// Fails before anything is measured if the page cannot be written.
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
        text: impl FnOnce(&mut Output) -> Result<()>,
    ) -> Result<()> {
        let mut out = Output::new();
        match self.json {
            true => out.json(result)?,
            false => text(&mut out)?,
        }
        out.flush()?;
        match &self.report {
            Some(file) => std::fs::write(file, page()).with_context(|| file.display().to_string()),
            None => Ok(()),
        }
    }
}

fn text(report: &Report, unit: &str, out: &mut Output) -> Result<()> {
    writeln!(out, "{} on {}", report.workload, report.target)?;
    if !report.loops.is_empty() {
        loops(report, out)?;
    }
    writeln!(
        out,
        "\n{:<8} {:>12} {:>10} {:>10} {:>14}",
        "phase",
        unit,
        "wall s",
        "cpu s",
        format!("{unit}/s")
    )?;
    for p in &report.phases {
        row(out, &p.name, p.count, p.time, p.per_sec)?;
    }
    let mib = report.bytes >> 20;
    let per_sec = report.bytes_per_sec / f64::from(1 << 20);
    if report.loops.is_empty() && unit != "files" {
        row(out, "durable", mib, report.time, per_sec)?;
    } else {
        row(
            out,
            "durable",
            report.files,
            report.time,
            report.files_per_sec,
        )?;
    }
    writeln!(
        out,
        "\nwall {:.3} s, cpu {:.3} s (the whole machine {:.2} s), {per_sec:.1} MiB/s of file data, sync included",
        report.time.wall_s, report.time.cpu_s, report.time.machine_cpu_s
    )?;
    match &report.device {
        Some(device) => {
            writeln!(out, "{}", device_line(device))?;
            let commits = device.commits_per_sec(report.time);
            let commits = commits.map_or(String::new(), |n| format!(", {n:.1} commits/s"));
            let iops = human::count(device.write_iops(report.time).round() as u64);
            writeln!(out, "rates: {iops} write IOPS{commits}")?;
        }
        None => writeln!(out, "device: no counters to be had")?,
    }
    latencies(report, out)?;
    pace::table(&report.paces, out)
}

fn row(out: &mut Output, name: &str, count: u64, time: Time, per_sec: f64) -> Result<()> {
    let count = human::count(count);
    let (wall, cpu) = (time.wall_s, time.cpu_s);
    let per_sec = human::count(per_sec as u64);
    writeln!(
        out,
        "{name:<8} {count:>12} {wall:>10.3} {cpu:>10.3} {per_sec:>14}"
    )?;
    Ok(())
}

/// fs_mark's own columns.
fn loops(report: &Report, out: &mut Output) -> Result<()> {
    writeln!(
        out,
        "\nFSUse%        Count         Size    Files/sec     App Overhead"
    )?;
    for l in &report.loops {
        writeln!(
            out,
            "{:>6.0}{:>13}{:>13}{:>13.1}{:>17}",
            l.fs_use_percent.floor(),
            l.count,
            l.size,
            l.files_per_sec,
            l.app_overhead_us
        )?;
    }
    Ok(())
}

fn device_line(d: &Device) -> String {
    let commits = d
        .commits
        .map_or(String::new(), |n| format!(", {} commits", human::count(n)));
    format!(
        "device: {} writes of {} on average, {} merged, {} written, {} flushes{commits}, {} read",
        human::count(d.write_ios),
        human::bytes(d.mean_write_bytes()),
        human::count(d.merged),
        human::bytes(d.write_bytes),
        human::count(d.flushes),
        human::bytes(d.read_bytes)
    )
}

fn latencies(report: &Report, out: &mut Output) -> Result<()> {
    if report.latency.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\n{:<8} {:>12} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "call", "count", "mean µs", "p50", "p99", "p99.9", "max"
    )?;
    for (name, l) in &report.latency {
        let count = human::count(l.count);
        writeln!(
            out,
            "{name:<8} {count:>12} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>10.1}",
            l.mean_us, l.p50_us, l.p99_us, l.p999_us, l.max_us
        )?;
    }
    Ok(())
}
