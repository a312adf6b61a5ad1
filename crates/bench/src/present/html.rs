//! Reports and comparisons as self-contained HTML pages: no script, no network, light and dark.

use super::chart::{self, Bar, Scale, escape};
use super::grid::Grid;
use super::interference;
use super::machine::machine;
use super::number::{bytes, count, duration, mib, times, whole};
use super::storms;
use super::table;
use crate::compare::{Outcome, Row};
use crate::{Device, Period, Report};
use std::fmt::Write;

/// The names of SluiceFS's rows start with this.
const OURS: &str = "SluiceFS";

/// Returns the page of a run. `unit` is the unit that its phases count; `when` is the date.
pub fn report_page(report: &Report, unit: &str, when: &str) -> String {
    let mut body = tiles(report, unit);
    body += &over_time(report, unit);
    body += &paces(report);
    body += &interference_plots(report);
    if let Some(found) = &report.interference {
        for (title, table) in interference::tables(found) {
            body += &section(&title, &grid(&table));
        }
    }
    body += &device_section(report);
    body += &section("Iterations (the columns of fs_mark)", &loops(report));
    body += &section("Phases", &phases(report, unit));
    if let Some(found) = &report.storms {
        for (title, table) in storms::tables(found) {
            body += &section(&title, &grid(&table));
        }
    }
    body += &section(
        "Latency of single calls, in microseconds",
        &latencies(report),
    );
    page(&report.workload, &report.target, when, &body)
}

/// Returns the page of a comparison. `when` is the date.
pub fn comparison_page(outcome: &Outcome, when: &str) -> String {
    let per_sec = format!("{}/s", outcome.unit);
    let mut body = String::new();
    let note = |row: &Row| match row.ratio {
        Some(ratio) if row.name != outcome.targets[0].name => format!("({})", times(ratio)),
        _ => String::new(),
    };
    let bar = |value: &dyn Fn(&Row) -> Option<f64>, note: &dyn Fn(&Row) -> String| -> Vec<Bar> {
        let bars = outcome.targets.iter().map(|row| Bar {
            name: row.name.clone(),
            value: value(row),
            note: note(row),
            ours: row.peer.is_ours(),
        });
        bars.collect()
    };
    if outcome.is_of_interfere() {
        let beside = |row: &Row| row.report.interference.as_ref()?.p99_us();
        let bars = bar(&beside, &|_| String::new());
        let title = "p99 of the reader beside the writer (logarithmic scale)";
        body += &section(title, &chart::bars(&bars, Scale::Log, duration));
    }
    let rate = |row: &Row| row.durable.then(|| table::amount(outcome, &row.report).1);
    let title = match outcome.is_of_interfere() {
        true => "MiB/s of the writer until its data is durable".to_owned(),
        false => format!(
            "{per_sec} until all data is durable; in parentheses: how many times faster the first row is"
        ),
    };
    let bars = bar(&rate, &note);
    body += &section(&title, &chart::bars(&bars, Scale::Linear, whole));
    let writes = |row: &Row| {
        let device = row.report.device.as_ref().filter(|_| row.durable)?;
        Some(1000.0 * device.write_ios as f64 / row.report.files.max(1) as f64)
    };
    if outcome.unit == "files" {
        let bars = bar(&writes, &|_| String::new());
        let drawn = chart::bars(&bars, Scale::Log, tenths);
        body += &section("Device writes for 1000 files (logarithmic scale)", &drawn);
    }
    body += &section("All figures", &grid(&table::figures(outcome)));
    for (title, table) in table::details(outcome) {
        body += &section(&title, &grid(&table));
    }
    body += &match outcome.is_of_interfere() {
        true => rows_over_time(outcome),
        false => rates_over_time(outcome, &per_sec),
    };
    if let Some(ours) = outcome.targets.first() {
        body += &device_section(&ours.report);
    }
    body += &notes(outcome);
    let subtitle = format!("{}; {}", outcome.description, table::rounds(outcome));
    page(
        &format!("SluiceFS and its peers: {}", outcome.workload),
        &subtitle,
        when,
        &body,
    )
}

/// The rate of each row.
fn rates_over_time(outcome: &Outcome, per_sec: &str) -> String {
    let curves = outcome
        .targets
        .iter()
        .filter(|row| row.report.samples.len() > 1);
    let curves: String = curves
        .map(|row| section(&row.name, &curve(&row.report, whole)))
        .collect();
    match curves.is_empty() {
        true => curves,
        false => format!(
            r#"<div class="wide"><h2>{per_sec} over time, median rounds</h2></div><div class="pair">{curves}</div>"#
        ),
    }
}

/// The reader and the writer of each row.
fn rows_over_time(outcome: &Outcome) -> String {
    let rows = outcome.targets.iter().map(|row| {
        let plots = interference_plots(&row.report);
        let name = escape(&row.name);
        format!(r#"<div class="wide"><h2>{name}</h2></div>{plots}"#)
    });
    rows.collect()
}

fn notes(outcome: &Outcome) -> String {
    let items: String = table::notes(outcome)
        .map(|note| format!("<li>{}</li>", escape(&note)))
        .collect();
    match items.is_empty() {
        true => String::new(),
        false => section("Notes", &format!(r#"<ul class="notes">{items}</ul>"#)),
    }
}

/// The most important figures.
fn tiles(report: &Report, unit: &str) -> String {
    let mib_per_sec = mib(report.bytes_per_sec);
    let mut tiles = Vec::new();
    if unit == "files" {
        tiles.push((whole(report.files_per_sec), "files/s, with the final sync"));
    }
    tiles.push((whole(mib_per_sec), "MiB/s of file data"));
    tiles.push((format!("{:.2} s", report.time.wall_s), "wall-clock time"));
    tiles.push((format!("{:.2} s", report.time.cpu_s), "processor time"));
    if let Some(found) = &report.interference {
        let alone_and_beside = [Period::Alone, Period::Writer].map(|period| found.period(period));
        let names = ["p99 of the reader alone", "p99 beside the writer"];
        for (period, name) in alone_and_beside.into_iter().zip(names) {
            let latency = period.and_then(|period| period.reader);
            tiles.extend(latency.map(|latency| (duration(latency.p99_us), name)));
        }
    }
    if let Some(d) = &report.device {
        tiles.push((count(d.write_ios), "device writes"));
        tiles.push((bytes(d.mean_write_bytes()), "mean size of a write"));
    }
    let tiles = tiles.iter().map(|(figure, name)| {
        format!(
            r#"<div class="tile"><b>{}</b><span>{name}</span></div>"#,
            escape(figure)
        )
    });
    format!(r#"<div class="tiles">{}</div>"#, tiles.collect::<String>())
}

/// The rates of the workload and of the device in each tenth of a second.
fn over_time(report: &Report, unit: &str) -> String {
    if report.samples.len() < 2 || !report.paces.is_empty() || report.interference.is_some() {
        return String::new();
    }
    let mut from = 0.0;
    let device = report.samples.iter().map(|s| {
        let seconds = (s.at_s - from).max(1e-9);
        from = s.at_s;
        (s.at_s, mib(s.device_write_bytes as f64) / seconds)
    });
    let device: Vec<_> = device.collect();
    let of_device = chart::steps(&device, &marks(report), whole);
    format!(
        r#"<div class="pair">{}{}</div>"#,
        section(&format!("{unit}/s over time"), &curve(report, whole)),
        section("MiB/s written by the device over time", &of_device)
    )
}

fn curve(report: &Report, format: chart::Format) -> String {
    let points: Vec<_> = report
        .samples
        .iter()
        .map(|s| (s.at_s, s.files_per_sec))
        .collect();
    chart::steps(&points, &marks(report), format)
}

/// The start of each phase.
fn marks(report: &Report) -> Vec<(f64, String)> {
    let mut at = 0.0;
    let marks = report.phases.iter().map(|phase| {
        let mark = (at, phase.name.clone());
        at += phase.time.wall_s;
        mark
    });
    marks.collect()
}

/// The rates of the writers on each device.
fn paces(report: &Report) -> String {
    let charts = report.paces.iter().map(|pace| {
        let points = pace.rates.iter().enumerate();
        let points: Vec<_> = points
            .map(|(i, rate)| ((i + 1) as f64 / 10.0, mib(*rate)))
            .collect();
        let title = format!(
            "{}: {:.1} MiB/s, coefficient of variation {:.3}, longest pause {:.0} ms",
            pace.name,
            mib(pace.bytes_per_sec),
            pace.cv_1s,
            pace.longest_pause_us / 1e3
        );
        section(&title, &chart::steps(&points, &[], whole))
    });
    match report.paces.is_empty() {
        true => String::new(),
        false => format!(r#"<div class="pair">{}</div>"#, charts.collect::<String>()),
    }
}

/// The reader, the writer, the device and the throttle over time.
fn interference_plots(report: &Report) -> String {
    let plots = report.interference.iter().flat_map(interference::plots);
    let plots: String = plots.map(|(title, plot)| section(title, &plot)).collect();
    match plots.is_empty() {
        true => plots,
        false => format!(r#"<div class="pair">{plots}</div>"#),
    }
}

/// The counters of the device and the sizes of its write requests.
fn device_section(report: &Report) -> String {
    let Some(device) = &report.device else {
        return String::new();
    };
    let mut lines = vec![
        ("write requests", count(device.write_ios)),
        ("mean size", bytes(device.mean_write_bytes())),
        ("merged writes", count(device.merged)),
        ("written", bytes(device.write_bytes)),
        ("flushes", count(device.flushes)),
        ("read requests", count(device.read_ios)),
        ("read", bytes(device.read_bytes)),
    ];
    lines.extend(device.commits.map(|n| ("journal commits", count(n))));
    let lines = lines
        .into_iter()
        .map(|(name, figure)| vec![name.to_owned(), figure]);
    let figures = rows(&[], &lines.collect::<Vec<_>>());
    format!(
        r#"<div class="pair">{}{}</div>"#,
        section("The device", &figures),
        section(
            "Write requests by size (4K: from 4 to 8 KiB)",
            &sizes(device)
        )
    )
}

fn sizes(device: &Device) -> String {
    let sizes = &device.write_sizes;
    let (Some(first), Some(last)) = (sizes.first(), sizes.last()) else {
        return String::new();
    };
    // Empty classes are shown, too, because the axis is one of sizes.
    let classes = (first.least_bytes.ilog2()..=last.least_bytes.ilog2()).map(|log2| {
        let found = sizes.iter().find(|class| class.least_bytes == 1 << log2);
        (
            short_bytes(1 << log2),
            found.map_or(0.0, |class| class.requests as f64),
        )
    });
    chart::histogram(&classes.collect::<Vec<_>>(), whole)
}

fn loops(report: &Report) -> String {
    let header = [
        "FSUse%",
        "Count",
        "Size",
        "Files/sec",
        "App Overhead",
        "wall s",
        "cpu s",
    ];
    let lines = report.loops.iter().map(|l| {
        vec![
            format!("{:.0}", l.fs_use_percent.floor()),
            count(l.count),
            count(l.size),
            whole(l.files_per_sec),
            count(l.app_overhead_us),
            format!("{:.3}", l.time.wall_s),
            format!("{:.3}", l.time.cpu_s),
        ]
    });
    rows(&header.map(str::to_owned), &lines.collect::<Vec<_>>())
}

fn phases(report: &Report, unit: &str) -> String {
    let header = [
        "phase",
        unit,
        "wall s",
        "cpu s",
        "cpu s, whole machine",
        "per second",
    ];
    let lines = report.phases.iter().map(|p| {
        vec![
            p.name.clone(),
            count(p.count),
            format!("{:.3}", p.time.wall_s),
            format!("{:.3}", p.time.cpu_s),
            format!("{:.2}", p.time.machine_cpu_s),
            whole(p.per_sec),
        ]
    });
    rows(&header.map(str::to_owned), &lines.collect::<Vec<_>>())
}

fn latencies(report: &Report) -> String {
    let header = [
        "call", "count", "mean", "50 %", "90 %", "99 %", "99.9 %", "longest",
    ];
    let lines = report.latency.iter().map(|(name, l)| {
        let us = [l.mean_us, l.p50_us, l.p90_us, l.p99_us, l.p999_us, l.max_us];
        let mut cells = vec![name.clone(), count(l.count)];
        cells.extend(us.map(duration));
        cells
    });
    rows(&header.map(str::to_owned), &lines.collect::<Vec<_>>())
}

/// A section of the page; nothing if it has no content.
fn section(title: &str, content: &str) -> String {
    if content.is_empty() {
        return String::new();
    }
    let title = escape(title);
    format!(r#"<section class="wide"><h2>{title}</h2>{content}</section>"#)
}

fn grid(table: &Grid) -> String {
    rows(&table.header, &table.lines)
}

/// A table; nothing if it has no lines.
fn rows(header: &[String], lines: &[Vec<String>]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let cells = |tag: &str, cells: &[String]| -> String {
        let cell = |cell: &String| format!("<{tag}>{}</{tag}>", escape(cell));
        cells.iter().map(cell).collect()
    };
    let mut html = format!(
        "<table><thead><tr>{}</tr></thead><tbody>",
        cells("th", header)
    );
    for line in lines {
        let ours = line.first().is_some_and(|name| name.starts_with(OURS));
        let class = if ours { r#" class="ours""# } else { "" };
        let _ = write!(html, "<tr{class}>{}</tr>", cells("td", line));
    }
    html + "</tbody></table>"
}

fn page(title: &str, subtitle: &str, when: &str, body: &str) -> String {
    let (title, subtitle) = (escape(title), escape(subtitle));
    let (when, machine) = (escape(when), escape(&machine()));
    let (style, version) = (include_str!("style.css"), env!("CARGO_PKG_VERSION"));
    format!(
        r#"<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>
{style}</style></head><body>
<header><h1>{title}</h1><p>{subtitle}</p><p>{when} · {machine}</p></header>
{body}
<footer>Written by sluice {version}. Times and device counters include the final sync unless a table says otherwise.</footer>
</body></html>
"#
    )
}

fn tenths(n: f64) -> String {
    match n < 100.0 {
        true => format!("{n:.1}"),
        false => whole(n),
    }
}

/// A power of two without a fraction.
fn short_bytes(n: u64) -> String {
    match n {
        0..1024 => n.to_string(),
        1024..1_048_576 => format!("{}K", n >> 10),
        _ => format!("{}M", n >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SizeClass, Time};

    #[test]
    fn names_cannot_become_markup() {
        let report = Report {
            target: r#"<img src="x">&"#.to_owned(),
            ..Report::default()
        };
        let page = report_page(&report, "files", "today");
        assert!(page.contains("&lt;img src=&quot;x&quot;&gt;&amp;"));
        assert!(!page.contains("<img"));
    }

    #[test]
    fn the_page_loads_no_other_file() {
        let report = Report {
            files: 10,
            time: Time {
                wall_s: 1.0,
                ..Time::default()
            },
            device: Some(Device {
                write_sizes: vec![
                    SizeClass {
                        least_bytes: 4096,
                        requests: 3,
                    },
                    SizeClass {
                        least_bytes: 1 << 20,
                        requests: 9,
                    },
                ],
                ..Device::default()
            }),
            samples: vec![Default::default(); 3],
            ..Report::default()
        };
        let page = report_page(&report, "files", "today");
        for outside in ["<script", "<link", "@import", "url(", "src="] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert_eq!(page.matches("<svg").count(), 3);
        // The classes from 4 KiB to 1 MiB, with empty ones.
        assert_eq!(page.matches("<rect").count(), 9);
    }
}
