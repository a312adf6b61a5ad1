//! A report as text.

use super::number::{bytes, count, duration, mib, whole};
use super::{interference, pace, storms};
use crate::{Device, Report, Time};
use std::fmt::{self, Write};

/// Returns a report as text. `unit` is the unit that its phases count.
pub fn report_text(report: &Report, unit: &str) -> String {
    let mut out = String::new();
    write_report(report, unit, &mut out).expect("a String accepts all text");
    out
}

fn write_report(report: &Report, unit: &str, out: &mut String) -> fmt::Result {
    writeln!(out, "{} on {}", report.workload, report.target)?;
    if !report.loops.is_empty() {
        loops(report, out)?;
    }
    writeln!(
        out,
        "\n{:<10} {:>12} {:>10} {:>10} {:>14}",
        "phase",
        unit,
        "wall s",
        "cpu s",
        format!("{unit}/s")
    )?;
    for p in &report.phases {
        row(out, &p.name, p.count, p.time, p.per_sec)?;
    }
    let per_sec = mib(report.bytes_per_sec);
    if report.loops.is_empty() && unit != "files" {
        row(out, "durable", report.bytes >> 20, report.time, per_sec)?;
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
            let iops = whole(device.write_iops(report.time));
            writeln!(out, "rates: {iops} write IOPS{commits}")?;
        }
        None => writeln!(out, "device: no counters")?,
    }
    latencies(report, out)?;
    if let Some(found) = &report.interference {
        for (title, table) in interference::tables(found) {
            write!(out, "\n{title}\n\n{}", table.text())?;
        }
    }
    if let Some(found) = &report.storms {
        for (title, table) in storms::tables(found) {
            write!(out, "\n{title}\n\n{}", table.text())?;
        }
    }
    for note in &report.notes {
        writeln!(out, "\n{note}")?;
    }
    pace::table(&report.paces, out)
}

fn row(out: &mut String, name: &str, files: u64, time: Time, per_sec: f64) -> fmt::Result {
    let files = count(files);
    let (wall, cpu) = (time.wall_s, time.cpu_s);
    let per_sec = count(per_sec as u64);
    writeln!(
        out,
        "{name:<10} {files:>12} {wall:>10.3} {cpu:>10.3} {per_sec:>14}"
    )?;
    Ok(())
}

/// The columns of fs_mark.
fn loops(report: &Report, out: &mut String) -> fmt::Result {
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
        .map_or(String::new(), |n| format!(", {} commits", count(n)));
    format!(
        "device: {} writes of {} on average, {} merged, {} written, {} flushes{commits}, {} read",
        count(d.write_ios),
        bytes(d.mean_write_bytes()),
        count(d.merged),
        bytes(d.write_bytes),
        count(d.flushes),
        bytes(d.read_bytes)
    )
}

fn latencies(report: &Report, out: &mut String) -> fmt::Result {
    if report.latency.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\n{:<8} {:>12} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "call", "count", "mean", "p50", "p99", "p99.9", "max"
    )?;
    for (name, l) in &report.latency {
        let calls = count(l.count);
        write!(out, "{name:<8} {calls:>12}")?;
        for us in [l.mean_us, l.p50_us, l.p99_us, l.p999_us, l.max_us] {
            write!(out, " {:>10}", duration(us))?;
        }
        writeln!(out)?;
    }
    Ok(())
}
