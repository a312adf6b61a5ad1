//! `sluice stats`: the counters of a mounted volume.

use crate::human;
use crate::output::Output;
use anyhow::{Context, Result};
use block::LatencyHistogram;
use serde_json::Value;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Show a mount's counters: device I/O, journal, memory
///
/// Requests to the device are listed by the reason why they were sent, with their number, their
/// bytes, how many are in flight now, and how long they took. The times are bounds: half of the
/// requests, and 99 of 100, took less than the first time and the second. Times from 8.4 s on are
/// not told apart.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice stats /mnt
  sluice stats --json /mnt | jq .device_write_ios
  sluice stats --json /mnt | jq .device_by_reason.sync

Reasons:
  read            a thread waits for file contents
  metadata read   a thread waits for metadata
  journal         blocks of the log, and the flushes of a commit
  sync            data that an fsync or sync waits for, and flushes after it
  reclaim         dirty data, written because memory is short
  checkpoint      blocks of the log written to their homes
  readahead       data or metadata that no thread waits for yet
  throttled       dirty data, written while writers are slowed because there is too much of it
  background      dirty data, written because there is more than the background threshold
  periodic        dirty data, written because it is old
  recovery        reads of a log that needs recovery, and its replay
  format          a new file system
  other           super blocks written past the journal

In JSON, latency_us has pairs: a time in microseconds, and the number of requests that took that
long or up to twice as long. The pair with 8388608 also counts all longer ones.")]
pub struct Args {
    /// Where a volume is mounted
    dir: PathBuf,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// Linux's limit for the value of an extended attribute.
const XATTR_MAX: usize = 64 << 10;

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        let mut buf = vec![0; XATTR_MAX];
        let len = rustix::fs::getxattr(&self.dir, "user.sluicefs.stats", &mut buf[..])
            .with_context(|| {
                format!(
                    "{}: no volume is mounted there by sluice",
                    self.dir.display()
                )
            })?;
        let stats: Value = serde_json::from_slice(&buf[..len])?;
        let mut out = Output::new();
        if self.json {
            out.json(&stats)?;
        } else {
            print(&stats, &mut out)?;
        }
        out.flush()?;
        Ok(ExitCode::SUCCESS)
    }
}

fn print(stats: &Value, out: &mut Output) -> Result<()> {
    let n = |name: &str| stats[name].as_u64().unwrap_or(0);
    let mean = n("device_write_bytes")
        .checked_div(n("device_write_ios"))
        .unwrap_or(0);
    writeln!(
        out,
        "writes   {} of {} on average, {} in all; {} merged, {} flushes",
        human::count(n("device_write_ios")),
        human::bytes(mean),
        human::bytes(n("device_write_bytes")),
        human::count(n("device_merged")),
        human::count(n("device_flushes"))
    )?;
    writeln!(
        out,
        "reads    {}, {} in all",
        human::count(n("device_read_ios")),
        human::bytes(n("device_read_bytes"))
    )?;
    writeln!(
        out,
        "journal  {} commits, {} blocks logged, {} written home",
        human::count(n("journal_commits")),
        human::count(n("journal_logged_blocks")),
        human::count(n("journal_checkpointed_blocks"))
    )?;
    writeln!(
        out,
        "memory   {} of {}; {} inodes, {} dirty",
        human::bytes(n("memory_bytes")),
        human::bytes(n("memory_limit_bytes")),
        human::count(n("cached_inodes")),
        human::bytes(n("dirty_pages") * 4096)
    )?;
    print_throttle(&stats["throttle"], out)?;
    print_reasons(&stats["device_by_reason"], out)
}

fn print_throttle(throttle: &Value, out: &mut Output) -> Result<()> {
    let n = |name: &str| throttle[name].as_u64().unwrap_or(0);
    if n("target_us") == 0 {
        writeln!(out, "throttle off")?;
        return Ok(());
    }
    writeln!(
        out,
        "throttle {} of {} in flight (step {}, {}), {} in the device's cache; {}/s; readers lose \
         {:.0} % of their time; reads within {} ms",
        human::bytes(n("in_flight_bytes")),
        human::bytes(n("limit_bytes")),
        throttle["step"].as_i64().unwrap_or(0),
        throttle["cause"].as_str().unwrap_or("-"),
        human::bytes(n("cache_debt_bytes")),
        human::bytes(n("rate_bytes_per_sec")),
        throttle["lost"].as_f64().unwrap_or(0.0) * 100.0,
        n("target_us") as f64 / 1e3
    )?;
    Ok(())
}

fn print_reasons(by_reason: &Value, out: &mut Output) -> Result<()> {
    let Some(reasons) = by_reason.as_object().filter(|reasons| !reasons.is_empty()) else {
        return Ok(());
    };
    writeln!(
        out,
        "\n{:<14} {:>10} {:>10} {:>9} {:>10} {:>10}",
        "requests for", "number", "bytes", "in flight", "50 %", "99 %"
    )?;
    for reason in sluicefs::IoReason::ALL {
        let Some(stats) = reasons.get(reason.name()) else {
            continue;
        };
        let n = |name: &str| stats[name].as_u64().unwrap_or(0);
        let within = |share| bound(latency_class(&stats["latency_us"], share));
        writeln!(
            out,
            "{:<14} {:>10} {:>10} {:>9} {:>10} {:>10}",
            reason.name().replace('_', " "),
            human::count(n("requests")),
            human::bytes(n("bytes")),
            human::count(n("in_flight")),
            within(0.5),
            within(0.99)
        )?;
    }
    Ok(())
}

/// The least time in microseconds of the class up to which `share` of the requests are counted.
fn latency_class(classes: &Value, share: f64) -> Option<u64> {
    let pair = |class: &Value| Some((class[0].as_u64()?, class[1].as_u64()?));
    let classes: Vec<_> = classes.as_array()?.iter().filter_map(pair).collect();
    let all: u64 = classes.iter().map(|(_, count)| count).sum();
    let mut counted = 0;
    classes.into_iter().find_map(|(least, count)| {
        counted += count;
        (counted as f64 >= all as f64 * share).then_some(least)
    })
}

/// The bound of a class: `< 512 µs`, `< 4.1 ms`, or `≥ 8.4 s` for the last class, which has no end.
fn bound(class: Option<u64>) -> String {
    match class {
        None => "-".into(),
        Some(least) if least >= LatencyHistogram::LAST => format!("≥ {}", micros(least)),
        Some(least) => format!("< {}", micros(2 * least)),
    }
}

/// `512 µs`, `4.1 ms`, `2.1 s`.
fn micros(n: u64) -> String {
    match n {
        0..1_000 => format!("{n} µs"),
        1_000..1_000_000 => format!("{:.1} ms", n as f64 / 1e3),
        _ => format!("{:.1} s", n as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_share_of_the_requests_took_less_than_the_end_of_their_class() {
        let classes = json!([[64, 50], [128, 49], [65536, 1]]);
        let within = |share| bound(latency_class(&classes, share));
        assert_eq!(within(0.5), "< 128 µs");
        assert_eq!(within(0.99), "< 256 µs");
        assert_eq!(within(1.0), "< 131.1 ms");
        assert_eq!(bound(latency_class(&json!([]), 0.5)), "-");
    }

    #[test]
    fn the_last_class_has_no_end() {
        let last = LatencyHistogram::LAST;
        assert_eq!(bound(latency_class(&json!([[last, 1]]), 1.0)), "≥ 8.4 s");
        let before = json!([[last / 2, 1]]);
        assert_eq!(bound(latency_class(&before, 1.0)), "< 8.4 s");
        // The class is the last one that the queue counts.
        let classes = LatencyHistogram::default();
        assert_eq!(classes.classes().last(), Some((last, 0)));
    }

    #[test]
    fn times_have_human_units() {
        assert_eq!(micros(512), "512 µs");
        assert_eq!(micros(4096), "4.1 ms");
        assert_eq!(micros(2_097_152), "2.1 s");
    }
}
