//! Results of many syncs at once: beside clean inodes, and during fs_mark.

use crate::latency::Latency;
use serde::{Deserialize, Serialize};

/// Syncs at once beside clean inodes, and during fs_mark.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SyncStorms {
    /// Inodes created.
    pub inodes: u64,
    /// Of them, inodes in memory when the syncs began; `None` where nothing counts them.
    pub cached: Option<u64>,
    /// Syncs at once, each by a thread.
    pub syncs: u64,
    /// One sync after the other, with nothing to write.
    pub alone: Latency,
    /// Syncs at once, with nothing to write.
    pub clean: Storms,
    /// Syncs at once during fs_mark.
    pub during: Option<During>,
}

/// Storms: groups of syncs that begin at once.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Storms {
    /// Storms.
    pub count: u64,
    /// Wall-clock time of a storm from the start of its first sync to the end of its last one, in
    /// seconds: the median.
    pub wall_s: f64,
    /// The longest storm.
    pub max_wall_s: f64,
    /// Processor time of this process in a storm, user and system: the mean. During fs_mark it
    /// includes that of fs_mark.
    pub cpu_s: f64,
    /// Busy time of all processors of the machine in a storm: the mean. Counted in hundredths of a
    /// second.
    pub machine_cpu_s: f64,
    /// Single syncs of the storms.
    pub calls: Latency,
    /// Commits of the journal in a storm: the mean; `None` where nothing counts them.
    pub commits: Option<f64>,
    /// Flushes of the device in a storm: the mean; `None` where nothing counts them.
    pub flushes: Option<f64>,
}

/// fs_mark without storms, and the same with storms.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct During {
    /// Threads of fs_mark.
    pub threads: u64,
    /// Files of each run.
    pub files: u64,
    /// Files per second without storms, without the final sync.
    pub alone_per_sec: f64,
    /// Files per second with storms, without the final sync.
    pub beside_per_sec: f64,
    /// Processor seconds of this process for 1,000 files, without storms.
    pub alone_cpu_s_per_1000: f64,
    /// The same with storms.
    pub beside_cpu_s_per_1000: f64,
    /// The storms. Their commits and flushes are those of the storms' time, those of fs_mark
    /// included.
    pub storms: Storms,
    /// Commits of the run with storms minus those of the run without, for each storm.
    pub more_commits: Option<f64>,
    /// The same of flushes.
    pub more_flushes: Option<f64>,
}
