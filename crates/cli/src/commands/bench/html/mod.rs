//! A report as one self-contained page: no script, nothing from the network, light and dark.

mod chart;

use super::table;
use crate::human;
use ::bench::compare::{Outcome, Row};
use ::bench::{Device, Report};
use chart::{Bar, Scale};
use std::fmt::Write;
use std::time::SystemTime;

/// How the names of ours begin.
const OURS: &str = "SluiceFS";

/// The page of a run; `unit` is what its phases count.
pub fn of_report(report: &Report, unit: &str) -> String {
    let mut body = tiles(report, unit);
    body += &over_time(report, unit);
    body += &paces(report);
    body += &device_section(report);
    body += &section("Iterations, as fs_mark tells of them", &loops(report));
    body += &section("Phases", &phases(report, unit));
    body += &section(
        "Latency of single calls, in microseconds",
        &latencies(report),
    );
    page(&report.workload, &report.target, &body)
}

/// The page of a comparison.
pub fn of_comparison(outcome: &Outcome) -> String {
    let per_sec = format!("{}/s", outcome.unit);
    let mut body = String::new();
    let note = |row: &Row| match row.ratio {
        Some(ratio) if row.name != outcome.targets[0].name => format!("({})", table::times(ratio)),
        _ => String::new(),
    };
    let bar = |value: &dyn Fn(&Row) -> Option<f64>, note: &dyn Fn(&Row) -> String| -> Vec<Bar> {
        let bars = outcome.targets.iter().map(|row| Bar {
            name: row.name.clone(),
            value: value(row),
            note: note(row),
            ours: row.name.starts_with(OURS),
        });
        bars.collect()
    };
    let rate = |row: &Row| row.durable.then(|| table::amount(outcome, &row.report).1);
    let title = format!(
        "{per_sec} until everything is on the device, and how many times faster SluiceFS in process is"
    );
    body += &section(
        &title,
        &chart::bars(&bar(&rate, &note), Scale::Linear, number),
    );
    let writes = |row: &Row| {
        let device = row.report.device.as_ref().filter(|_| row.durable)?;
        Some(1000.0 * device.write_ios as f64 / row.report.files.max(1) as f64)
    };
    if outcome.unit == "files" {
        let bars = bar(&writes, &|_| String::new());
        let drawn = chart::bars(&bars, Scale::Log, tenths);
        body += &section(
            "Device writes for 1000 files (each tenfold is as long as the next)",
            &drawn,
        );
    }
    body += &section(
        "All figures",
        &rows(&table::header(outcome), &table::rows(outcome)),
    );
    if let Some((header, lines)) = table::phases(outcome) {
        body += &section(
            &format!("Phases, {} per second", outcome.unit),
            &rows(&header, &lines),
        );
    }
    let curves = outcome
        .targets
        .iter()
        .filter(|row| row.report.samples.len() > 1);
    let curves: String = curves
        .map(|row| section(&row.name, &curve(&row.report, number)))
        .collect();
    if !curves.is_empty() {
        let _ = write!(
            body,
            r#"<div class="wide"><h2>{per_sec} over time, median rounds</h2></div><div class="pair">{curves}</div>"#
        );
    }
    if let Some(ours) = outcome.targets.first() {
        body += &device_section(&ours.report);
    }
    body += &notes(outcome);
    let subtitle = format!("{}; {}", outcome.description, table::rounds(outcome));
    page(
        &format!("SluiceFS beside others: {}", outcome.workload),
        &subtitle,
        &body,
    )
}

fn notes(outcome: &Outcome) -> String {
    let notes = outcome
        .targets
        .iter()
        .filter_map(|row| Some((&row.name, row.note.as_ref()?)));
    let notes = notes.map(|(name, note)| format!("{name}: {note}"));
    let left_out = outcome
        .left_out
        .iter()
        .map(|l| format!("left out: {}: {}", l.name, l.why));
    let items: String = notes
        .chain(left_out)
        .map(|note| format!("<li>{}</li>", escape(&note)))
        .collect();
    match items.is_empty() {
        true => String::new(),
        false => section("Notes", &format!(r#"<ul class="notes">{items}</ul>"#)),
    }
}

/// The figures that matter most.
fn tiles(report: &Report, unit: &str) -> String {
    let mib_per_sec = mib(report.bytes_per_sec);
    let mut tiles = Vec::new();
    if unit == "files" {
        tiles.push((number(report.files_per_sec), "files/s, sync included"));
    }
    tiles.push((number(mib_per_sec), "MiB/s of file data"));
    tiles.push((format!("{:.2} s", report.time.wall_s), "wall-clock time"));
    tiles.push((format!("{:.2} s", report.time.cpu_s), "processor time"));
    if let Some(d) = &report.device {
        tiles.push((human::count(d.write_ios), "device writes"));
        tiles.push((human::bytes(d.mean_write_bytes()), "of each on average"));
    }
    let tiles = tiles.iter().map(|(figure, name)| {
        format!(
            r#"<div class="tile"><b>{}</b><span>{name}</span></div>"#,
            escape(figure)
        )
    });
    format!(r#"<div class="tiles">{}</div>"#, tiles.collect::<String>())
}

/// Rates in each tenth of a second: of the workload, and of the device.
fn over_time(report: &Report, unit: &str) -> String {
    if report.samples.len() < 2 || !report.paces.is_empty() {
        return String::new();
    }
    let mut from = 0.0;
    let device = report.samples.iter().map(|s| {
        let seconds = (s.at_s - from).max(1e-9);
        from = s.at_s;
        (s.at_s, mib(s.device_write_bytes as f64) / seconds)
    });
    let device: Vec<_> = device.collect();
    let of_device = chart::steps(&device, &marks(report), number);
    format!(
        r#"<div class="pair">{}{}</div>"#,
        section(&format!("{unit}/s over time"), &curve(report, number)),
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

/// Where each phase begins.
fn marks(report: &Report) -> Vec<(f64, String)> {
    let mut at = 0.0;
    let marks = report.phases.iter().map(|phase| {
        let mark = (at, phase.name.clone());
        at += phase.time.wall_s;
        mark
    });
    marks.collect()
}

/// Writers' rates, device by device.
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
        section(&title, &chart::steps(&points, &[], number))
    });
    match report.paces.is_empty() {
        true => String::new(),
        false => format!(r#"<div class="pair">{}</div>"#, charts.collect::<String>()),
    }
}

/// What reached the device, and in requests of which sizes.
fn device_section(report: &Report) -> String {
    let Some(device) = &report.device else {
        return String::new();
    };
    let mut lines = vec![
        ("write requests", human::count(device.write_ios)),
        ("mean size of one", human::bytes(device.mean_write_bytes())),
        ("merged into another's", human::count(device.merged)),
        ("written", human::bytes(device.write_bytes)),
        ("flushes", human::count(device.flushes)),
        ("read requests", human::count(device.read_ios)),
        ("read", human::bytes(device.read_bytes)),
    ];
    lines.extend(device.commits.map(|n| ("journal commits", human::count(n))));
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
    // Classes without any stand there, too: the axis is one of sizes.
    let classes = (first.least_bytes.ilog2()..=last.least_bytes.ilog2()).map(|log2| {
        let found = sizes.iter().find(|class| class.least_bytes == 1 << log2);
        (
            short_bytes(1 << log2),
            found.map_or(0.0, |class| class.requests as f64),
        )
    });
    chart::histogram(&classes.collect::<Vec<_>>(), number)
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
            human::count(l.count),
            human::count(l.size),
            number(l.files_per_sec),
            human::count(l.app_overhead_us),
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
            human::count(p.count),
            format!("{:.3}", p.time.wall_s),
            format!("{:.3}", p.time.cpu_s),
            format!("{:.2}", p.time.machine_cpu_s),
            number(p.per_sec),
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
        let mut cells = vec![name.clone(), human::count(l.count)];
        cells.extend(us.map(|us| format!("{us:.1}")));
        cells
    });
    rows(&header.map(str::to_owned), &lines.collect::<Vec<_>>())
}

/// A part of the page; nothing where there is nothing in it.
fn section(title: &str, content: &str) -> String {
    if content.is_empty() {
        return String::new();
    }
    let title = escape(title);
    format!(r#"<section class="wide"><h2>{title}</h2>{content}</section>"#)
}

/// A table; nothing without a line.
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

fn page(title: &str, subtitle: &str, body: &str) -> String {
    let (title, subtitle) = (escape(title), escape(subtitle));
    let (when, machine) = (human::local_minute(SystemTime::now()), escape(&machine()));
    let (style, version) = (include_str!("style.css"), env!("CARGO_PKG_VERSION"));
    format!(
        r#"<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>
{style}</style></head><body>
<header><h1>{title}</h1><p>{subtitle}</p><p>{when} · {machine}</p></header>
{body}
<footer>Written by sluice {version}. Times and device counters cover the work and a final sync, unless a table says otherwise.</footer>
</body></html>
"#
    )
}

/// What it ran on: processors, memory, kernel.
fn machine() -> String {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let memory = bench::meminfo::bytes("MemTotal").map_or(String::new(), |bytes| {
        format!(", {} of memory", human::bytes(bytes))
    });
    format!("{processors} processors{memory}, Linux {}", kernel.trim())
}

/// For text and attributes.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

fn number(n: f64) -> String {
    human::count(n.round() as u64)
}

fn tenths(n: f64) -> String {
    match n < 100.0 {
        true => format!("{n:.1}"),
        false => number(n),
    }
}

fn mib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
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
    use ::bench::{SizeClass, Time};

    #[test]
    fn names_cannot_become_markup() {
        let report = Report {
            target: r#"<img src="x">&"#.to_owned(),
            ..Report::default()
        };
        let page = of_report(&report, "files");
        assert!(page.contains("&lt;img src=&quot;x&quot;&gt;&amp;"));
        assert!(!page.contains("<img"));
    }

    #[test]
    fn the_page_needs_nothing_else() {
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
        let page = of_report(&report, "files");
        for outside in ["<script", "<link", "@import", "url(", "src="] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert_eq!(page.matches("<svg").count(), 3);
        // The classes from 4 KiB to 1 MiB, those without any included.
        assert_eq!(page.matches("<rect").count(), 9);
    }
}
