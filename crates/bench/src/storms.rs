//! Results of many syncs at once: beside clean inodes, and during fs_mark.

use crate::latency::Latency;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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

impl SyncStorms {
    /// Each figure is its median over all rounds (the upper one of an even number).
    pub(crate) fn median(rounds: &[&SyncStorms]) -> Option<SyncStorms> {
        let values: Result<Vec<Value>, _> = rounds.iter().map(serde_json::to_value).collect();
        serde_json::from_value(median(&values.ok()?)).ok()
    }
}

/// The median of numbers, of each field of objects, and of what is not null.
fn median(values: &[Value]) -> Value {
    let known: Vec<&Value> = values.iter().filter(|value| !value.is_null()).collect();
    match known.first() {
        None => Value::Null,
        Some(Value::Object(first)) => {
            let field = |name: &String| {
                let all: Vec<Value> = known.iter().map(|value| value[name].clone()).collect();
                (name.clone(), median(&all))
            };
            Value::Object(first.keys().map(field).collect())
        }
        Some(_) => {
            let mut known = known;
            let number = |value: &Value| value.as_f64().unwrap_or(0.0);
            known.sort_by(|a, b| number(a).total_cmp(&number(b)));
            known[known.len() / 2].clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_is_a_median_of_its_own() {
        let round = |wall_s, cached, per_sec| SyncStorms {
            cached,
            clean: Storms {
                wall_s,
                ..Storms::default()
            },
            during: Some(During {
                beside_per_sec: per_sec,
                ..During::default()
            }),
            ..SyncStorms::default()
        };
        let rounds = [
            round(1.0, Some(7), 30.0),
            round(3.0, None, 10.0),
            round(2.0, None, 20.0),
        ];
        let found = SyncStorms::median(&rounds.each_ref()).unwrap();
        assert_eq!((found.clean.wall_s, found.cached), (2.0, Some(7)));
        assert_eq!(found.during.unwrap().beside_per_sec, 20.0);
    }
}
