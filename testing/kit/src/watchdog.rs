//! A time limit for a test: one that hangs is named and aborted.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Aborts the process with a message unless it is dropped in time.
pub struct Watchdog {
    _alive: Sender<()>,
}

impl Watchdog {
    /// Starts the time limit of `what`.
    pub fn new(what: impl Into<String>, allowed: Duration) -> Watchdog {
        let what = what.into();
        let (alive, end) = channel::<()>();
        std::thread::spawn(move || {
            if end.recv_timeout(allowed) == Err(RecvTimeoutError::Timeout) {
                eprintln!("HANG: {what} did not end within {allowed:?}");
                print_stacks();
                std::process::abort();
            }
        });
        Watchdog { _alive: alive }
    }
}

/// Prints the kernel function in which each thread waits.
fn print_stacks() {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return;
    };
    for task in tasks.flatten() {
        let read = |name: &str| {
            std::fs::read_to_string(task.path().join(name))
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        eprintln!("  thread {}: {}", read("comm"), read("wchan"));
    }
}
