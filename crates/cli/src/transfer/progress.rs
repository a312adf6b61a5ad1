//! Counters, rates, and a progress bar on terminals.

use crate::{human, output};
use indicatif::ProgressBar;
use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Interval between updates of the bar.
const TICK: Duration = Duration::from_millis(100);

/// Counters of a copy, and its progress bar.
pub struct Progress {
    files: AtomicU64,
    dirs: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
    /// Files that are durable.
    durable: AtomicU64,
    /// Syncs that made them durable.
    syncs: AtomicU64,
    /// Time until everything was copied and only writeback was left.
    copied: OnceLock<Duration>,
    started: Instant,
    bar: ProgressBar,
}

impl Progress {
    /// Starts with a bar, if standard error is a terminal.
    pub fn with_bar() -> Progress {
        Progress::start(output::progress_bar("{spinner} {wide_bar} {msg}"))
    }

    /// Starts without a bar.
    pub fn hidden() -> Progress {
        Progress::start(ProgressBar::hidden())
    }

    fn start(bar: ProgressBar) -> Progress {
        Progress {
            files: AtomicU64::new(0),
            dirs: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            copied: OnceLock::new(),
            started: Instant::now(),
            bar,
        }
    }

    pub fn add_file(&self) {
        self.files.fetch_add(1, Relaxed);
    }
    pub fn add_dir(&self) {
        self.dirs.fetch_add(1, Relaxed);
    }
    pub fn add_bytes(&self, n: u64) {
        self.bytes.fetch_add(n, Relaxed);
    }
    /// Counts one sync that made `files` files durable.
    pub fn add_durable(&self, files: u64) {
        self.durable.fetch_add(files, Relaxed);
        self.syncs.fetch_add(1, Relaxed);
    }

    /// Prints and counts an error. The bar is hidden meanwhile.
    pub fn failed(&self, path: &Path, e: &io::Error) {
        self.errors.fetch_add(1, Relaxed);
        self.bar
            .suspend(|| eprintln!("sluice: {}: {e}", path.display()));
    }

    pub fn errors(&self) -> u64 {
        self.errors.load(Relaxed)
    }

    /// Runs `work` and updates the bar. `count` runs concurrently and returns the number of files
    /// to copy, if it is known.
    pub fn during<T>(
        &self,
        count: impl FnOnce() -> Option<u64> + Send,
        work: impl FnOnce() -> T,
    ) -> T {
        if self.bar.is_hidden() {
            return work();
        }
        let (running, ended) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                count()
                    .into_iter()
                    .for_each(|files| self.bar.set_length(files))
            });
            scope.spawn(move || {
                while ended
                    .recv_timeout(TICK)
                    .is_err_and(|e| e == std::sync::mpsc::RecvTimeoutError::Timeout)
                {
                    self.bar.set_position(self.files.load(Relaxed));
                    self.bar.set_message(self.line());
                    self.bar.tick();
                }
            });
            let result = work();
            drop(running);
            result
        })
    }

    /// Everything is copied; the bar shows that the rest is being written to the device.
    pub fn copied(&self) {
        let _ = self.copied.set(self.started.elapsed());
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn line(&self) -> String {
        let seconds = self.started.elapsed().as_secs_f64().max(1e-9);
        let (files, bytes) = (self.files.load(Relaxed), self.bytes.load(Relaxed));
        let durable = match self.durable.load(Relaxed) {
            0 => String::new(),
            files => format!(", {} durable", human::count(files)),
        };
        format!(
            "{} files{durable}, {} files/s, {}/s{}",
            human::count(files),
            human::count((files as f64 / seconds) as u64),
            human::bytes((bytes as f64 / seconds) as u64),
            if self.copied.get().is_some() {
                ", writing the rest"
            } else {
                ""
            }
        )
    }

    /// The counters and the average rates in one line.
    pub fn summary(&self) -> String {
        let seconds = self.started.elapsed().as_secs_f64();
        format!(
            "{} files, {} directories, {} in {seconds:.2} s ({} files/s, {}/s)",
            human::count(self.files.load(Relaxed)),
            human::count(self.dirs.load(Relaxed)),
            human::bytes(self.bytes.load(Relaxed)),
            human::count((self.files.load(Relaxed) as f64 / seconds.max(1e-9)) as u64),
            human::bytes((self.bytes.load(Relaxed) as f64 / seconds.max(1e-9)) as u64)
        )
    }

    /// The same as JSON. `copied_s` is the time until everything was copied, `wall_s` that until it
    /// was on the device.
    pub fn json(&self) -> serde_json::Value {
        let wall = self.started.elapsed();
        let seconds = wall.as_secs_f64();
        serde_json::json!({
            "files": self.files.load(Relaxed),
            "directories": self.dirs.load(Relaxed),
            "bytes": self.bytes.load(Relaxed),
            "errors": self.errors(),
            "durable_files": self.durable.load(Relaxed),
            "syncs": self.syncs.load(Relaxed),
            "copied_s": self.copied.get().unwrap_or(&wall).as_secs_f64(),
            "wall_s": seconds,
            "files_per_sec": self.files.load(Relaxed) as f64 / seconds.max(1e-9),
        })
    }
}
