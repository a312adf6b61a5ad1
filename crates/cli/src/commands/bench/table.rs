//! A comparison as text.

use crate::human;
use ::bench::compare::{Images, Outcome, Row};
use ::bench::{Device, Phase, Report};

/// What is not known.
const NONE: &str = "–";

/// The tables of a comparison, and what is to be said about them.
pub fn comparison(outcome: &Outcome) -> String {
    let mut text = format!(
        "{}: {}\nuntil everything is on the device; {}\n\n",
        outcome.workload,
        outcome.description,
        rounds(outcome)
    );
    text += &render(&header(outcome), &rows(outcome));
    if let Some((header, rows)) = phases(outcome) {
        text += &format!("\nphases, {} per second\n\n", outcome.unit);
        text += &render(&header, &rows);
    }
    let notes = outcome
        .targets
        .iter()
        .filter_map(|row| Some((&row.name, row.note.as_ref()?)));
    for (name, note) in notes {
        text += &format!("\n{name}: {note}");
    }
    for left_out in &outcome.left_out {
        text += &format!("\nleft out: {}: {}", left_out.name, left_out.why);
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// The columns of the main table.
pub fn header(outcome: &Outcome) -> Vec<String> {
    let mut header = vec![String::new(), outcome.unit.clone()];
    if has_loops(outcome) {
        header.push("fs_mark's".to_owned());
    }
    header.push(format!("{}/s", outcome.unit));
    header.extend(
        [
            "spread",
            "ours is",
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

/// The rows of the main table.
pub fn rows(outcome: &Outcome) -> Vec<Vec<String>> {
    outcome
        .targets
        .iter()
        .map(|row| cells(outcome, row))
        .collect()
}

fn cells(outcome: &Outcome, row: &Row) -> Vec<String> {
    let report = &row.report;
    let (count, per_sec) = amount(outcome, report);
    // What is not on the device in the end has no rate, and the device has not seen all of it.
    let known = |text: String| if row.durable { text } else { NONE.to_owned() };
    let mut cells = vec![row.name.clone(), human::count(count)];
    if has_loops(outcome) {
        cells.push(human::count(loop_rate(report) as u64));
    }
    cells.extend([
        known(human::count(per_sec as u64)),
        known(spread(&row.files_per_sec)),
        row.ratio.map_or(NONE.to_owned(), times),
        known(format!("{:.2}", report.time.wall_s)),
        known(format!("{:.2}", report.time.machine_cpu_s)),
    ]);
    let device = report.device.as_ref().filter(|_| row.durable);
    let of = |figure: &dyn Fn(&Device) -> String| device.map_or(NONE.to_owned(), figure);
    cells.push(of(&|d| human::count(d.write_ios)));
    cells.push(of(&|d| human::bytes(d.mean_write_bytes())));
    if counts_files(outcome) {
        let files = report.files.max(1) as f64;
        cells.push(of(&|d| {
            format!("{:.1}", 1000.0 * d.write_ios as f64 / files)
        }));
    }
    let rate = |per_sec: f64| human::count(per_sec.round() as u64);
    cells.push(of(&|d| rate(d.write_iops(report.time))));
    cells.push(of(&|d| human::count(d.flushes)));
    cells.push(of(&|d| d.commits.map_or(NONE.to_owned(), human::count)));
    cells.push(of(&|d| {
        d.commits_per_sec(report.time).map_or(NONE.to_owned(), rate)
    }));
    cells
}

fn counts_files(outcome: &Outcome) -> bool {
    outcome.unit == "files"
}

/// How the figures came about.
pub fn rounds(outcome: &Outcome) -> String {
    let rounds = match outcome.rounds {
        1 => "one round".to_owned(),
        rounds => format!("{rounds} rounds in turns, the median of each"),
    };
    let size = human::bytes(outcome.image_bytes);
    let image = match &outcome.images {
        Images::Sparse => "new sparse images",
        Images::Written => "an image that was written before,",
        Images::Modelled(device) => &format!("{device}, a modelled device"),
    };
    format!("{rounds}; on {image} of {size}")
}

/// So many times, in three digits.
pub fn times(ratio: f64) -> String {
    match ratio {
        r if r < 9.995 => format!("{r:.2} ×"),
        r if r < 99.95 => format!("{r:.1} ×"),
        r => format!("{} ×", human::count(r.round() as u64)),
    }
}

/// How much was done, and how fast until it was on the device.
pub fn amount(outcome: &Outcome, report: &Report) -> (u64, f64) {
    match outcome.unit.as_str() {
        "files" => (report.files, report.files_per_sec),
        _ => (
            report.bytes >> 20,
            report.bytes_per_sec / f64::from(1 << 20),
        ),
    }
}

fn has_loops(outcome: &Outcome) -> bool {
    outcome
        .targets
        .iter()
        .any(|row| !row.report.loops.is_empty())
}

/// The mean of what fs_mark would print.
fn loop_rate(report: &Report) -> f64 {
    let rates = report.loops.iter().map(|l| l.files_per_sec);
    rates.sum::<f64>() / report.loops.len().max(1) as f64
}

/// Half of the way from the slowest to the fastest round, in percent of their middle.
fn spread(rounds: &[f64]) -> String {
    let least = rounds.iter().copied().fold(f64::INFINITY, f64::min);
    let most = rounds.iter().copied().fold(0.0, f64::max);
    match rounds.len() {
        0 | 1 => NONE.to_owned(),
        _ => format!("±{:.0} %", 100.0 * (most - least) / (most + least)),
    }
}

/// Header and rows of the table of phases, where there is more than writing.
pub fn phases(outcome: &Outcome) -> Option<(Vec<String>, Vec<Vec<String>>)> {
    let names: Vec<_> = outcome
        .targets
        .first()?
        .report
        .phases
        .iter()
        .map(|p| p.name.clone())
        .collect();
    let ours = &outcome.targets[0].report;
    if !ours.loops.is_empty() {
        return None;
    }
    let cell = |row: &Row, name: &String| {
        if name == "sync" && !row.durable {
            return NONE.to_owned();
        }
        let report = &row.report;
        let of = |r: &Report| r.phase(name).map(|p: &Phase| p.per_sec);
        match (of(report), of(ours)) {
            (Some(theirs), Some(ours)) => {
                format!(
                    "{}  {:>7}",
                    human::count(theirs as u64),
                    times(ours / theirs)
                )
            }
            _ => NONE.to_owned(),
        }
    };
    let row = |row: &Row| {
        let cells = names.iter().map(|name| cell(row, name));
        std::iter::once(row.name.clone()).chain(cells).collect()
    };
    let header = std::iter::once(String::new())
        .chain(names.iter().cloned())
        .collect();
    Some((header, outcome.targets.iter().map(row).collect()))
}

/// Columns as wide as they must be, the first one flush left.
fn render(header: &[String], rows: &[Vec<String>]) -> String {
    let lines = || std::iter::once(header).chain(rows.iter().map(Vec::as_slice));
    let width = |column: usize| {
        let cells = lines().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..header.len()).map(width).collect();
    let mut text = String::new();
    for line in lines() {
        for (column, cell) in line.iter().enumerate() {
            let width = widths[column];
            text += &match column {
                0 => format!("{cell:<width$}"),
                _ => format!("  {cell:>width$}"),
            };
        }
        text = text.trim_end().to_owned() + "\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let line = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let text = render(
            &line(["", "µs"]),
            &[line(["a", "1,000"]), line(["long", "7"])],
        );
        assert_eq!(text, "         µs\na     1,000\nlong      7\n");
    }

    #[test]
    fn ratios_have_three_digits() {
        let texts = [0.123, 3.456, 9.999, 12.34, 99.99, 1571.7].map(times);
        assert_eq!(
            texts,
            ["0.12 ×", "3.46 ×", "10.0 ×", "12.3 ×", "100 ×", "1,572 ×"]
        );
    }

    #[test]
    fn the_spread_is_about_the_middle() {
        assert_eq!(spread(&[90.0, 110.0, 100.0]), "±10 %");
        assert_eq!(spread(&[5.0]), "–");
    }
}
