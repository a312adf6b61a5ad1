//! Storms: threads that call sync at the same moment.

use crate::latency::Recorder;
use crate::storms::Storms;
use crate::target::Target;
use crate::{Device, Time, clock};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// When storms begin.
pub(super) enum Schedule<'a> {
    /// So many, one after the other.
    Count(usize),
    /// One in each interval, the first after one interval, until `over` is set.
    Every {
        interval: Duration,
        over: &'a AtomicBool,
    },
}

impl Schedule<'_> {
    /// Waits for the beginning of the next storm, where `begun` storms have begun. Returns whether
    /// there is one.
    fn next(&self, begun: usize, start: Instant) -> bool {
        match self {
            Schedule::Count(count) => begun < *count,
            Schedule::Every { interval, over } => {
                let deadline = start + *interval * (begun as u32 + 1);
                while !over.load(Ordering::Acquire) && clock::now() < deadline {
                    clock::sleep_until(deadline.min(clock::now() + Duration::from_millis(5)));
                }
                !over.load(Ordering::Acquire)
            }
        }
    }
}

/// The storm that is under way.
struct Current {
    /// Of the first sync.
    began: Option<Instant>,
    /// Of the last sync.
    ended: Option<Instant>,
    calls: Recorder,
    outcome: io::Result<()>,
}

/// Runs storms of `syncs` threads. The threads wait between storms, so their start costs nothing.
///
/// # Errors
/// The first error of a sync.
pub(super) fn storms(
    target: &dyn Target,
    syncs: usize,
    schedule: Schedule<'_>,
) -> io::Result<Storms> {
    let gate = Barrier::new(syncs + 1);
    let over = AtomicBool::new(false);
    let current = Mutex::new(Current {
        began: None,
        ended: None,
        calls: Recorder::default(),
        outcome: Ok(()),
    });
    let lock = || current.lock().unwrap_or_else(PoisonError::into_inner);
    let call = || loop {
        gate.wait();
        if over.load(Ordering::Acquire) {
            return;
        }
        let began = clock::now();
        let outcome = target.sync();
        let ended = clock::now();
        {
            let mut current = lock();
            current.began = Some(current.began.map_or(began, |first| first.min(began)));
            current.ended = Some(current.ended.map_or(ended, |last| last.max(ended)));
            current.calls.record(ended.duration_since(began));
            if current.outcome.is_ok() {
                current.outcome = outcome;
            }
        }
        gate.wait();
    };
    let mut walls = Vec::new();
    let mut sum = Sum::default();
    thread::scope(|scope| {
        (0..syncs).for_each(|_| drop(scope.spawn(call)));
        let start = clock::now();
        while schedule.next(walls.len(), start) && lock().outcome.is_ok() {
            let before = (clock::times(), target.device());
            gate.wait();
            gate.wait();
            sum.add(clock::times() - before.0, before.1, target.device());
            let mut current = lock();
            let times = current.began.take().zip(current.ended.take());
            walls.extend(times.map(|(began, ended)| ended - began));
        }
        over.store(true, Ordering::Release);
        gate.wait();
    });
    let current = current.into_inner().unwrap_or_else(PoisonError::into_inner);
    current.outcome?;
    walls.sort();
    let of = |wall: Option<&Duration>| wall.map_or(0.0, Duration::as_secs_f64);
    let count = walls.len().max(1) as f64;
    let mean = |total: Option<u64>| total.map(|total| total as f64 / count);
    Ok(Storms {
        count: walls.len() as u64,
        wall_s: of(walls.get(walls.len() / 2)),
        max_wall_s: of(walls.last()),
        cpu_s: sum.cpu_s / count,
        machine_cpu_s: sum.machine_cpu_s / count,
        calls: current.calls.latency().unwrap_or_default(),
        commits: mean(sum.commits),
        flushes: mean(sum.flushes),
    })
}

/// Runs `work`, and storms until it has ended. Returns the result of `work`.
///
/// # Errors
/// The error of `work`, else that of a sync.
pub(super) fn beside<T>(
    target: &dyn Target,
    syncs: usize,
    every: Duration,
    work: impl FnOnce() -> io::Result<T>,
) -> io::Result<(T, Storms)> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let schedule = Schedule::Every {
            interval: every,
            over: &over,
        };
        let storms = scope.spawn(|| storms(target, syncs, schedule));
        let result = work();
        over.store(true, Ordering::Release);
        let panicked = || Err(io::Error::other("a thread panicked"));
        let storms = storms.join().unwrap_or_else(|_| panicked());
        Ok((result?, storms?))
    })
}

/// Sums over all storms.
#[derive(Default)]
struct Sum {
    cpu_s: f64,
    machine_cpu_s: f64,
    commits: Option<u64>,
    flushes: Option<u64>,
}

impl Sum {
    fn add(&mut self, time: Time, before: Option<Device>, after: Option<Device>) {
        self.cpu_s += time.cpu_s;
        self.machine_cpu_s += time.machine_cpu_s;
        let Some(device) = before
            .zip(after)
            .map(|(before, after)| after.since(&before))
        else {
            return;
        };
        *self.flushes.get_or_insert_default() += device.flushes;
        if let Some(commits) = device.commits {
            *self.commits.get_or_insert_default() += commits;
        }
    }
}
