//! `sluice stats`: the counters of a mounted volume.

use crate::human;
use crate::mount_stats::{self, MountStats, Throttle, Transport, Writeback};
use crate::output::Output;
use anyhow::Result;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Show a mount's counters: device I/O, journal, memory, requests of programs
///
/// `sluice top` shows rates, and `sluice mount --metrics` serves the same statistics to Prometheus.
///
/// Requests to the device are listed by the reason why they were sent, with their number, their
/// bytes, how many are in flight now, and how long they took. The times are bounds: half of the
/// requests, and 99 of 100, took less than the first time and the second. Times from 8.4 s on are
/// not told apart.
///
/// Programs' requests are listed by their operation in FUSE's terms: LOOKUP finds a name that the
/// kernel does not have cached, GETATTR reads attributes. The kernel answers the rest from its
/// caches. docs/REQUESTS.md says what common programs need.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sluice stats /mnt
  sluice stats --json /mnt | jq .device_write_ios
  sluice stats --json /mnt | jq .device_by_reason.sync
  sluice stats --json /mnt | jq .requests.lookup

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

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        let stats = mount_stats::read(&self.dir)?;
        let mut out = Output::new();
        if self.json {
            out.json(&stats)?;
        } else {
            print(&mount_stats::decode(&stats)?, &mut out)?;
        }
        out.flush()?;
        Ok(ExitCode::SUCCESS)
    }
}

fn print(stats: &MountStats, out: &mut impl Write) -> Result<()> {
    let written = stats.device_write_bytes;
    let mean = written.checked_div(stats.device_write_ios).unwrap_or(0);
    writeln!(
        out,
        "writes   {} of {} on average, {} in all; {} merged, {} flushes",
        human::count(stats.device_write_ios),
        human::bytes(mean),
        human::bytes(written),
        human::count(stats.device_merged),
        human::count(stats.device_flushes)
    )?;
    writeln!(
        out,
        "reads    {}, {} in all",
        human::count(stats.device_read_ios),
        human::bytes(stats.device_read_bytes)
    )?;
    writeln!(
        out,
        "journal  {} commits, {} blocks logged, {} written home",
        human::count(stats.journal_commits),
        human::count(stats.journal_logged_blocks),
        human::count(stats.journal_checkpointed_blocks)
    )?;
    writeln!(
        out,
        "log      {} of {} in use, {} commits waited for space; {} pauses of threads, {:.1} s in all",
        human::bytes(stats.journal_log_used_bytes),
        human::bytes(stats.journal_log_bytes),
        human::count(stats.journal_stalls),
        human::count(stats.journal_pauses),
        stats.journal_pause_us as f64 / 1e6
    )?;
    if let Some(device) = &stats.journal_device {
        writeln!(
            out,
            "         on a device of its own: {} writes, {} in all; {} flushes, {} reads",
            human::count(device.write_ios),
            human::bytes(device.write_bytes),
            human::count(device.flushes),
            human::count(device.read_ios)
        )?;
    }
    writeln!(
        out,
        "memory   {} of {}; {} inodes",
        human::bytes(stats.memory_bytes),
        human::bytes(stats.memory_limit_bytes),
        human::count(stats.cached_inodes),
    )?;
    print_transport(&stats.transport, out)?;
    print_writeback(&stats.writeback, out)?;
    print_throttle(&stats.throttle, out)?;
    print_reasons(stats, out)?;
    print_operations(stats, out)
}

fn print_transport(transport: &Transport, out: &mut impl Write) -> Result<()> {
    let reason = &transport.reason;
    match transport.name.as_str() {
        "uring" => writeln!(
            out,
            "requests over io_uring ({reason}); {} threads, {} of buffers",
            transport.ring_threads,
            human::bytes(transport.ring_bytes)
        )?,
        "dev" => writeln!(out, "requests over /dev/fuse ({reason})")?,
        _ => {}
    }
    Ok(())
}

fn print_writeback(writeback: &Writeback, out: &mut impl Write) -> Result<()> {
    writeln!(
        out,
        "dirty    {}, and {} under writeback; limits: background {}, slowing {}, hard {}",
        human::bytes(writeback.dirty_bytes),
        human::bytes(writeback.under_writeback_bytes),
        human::bytes(writeback.background_limit_bytes),
        human::bytes(writeback.slowing_limit_bytes),
        human::bytes(writeback.hard_limit_bytes)
    )?;
    writeln!(out, "flusher  {}", writeback.flusher_text())?;
    Ok(())
}

fn print_throttle(throttle: &Throttle, out: &mut impl Write) -> Result<()> {
    if throttle.target_us == 0 {
        writeln!(out, "throttle off")?;
        return Ok(());
    }
    writeln!(
        out,
        "throttle {} of {} in flight (step {}, {}), {} in the device's cache; {}/s; readers lose \
         {:.0} % of their time; reads within {} ms",
        human::bytes(throttle.in_flight_bytes),
        human::bytes(throttle.limit_bytes),
        throttle.step,
        throttle.cause,
        human::bytes(throttle.cache_debt_bytes),
        human::bytes(throttle.rate_bytes_per_sec),
        throttle.lost * 100.0,
        throttle.target_us as f64 / 1e3
    )?;
    Ok(())
}

fn print_reasons(stats: &MountStats, out: &mut impl Write) -> Result<()> {
    if stats.reasons().next().is_none() {
        return Ok(());
    }
    writeln!(
        out,
        "\n{:<14} {:>10} {:>10} {:>9} {:>10} {:>10}",
        "requests for", "number", "bytes", "in flight", "50 %", "99 %"
    )?;
    for (reason, requests) in stats.reasons() {
        writeln!(
            out,
            "{:<14} {:>10} {:>10} {:>9} {:>10} {:>10}",
            reason.name().replace('_', " "),
            human::count(requests.requests),
            human::bytes(requests.bytes),
            human::count(requests.in_flight),
            requests.latency_us.bound(0.5),
            requests.latency_us.bound(0.99)
        )?;
    }
    Ok(())
}

/// The operations with the most requests come first.
fn print_operations(stats: &MountStats, out: &mut impl Write) -> Result<()> {
    let mut operations: Vec<_> = stats.requests.iter().collect();
    if operations.is_empty() {
        return Ok(());
    }
    operations.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    writeln!(out, "\n{:<16} {:>8}", "operation", "requests")?;
    for (operation, count) in operations {
        writeln!(out, "{operation:<16} {:>8}", human::count(*count))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_part_has_its_line() {
        let stats = json!({
            "device_write_ios": 2, "device_write_bytes": 8192, "device_merged": 3,
            "journal_commits": 4, "journal_stalls": 5, "journal_pauses": 6, "journal_pause_us": 1_500_000,
            "journal_log_bytes": 64 << 20, "journal_log_used_bytes": 1 << 20,
            "journal_device": {"write_ios": 7, "write_bytes": 8192, "flushes": 3, "read_ios": 1},
            "writeback": {
                "dirty_bytes": 4096, "under_writeback_bytes": 8192,
                "background_limit_bytes": 10 << 20, "slowing_limit_bytes": 15 << 20,
                "hard_limit_bytes": 20 << 20, "bandwidth_bytes_per_sec": 1 << 20,
                "flusher": "waiting", "flusher_reason": "metadata_read",
            },
            "throttle": {"target_us": 2000, "limit_bytes": 1 << 20, "step": -1, "cause": "idle",
                         "lost": 0.25},
            "device_by_reason": {
                "metadata_read": {"requests": 1000, "bytes": 4096, "latency_us": [[64, 1000]]},
            },
            "requests": {"getattr": 2, "lookup": 3000},
        });
        let text = print_to_string(&mount_stats::decode(&stats).unwrap());
        for line in [
            "writes   2 of 4.0 KiB on average, 8.0 KiB in all; 3 merged, 0 flushes",
            "log      1.0 MiB of 64.0 MiB in use, 5 commits waited for space; 6 pauses of threads, 1.5 s \
             in all",
            "         on a device of its own: 7 writes, 8.0 KiB in all; 3 flushes, 1 reads",
            "dirty    4.0 KiB, and 8.0 KiB under writeback; limits: background 10.0 MiB, slowing \
             15.0 MiB, hard 20.0 MiB",
            "flusher  waiting for room (metadata read); the device writes 1.0 MiB/s",
            "throttle 0 B of 1.0 MiB in flight (step -1, idle), 0 B in the device's cache; 0 B/s; \
             readers lose 25 % of their time; reads within 2 ms",
            "metadata read       1,000    4.0 KiB         0   < 128 µs   < 128 µs",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line}\n{text}");
        }
        let operations = "lookup              3,000\ngetattr                 2\n";
        assert!(text.ends_with(operations), "{text}");
        let off = print_to_string(&MountStats::default());
        assert!(off.contains("throttle off\n"), "{off}");
    }

    fn print_to_string(stats: &MountStats) -> String {
        let mut text = Vec::new();
        print(stats, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }
}
