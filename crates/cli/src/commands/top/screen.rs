//! The lines of a view, from statistics. At most 80 columns, unless a name is longer.

use super::interval::Interval;
use crate::human;
use crate::mount_stats::{MountStats, Throttle};
use std::iter;
use std::time::Duration;

/// A line of the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    Heading(String),
    Text(String),
}

impl Line {
    pub fn text(&self) -> &str {
        match self {
            Line::Heading(text) | Line::Text(text) => text,
        }
    }
}

/// The first line.
pub struct Title<'a> {
    /// The mount point.
    pub dir: &'a str,
    /// The local time.
    pub time: &'a str,
    /// For how long the server has not answered.
    pub unanswered: Option<Duration>,
}

/// The view of an interval.
pub fn lines(title: &Title, interval: &Interval) -> Vec<Line> {
    let now = &interval.now.stats;
    let mut lines = vec![Line::Heading(title_line(title, interval))];
    lines.push(labelled("memory", memory(now)));
    lines.push(labelled("dirty", dirty(now)));
    lines.push(labelled("limits", limits(now)));
    lines.push(labelled("flusher", now.writeback.flusher_text()));
    let throttle = throttle(&now.throttle, interval);
    let labels = iter::once("throttle").chain(iter::repeat(""));
    lines.extend(
        labels
            .zip(throttle)
            .map(|(label, text)| labelled(label, text)),
    );
    lines.push(labelled("journal", journal(now, interval)));
    lines.push(labelled("device", device(interval)));
    if now.device_errors > 0 {
        let text = format!("{} requests failed", human::count(now.device_errors));
        lines.push(labelled("errors", text));
    }
    lines.push(Line::Text(String::new()));
    lines.extend(requests(interval));
    lines
}

fn labelled(label: &str, text: String) -> Line {
    Line::Text(format!("{label:<10} {text}"))
}

fn title_line(title: &Title, interval: &Interval) -> String {
    let state = match (title.unanswered, interval.seconds()) {
        (Some(time), _) => format!("no answer for {} s", time.as_secs()),
        (None, Some(seconds)) => format!("over {seconds:.1} s"),
        (None, None) => "since the mount".into(),
    };
    format!("sluice top  {}  {}  {state}", title.time, title.dir)
}

fn memory(now: &MountStats) -> String {
    format!(
        "{} of {}; {} inodes",
        human::bytes(now.memory_bytes),
        human::bytes(now.memory_limit_bytes),
        human::count(now.cached_inodes)
    )
}

fn dirty(now: &MountStats) -> String {
    format!(
        "{}, and {} under writeback",
        human::bytes(now.writeback.dirty_bytes),
        human::bytes(now.writeback.under_writeback_bytes)
    )
}

fn limits(now: &MountStats) -> String {
    format!(
        "background {}, slowing of writers {}, hard {}",
        human::bytes(now.writeback.background_limit_bytes),
        human::bytes(now.writeback.slowing_limit_bytes),
        human::bytes(now.writeback.hard_limit_bytes)
    )
}

fn throttle(throttle: &Throttle, interval: &Interval) -> Vec<String> {
    if throttle.target_us == 0 {
        return vec!["off".into()];
    }
    let state = match throttle.active {
        0 => "not active: no thread reads or fsyncs",
        _ => "active",
    };
    vec![
        format!(
            "reads within {} ms; {state}",
            throttle.target_us as f64 / 1e3
        ),
        format!(
            "limit {} ({}), {}/s; readers lose {:.0} %",
            human::bytes(throttle.limit_bytes),
            throttle.cause,
            human::bytes(throttle.rate_bytes_per_sec),
            throttle.lost * 100.0
        ),
        format!(
            "in flight {}, cache debt {}, {} waits/s",
            human::bytes(throttle.in_flight_bytes),
            human::bytes(throttle.cache_debt_bytes),
            per_sec(interval.rate(|stats| stats.throttle.waits))
        ),
    ]
}

fn journal(now: &MountStats, interval: &Interval) -> String {
    let (used, all) = (now.journal_log_used_bytes, now.journal_log_bytes);
    if all == 0 {
        return "read-only".into();
    }
    format!(
        "{} of {} in use ({:.0} %), {} commits/s, {} stalls",
        human::bytes(used),
        human::bytes(all),
        used as f64 * 100.0 / all as f64,
        per_sec(interval.rate(|stats| stats.journal_commits)),
        human::count(now.journal_stalls)
    )
}

fn device(interval: &Interval) -> String {
    format!(
        "reads {} MiB/s, writes {} MiB/s, {} flushes/s",
        mib_per_sec(interval.rate(|stats| stats.device_read_bytes)),
        mib_per_sec(interval.rate(|stats| stats.device_write_bytes)),
        per_sec(interval.rate(|stats| stats.device_flushes))
    )
}

/// The requests by reason.
fn requests(interval: &Interval) -> Vec<Line> {
    let row = |cells: [&str; 6]| {
        let [reason, in_flight, requests, mib, half, most] = cells;
        format!("{reason:<14} {in_flight:>9} {requests:>11} {mib:>11} {half:>11} {most:>11}")
    };
    let heading = [
        "requests for",
        "in flight",
        "requests/s",
        "MiB/s",
        "50 %",
        "99 %",
    ];
    let mut lines = vec![Line::Heading(row(heading))];
    for (reason, requests) in interval.now.stats.reasons() {
        let rates = interval.rates(reason);
        lines.push(Line::Text(row([
            &reason.name().replace('_', " "),
            &human::count(requests.in_flight),
            &per_sec(rates.requests_per_sec),
            &mib_per_sec(rates.bytes_per_sec),
            &rates.latency.bound(0.5),
            &rates.latency.bound(0.99),
        ])));
    }
    lines
}

/// `1,235`, `0.5`, or `-` without an earlier sample.
fn per_sec(rate: Option<f64>) -> String {
    match rate {
        None => "-".into(),
        Some(rate) if rate > 0.0 && rate < 9.95 => format!("{rate:.1}"),
        Some(rate) => human::count(rate.round() as u64),
    }
}

/// `12.3`, `1,235`, or `-` without an earlier sample.
fn mib_per_sec(rate: Option<f64>) -> String {
    match rate.map(|rate| rate / f64::from(1 << 20)) {
        None => "-".into(),
        Some(mib) if mib < 999.95 => format!("{mib:.1}"),
        Some(mib) => human::count(mib.round() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::super::interval::Sample;
    use super::super::interval::tests::sample;
    use super::*;
    use serde_json::{Value, json};
    use sluicefs::IoReason;

    fn stats(scale: u64) -> Value {
        let latency = json!([[64, scale], [1024, scale]]);
        let one = json!({
            "requests": 2 * scale, "bytes": scale << 20, "in_flight": 3, "latency_us": latency,
        });
        let reasons = IoReason::ALL.map(|reason| (reason.name().to_owned(), one.clone()));
        let reasons: serde_json::Map<_, _> = reasons.into_iter().collect();
        json!({
            "device_read_bytes": scale << 20, "device_write_bytes": scale << 21,
            "device_flushes": scale, "journal_commits": 4 * scale, "journal_stalls": 1,
            "journal_log_bytes": 64 << 20, "journal_log_used_bytes": 16 << 20,
            "cached_inodes": 1234, "memory_bytes": 100 << 20, "memory_limit_bytes": 1 << 30,
            "writeback": {
                "dirty_bytes": 10 << 20, "under_writeback_bytes": 2 << 20,
                "background_limit_bytes": 100 << 20, "slowing_limit_bytes": 150 << 20,
                "hard_limit_bytes": 200 << 20, "bandwidth_bytes_per_sec": 50 << 20,
                "flusher": "writing", "flusher_reason": "background",
            },
            "throttle": {
                "target_us": 2000, "limit_bytes": 1 << 20, "step": 3, "cause": "too slow",
                "in_flight_bytes": 1 << 19, "cache_debt_bytes": 3 << 20, "active": 1,
                "rate_bytes_per_sec": 80 << 20, "lost": 0.24,
                "waits": 7 * scale,
            },
            "device_by_reason": reasons,
        })
    }

    fn view(before: Option<&Sample>, now: &Sample) -> Vec<String> {
        let title = Title {
            dir: "/mnt",
            time: "2026-11-20 14:02:06",
            unanswered: None,
        };
        let lines = lines(&title, &Interval::new(before, now));
        lines.iter().map(|line| line.text().to_owned()).collect()
    }

    #[test]
    fn a_view_has_a_line_for_each_part() {
        let (before, now) = (sample(0, stats(1000)), sample(2000, stats(3000)));
        let shown = view(Some(&before), &now);
        let expected = [
            "sluice top  2026-11-20 14:02:06  /mnt  over 2.0 s",
            "memory     100 MiB of 1.0 GiB; 1,234 inodes",
            "dirty      10.0 MiB, and 2.0 MiB under writeback",
            "limits     background 100 MiB, slowing of writers 150 MiB, hard 200 MiB",
            "flusher    writing (background); the device writes 50.0 MiB/s",
            "throttle   reads within 2 ms; active",
            "           limit 1.0 MiB (too slow), 80.0 MiB/s; readers lose 24 %",
            "           in flight 512 KiB, cache debt 3.0 MiB, 7,000 waits/s",
            "journal    16.0 MiB of 64.0 MiB in use (25 %), 4,000 commits/s, 1 stalls",
            "device     reads 1,000 MiB/s, writes 2,000 MiB/s, 1,000 flushes/s",
            "",
            "requests for   in flight  requests/s       MiB/s        50 %        99 %",
            "read                   3       2,000       1,000    < 128 µs    < 2.0 ms",
        ];
        assert_eq!(&shown[..expected.len()], expected);
        assert_eq!(shown.len(), expected.len() - 1 + IoReason::ALL.len());
    }

    #[test]
    fn without_an_earlier_sample_there_are_no_rates() {
        let now = sample(0, stats(1000));
        let shown = view(None, &now).join("\n");
        for part in [
            "/mnt  since the mount",
            ", - waits/s",
            ", - commits/s, ",
            "reads - MiB/s, writes - MiB/s, - flushes/s",
            "read                   3           -           -    < 128 µs    < 2.0 ms",
        ] {
            assert!(shown.contains(part), "{part}\n{shown}");
        }
    }

    #[test]
    fn every_line_fits_80_columns() {
        let mut large = stats(9_999_999);
        let huge = json!(1023_u64 << 50);
        for part in ["writeback", "throttle"] {
            for value in large[part].as_object_mut().unwrap().values_mut() {
                if value.as_u64().is_some_and(|n| n > 1 << 16) {
                    *value = huge.clone();
                }
            }
        }
        large["throttle"]["target_us"] = json!(10_000_000);
        large["throttle"]["step"] = json!(-14);
        large["throttle"]["waits"] = json!(99_999_999);
        large["journal_log_used_bytes"] = json!(1023_u64 << 20);
        large["journal_log_bytes"] = json!(1023_u64 << 20);
        large["device_errors"] = json!(99_999);
        large["writeback"]["flusher"] = json!("waiting");
        for flusher in ["off", "idle", "writing", "waiting", "failing", "stopped"] {
            large["writeback"]["flusher"] = json!(flusher);
            let (before, now) = (sample(0, stats(0)), sample(1000, large.clone()));
            for line in view(Some(&before), &now) {
                assert!(line.chars().count() <= 80, "{line}");
            }
        }
    }

    #[test]
    fn states_that_are_not_usual_are_named() {
        let mut off = stats(1);
        off["throttle"]["target_us"] = json!(0);
        off["journal_log_bytes"] = json!(0);
        off["device_errors"] = json!(2);
        let now = sample(0, off);
        let shown = view(None, &now);
        assert_eq!(shown[5], "throttle   off");
        assert_eq!(shown[6], "journal    read-only");
        assert_eq!(shown[8], "errors     2 requests failed");
        let title = Title {
            dir: "/mnt",
            time: "now",
            unanswered: Some(Duration::from_secs(7)),
        };
        let lines = lines(&title, &Interval::new(None, &now));
        assert_eq!(lines[0].text(), "sluice top  now  /mnt  no answer for 7 s");
    }

    #[test]
    fn small_rates_have_a_digit_after_the_point() {
        let texts = [0.0, 0.04, 0.5, 9.94, 9.96, 1234.5].map(|rate| per_sec(Some(rate)));
        assert_eq!(texts, ["0", "0.0", "0.5", "9.9", "10", "1,235"]);
    }
}
