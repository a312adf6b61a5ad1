//! `./x stress`: random work for hours, with other people's programs as part of the load and as
//! judges.
//!
//! A *round* is a part with a seed and a time. Each round is a process of its own (`runner`), so
//! that a panic, a hang or a leak is that round's, and resident memory is measured for it alone. A
//! round that fails is repeated by `./x stress --part NAME --seed SEED`.
//!
//! | module | parts |
//! |---|---|
//! | [`library`] | `model`, `shared`, `budget`, `full` |
//! | [`faults`] | `faults` |
//! | [`mounted`] | `mixed`, `kill` |
//! | [`programs`] | `fio`, `stress-ng`, `dbench` |

pub mod faults;
pub mod library;
pub mod mounted;
pub mod programs;
pub mod runner;

use crate::needs::Need;
use crate::seed::Rng;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What a round is given.
pub struct Round {
    /// Everything random comes from here.
    pub rng: Rng,
    /// How long to work; what is checked afterwards takes more.
    pub time: Duration,
    /// An empty directory on a real disk.
    pub dir: PathBuf,
    /// Threads that work.
    pub threads: usize,
}

/// What a round reports.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Operations, by the round's own count.
    pub operations: u64,
    /// Most memory in use, in bytes: the budget's count in the library, what was resident of the
    /// mount daemon.
    pub memory: u64,
    /// The memory budget, in bytes; 0 where there was none to keep.
    pub budget: u64,
    /// A line about what happened.
    pub note: String,
}

/// A part.
pub struct Part {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it does, for the help.
    pub about: &'static str,
    /// What it needs of the machine.
    pub needs: &'static [Need],
    /// Runs a round; panics where something is wrong.
    pub run: fn(Round) -> Outcome,
}

const E2FSCK: Need = Need::Tool("e2fsck");
const MOUNT: [Need; 4] = [Need::Root, Need::Fuse, E2FSCK, Need::Tool("mountpoint")];

/// All parts, in the order in which they take turns.
pub const PARTS: [Part; 10] = [
    Part {
        name: "model",
        about: "threads with a model each, with remounts; the kernel and e2fsck judge",
        needs: &[E2FSCK],
        run: library::model,
    },
    Part {
        name: "mixed",
        about: "threads that write the same files of a mount: buffered, O_DIRECT and mapped",
        needs: &MOUNT,
        run: mounted::mixed,
    },
    Part {
        name: "shared",
        about: "threads in shared directories, with sync and reclaim",
        needs: &[E2FSCK],
        run: library::shared,
    },
    Part {
        name: "fio",
        about: "fio with verify on a mount: libaio, io_uring, psync and mmap on the same files",
        needs: &[MOUNT[0], MOUNT[1], MOUNT[2], MOUNT[3], Need::Tool("fio")],
        run: programs::fio,
    },
    Part {
        name: "kill",
        about: "kill -9 of the mount daemon under load, and remount",
        needs: &MOUNT,
        run: mounted::kill,
    },
    Part {
        name: "budget",
        about: "the smallest memory budgets",
        needs: &[E2FSCK],
        run: library::budget,
    },
    Part {
        name: "stress-ng",
        about: "stress-ng's file classes on a mount",
        needs: &[
            MOUNT[0],
            MOUNT[1],
            MOUNT[2],
            MOUNT[3],
            Need::Tool("stress-ng"),
        ],
        run: programs::stress_ng,
    },
    Part {
        name: "full",
        about: "volumes that fill up, are emptied and fill up again",
        needs: &[E2FSCK],
        run: library::full,
    },
    Part {
        name: "dbench",
        about: "dbench on a mount",
        needs: &[MOUNT[0], MOUNT[1], MOUNT[2], MOUNT[3], Need::Tool("dbench")],
        run: programs::dbench,
    },
    Part {
        name: "faults",
        about: "a device whose requests fail, under several threads, and recovery",
        needs: &[E2FSCK],
        run: faults::run,
    },
];

/// Lets threads work until a time is over.
pub struct Clock {
    end: Instant,
    stopped: AtomicBool,
}

impl Clock {
    /// Ends after `time`.
    pub fn new(time: Duration) -> Clock {
        Clock {
            end: Instant::now() + time,
            stopped: AtomicBool::new(false),
        }
    }
    /// Whether there is time left.
    pub fn runs(&self) -> bool {
        !self.stopped.load(Ordering::Relaxed) && Instant::now() < self.end
    }
    /// Ends now.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

/// Stops the others where a thread panics.
pub struct StopOnPanic<'a>(pub &'a Clock);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
        }
    }
}

/// A figure of `/proc/PID/status` in bytes; 0 where the process is gone.
pub fn status_of(pid: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(field));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}
