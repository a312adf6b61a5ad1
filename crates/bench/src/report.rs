//! What a run measured. Serialises as one JSON object, and is read back by whoever compares runs.

use crate::measure;
use crate::randwrite::Pace;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A run.
///
/// What stands at the top covers the workload from its start until what it wrote is on the device,
/// the final sync included; phases and loops have their own times.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// What was done.
    pub workload: String,
    /// What it ran on.
    pub target: String,
    /// Files written.
    pub files: u64,
    /// Bytes of file data written.
    pub bytes: u64,
    /// `files` per second of wall-clock time.
    pub files_per_sec: f64,
    /// `bytes` per second of wall-clock time.
    pub bytes_per_sec: f64,
    /// Time taken.
    #[serde(flatten)]
    pub time: Time,
    /// What reached the device in that time, where it is known.
    pub device: Option<Device>,
    /// The steps, in order.
    pub phases: Vec<Phase>,
    /// The iterations of fs_mark.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub loops: Vec<Loop>,
    /// Latency of single calls, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub latency: BTreeMap<String, Latency>,
    /// How steadily writers went, together and on each device (randwrite).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paces: Vec<Pace>,
    /// The run in intervals of a tenth of a second.
    pub samples: Vec<Sample>,
}

/// Time taken, in seconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Time {
    /// Wall-clock time.
    pub wall_s: f64,
    /// Processor time of this process, all threads, user and system. What a file system in the
    /// kernel does for it on other threads, or one in another process, is not in it.
    pub cpu_s: f64,
    /// Time that the machine's processors were busy, whoever kept them so: comparable between file
    /// systems on an otherwise idle machine.
    pub machine_cpu_s: f64,
}

impl std::ops::Sub for Time {
    type Output = Time;
    fn sub(self, earlier: Time) -> Time {
        Time {
            wall_s: self.wall_s - earlier.wall_s,
            cpu_s: self.cpu_s - earlier.cpu_s,
            machine_cpu_s: self.machine_cpu_s - earlier.machine_cpu_s,
        }
    }
}

/// One timed step.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Phase {
    /// What was done.
    pub name: String,
    /// How many files (or MiB, for a stream).
    pub count: u64,
    /// Time taken.
    #[serde(flatten)]
    pub time: Time,
    /// `count` per second of wall-clock time.
    pub per_sec: f64,
}

/// One iteration of fs_mark: its columns, and the time it took.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Loop {
    /// How much of the first directory's file system is not available any more, in percent, before
    /// the iteration.
    pub fs_use_percent: f64,
    /// Files since the first iteration.
    pub count: u64,
    /// Bytes in a file.
    pub size: u64,
    /// Sum of the threads' rates, as fs_mark counts.
    pub files_per_sec: f64,
    /// Time that the threads spent outside calls to the file system, summed up, in microseconds.
    pub app_overhead_us: u64,
    /// Time taken.
    #[serde(flatten)]
    pub time: Time,
}

/// What reached a device during a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    /// Write requests.
    pub write_ios: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Writes merged into another's request.
    pub merged: u64,
    /// Flushes.
    pub flushes: u64,
    /// Read requests.
    pub read_ios: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Transactions that the journal committed, where that is known.
    pub commits: Option<u64>,
    /// Sizes of the write requests, where they are known; classes without any are left out.
    pub write_sizes: Vec<SizeClass>,
}

/// Requests of similar size: from `least_bytes`, a power of two, to below twice as much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeClass {
    /// The smallest size in the class.
    pub least_bytes: u64,
    /// How many there were.
    pub requests: u64,
}

impl Device {
    /// Mean size of a write request in bytes.
    pub fn mean_write_bytes(&self) -> u64 {
        self.write_bytes.checked_div(self.write_ios).unwrap_or(0)
    }

    /// Write requests in a second.
    pub fn write_iops(&self, time: Time) -> f64 {
        measure::per_sec(self.write_ios, time)
    }

    /// Commits in a second, where they are known.
    pub fn commits_per_sec(&self, time: Time) -> Option<f64> {
        self.commits.map(|n| measure::per_sec(n, time))
    }

    /// Two devices together.
    #[must_use]
    pub fn plus(&self, other: &Device) -> Device {
        let mut sizes = BTreeMap::new();
        for class in self.write_sizes.iter().chain(&other.write_sizes) {
            *sizes.entry(class.least_bytes).or_default() += class.requests;
        }
        let classes = sizes.into_iter().map(|(least_bytes, requests)| SizeClass {
            least_bytes,
            requests,
        });
        let commits = self.commits.unwrap_or(0) + other.commits.unwrap_or(0);
        Device {
            write_ios: self.write_ios + other.write_ios,
            write_bytes: self.write_bytes + other.write_bytes,
            merged: self.merged + other.merged,
            flushes: self.flushes + other.flushes,
            read_ios: self.read_ios + other.read_ios,
            read_bytes: self.read_bytes + other.read_bytes,
            commits: self.commits.or(other.commits).map(|_| commits),
            write_sizes: classes.collect(),
        }
    }
}

/// Latency of one kind of call, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Latency {
    /// Calls.
    pub count: u64,
    /// Mean.
    pub mean_us: f64,
    /// Half of the calls took no longer.
    pub p50_us: f64,
    /// 90 % took no longer.
    pub p90_us: f64,
    /// 99 % took no longer.
    pub p99_us: f64,
    /// 99.9 % took no longer.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// What happened in one interval of a run.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// The interval's end, in seconds since the run began.
    pub at_s: f64,
    /// Files (or MiB) per second.
    pub files_per_sec: f64,
    /// Bytes that the device wrote in the interval; 0 where that is not known.
    pub device_write_bytes: u64,
}

impl Report {
    /// Several rounds of one workload as one report: the round whose wall-clock time is the median,
    /// with each phase replaced by that phase's own median.
    ///
    /// # Panics
    /// Where there is none.
    #[must_use]
    pub fn median(rounds: Vec<Report>) -> Report {
        let mut phases: BTreeMap<usize, Vec<Phase>> = BTreeMap::new();
        for report in &rounds {
            for (i, phase) in report.phases.iter().enumerate() {
                phases.entry(i).or_default().push(phase.clone());
            }
        }
        let mut report = middle(rounds, |r| r.time.wall_s);
        report.phases = phases
            .into_values()
            .map(|all| middle(all, |p| p.time.wall_s))
            .collect();
        report
    }

    /// The phase of that name.
    pub fn phase(&self, name: &str) -> Option<&Phase> {
        self.phases.iter().find(|phase| phase.name == name)
    }
}

/// The median by a key; the later of the two in the middle.
fn middle<T>(mut all: Vec<T>, key: impl Fn(&T) -> f64) -> T {
    all.sort_by(|a, b| key(a).total_cmp(&key(b)));
    all.swap_remove(all.len() / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(wall_s: f64, create_s: f64) -> Report {
        let time = |wall_s| Time {
            wall_s,
            ..Time::default()
        };
        Report {
            files: (wall_s * 10.0) as u64,
            time: time(wall_s),
            phases: vec![Phase {
                name: "create".into(),
                time: time(create_s),
                ..Phase::default()
            }],
            ..Report::default()
        }
    }

    fn sizes(classes: &[(u64, u64)]) -> Vec<SizeClass> {
        let class = |&(least_bytes, requests): &(u64, u64)| SizeClass {
            least_bytes,
            requests,
        };
        classes.iter().map(class).collect()
    }

    #[test]
    fn the_median_round_is_whole_and_its_phases_are_medians_of_their_own() {
        let median = Report::median(vec![report(3.0, 0.3), report(1.0, 0.2), report(2.0, 0.1)]);
        assert_eq!((median.time.wall_s, median.files), (2.0, 20));
        assert_eq!(median.phase("create").unwrap().time.wall_s, 0.2);
        assert!(median.phase("sync").is_none());
    }

    #[test]
    fn json_has_the_promised_names_and_reads_back() {
        let mut report = report(1.0, 1.0);
        report.device = Some(Device {
            write_ios: 3,
            write_bytes: 12_288,
            write_sizes: sizes(&[(4096, 3)]),
            ..Device::default()
        });
        let json = serde_json::to_value(&report).unwrap();
        for name in ["files_per_sec", "wall_s", "cpu_s", "machine_cpu_s"] {
            assert!(json[name].is_number(), "{name} in {json}");
        }
        for name in ["write_ios", "write_bytes", "merged", "flushes"] {
            assert!(json["device"][name].is_u64(), "{name} in {json}");
        }
        let back: Report = serde_json::from_value(json).unwrap();
        assert_eq!(back.device, report.device);
        assert_eq!(back.time.wall_s, 1.0);
        let least: Report = serde_json::from_str(r#"{"files_per_sec": 5}"#).unwrap();
        assert_eq!(least.files_per_sec, 5.0);
    }

    #[test]
    fn devices_add_up_class_by_class() {
        let one = |classes: &[(u64, u64)], commits| Device {
            write_ios: 1,
            commits,
            write_sizes: sizes(classes),
            ..Device::default()
        };
        let sum = one(&[(4096, 1)], Some(2)).plus(&one(&[(512, 4), (4096, 1)], None));
        assert_eq!(sum.write_sizes, sizes(&[(512, 4), (4096, 2)]));
        assert_eq!((sum.write_ios, sum.commits), (2, Some(2)));
    }
}
