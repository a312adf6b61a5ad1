//! Counters of a mount: the extended attribute [`NAME`] of the root directory. It is not listed and
//! cannot be set.

use block::{ByReason, Reason, ReasonStats, ThrottleStats};
use ext4::Fs;

/// The name of the attribute.
pub(super) const NAME: &[u8] = b"user.sluicefs.stats";

/// The counters as one JSON object: integers, the throttle of background writes, and an object for
/// each reason that had requests.
pub(super) fn json(fs: &Fs) -> Vec<u8> {
    let s = fs.stats();
    let fields = [
        ("device_read_ios", s.device.read_ios),
        ("device_read_bytes", s.device.read_bytes),
        ("device_write_ios", s.device.write_ios),
        ("device_write_bytes", s.device.write_bytes),
        ("device_merged", s.device.merged),
        ("device_flushes", s.device.flushes),
        ("device_queue_us", s.device.queue_us),
        ("journal_commits", s.journal.commits),
        ("journal_logged_blocks", s.journal.logged_blocks),
        ("journal_checkpointed_blocks", s.journal.checkpointed_blocks),
        ("dirty_pages", s.dirty_pages),
        ("cached_inodes", s.cached_inodes),
        ("memory_bytes", s.memory_used),
        ("memory_limit_bytes", fs.budget().limit()),
    ];
    let fields = fields.map(|(name, value)| format!("\"{name}\":{value}"));
    let by_reason = by_reason(&s.device.by_reason);
    let fields = fields.join(",");
    let throttle = throttle(&s.throttle);
    format!("{{{fields},\"throttle\":{throttle},\"device_by_reason\":{by_reason}}}").into_bytes()
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
        "{{\"requests\":{},\"bytes\":{},\"in_flight\":{},\"latency_us\":[{}]}}",
        stats.requests,
        stats.bytes,
        stats.in_flight,
        pairs.join(",")
    )
}
