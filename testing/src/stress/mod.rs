//! `./x stress`: random work for hours. Other programs are part of the load and of the checks.
//!
//! A *round* is a part with a seed and a time. Each round is a process (`runner`), so that a panic,
//! a hang or a leak affects only that round, and resident memory is its own. `./x stress --part
//! NAME --seed SEED` repeats a round.
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

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use testkit::needs::Need;
use testkit::seed::Rng;

/// The input of a round.
pub struct Round {
    /// The seed of all random choices.
    pub rng: Rng,
    /// The time of the work, without the checks after it.
    pub time: Duration,
    /// An empty directory on a disk.
    pub dir: PathBuf,
    /// The number of worker threads.
    pub threads: usize,
}

/// The report of a round.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// The number of operations.
    pub operations: u64,
    /// The most memory in use, in bytes: counted by the budget, or resident memory of the mount
    /// daemon.
    pub memory: u64,
    /// The memory budget, in bytes; 0: none.
    pub budget: u64,
    /// A summary in one line.
    pub note: String,
}

/// A part.
pub struct Part {
    /// The name on the command line.
    pub name: &'static str,
    /// The description in the help.
    pub about: &'static str,
    /// The requirements on the machine.
    pub needs: &'static [Need],
    /// Runs a round; panics on a defect.
    pub run: fn(Round) -> Outcome,
}

const E2FSCK: Need = Need::Tool("e2fsck");
const MOUNT: [Need; 4] = [Need::Root, Need::Fuse, E2FSCK, Need::Tool("mountpoint")];

/// All parts, in the order of their rounds.
pub const PARTS: [Part; 10] = [
    Part {
        name: "model",
        about: "threads with a model each, with remounts; the kernel and e2fsck check the result",
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

/// A time limit for threads.
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
    /// Ends the time.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

/// Stops the other threads when a thread panics.
pub struct StopOnPanic<'a>(pub &'a Clock);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
        }
    }
}
