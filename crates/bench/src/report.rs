//! What a run measured.

use crate::Target;
use serde::Serialize;
use std::io;
use std::time::Instant;

/// One timed step of a workload.
#[derive(Clone, Debug, Serialize)]
pub struct Phase {
    /// What was done.
    pub name: &'static str,
    /// How many files (or MiB, for a stream).
    pub count: u64,
    /// Wall-clock time in seconds.
    pub wall_s: f64,
    /// Processor time of this process in seconds, all threads, user and system. A peer in the kernel or in another
    /// process is not in it.
    pub cpu_s: f64,
    /// `count` per second of wall-clock time.
    pub per_sec: f64,
}

/// What reached the device during a run. Only known for volumes in process.
#[derive(Clone, Copy, Debug, Default, Serialize)]
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
}

/// A run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What it ran on.
    pub target: String,
    /// Its steps, in order.
    pub phases: Vec<Phase>,
    /// What reached the device, where that is known.
    pub device: Option<Device>,
}

impl Report {
    /// An empty report of a run on `target`.
    pub fn new(target: &dyn Target) -> Report {
        Report {
            target: target.name(),
            phases: Vec::new(),
            device: None,
        }
    }

    /// Runs and times one step that handles `count` things.
    ///
    /// # Errors
    /// The step's.
    pub fn time(
        &mut self,
        name: &'static str,
        count: u64,
        step: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let cpu = cpu_seconds();
        let start = Instant::now();
        step()?;
        let wall_s = start.elapsed().as_secs_f64();
        self.phases.push(Phase {
            name,
            count,
            wall_s,
            cpu_s: cpu_seconds() - cpu,
            per_sec: count as f64 / wall_s.max(1e-9),
        });
        Ok(())
    }

    /// The rounds of one workload as one report: each phase's median by wall-clock time, and the last round's device.
    ///
    /// # Panics
    /// Where there is none.
    pub fn median(mut rounds: Vec<Report>) -> Report {
        let mut report = rounds.pop().expect("at least one round");
        for (i, phase) in report.phases.iter_mut().enumerate() {
            let mut all: Vec<Phase> = rounds
                .iter()
                .filter_map(|r| r.phases.get(i).cloned())
                .collect();
            all.push(phase.clone());
            all.sort_by(|a, b| a.wall_s.total_cmp(&b.wall_s));
            *phase = all.swap_remove(all.len() / 2);
        }
        report
    }

    /// The phase of that name.
    pub fn phase(&self, name: &str) -> Option<&Phase> {
        self.phases.iter().find(|phase| phase.name == name)
    }
}

/// Processor time of this process so far, in seconds.
fn cpu_seconds() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}
