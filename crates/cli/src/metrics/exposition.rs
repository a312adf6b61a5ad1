//! Statistics as text for Prometheus. docs/METRICS.md lists the metrics; a test compares.
//!
//! Names follow <https://prometheus.io/docs/practices/naming/>: seconds and bytes, `_total` for
//! counters. Every sample has the label `volume`.

use super::devices;
use super::families::{Families, Labels};
use prometheus::proto::{Metric, MetricType};
use sluicefs::{FlusherState, IoReason, ReasonStats, ThrottleCause, VolumeStats};

/// The parts of a mount that do not change while it is mounted.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Path or URL of the device: the label `volume`.
    pub device: String,
    pub mount_point: String,
    pub uuid: String,
    pub label: String,
}

/// Whether the volume is read-only now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    ReadOnly,
    ReadWrite,
}

/// The state of a mount and its counters.
#[derive(Clone, Copy)]
pub struct Now<'a> {
    pub access: Access,
    pub volume: &'a VolumeStats,
    /// Numbers of the kernel's requests by operation.
    pub requests: &'a [(&'static str, u64)],
}

/// The text of all metrics.
///
/// # Errors
/// A family has no samples.
pub fn text(facts: &Facts, now: &Now<'_>) -> Result<String, prometheus::Error> {
    let mut families = Families::new(&facts.device);
    let stats = now.volume;
    info(&mut families, facts, now.access);
    requests(&mut families, now.requests);
    devices::counters(&mut families, "device", &stats.device);
    if let Some(journal) = &stats.journal_device {
        devices::counters(&mut families, "journal_device", journal);
    }
    by_reason(&mut families, stats);
    writeback(&mut families, stats);
    throttle(&mut families, stats);
    journal(&mut families, stats);
    memory(&mut families, stats);
    families.text()
}

fn requests(families: &mut Families, by_operation: &[(&'static str, u64)]) {
    let metric = |(operation, count): &(&str, u64)| {
        families.counter_metric(&[("operation", operation)], *count as f64)
    };
    let metrics = by_operation.iter().map(metric).collect();
    let help = "Requests of the kernel, by operation.";
    families.add("fuse_requests_total", help, MetricType::COUNTER, metrics);
}

fn info(families: &mut Families, facts: &Facts, access: Access) {
    let labels = [
        ("mountpoint", facts.mount_point.as_str()),
        ("uuid", facts.uuid.as_str()),
        ("label", facts.label.as_str()),
        ("version", env!("CARGO_PKG_VERSION")),
    ];
    let metric = families.gauge_metric(&labels, 1.0);
    let help = "The mounted volume.";
    families.add("volume_info", help, MetricType::GAUGE, vec![metric]);
    let is_read_only = f64::from(u8::from(access == Access::ReadOnly));
    let help = "Whether the volume is read-only, by its options or after an error.";
    families.gauge("read_only", help, is_read_only);
}

fn by_reason(families: &mut Families, stats: &VolumeStats) {
    /// One metric for each reason.
    fn each(
        families: &Families,
        stats: &VolumeStats,
        metric: impl Fn(&Families, Labels, &ReasonStats) -> Metric,
    ) -> Vec<Metric> {
        let of = |reason: IoReason| {
            let labels = [("reason", reason.name())];
            metric(families, &labels, &stats.device.by_reason[reason])
        };
        IoReason::ALL.into_iter().map(of).collect()
    }
    let requests = each(families, stats, |families, labels, stats| {
        families.counter_metric(labels, stats.requests as f64)
    });
    let bytes = each(families, stats, |families, labels, stats| {
        families.counter_metric(labels, stats.bytes as f64)
    });
    let in_flight = each(families, stats, |families, labels, stats| {
        families.gauge_metric(labels, stats.in_flight as f64)
    });
    let durations = each(families, stats, |families, labels, stats| {
        families.histogram_metric(labels, &stats.latency, stats.queue_us)
    });
    families.add(
        "device_requests_total",
        "Reads, writes and flushes completed by the device, by the reason why they were sent.",
        MetricType::COUNTER,
        requests,
    );
    families.add(
        "device_bytes_total",
        "Bytes read or written by these requests.",
        MetricType::COUNTER,
        bytes,
    );
    families.add(
        "device_requests_in_flight",
        "Requests that the device has not completed.",
        MetricType::GAUGE,
        in_flight,
    );
    families.add(
        "device_request_duration_seconds",
        "Time from the submission of a request to its completion.",
        MetricType::HISTOGRAM,
        durations,
    );
}

fn writeback(families: &mut Families, stats: &VolumeStats) {
    let writeback = &stats.writeback;
    for (name, help, value) in [
        (
            "dirty_bytes",
            "Dirty data that is not being written.",
            writeback.dirty,
        ),
        (
            "under_writeback_bytes",
            "Dirty data that is being written.",
            writeback.under_writeback,
        ),
        (
            "dirty_background_limit_bytes",
            "Dirty data above which the flusher writes.",
            writeback.background_limit,
        ),
        (
            "dirty_slowing_limit_bytes",
            "Dirty data above which writers are slowed.",
            writeback.slowing_limit,
        ),
        (
            "dirty_hard_limit_bytes",
            "Dirty data that slowing of writers keeps.",
            writeback.hard_limit,
        ),
        (
            "write_bandwidth_bytes_per_second",
            "Measured rate at which the device takes dirty data.",
            writeback.bandwidth,
        ),
    ] {
        families.bytes(name, help, value);
    }
    let now = writeback.flusher.name();
    let states = FlusherState::NAMES.map(|state| (state, state == now));
    let help = "State of the flusher: 1 for the current one.";
    families.states("flusher_state", help, "state", &states);
}

fn throttle(families: &mut Families, stats: &VolumeStats) {
    let throttle = &stats.throttle;
    families.gauge(
        "throttle_target_seconds",
        "Latency of reads that background writes leave room for; 0 without a throttle.",
        throttle.target.unwrap_or_default().as_secs_f64(),
    );
    families.bytes(
        "throttle_limit_bytes",
        "Background writes that may be in flight.",
        throttle.limit,
    );
    families.gauge(
        "throttle_step",
        "How often the default limit was halved; negative above the default.",
        f64::from(throttle.step),
    );
    families.bytes(
        "throttle_in_flight_bytes",
        "Background writes in flight.",
        throttle.in_flight,
    );
    families.bytes(
        "throttle_cache_debt_bytes",
        "Estimated contents of the device's volatile cache.",
        throttle.debt,
    );
    families.bytes(
        "throttle_rate_bytes_per_second",
        "Rate of background writes while threads read or fsync.",
        throttle.rate,
    );
    families.gauge(
        "throttle_lost_ratio",
        "Part of their time that readers lost to background writes when it was judged last.",
        throttle.lost,
    );
    families.gauge(
        "throttle_active",
        "Whether threads read or fsync, so that the rate applies.",
        f64::from(u8::from(throttle.active)),
    );
    let names = ThrottleCause::ALL.map(|cause| cause.name().replace(' ', "_"));
    let causes: Vec<_> = names
        .iter()
        .zip(ThrottleCause::ALL)
        .map(|(name, cause)| (name.as_str(), cause == throttle.cause))
        .collect();
    let help = "Cause of the last change of the limit: 1 for the current one.";
    families.states("throttle_last_change", help, "cause", &causes);
    families.counter(
        "throttle_waits_total",
        "How often background writes waited for room.",
        throttle.waits,
    );
    families.time(
        "throttle_wait_seconds_total",
        "Time for which background writes waited for room.",
        throttle.waited,
    );
}

fn journal(families: &mut Families, stats: &VolumeStats) {
    let journal = &stats.journal;
    for (name, help, value) in [
        (
            "journal_commits_total",
            "Committed transactions.",
            journal.commits,
        ),
        (
            "journal_logged_blocks_total",
            "Blocks written to the log.",
            journal.logged_blocks,
        ),
        (
            "journal_checkpointed_blocks_total",
            "Blocks of the log written to their homes.",
            journal.checkpointed_blocks,
        ),
        (
            "journal_stalls_total",
            "Commits that waited for log space.",
            journal.stalls,
        ),
        (
            "journal_pauses_total",
            "Pauses of threads because the journal was nearly full.",
            journal.pauses,
        ),
    ] {
        families.counter(name, help, value);
    }
    families.time(
        "journal_pause_seconds_total",
        "Time of these pauses, of all threads.",
        journal.pause_time,
    );
    families.bytes(
        "journal_log_bytes",
        "Size of the log; 0 on a read-only volume.",
        journal.log_bytes,
    );
    families.bytes(
        "journal_log_used_bytes",
        "Part of the log in use.",
        journal.log_used_bytes,
    );
}

fn memory(families: &mut Families, stats: &VolumeStats) {
    for (name, help, value) in [
        (
            "memory_used_bytes",
            "Used bytes of the memory budget.",
            stats.memory_used,
        ),
        (
            "memory_limit_bytes",
            "Size of the memory budget.",
            stats.memory_limit,
        ),
        (
            "memory_page_bytes",
            "Memory used by pages of files.",
            stats.page_bytes,
        ),
        (
            "memory_metadata_bytes",
            "Memory used by metadata blocks.",
            stats.metadata_bytes,
        ),
        ("cached_inodes", "Inodes in memory.", stats.cached_inodes),
    ] {
        families.bytes(name, help, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicefs::{FormatOptions, Volume};
    use std::collections::BTreeMap;

    fn facts() -> Facts {
        Facts {
            device: "a \"b\"\\\n.img".into(),
            mount_point: "/mnt".into(),
            uuid: "550e8400-e29b-41d4-a716-446655440000".into(),
            label: "data".into(),
        }
    }

    /// Statistics of a volume on which a file was synced.
    fn stats() -> VolumeStats {
        let volume = Volume::format("mem:64MiB", FormatOptions::new()).unwrap();
        volume.write("file", [1; 8192]).unwrap();
        volume.sync().unwrap();
        let stats = volume.stats();
        volume.close().unwrap();
        stats
    }

    fn now(access: Access, volume: &VolumeStats) -> Now<'_> {
        Now {
            access,
            volume,
            requests: &[("lookup", 7), ("other", 0)],
        }
    }

    /// Samples by their names and labels, without the label `volume`.
    fn samples(text: &str) -> BTreeMap<String, f64> {
        let volume = "volume=\"a \\\"b\\\"\\\\\\n.img\"";
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let sample = |line: &str| {
            assert!(line.contains(volume), "{line}");
            let (name, value) = line.rsplit_once(' ').unwrap();
            let name = name.replace(&format!("{volume},"), "").replace(volume, "");
            (name.replace("{}", ""), value.parse().unwrap())
        };
        lines.map(sample).collect()
    }

    #[test]
    fn samples_are_the_statistics_in_seconds_and_bytes() {
        let mut stats = stats();
        stats.throttle.waited = std::time::Duration::from_millis(1500);
        stats.writeback.flusher = FlusherState::Failing;
        stats.throttle.cause = ThrottleCause::TooSlow;
        let text = text(&facts(), &now(Access::ReadOnly, &stats)).unwrap();
        let samples = samples(&text);
        let value = |name: &str| samples[&format!("sluicefs_{name}")];
        let journal = stats.device.by_reason[IoReason::Journal];
        assert!(journal.requests > 0);
        for (name, expected) in [
            ("read_only", 1.0),
            ("fuse_requests_total{operation=\"lookup\"}", 7.0),
            ("journal_commits_total", stats.journal.commits as f64),
            (
                "journal_log_used_bytes",
                stats.journal.log_used_bytes as f64,
            ),
            (
                "device_written_bytes_total",
                stats.device.write_bytes as f64,
            ),
            (
                "device_requests_total{reason=\"journal\"}",
                journal.requests as f64,
            ),
            (
                "device_bytes_total{reason=\"journal\"}",
                journal.bytes as f64,
            ),
            ("device_requests_total{reason=\"reclaim\"}", 0.0),
            ("throttle_wait_seconds_total", 1.5),
            ("throttle_last_change{cause=\"too_slow\"}", 1.0),
            ("throttle_last_change{cause=\"idle\"}", 0.0),
            ("flusher_state{state=\"failing\"}", 1.0),
            ("flusher_state{state=\"writing\"}", 0.0),
            ("memory_limit_bytes", stats.memory_limit as f64),
        ] {
            assert_eq!(value(name), expected, "{name}");
        }
        let info = samples.keys().find(|name| name.contains("volume_info"));
        let parts = ["mountpoint=\"/mnt\"", "uuid=\"550e", "label=\"data\""];
        assert!(
            parts.iter().all(|part| info.unwrap().contains(part)),
            "{info:?}"
        );
    }

    #[test]
    fn buckets_count_the_classes_up_to_their_bound() {
        let stats = stats();
        let text = text(&facts(), &now(Access::ReadWrite, &stats)).unwrap();
        let samples = samples(&text);
        let journal = stats.device.by_reason[IoReason::Journal];
        let of = |part: &str, bound: &str| {
            let name = "sluicefs_device_request_duration_seconds";
            samples[&format!("{name}_{part}{{reason=\"journal\"{bound}}}")]
        };
        let mut below = 0;
        for (least, count) in journal.latency.classes() {
            below += count;
            let bound = match least {
                8_388_608 => "+Inf".into(),
                _ => ((2 * least) as f64 / 1e6).to_string(),
            };
            let found = of("bucket", &format!(",le=\"{bound}\""));
            assert_eq!(found, below as f64, "{bound}");
        }
        assert_eq!(of("count", ""), journal.requests as f64);
        assert_eq!(of("sum", ""), journal.queue_us as f64 / 1e6);
    }

    #[test]
    fn the_page_lists_every_metric() {
        let page = include_str!("../../../../docs/METRICS.md");
        let rows = page
            .lines()
            .filter_map(|line| line.strip_prefix("| `sluicefs_"));
        let listed: Vec<_> = rows
            .map(|row| {
                let mut cells = row.split('|').map(|cell| cell.trim().trim_end_matches('`'));
                let name = cells.next().unwrap().split('{').next().unwrap();
                (format!("sluicefs_{name}"), cells.next().unwrap().to_owned())
            })
            .collect();
        let text = text(&facts(), &now(Access::ReadWrite, &VolumeStats::default())).unwrap();
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let served: Vec<_> = types
            .map(|line| line.split_once(' ').unwrap())
            .map(|(name, kind)| (name.to_owned(), kind.to_owned()))
            .collect();
        assert_eq!(listed, served);
    }
}
