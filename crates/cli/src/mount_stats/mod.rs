//! The statistics of a mounted volume, as its server publishes them: one JSON object in an extended
//! attribute of the root directory.
//!
//! A field that the server does not publish (another version) has its default.

mod latency;

pub use latency::Latency;

use crate::human;
use serde::Deserialize;
use serde_json::Value;
use sluicefs::IoReason;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

const ATTRIBUTE: &str = "user.sluicefs.stats";
/// Linux's limit for the value of an extended attribute.
const XATTR_MAX: usize = 64 << 10;

/// Counters since the mount, and the state now.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct MountStats {
    pub device_read_ios: u64,
    pub device_read_bytes: u64,
    pub device_write_ios: u64,
    pub device_write_bytes: u64,
    pub device_merged: u64,
    pub device_flushes: u64,
    pub device_errors: u64,
    /// The device of a journal that is on a device of its own.
    pub journal_device: Option<JournalDevice>,
    pub journal_commits: u64,
    pub journal_logged_blocks: u64,
    pub journal_checkpointed_blocks: u64,
    pub journal_stalls: u64,
    pub journal_pauses: u64,
    pub journal_pause_us: u64,
    pub journal_log_bytes: u64,
    pub journal_log_used_bytes: u64,
    pub cached_inodes: u64,
    pub memory_bytes: u64,
    pub memory_limit_bytes: u64,
    pub writeback: Writeback,
    pub throttle: Throttle,
    pub transport: Transport,
    /// Numbers of the kernel's requests to the server, by operation.
    pub requests: BTreeMap<String, u64>,
    device_by_reason: BTreeMap<String, Requests>,
}

/// Counters of the journal's device.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct JournalDevice {
    pub read_ios: u64,
    pub write_ios: u64,
    pub write_bytes: u64,
    pub flushes: u64,
}

/// How the kernel's requests reach the server ([`fuse::MountOptions::transport`]).
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Transport {
    /// `dev` or `uring`.
    pub name: String,
    /// Why it is used.
    pub reason: String,
    pub ring_threads: u64,
    /// Memory of the rings' buffers.
    pub ring_bytes: u64,
}

/// Dirty data and the flusher ([`sluicefs::WritebackStats`]).
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Writeback {
    pub dirty_bytes: u64,
    pub under_writeback_bytes: u64,
    pub background_limit_bytes: u64,
    pub slowing_limit_bytes: u64,
    pub hard_limit_bytes: u64,
    pub bandwidth_bytes_per_sec: u64,
    pub flusher: String,
    /// Empty where the flusher writes nothing.
    pub flusher_reason: String,
}

/// The throttle of background writes ([`sluicefs::ThrottleStats`]).
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Throttle {
    /// 0 without a throttle.
    pub target_us: u64,
    pub limit_bytes: u64,
    pub step: i64,
    pub cause: String,
    pub in_flight_bytes: u64,
    pub cache_debt_bytes: u64,
    pub rate_bytes_per_sec: u64,
    /// The part of their time that readers lost to background writes when it was judged last.
    pub lost: f64,
    /// Whether threads read or fsync, so that the limits apply: 0 or 1.
    pub active: u64,
    pub waits: u64,
}

/// Requests to the device for one reason.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Requests {
    pub requests: u64,
    pub bytes: u64,
    pub in_flight: u64,
    pub latency_us: Latency,
}

impl Writeback {
    /// The flusher's state: `writing (background); the device writes 123 MiB/s`.
    pub fn flusher_text(&self) -> String {
        let state = match self.flusher.as_str() {
            "off" => "not running",
            "waiting" => "waiting for room",
            "failing" => "paused by an error",
            other => other,
        };
        let reason = match self.flusher_reason.as_str() {
            "" => String::new(),
            reason => format!(" ({})", reason.replace('_', " ")),
        };
        let rate = human::bytes(self.bandwidth_bytes_per_sec);
        format!("{state}{reason}; the device writes {rate}/s")
    }
}

impl MountStats {
    /// The reasons that had requests, in the order of [`IoReason::ALL`].
    pub fn reasons(&self) -> impl Iterator<Item = (IoReason, &Requests)> {
        let known = IoReason::ALL.into_iter();
        known.filter_map(|reason| Some((reason, self.device_requests(reason)?)))
    }

    /// The requests for a reason; `None` where it had none.
    pub fn device_requests(&self, reason: IoReason) -> Option<&Requests> {
        self.device_by_reason.get(reason.name())
    }

    /// Whether `self` can be a later state of the mount that had the counters `earlier`. A new
    /// mount begins with 0.
    pub fn follows(&self, earlier: &MountStats) -> bool {
        let counters = |of: &MountStats| {
            let device = [of.device_read_ios, of.device_write_ios, of.device_flushes];
            let other = [of.journal_commits, of.throttle.waits];
            let sums = [of.device_read_bytes, of.device_write_bytes];
            device.into_iter().chain(other).chain(sums)
        };
        let grew = counters(self).zip(counters(earlier)).all(|(n, m)| n >= m);
        let reason_grew = |(reason, before): (IoReason, &Requests)| {
            let now = self.device_requests(reason);
            now.is_some_and(|now| now.requests >= before.requests && now.bytes >= before.bytes)
        };
        grew && earlier.reasons().all(reason_grew)
    }
}

/// The reason why statistics cannot be read.
#[derive(Debug)]
pub enum ReadError {
    /// No volume is mounted there.
    NotMounted(PathBuf, rustix::io::Errno),
    /// A volume is mounted, but its server has ended.
    ServerGone(PathBuf),
    /// Anything else.
    Other(PathBuf, String),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::NotMounted(dir, errno) => {
                let dir = dir.display();
                write!(f, "{dir}: no volume is mounted there by sluice: {errno}")
            }
            ReadError::ServerGone(dir) => {
                let dir = dir.display();
                write!(
                    f,
                    "{dir}: the server of this mount has ended; `sluice unmount {dir}` removes the \
                     mount"
                )
            }
            ReadError::Other(dir, why) => write!(f, "{}: statistics: {why}", dir.display()),
        }
    }
}

impl std::error::Error for ReadError {}

/// Reads the statistics of the volume that is mounted on `dir`. Nothing of the mount stays open, so
/// it can be unmounted.
pub fn read(dir: &Path) -> Result<Value, ReadError> {
    use rustix::io::Errno;
    let mut buf = vec![0; XATTR_MAX];
    let len = rustix::fs::getxattr(dir, ATTRIBUTE, &mut buf[..]).map_err(|errno| match errno {
        Errno::NODATA | Errno::OPNOTSUPP | Errno::NOENT | Errno::NOTDIR => {
            ReadError::NotMounted(dir.into(), errno)
        }
        Errno::NOTCONN => ReadError::ServerGone(dir.into()),
        other => ReadError::Other(dir.into(), other.to_string()),
    })?;
    serde_json::from_slice(&buf[..len])
        .map_err(|error| ReadError::Other(dir.into(), error.to_string()))
}

/// Decodes statistics.
///
/// # Errors
/// A field has another type than here.
pub fn decode(value: &Value) -> Result<MountStats, serde_json::Error> {
    MountStats::deserialize(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn stats(value: Value) -> MountStats {
        decode(&value).unwrap()
    }

    #[test]
    fn reasons_come_in_the_order_of_urgency() {
        let stats = stats(json!({"device_by_reason": {
            "background": {"requests": 1}, "read": {"requests": 2}, "unheard": {"requests": 3},
        }}));
        let names: Vec<_> = stats.reasons().map(|(reason, _)| reason.name()).collect();
        assert_eq!(names, ["read", "background"]);
        assert_eq!(stats.device_requests(IoReason::Read).unwrap().requests, 2);
    }

    #[test]
    fn counters_that_fell_belong_to_another_mount() {
        let before = stats(json!({"journal_commits": 5,
            "device_by_reason": {"read": {"requests": 7, "bytes": 9}}}));
        assert!(before.follows(&before));
        let mut after = before.clone();
        after.device_flushes = 1;
        assert!(after.follows(&before) && !before.follows(&after));
        let fewer = stats(json!({"journal_commits": 5,
            "device_by_reason": {"read": {"requests": 6, "bytes": 9}}}));
        assert!(!fewer.follows(&before) && before.follows(&fewer));
        assert!(!MountStats::default().follows(&before));
    }

    #[test]
    fn a_field_of_another_type_is_an_error() {
        assert!(decode(&json!({"journal_commits": "many"})).is_err());
        assert_eq!(stats(json!({"new": 1})), MountStats::default());
    }

    #[test]
    fn a_directory_without_a_mount_is_named() {
        let error = read(Path::new("/proc")).unwrap_err();
        assert!(matches!(error, ReadError::NotMounted(..)), "{error:?}");
        let text = error.to_string();
        assert!(text.starts_with("/proc: no volume is mounted"), "{text}");
    }
}
