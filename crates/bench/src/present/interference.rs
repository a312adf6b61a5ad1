//! A reader that a writer joins: tables and plots of one run.

use super::chart::{self, Points};
use super::grid::Grid;
use super::number::{bytes, duration, mib, times, whole};
use crate::compare::{Outcome, Row};
use crate::{Interference, Interval, Latency, Period};

/// The text of an unknown value.
const NONE: &str = "–";
/// The head of the column of what the hypervisor took from the processors.
const STEAL: &str = "steal, ms/s";

/// The tables of a run, with their titles.
pub(super) fn tables(found: &Interference) -> [(String, Grid); 2] {
    let wbt = match found.wbt_lat_usec {
        Some(0) => "; the kernel's writeback throttling is off (wbt_lat_usec 0)".to_owned(),
        Some(us) => format!("; the kernel's writeback throttling is on (wbt_lat_usec {us})"),
        None => String::new(),
    };
    let reader = match (&*found.reader, found.threads) {
        (_, 0) => "no reader".to_owned(),
        (reader, 1) => format!("reader {reader}, 1 thread"),
        (reader, threads) => format!("reader {reader}, {threads} threads"),
    };
    let ratio = |name: &str, ratio: Option<f64>| {
        ratio.map_or(String::new(), |ratio| format!("; {name} {}", times(ratio)))
    };
    let ratios = ratio("beside the writer its rate is", found.rate_ratio)
        + &ratio("its p99", found.p99_ratio);
    [
        (
            "Each second, in MiB/s where nothing else is named".to_owned(),
            seconds(found),
        ),
        (format!("{reader}{ratios}{wbt}"), periods(found)),
    ]
}

/// A line for each second, as of vmstat.
fn seconds(found: &Interference) -> Grid {
    let mut previous = None;
    let lines = found.seconds.iter().map(|second| {
        let new = previous.replace(second.period) != Some(second.period);
        let name = if new { second.period.name() } else { "" };
        let mut line = vec![name.to_owned(), format!("{:.1}", second.at_s)];
        line.extend(reader(second, |l| [l.p50_us, l.p99_us, l.max_us]));
        line.extend(rates(found, second));
        line
    });
    Grid {
        header: header(found, &["", "second"], &["p50", "p99", "max"]),
        lines: lines.collect(),
    }
}

fn periods(found: &Interference) -> Grid {
    let lines = found.periods.iter().map(|period| {
        let seconds = period.at_s - period.from_s;
        let mut line = vec![period.period.name().to_owned(), format!("{seconds:.1}")];
        let percentiles = |l: Latency| [l.p50_us, l.p90_us, l.p99_us, l.p999_us, l.max_us];
        line.extend(reader(period, percentiles));
        line.extend(rates(found, period));
        line
    });
    let percentiles = ["p50", "p90", "p99", "p99.9", "max"];
    Grid {
        header: header(found, &["", "seconds"], &percentiles),
        lines: lines.collect(),
    }
}

fn header(found: &Interference, first: &[&str], percentiles: &[&str]) -> Vec<String> {
    let mut header = [first, &["reader/s", "MiB/s"], percentiles, &["writer"]].concat();
    if has_device(found) {
        header.extend(["device in", "out"]);
    }
    if has_throttle(found) {
        header.extend(["limit", "MiB/s", "lost", "cause", "cache debt"]);
    }
    if has_steal(found) {
        header.push(STEAL);
    }
    header.into_iter().map(str::to_owned).collect()
}

/// The reader's rates and percentiles of its latency.
fn reader<const N: usize>(
    interval: &Interval,
    percentiles: impl Fn(Latency) -> [f64; N],
) -> Vec<String> {
    let mut cells = vec![
        whole(interval.reader_per_sec),
        tenths(mib(interval.reader_bytes_per_sec)),
    ];
    match interval.reader {
        Some(latency) => cells.extend(percentiles(latency).map(duration)),
        None => cells.extend([NONE; N].map(str::to_owned)),
    }
    cells
}

/// The writer, the device and the throttle.
fn rates(found: &Interference, interval: &Interval) -> Vec<String> {
    let mut cells = vec![tenths(mib(interval.writer_bytes_per_sec))];
    if has_device(found) {
        match interval.device {
            Some(device) => cells.extend(
                [device.read_bytes_per_sec, device.write_bytes_per_sec].map(|b| tenths(mib(b))),
            ),
            None => cells.extend([NONE; 2].map(str::to_owned)),
        }
    }
    if has_throttle(found) {
        match &interval.throttle {
            Some(throttle) => cells.extend([
                bytes(throttle.limit),
                tenths(mib(throttle.rate as f64)),
                format!("{:.0} %", throttle.lost * 100.0),
                throttle.cause.clone(),
                bytes(throttle.cache_debt),
            ]),
            None => cells.extend([NONE; 5].map(str::to_owned)),
        }
    }
    if has_steal(found) {
        cells.push(steal(interval));
    }
    cells
}

/// The time that the hypervisor took in each second, in ms.
fn steal(interval: &Interval) -> String {
    let seconds = (interval.at_s - interval.from_s).max(1e-9);
    whole(interval.stolen_s * 1e3 / seconds)
}

fn has_steal(found: &Interference) -> bool {
    found.seconds.iter().any(|second| second.stolen_s > 0.0)
}

fn has_device(found: &Interference) -> bool {
    found.seconds.iter().any(|second| second.device.is_some())
}

fn has_throttle(found: &Interference) -> bool {
    found.seconds.iter().any(|second| second.throttle.is_some())
}

fn tenths(n: f64) -> String {
    match n < 99.95 {
        true => format!("{n:.1}"),
        false => whole(n),
    }
}

/// The columns of a comparison. Steal has columns if there was any.
pub(super) fn comparison(outcome: &Outcome) -> Grid {
    let all = outcome.targets.iter();
    let mut all = all.filter_map(|row| row.report.interference.as_ref());
    let is_stolen = all.any(has_steal);
    let mut header = vec![
        "",
        "reader/s alone",
        "reader/s beside",
        "ratio",
        "p50 alone",
        "p50 beside",
        "p99 alone",
        "p99 beside",
        "p99.9",
        "max",
        "p99 in the sync",
        "written beside, MiB/s",
        "kernel wbt µs",
    ];
    if is_stolen {
        header.extend([STEAL, "max without steal"]);
    }
    let line = |row: &Row| {
        let found = row.report.interference.as_ref();
        let period = |period| found.and_then(|found| found.period(period));
        let (alone, beside) = (period(Period::Alone), period(Period::Writer));
        let known = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
        let rate = |of: Option<&Interval>| {
            known(
                of.filter(|of| of.reader.is_some())
                    .map(|of| whole(of.reader_per_sec)),
            )
        };
        let latency = |of: Option<&Interval>, value: fn(Latency) -> f64| {
            known(
                of.and_then(|of| of.reader)
                    .map(|reader| duration(value(reader))),
            )
        };
        let mut cells = vec![
            row.name.clone(),
            rate(alone),
            rate(beside),
            known(found.and_then(|found| found.rate_ratio).map(times)),
            latency(alone, |l| l.p50_us),
            latency(beside, |l| l.p50_us),
            latency(alone, |l| l.p99_us),
            latency(beside, |l| l.p99_us),
            latency(beside, |l| l.p999_us),
            latency(beside, |l| l.max_us),
            latency(period(Period::Sync), |l| l.p99_us),
            known(
                beside
                    .and_then(|of| of.device)
                    .map(|device| whole(mib(device.write_bytes_per_sec))),
            ),
            known(
                found
                    .and_then(|found| found.wbt_lat_usec)
                    .map(|us| us.to_string()),
            ),
        ];
        if is_stolen {
            let quiet = found.and_then(|found| found.quiet_max_us);
            cells.extend([known(beside.map(steal)), known(quiet.map(duration))]);
        }
        cells
    };
    Grid {
        header: header.into_iter().map(str::to_owned).collect(),
        lines: outcome.targets.iter().map(line).collect(),
    }
}

/// Plots over time, with their titles.
pub(super) fn plots(found: &Interference) -> Vec<(&'static str, String)> {
    let points = |value: &dyn Fn(&Interval) -> Option<f64>| -> Points {
        let seconds = found.seconds.iter();
        seconds
            .map(|second| (second.at_s, value(second).unwrap_or(0.0)))
            .collect()
    };
    let latency = |value: fn(&Latency) -> f64| points(&|second| second.reader.as_ref().map(value));
    let marks: Vec<_> = found
        .periods
        .iter()
        .map(|period| (period.from_s, period.period.name().to_owned()))
        .collect();
    let mut plots = Vec::new();
    if found.threads > 0 {
        let percentiles = [
            ("p99", latency(|l| l.p99_us)),
            ("p50", latency(|l| l.p50_us)),
        ];
        let longest = latency(|l| l.max_us);
        let rate = points(&|second| Some(second.reader_per_sec));
        plots = vec![
            (
                "The reader's calls per second",
                chart::steps(&rate, &marks, whole),
            ),
            (
                "The reader's latency",
                chart::curves(&percentiles, &marks, duration),
            ),
            (
                "The reader's longest call",
                chart::steps(&longest, &marks, duration),
            ),
        ];
    }
    let writer = points(&|second| Some(mib(second.writer_bytes_per_sec)));
    plots.push((
        "MiB/s that the writer writes",
        chart::steps(&writer, &marks, whole),
    ));
    if has_device(found) {
        let device = [
            ("out", points(&|s| Some(mib(s.device?.write_bytes_per_sec)))),
            ("in", points(&|s| Some(mib(s.device?.read_bytes_per_sec)))),
        ];
        plots.push(("MiB/s of the device", chart::curves(&device, &marks, whole)));
    }
    if has_throttle(found) {
        let limit = points(&|s| Some(s.throttle.as_ref()?.limit as f64));
        let rate = points(&|s| Some(mib(s.throttle.as_ref()?.rate as f64)));
        let debt = points(&|s| Some(mib(s.throttle.as_ref()?.cache_debt as f64)));
        plots.push((
            "The limit of background writeback",
            chart::steps(&limit, &marks, whole),
        ));
        plots.push((
            "The rate of background writeback in MiB/s",
            chart::steps(&rate, &marks, whole),
        ));
        plots.push(("Cache debt in MiB", chart::steps(&debt, &marks, whole)));
    }
    plots
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Peer;
    use crate::fsmark::Fsync;
    use crate::{Throttle, Transfer};

    fn interval(period: Period, from_s: f64, at_s: f64, throttle: Option<Throttle>) -> Interval {
        Interval {
            period,
            from_s,
            at_s,
            stolen_s: 0.0,
            reader_per_sec: 1500.0,
            reader_bytes_per_sec: 1500.0 * 4096.0,
            reader: Some(Latency {
                count: 1500,
                p50_us: 105.0,
                p99_us: 12_340.0,
                max_us: 1_250_000.0,
                ..Latency::default()
            }),
            writer_bytes_per_sec: f64::from(300 << 20),
            device: Some(Transfer {
                read_bytes_per_sec: f64::from(6 << 20),
                write_bytes_per_sec: f64::from(250 << 20),
            }),
            throttle,
        }
    }

    fn found(throttle: Option<Throttle>) -> Interference {
        let seconds = vec![
            interval(Period::Alone, 0.0, 1.0, throttle.clone()),
            interval(Period::Writer, 1.0, 2.0, None),
            interval(Period::Writer, 2.0, 2.4, throttle),
        ];
        Interference {
            reader: "rand4k".into(),
            threads: 1,
            wbt_lat_usec: Some(2000),
            rate_ratio: Some(0.5),
            p99_ratio: Some(100.0),
            quiet_max_us: Some(9500.0),
            periods: vec![seconds[0].clone(), seconds[1].clone()],
            seconds,
        }
    }

    #[test]
    fn each_second_has_a_line_of_vmstat() {
        let [(_, seconds), (title, periods)] = tables(&found(None));
        let text = seconds.text();
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| {
                line.split("  ")
                    .map(str::trim)
                    .filter(|c| !c.is_empty())
                    .collect()
            })
            .collect();
        let header = [
            "second",
            "reader/s",
            "MiB/s",
            "p50",
            "p99",
            "max",
            "writer",
            "device in",
            "out",
        ];
        assert_eq!(lines[0], header);
        let figures = [
            "1,500", "5.9", "105 µs", "12.3 ms", "1.25 s", "300", "6.0", "250",
        ];
        assert_eq!(lines[1], [&["alone", "1.0"][..], &figures].concat());
        assert_eq!(
            lines[2],
            [&["beside the writer", "2.0"][..], &figures].concat()
        );
        assert_eq!(lines[3], [&["2.4"][..], &figures].concat());
        assert_eq!(periods.lines.len(), 2);
        for part in [
            "reader rand4k, 1 thread",
            "0.50 ×",
            "100 ×",
            "wbt_lat_usec 2000",
        ] {
            assert!(title.contains(part), "{part} in {title}");
        }
    }

    #[test]
    fn the_throttle_has_columns_and_plots_where_it_is_reported() {
        let throttle = Throttle {
            limit: 12,
            step: -1,
            cause: "latency".into(),
            cache_debt: 3 << 20,
            rate: 150 << 20,
            lost: 0.254,
        };
        let with = found(Some(throttle));
        let [(_, seconds), _] = tables(&with);
        let end = |line: usize| seconds.lines[line][10..].join(" ");
        assert_eq!(end(0), "12 B 150 25 % latency 3.0 MiB");
        assert_eq!(end(1), "– – – – –");
        assert_eq!(plots(&with).len(), plots(&found(None)).len() + 3);
    }

    #[test]
    fn steal_has_columns_where_there_is_some() {
        let mut one = found(None);
        let outcome = |found: &Interference| {
            let mut outcome = Outcome::with_rows(&[(Peer::InProcess, Fsync::Blocking, 1.0)]);
            outcome.targets[0].report.interference = Some(found.clone());
            comparison(&outcome)
        };
        assert!(!outcome(&one).header.contains(&STEAL.to_owned()));
        one.seconds[2].stolen_s = 0.02;
        one.periods[1].stolen_s = 0.03;
        let [(_, seconds), _] = tables(&one);
        let last = (
            seconds.header.last().unwrap(),
            seconds.lines[2].last().unwrap(),
        );
        assert_eq!(last, (&STEAL.to_owned(), &"50".to_owned()));
        let compared = outcome(&one);
        assert_eq!(compared.header[13..], [STEAL, "max without steal"]);
        assert_eq!(compared.lines[0][13..], ["30", "9.50 ms"]);
    }

    #[test]
    fn a_writer_alone_has_no_plots_of_a_reader() {
        let mut alone = found(None);
        alone.threads = 0;
        let titles: Vec<_> = plots(&alone).into_iter().map(|(title, _)| title).collect();
        assert_eq!(
            titles,
            ["MiB/s that the writer writes", "MiB/s of the device"]
        );
    }
}
