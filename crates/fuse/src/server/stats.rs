//! Counters of a mount: the extended attribute [`NAME`] of the root directory. It is not listed and
//! cannot be set.

use block::{ByReason, Reason, ReasonStats, StatsSnapshot, ThrottleStats};
use ext4::Fs;
use fusedev::{OperationCounts, Transport, TransportStatus};
use writeback::WritebackStats;

/// The name of the attribute.
pub(super) const NAME: &[u8] = b"user.sluicefs.stats";

/// The counters as one JSON object: integers, the transport of requests, requests of programs by
/// operation, writeback, the throttle of background writes, and an object for each reason that had
/// requests to the device.
pub(super) fn json(fs: &Fs, requests: &OperationCounts, transport: &TransportStatus) -> Vec<u8> {
    let s = fs.stats();
    let fields = [
        ("device_read_ios", s.device.read_ios),
        ("device_read_bytes", s.device.read_bytes),
        ("device_write_ios", s.device.write_ios),
        ("device_write_bytes", s.device.write_bytes),
        ("device_merged", s.device.merged),
        ("device_flushes", s.device.flushes),
        ("device_errors", s.device.errors),
        ("device_queue_us", s.device.queue_us),
        ("journal_commits", s.journal.commits),
        ("journal_logged_blocks", s.journal.logged_blocks),
        ("journal_checkpointed_blocks", s.journal.checkpointed_blocks),
        ("journal_stalls", s.journal.stalls),
        ("journal_pauses", s.journal.pauses),
        ("journal_pause_us", s.journal.pause_time.as_micros() as u64),
        ("journal_log_bytes", s.journal.log_bytes),
        ("journal_log_used_bytes", s.journal.log_used_bytes),
        ("dirty_pages", s.dirty_pages),
        ("cached_inodes", s.cached_inodes),
        ("memory_bytes", s.memory_used),
        ("memory_limit_bytes", s.memory_limit),
    ];
    let fields = fields.map(|(name, value)| format!("\"{name}\":{value}"));
    let by_reason = by_reason(&s.device.by_reason);
    let requests = by_operation(requests);
    let transport = by_transport(transport);
    let fields = fields.join(",");
    let (writeback, throttle) = (writeback(&s.writeback), throttle(&s.throttle));
    let journal_device = journal_device(s.journal_device.as_ref());
    format!(
        "{{{fields},{journal_device}\"transport\":{transport},\"requests\":{requests},\
         \"writeback\":{writeback},\"throttle\":{throttle},\"device_by_reason\":{by_reason}}}"
    )
    .into_bytes()
}

/// Counters of the device of a journal that is on a device of its own. Empty where there is none.
fn journal_device(stats: Option<&StatsSnapshot>) -> String {
    stats.map_or(String::new(), |stats| {
        format!(
            "\"journal_device\":{{\"read_ios\":{},\"read_bytes\":{},\"write_ios\":{},\
             \"write_bytes\":{},\"merged\":{},\"flushes\":{},\"errors\":{},\"queue_us\":{},\
             \"by_reason\":{}}},",
            stats.read_ios,
            stats.read_bytes,
            stats.write_ios,
            stats.write_bytes,
            stats.merged,
            stats.flushes,
            stats.errors,
            stats.queue_us,
            by_reason(&stats.by_reason)
        )
    })
}

fn by_transport(status: &TransportStatus) -> String {
    let name = match status.transport {
        Transport::Device => "dev",
        Transport::Ring => "uring",
    };
    // The reason may contain a message of the system.
    let reason = status.reason.replace(['"', '\\'], "'").replace('\n', " ");
    format!(
        "{{\"name\":\"{name}\",\"reason\":\"{reason}\",\"ring_threads\":{},\"ring_bytes\":{}}}",
        status.ring_threads, status.ring_bytes
    )
}

/// Operations without requests are left out.
fn by_operation(requests: &OperationCounts) -> String {
    let used = requests.each().filter(|(_, count)| *count > 0);
    let pairs: Vec<_> = used
        .map(|(name, count)| format!("\"{name}\":{count}"))
        .collect();
    format!("{{{}}}", pairs.join(","))
}

/// `flusher_reason` is empty where the flusher writes nothing.
fn writeback(stats: &WritebackStats) -> String {
    let reason = stats.flusher.reason().map(Reason::from);
    format!(
        "{{\"dirty_bytes\":{},\"under_writeback_bytes\":{},\"background_limit_bytes\":{},\
         \"slowing_limit_bytes\":{},\"hard_limit_bytes\":{},\"bandwidth_bytes_per_sec\":{},\
         \"flusher\":\"{}\",\"flusher_reason\":\"{}\"}}",
        stats.dirty,
        stats.under_writeback,
        stats.background_limit,
        stats.slowing_limit,
        stats.hard_limit,
        stats.bandwidth,
        stats.flusher.name(),
        reason.map_or("", Reason::name)
    )
}

/// `target_us` is 0 without a throttle.
fn throttle(stats: &ThrottleStats) -> String {
    let target = stats.target.unwrap_or_default();
    format!(
        "{{\"target_us\":{},\"limit_bytes\":{},\"step\":{},\"cause\":\"{}\",\"in_flight_bytes\":{},\
         \"cache_debt_bytes\":{},\"rate_bytes_per_sec\":{},\"lost\":{:.3},\"active\":{},\"waits\":{},\
         \"waited_us\":{}}}",
        target.as_micros(),
        stats.limit,
        stats.step,
        stats.cause.name(),
        stats.in_flight,
        stats.debt,
        stats.rate,
        stats.lost,
        u8::from(stats.active),
        stats.waits,
        stats.waited.as_micros()
    )
}

fn by_reason(stats: &ByReason) -> String {
    let reasons = Reason::ALL
        .into_iter()
        .map(|reason| (reason, stats[reason]));
    let used = reasons.filter(|(_, stats)| stats.requests + stats.in_flight > 0);
    let objects: Vec<_> = used
        .map(|(reason, stats)| format!("\"{}\":{}", reason.name(), one_reason(&stats)))
        .collect();
    format!("{{{}}}", objects.join(","))
}

/// `latency_us` has a pair for each class with requests: its least time and their number. A class
/// ends at twice its least time; the last one has no end.
fn one_reason(stats: &ReasonStats) -> String {
    let classes = stats.latency.classes().filter(|(_, count)| *count > 0);
    let pairs: Vec<_> = classes
        .map(|(least, count)| format!("[{least},{count}]"))
        .collect();
    format!(
        "{{\"requests\":{},\"bytes\":{},\"in_flight\":{},\"total_us\":{},\"latency_us\":[{}]}}",
        stats.requests,
        stats.bytes,
        stats.in_flight,
        stats.queue_us,
        pairs.join(",")
    )
}
