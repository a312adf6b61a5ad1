//! Syncs at once, in the columns of the 2013 tables: wall-clock and processor time, beside clean
//! inodes and during fs_mark.

use super::grid::Grid;
use super::number::{count, duration, whole};
use crate::compare::{Outcome, Row};
use crate::storms::{During, Storms, SyncStorms};

/// The text of an unknown value.
const NONE: &str = "–";

/// The tables of a run, with their titles.
pub(super) fn tables(found: &SyncStorms) -> Vec<(String, Grid)> {
    let first = |text: &str| text.to_owned();
    let mut lines = vec![line(first("clean"), &found.clean)];
    if let Some(during) = &found.during {
        lines.push(line(first("during fs_mark"), &during.storms));
    }
    let title = format!(
        "{} syncs at once, beside {} clean inodes ({} in memory); one sync alone {}, at most {}",
        found.syncs,
        count(found.inodes),
        found.cached.map_or(NONE.to_owned(), count),
        duration(found.alone.p50_us),
        duration(found.alone.max_us)
    );
    let syncs = Grid {
        header: [vec![String::new()], header(found.syncs)].concat(),
        lines,
    };
    let creation = found.during.as_ref().map(|during| {
        let title = format!(
            "fs_mark, {} threads, without and with storms",
            during.threads
        );
        let table = Grid {
            header: creation_header(),
            lines: vec![creation_line(first("files/s"), during)],
        };
        (title, table)
    });
    std::iter::once((title, syncs)).chain(creation).collect()
}

/// The rows of a comparison: syncs beside clean inodes, and during fs_mark.
pub(super) fn comparison(outcome: &Outcome) -> Grid {
    let mut found = outcome.targets.iter().filter_map(storms);
    let syncs = found.next().map_or(0, |found| found.syncs);
    let before = ["inodes in memory", "one sync alone"].map(str::to_owned);
    let cells = |row: &Row| {
        let Some(found) = storms(row) else {
            return Vec::new();
        };
        let before = vec![
            found.cached.map_or(NONE.to_owned(), count),
            duration(found.alone.p50_us),
        ];
        let clean = [before, line(row.name.clone(), &found.clean)[1..].to_vec()];
        let clean = [vec![format!("{}, clean", row.name)], clean.concat()].concat();
        let during = found.during.as_ref().map(|during| {
            let before = vec![NONE.to_owned(); 2];
            let cells = line(row.name.clone(), &during.storms)[1..].to_vec();
            let name = vec![format!("{}, during fs_mark", row.name)];
            [name, before, cells].concat()
        });
        std::iter::once(clean).chain(during).collect()
    };
    Grid {
        header: [vec![String::new()], before.to_vec(), header(syncs)].concat(),
        lines: outcome.targets.iter().flat_map(cells).collect(),
    }
}

/// fs_mark of each row of a comparison. `None` if it did not run.
pub(super) fn creation(outcome: &Outcome) -> Option<(String, Grid)> {
    let during = |row: &Row| storms(row)?.during.map(|during| (row.name.clone(), during));
    let rows: Vec<_> = outcome.targets.iter().filter_map(during).collect();
    let (_, first) = rows.first()?;
    let title = format!(
        "fs_mark, {} threads, without and with storms",
        first.threads
    );
    let lines = rows
        .iter()
        .map(|(name, during)| creation_line(name.clone(), during));
    let table = Grid {
        header: creation_header(),
        lines: lines.collect(),
    };
    Some((title, table))
}

fn storms(row: &Row) -> Option<&SyncStorms> {
    row.report.storms.as_ref()
}

fn header(syncs: u64) -> Vec<String> {
    let first = format!("{syncs} syncs: wall");
    let rest = [
        "longest",
        "cpu",
        "machine cpu",
        "one: p50",
        "max",
        "commits",
        "flushes",
        "storms",
    ];
    let rest = rest.map(str::to_owned);
    std::iter::once(first).chain(rest).collect()
}

fn line(name: String, storms: &Storms) -> Vec<String> {
    let time = |seconds: f64| duration(seconds * 1e6);
    let figure = |value: Option<f64>| value.map_or(NONE.to_owned(), |value| format!("{value:.1}"));
    vec![
        name,
        time(storms.wall_s),
        time(storms.max_wall_s),
        time(storms.cpu_s),
        time(storms.machine_cpu_s),
        duration(storms.calls.p50_us),
        duration(storms.calls.max_us),
        figure(storms.commits),
        figure(storms.flushes),
        count(storms.count),
    ]
}

fn creation_header() -> Vec<String> {
    let header = [
        "",
        "files/s alone",
        "beside storms",
        "change",
        "cpu ms per 1,000 alone",
        "beside",
        "more commits per storm",
        "more flushes",
    ];
    header.map(str::to_owned).to_vec()
}

fn creation_line(name: String, during: &During) -> Vec<String> {
    let change = 100.0 * (during.beside_per_sec / during.alone_per_sec.max(1e-9) - 1.0);
    let more = |value: Option<f64>| value.map_or(NONE.to_owned(), |value| format!("{value:.1}"));
    vec![
        name,
        whole(during.alone_per_sec),
        whole(during.beside_per_sec),
        format!("{change:+.0} %"),
        format!("{:.2}", 1000.0 * during.alone_cpu_s_per_1000),
        format!("{:.2}", 1000.0 * during.beside_cpu_s_per_1000),
        more(during.more_commits),
        more(during.more_flushes),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_have_the_columns_of_2013_and_the_loss_of_creation() {
        let storms = Storms {
            count: 5,
            wall_s: 0.0046,
            max_wall_s: 0.006,
            cpu_s: 0.001,
            commits: Some(0.0),
            ..Storms::default()
        };
        let found = SyncStorms {
            inodes: 8_000_000,
            cached: Some(7_654_321),
            syncs: 100,
            clean: storms,
            during: Some(During {
                threads: 16,
                alone_per_sec: 1000.0,
                beside_per_sec: 900.0,
                storms,
                more_commits: Some(2.5),
                ..During::default()
            }),
            ..SyncStorms::default()
        };
        let all = tables(&found);
        let [(title, syncs), (_, creation)] = &all[..] else {
            panic!("{} tables", all.len());
        };
        assert!(
            title.contains("8,000,000") && title.contains("7,654,321"),
            "{title}"
        );
        assert_eq!(syncs.lines[0][..3], ["clean", "4.60 ms", "6.00 ms"]);
        assert_eq!(syncs.lines[1][7..9], ["0.0", "–"]);
        assert_eq!(creation.lines[0][1..4], ["1,000", "900", "-10 %"]);
        assert_eq!(creation.lines[0][6..], ["2.5", "–"]);
        assert!(
            all.iter()
                .all(|(_, t)| t.lines.iter().all(|l| l.len() == t.header.len()))
        );
    }
}
