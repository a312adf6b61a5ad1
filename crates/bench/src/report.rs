//! The results of a run. They serialise as one JSON object; a comparison reads that of its workers.

use crate::interference::Interference;
use crate::latency::Latency;
use crate::median::{self, middle};
use crate::pace::Pace;
use crate::storms::SyncStorms;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The results of a run.
///
/// The totals (`files` to `device`) cover the workload from its start until its data is durable,
/// the final sync included. Phases and loops have their own times.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// The workload's name.
    pub workload: String,
    /// The target's name.
    pub target: String,
    /// Files written.
    pub files: u64,
    /// Bytes of file data written.
    pub bytes: u64,
    /// `files` per second of wall-clock time.
    pub files_per_sec: f64,
    /// `bytes` per second of wall-clock time.
    pub bytes_per_sec: f64,
    /// The time of all of that.
    #[serde(flatten)]
    pub time: Time,
    /// I/O of the device in that time; `None` where nothing counts it.
    pub device: Option<Device>,
    /// The phases, in order.
    pub phases: Vec<Phase>,
    /// The iterations of fs_mark.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub loops: Vec<Loop>,
    /// Latency of single calls, by the name of the call.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub latency: BTreeMap<String, Latency>,
    /// The rates of the writers of randwrite, together and on each device.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paces: Vec<Pace>,
    /// The reader and the writer of interfere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interference: Option<Interference>,
    /// How phases were prepared, and which were left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The syncs of syncstorm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storms: Option<SyncStorms>,
    /// The run in intervals of a tenth of a second.
    pub samples: Vec<Sample>,
}

/// Durations in seconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Time {
    /// Wall-clock time.
    pub wall_s: f64,
    /// Processor time of this process, all threads, user and system. The work of kernel threads and
    /// of a file system in another process is not in it.
    pub cpu_s: f64,
    /// Busy time of all processors of the machine. On an otherwise idle machine it is comparable
    /// between file systems.
    pub machine_cpu_s: f64,
}

impl Time {
    /// `count` per second of wall-clock time.
    pub fn per_sec(self, count: u64) -> f64 {
        count as f64 / self.wall_s.max(1e-9)
    }
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

/// One timed phase.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Phase {
    /// The phase's name.
    pub name: String,
    /// Files, or MiB with a stream.
    pub count: u64,
    /// Its duration.
    #[serde(flatten)]
    pub time: Time,
    /// `count` per second of wall-clock time.
    pub per_sec: f64,
}

/// One iteration of fs_mark: its columns and its duration.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Loop {
    /// Percentage of the first directory's file system that is not available, before the iteration.
    pub fs_use_percent: f64,
    /// Files since the first iteration.
    pub count: u64,
    /// Bytes in a file.
    pub size: u64,
    /// Sum of the threads' rates, as fs_mark prints it.
    pub files_per_sec: f64,
    /// Time of all threads outside calls to the file system, in microseconds.
    pub app_overhead_us: u64,
    /// Its duration.
    #[serde(flatten)]
    pub time: Time,
}

/// I/O of a device during a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    /// Write requests.
    pub write_ios: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Writes merged into an earlier request.
    pub merged: u64,
    /// Flushes.
    pub flushes: u64,
    /// Read requests.
    pub read_ios: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Transactions that the journal committed; `None` where nothing counts them.
    pub commits: Option<u64>,
    /// Sizes of the write requests; empty where nothing counts them. Empty classes are left out.
    pub write_sizes: Vec<SizeClass>,
}

/// Requests of at least `least_bytes`, a power of two, and less than twice as much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeClass {
    /// The smallest size in the class.
    pub least_bytes: u64,
    /// Requests in the class.
    pub requests: u64,
}

impl Device {
    /// Mean size of a write request in bytes.
    pub fn mean_write_bytes(&self) -> u64 {
        self.write_bytes.checked_div(self.write_ios).unwrap_or(0)
    }

    /// Write requests per second.
    pub fn write_iops(&self, time: Time) -> f64 {
        time.per_sec(self.write_ios)
    }

    /// Commits per second.
    pub fn commits_per_sec(&self, time: Time) -> Option<f64> {
        self.commits.map(|n| time.per_sec(n))
    }

    /// The I/O since an earlier state of the same device.
    #[must_use]
    pub fn since(&self, earlier: &Device) -> Device {
        let sizes = self.write_sizes.iter().map(|class| {
            let mut before = earlier.write_sizes.iter();
            let before = before.find(|other| other.least_bytes == class.least_bytes);
            SizeClass {
                least_bytes: class.least_bytes,
                requests: class.requests - before.map_or(0, |before| before.requests),
            }
        });
        Device {
            write_ios: self.write_ios - earlier.write_ios,
            write_bytes: self.write_bytes - earlier.write_bytes,
            merged: self.merged - earlier.merged,
            flushes: self.flushes - earlier.flushes,
            read_ios: self.read_ios - earlier.read_ios,
            read_bytes: self.read_bytes - earlier.read_bytes,
            commits: self
                .commits
                .zip(earlier.commits)
                .map(|(now, then)| now - then),
            write_sizes: sizes.filter(|class| class.requests > 0).collect(),
        }
    }

    /// The sum of two devices.
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

/// One interval of a run.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// The end of the interval, in seconds since the start of the run.
    pub at_s: f64,
    /// Files (or MiB) per second.
    pub files_per_sec: f64,
    /// Bytes written by the device in the interval; 0 where nothing counts them.
    pub device_write_bytes: u64,
}

impl Report {
    /// Returns the round with the median wall-clock time; of interfere the one with the median of
    /// [`Interference::p99_us`]. Each of its phases is replaced by that phase's own median over all
    /// rounds, and so is each figure of syncstorm and of the periods of interfere.
    ///
    /// # Panics
    /// If there is no round.
    #[must_use]
    pub fn median(rounds: Vec<Report>) -> Report {
        let mut phases: BTreeMap<usize, Vec<Phase>> = BTreeMap::new();
        for report in &rounds {
            for (i, phase) in report.phases.iter().enumerate() {
                phases.entry(i).or_default().push(phase.clone());
            }
        }
        let storms: Vec<_> = rounds.iter().filter_map(|r| r.storms.as_ref()).collect();
        let storms = median::of_each_figure(&storms);
        let found: Vec<_> = rounds
            .iter()
            .filter_map(|r| r.interference.as_ref())
            .collect();
        let found = Interference::median(&found);
        let mut report = middle(rounds, |r| match &r.interference {
            Some(found) if found.threads > 0 => found.rank(),
            _ => r.time.wall_s,
        });
        (report.storms, report.interference) = (storms, found);
        report.phases = phases
            .into_values()
            .map(|all| middle(all, |p| p.time.wall_s))
            .collect();
        report
    }

    /// Finds a phase by its name.
    pub fn phase(&self, name: &str) -> Option<&Phase> {
        self.phases.iter().find(|phase| phase.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interference::{Interval, Period};

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
    fn the_median_round_has_the_median_of_each_phase() {
        let median = Report::median(vec![report(3.0, 0.3), report(1.0, 0.2), report(2.0, 0.1)]);
        assert_eq!((median.time.wall_s, median.files), (2.0, 20));
        assert_eq!(median.phase("create").unwrap().time.wall_s, 0.2);
        assert!(median.phase("sync").is_none());
    }

    #[test]
    fn the_median_round_of_interfere_has_the_median_latency() {
        let round = |wall_s, p99_us: Option<f64>| {
            let reader = p99_us.map(|p99_us| Latency {
                p99_us,
                ..Latency::default()
            });
            Report {
                interference: Some(Interference {
                    threads: 1,
                    periods: vec![Interval {
                        period: Period::Writer,
                        reader,
                        ..Interval::default()
                    }],
                    ..Interference::default()
                }),
                ..report(wall_s, wall_s)
            }
        };
        let rounds = vec![
            round(2.0, Some(10.0)),
            round(1.0, Some(50.0)),
            round(3.0, None),
        ];
        assert_eq!(Report::median(rounds).time.wall_s, 1.0);
    }

    #[test]
    fn json_has_the_documented_names_and_can_be_read() {
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
    fn request_sizes_of_two_devices_are_summed_by_class() {
        let one = |classes: &[(u64, u64)], commits| Device {
            write_ios: 1,
            commits,
            write_sizes: sizes(classes),
            ..Device::default()
        };
        let sum = one(&[(4096, 1)], Some(2)).plus(&one(&[(512, 4), (4096, 1)], None));
        assert_eq!(sum.write_sizes, sizes(&[(512, 4), (4096, 2)]));
        assert_eq!((sum.write_ios, sum.commits), (2, Some(2)));
        let since = sum.since(&one(&[(4096, 2)], Some(1)));
        assert_eq!(since.write_sizes, sizes(&[(512, 4)]));
        assert_eq!((since.write_ios, since.commits), (1, Some(1)));
    }
}
