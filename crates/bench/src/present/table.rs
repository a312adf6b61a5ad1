//! A comparison as text and as Markdown.

use super::grid::Grid;
use super::interference;
use super::number::{bytes, count, mib, times, whole};
use super::storms;
use crate::compare::{Images, Outcome, Peer, Row};
use crate::fsmark::Fsync;
use crate::{Device, Phase, Report, Time};

/// The text of an unknown value.
const NONE: &str = "–";

/// Returns the tables of a comparison and its notes as text.
pub fn comparison_text(outcome: &Outcome) -> String {
    let what = match (outcome.is_of_interfere(), outcome.is_of_storms()) {
        (true, _) => "the writer's rate until its data is durable",
        (_, true) => "times of syncs at once",
        _ => "until all data is durable",
    };
    let mut text = format!(
        "{}: {}\n{what}; {}\n\n",
        outcome.workload,
        outcome.description,
        rounds(outcome)
    );
    text += &figures(outcome).text();
    for (title, table) in details(outcome) {
        text += &format!("\n{title}\n\n{}", table.text());
    }
    for note in notes(outcome) {
        text += &format!("\n{note}");
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// Returns the most important figures as one Markdown table: rates, and how many times faster the
/// first row is. If asynchronous fsync was measured, also each ratio to the best and to the
/// blocking fsync of each peer.
pub fn comparison_markdown(outcome: &Outcome) -> String {
    let mut text = short_figures(outcome).markdown();
    for (_, table) in details(outcome) {
        text += &format!("\n{}", table.markdown());
    }
    let notes: Vec<_> = notes(outcome).collect();
    text += &format!("\n{}", capital(&rounds(outcome)));
    text += &notes
        .iter()
        .map(|note| format!(". {note}"))
        .collect::<String>();
    text + ".\n"
}

/// The tables after the main one, with their titles.
pub(super) fn details(outcome: &Outcome) -> Vec<(String, Grid)> {
    let ratios = ratios(outcome).map(|table| {
        let title = "SluiceFS's rate as a multiple of a peer's best and blocking fsync";
        (title.to_owned(), table)
    });
    let storms = outcome.is_of_storms().then(|| storms::creation(outcome));
    let phases = phases(outcome).map(|table| (format!("phases, {}/s", outcome.unit), table));
    let times = phase_times(outcome).map(|table| {
        let title = "phases, seconds of wall-clock time and of all processors";
        (title.to_owned(), table)
    });
    ratios
        .into_iter()
        .chain(storms.flatten())
        .chain(phases)
        .chain(times)
        .collect()
}

/// Explanations of rows, and the rows that are missing.
pub(super) fn notes(outcome: &Outcome) -> impl Iterator<Item = String> {
    let notes = outcome
        .targets
        .iter()
        .filter_map(|row| Some(format!("{}: {}", row.name, row.note.as_ref()?)));
    let left_out = outcome
        .left_out
        .iter()
        .map(|left_out| format!("left out: {}: {}", left_out.name, left_out.why));
    notes.chain(left_out)
}

/// Capitalises the first letter.
pub(super) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_uppercase().to_string());
    first.unwrap_or_default() + chars.as_str()
}

/// The few columns of a documentation page.
fn short_figures(outcome: &Outcome) -> Grid {
    if outcome.is_of_interfere() {
        return interference::comparison(outcome);
    }
    if outcome.is_of_storms() {
        return storms::comparison(outcome);
    }
    let per_sec = format!("{}/s", outcome.unit);
    let mut header = vec![String::new(), per_sec, "SluiceFS is".to_owned()];
    if counts_files(outcome) {
        header.push("device writes per 1,000 files".to_owned());
    }
    // The latency of single fsyncs, if no row has several in flight.
    let fsync = |row: &Row| row.report.latency.get("fsync").copied();
    let mut rows = outcome.targets.iter();
    let blocking = rows.all(|row| row.fsync == Fsync::Blocking && fsync(row).is_some());
    if blocking {
        header.extend(["fsync p50, µs".to_owned(), "p99, µs".to_owned()]);
    }
    header.extend(["flushes".to_owned(), "spread".to_owned()]);
    let line = |row: &Row| {
        let known = |text: String| if row.durable { text } else { NONE.to_owned() };
        let device = row.report.device.as_ref().filter(|_| row.durable);
        let mut cells = vec![
            row.name.clone(),
            known(whole(amount(outcome, &row.report).1)),
            row.ratio.map_or(NONE.to_owned(), times),
        ];
        if counts_files(outcome) {
            cells.push(device.map_or(NONE.to_owned(), |d| writes_per_1000(d, &row.report)));
        }
        if blocking {
            let latency = fsync(row).unwrap_or_default();
            cells.extend([whole(latency.p50_us), whole(latency.p99_us)]);
        }
        cells.push(device.map_or(NONE.to_owned(), |d| count(d.flushes)));
        cells.push(known(spread(&row.files_per_sec)));
        cells
    };
    Grid {
        header,
        lines: outcome.targets.iter().map(line).collect(),
    }
}

/// Each row of SluiceFS, with two columns for each peer.
fn ratios(outcome: &Outcome) -> Option<Grid> {
    let compared = |peer: &Peer| outcome.ratios.iter().any(|ratio| ratio.peer == *peer);
    let peers: Vec<_> = Peer::ALL.into_iter().filter(compared).collect();
    if peers.is_empty() {
        return None;
    }
    let mut header = vec![String::new()];
    for peer in &peers {
        header.push(format!("{}, best", peer.name()));
        header.push(format!("{}, blocking", peer.name()));
    }
    let cells = |ours: &str, peer: Peer| {
        let mut ratios = outcome.ratios.iter();
        let found = ratios.find(|ratio| ratio.ours == ours && ratio.peer == peer);
        found.map_or([NONE.to_owned(), NONE.to_owned()], |ratio| {
            let best = match ratio.best_fsync {
                Fsync::Blocking => times(ratio.best),
                fsync => format!("{} ({fsync})", times(ratio.best)),
            };
            [best, ratio.blocking.map_or(NONE.to_owned(), times)]
        })
    };
    let ours = outcome.targets.iter().filter(|row| row.peer.is_ours());
    let line = |row: &Row| {
        let ratios = peers.iter().flat_map(|&peer| cells(&row.name, peer));
        std::iter::once(row.name.clone()).chain(ratios).collect()
    };
    Some(Grid {
        header,
        lines: ours.map(line).collect(),
    })
}

/// All columns.
pub(super) fn figures(outcome: &Outcome) -> Grid {
    if outcome.is_of_interfere() {
        return interference::comparison(outcome);
    }
    if outcome.is_of_storms() {
        return storms::comparison(outcome);
    }
    Grid {
        header: header(outcome),
        lines: outcome
            .targets
            .iter()
            .map(|row| cells(outcome, row))
            .collect(),
    }
}

fn header(outcome: &Outcome) -> Vec<String> {
    let mut header = vec![String::new(), outcome.unit.clone()];
    if has_loops(outcome) {
        header.push("fs_mark's".to_owned());
    }
    header.push(format!("{}/s", outcome.unit));
    header.extend(
        [
            "spread",
            "SluiceFS is",
            "wall s",
            "cpu s",
            "writes",
            "mean write",
        ]
        .map(str::to_owned),
    );
    if counts_files(outcome) {
        header.push("per 1000 files".to_owned());
    }
    header.extend(["IOPS", "flushes", "commits", "commits/s"].map(str::to_owned));
    header
}

fn cells(outcome: &Outcome, row: &Row) -> Vec<String> {
    let report = &row.report;
    let (done, per_sec) = amount(outcome, report);
    // Data that is not durable is not part of the rate and of the device's counters.
    let known = |text: String| if row.durable { text } else { NONE.to_owned() };
    let mut cells = vec![row.name.clone(), count(done)];
    if has_loops(outcome) {
        cells.push(count(loop_rate(report) as u64));
    }
    cells.extend([
        known(count(per_sec as u64)),
        known(spread(&row.files_per_sec)),
        row.ratio.map_or(NONE.to_owned(), times),
        known(format!("{:.2}", report.time.wall_s)),
        known(format!("{:.2}", report.time.machine_cpu_s)),
    ]);
    let device = report.device.as_ref().filter(|_| row.durable);
    let of = |figure: &dyn Fn(&Device) -> String| device.map_or(NONE.to_owned(), figure);
    cells.push(of(&|d| count(d.write_ios)));
    cells.push(of(&|d| bytes(d.mean_write_bytes())));
    if counts_files(outcome) {
        cells.push(of(&|d| writes_per_1000(d, report)));
    }
    cells.push(of(&|d| whole(d.write_iops(report.time))));
    cells.push(of(&|d| count(d.flushes)));
    cells.push(of(&|d| d.commits.map_or(NONE.to_owned(), count)));
    cells.push(of(&|d| {
        d.commits_per_sec(report.time)
            .map_or(NONE.to_owned(), whole)
    }));
    cells
}

fn writes_per_1000(device: &Device, report: &Report) -> String {
    let files = report.files.max(1) as f64;
    format!("{:.1}", 1000.0 * device.write_ios as f64 / files)
}

fn counts_files(outcome: &Outcome) -> bool {
    outcome.unit == "files"
}

/// Rounds and images, in one line.
pub(super) fn rounds(outcome: &Outcome) -> String {
    let rounds = match outcome.rounds {
        1 => "one round".to_owned(),
        rounds => format!("medians of {rounds} rounds in turns"),
    };
    let size = bytes(outcome.image_bytes);
    let image = match &outcome.images {
        Images::Sparse => "new sparse images",
        Images::Written => "an image that was written before,",
        Images::Modelled(device) => &format!("{device}, a modelled device"),
    };
    format!("{rounds}; on {image} of {size}")
}

/// The amount of work, and its rate until all data was durable.
pub(super) fn amount(outcome: &Outcome, report: &Report) -> (u64, f64) {
    match outcome.unit.as_str() {
        "files" => (report.files, report.files_per_sec),
        _ => (report.bytes >> 20, mib(report.bytes_per_sec)),
    }
}

fn has_loops(outcome: &Outcome) -> bool {
    outcome
        .targets
        .iter()
        .any(|row| !row.report.loops.is_empty())
}

/// The mean of fs_mark's rates.
fn loop_rate(report: &Report) -> f64 {
    let rates = report.loops.iter().map(|l| l.files_per_sec);
    rates.sum::<f64>() / report.loops.len().max(1) as f64
}

/// Half of the difference between the fastest and the slowest round, in percent of their mean.
fn spread(rounds: &[f64]) -> String {
    let least = rounds.iter().copied().fold(f64::INFINITY, f64::min);
    let most = rounds.iter().copied().fold(0.0, f64::max);
    match rounds.len() {
        0 | 1 => NONE.to_owned(),
        _ => format!("±{:.0} %", 100.0 * (most - least) / (most + least)),
    }
}

/// The rates of phases, and how many times faster the first row is. `None` if the workload only
/// writes.
fn phases(outcome: &Outcome) -> Option<Grid> {
    let ours = &outcome.targets.first()?.report;
    phase_table(outcome, |report, name| {
        let (theirs, of) = phase_of(report, name)?;
        let ratio = phase_of(ours, name)?.0.per_sec / theirs.per_sec;
        let rate = count(theirs.per_sec as u64);
        Some(format!("{rate}{of}  {:>7}", times(ratio)))
    })
}

/// The times of the phases of `inodes`.
fn phase_times(outcome: &Outcome) -> Option<Grid> {
    if outcome.workload != "inodes" {
        return None;
    }
    phase_table(outcome, |report, name| {
        let (phase, of) = phase_of(report, name)?;
        let Time {
            wall_s,
            machine_cpu_s,
            ..
        } = phase.time;
        Some(format!("{wall_s:.2}  {machine_cpu_s:.2}{of}"))
    })
}

/// A phase, and a remark. A file system without a call for all inodes has the phase `find cold`
/// in the place of `bulkstat`.
fn phase_of<'a>(report: &'a Report, name: &str) -> Option<(&'a Phase, &'static str)> {
    let find = || (name == "bulkstat").then(|| report.phase("find cold"));
    match report.phase(name) {
        Some(phase) => Some((phase, "")),
        None => Some((find().flatten()?, " (find)")),
    }
}

/// A line for each row, and a column for each phase of the first row.
fn phase_table(outcome: &Outcome, cell: impl Fn(&Report, &str) -> Option<String>) -> Option<Grid> {
    let ours = &outcome.targets.first()?.report;
    if !ours.loops.is_empty() || outcome.is_of_interfere() || outcome.is_of_storms() {
        return None;
    }
    let names = || ours.phases.iter().map(|phase| &phase.name);
    let line = |row: &Row| {
        let known = |name: &str| name != "sync" || row.durable;
        let cell = |name: &str| cell(&row.report, name).filter(|_| known(name));
        let cells = names().map(|name| cell(name).unwrap_or_else(|| NONE.to_owned()));
        std::iter::once(row.name.clone()).chain(cells).collect()
    };
    Some(Grid {
        header: std::iter::once(String::new())
            .chain(names().cloned())
            .collect(),
        lines: outcome.targets.iter().map(line).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_is_relative_to_the_mean() {
        assert_eq!(spread(&[90.0, 110.0, 100.0]), "±10 %");
        assert_eq!(spread(&[5.0]), "–");
    }
}
