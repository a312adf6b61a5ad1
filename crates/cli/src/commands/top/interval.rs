//! The difference of two samples: rates, and the times of the requests between them.

use crate::mount_stats::{Latency, MountStats};
use serde::Serialize;
use serde_json::{Map, Value, json};
use sluicefs::IoReason;
use std::time::Duration;

/// Statistics at one moment.
#[derive(Clone, Debug)]
pub struct Sample {
    pub stats: MountStats,
    /// The same as the server publishes them.
    pub raw: Value,
    /// The time of a clock that only the difference of two samples uses.
    pub at: Duration,
}

/// A sample, and the change since the one before.
pub struct Interval<'a> {
    pub now: &'a Sample,
    /// `None` for the first sample of a mount.
    before: Option<&'a Sample>,
}

/// The requests for one reason in an interval.
#[derive(Debug, PartialEq)]
pub struct Rates {
    pub requests_per_sec: Option<f64>,
    pub bytes_per_sec: Option<f64>,
    /// In the interval, or since the mount if there is no earlier sample.
    pub latency: Latency,
}

impl<'a> Interval<'a> {
    /// `before` is ignored if it is of another mount.
    pub fn new(before: Option<&'a Sample>, now: &'a Sample) -> Interval<'a> {
        let follows = |earlier: &&Sample| now.stats.follows(&earlier.stats) && now.at > earlier.at;
        let before = before.filter(follows);
        Interval { now, before }
    }

    /// The length in seconds; `None` if there is no earlier sample.
    pub fn seconds(&self) -> Option<f64> {
        let before = self.before?;
        Some((self.now.at - before.at).as_secs_f64())
    }

    /// The change of a counter in a second.
    pub fn rate(&self, of: impl Fn(&MountStats) -> u64) -> Option<f64> {
        let more = of(&self.now.stats).saturating_sub(of(&self.before?.stats));
        Some(more as f64 / self.seconds()?)
    }

    /// The requests for one reason.
    pub fn rates(&self, reason: IoReason) -> Rates {
        let counter = |stats: &MountStats, of: fn((u64, u64)) -> u64| {
            let requests = stats.device_requests(reason);
            requests.map_or(0, |requests| of((requests.requests, requests.bytes)))
        };
        let latency = |sample: &Sample| {
            let requests = sample.stats.device_requests(reason);
            requests.map(|requests| requests.latency_us.clone())
        };
        let earlier = self.before.and_then(latency).unwrap_or_default();
        Rates {
            requests_per_sec: self.rate(|stats| counter(stats, |(requests, _)| requests)),
            bytes_per_sec: self.rate(|stats| counter(stats, |(_, bytes)| bytes)),
            latency: latency(self.now).unwrap_or_default().since(&earlier),
        }
    }

    /// One JSON object: the time, the rates, and the statistics of `sluice stats --json`.
    pub fn json(&self, time: &str) -> Value {
        let mut by_reason = Map::new();
        for (reason, _) in self.now.stats.reasons() {
            let rates = self.rates(reason);
            let object = json!({
                "requests_per_sec": rates.requests_per_sec,
                "bytes_per_sec": rates.bytes_per_sec,
                "p50_below_us": rates.latency.below_us(0.5),
                "p99_below_us": rates.latency.below_us(0.99),
            });
            by_reason.insert(reason.name().into(), object);
        }
        let rates = Totals {
            device_reads_per_sec: self.rate(|stats| stats.device_read_ios),
            device_read_bytes_per_sec: self.rate(|stats| stats.device_read_bytes),
            device_writes_per_sec: self.rate(|stats| stats.device_write_ios),
            device_write_bytes_per_sec: self.rate(|stats| stats.device_write_bytes),
            device_flushes_per_sec: self.rate(|stats| stats.device_flushes),
            journal_commits_per_sec: self.rate(|stats| stats.journal_commits),
            throttle_waits_per_sec: self.rate(|stats| stats.throttle.waits),
            by_reason,
        };
        json!({
            "time": time,
            "interval_s": self.seconds(),
            "rates": rates,
            "stats": self.now.raw,
        })
    }
}

#[derive(Serialize)]
struct Totals {
    device_reads_per_sec: Option<f64>,
    device_read_bytes_per_sec: Option<f64>,
    device_writes_per_sec: Option<f64>,
    device_write_bytes_per_sec: Option<f64>,
    device_flushes_per_sec: Option<f64>,
    journal_commits_per_sec: Option<f64>,
    throttle_waits_per_sec: Option<f64>,
    by_reason: Map<String, Value>,
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::mount_stats;

    /// A sample of these statistics.
    pub fn sample(at_ms: u64, raw: Value) -> Sample {
        Sample {
            stats: mount_stats::decode(&raw).unwrap(),
            raw,
            at: Duration::from_millis(at_ms),
        }
    }

    fn reads(requests: u64, bytes: u64, latency: Value) -> Value {
        let read = json!({"requests": requests, "bytes": bytes, "latency_us": latency});
        json!({"device_flushes": requests / 2, "device_by_reason": {"read": read}})
    }

    #[test]
    fn rates_are_of_the_interval() {
        let before = sample(1000, reads(10, 4096, json!([[64, 10]])));
        let after = sample(3000, reads(30, 12_288, json!([[64, 10], [1024, 20]])));
        let interval = Interval::new(Some(&before), &after);
        assert_eq!(interval.seconds(), Some(2.0));
        assert_eq!(interval.rate(|stats| stats.device_flushes), Some(5.0));
        let rates = interval.rates(IoReason::Read);
        assert_eq!(rates.requests_per_sec, Some(10.0));
        assert_eq!(rates.bytes_per_sec, Some(4096.0));
        assert_eq!(rates.latency.bound(0.5), "< 2.0 ms");
        let none = interval.rates(IoReason::Sync);
        assert_eq!(none.requests_per_sec, Some(0.0));
        assert_eq!(none.latency, Latency::default());
    }

    #[test]
    fn the_first_sample_has_times_since_the_mount_and_no_rates() {
        let only = sample(1000, reads(10, 4096, json!([[64, 10]])));
        let of_another_mount = sample(0, reads(11, 4096, json!([[64, 11]])));
        for before in [None, Some(&of_another_mount), Some(&only)] {
            let interval = Interval::new(before, &only);
            assert_eq!(interval.seconds(), None);
            assert_eq!(interval.rate(|stats| stats.device_flushes), None);
            let rates = interval.rates(IoReason::Read);
            assert_eq!(rates.requests_per_sec, None);
            assert_eq!(rates.latency.bound(0.5), "< 128 µs");
        }
    }

    #[test]
    fn json_has_rates_and_statistics() {
        let before = sample(0, reads(0, 0, json!([])));
        let after = sample(500, reads(4, 8192, json!([[8_388_608, 4]])));
        let object = Interval::new(Some(&before), &after).json("now");
        assert_eq!(object["interval_s"], 0.5);
        assert_eq!(object["rates"]["device_flushes_per_sec"], 4.0);
        let read = &object["rates"]["by_reason"]["read"];
        assert_eq!(read["requests_per_sec"], 8.0);
        assert_eq!(read["bytes_per_sec"], 16_384.0);
        assert!(read["p50_below_us"].is_null(), "the last class has no end");
        assert_eq!(object["stats"], after.raw);
        let first = Interval::new(None, &after).json("now");
        assert!(first["interval_s"].is_null());
        assert!(first["rates"]["device_flushes_per_sec"].is_null());
    }
}
