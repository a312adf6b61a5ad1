//! Counts, rates, and a bar on terminals.

use crate::human;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How often the bar is drawn, at most.
const TICK: Duration = Duration::from_millis(100);

/// What has been copied.
pub struct Progress {
    files: AtomicU64,
    dirs: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
    /// Files that are durable already, and the syncs that made them so.
    durable: AtomicU64,
    syncs: AtomicU64,
    /// When everything was copied and only the rest of it on its way to the device.
    copied: OnceLock<Duration>,
    started: Instant,
    bar: ProgressBar,
}

impl Progress {
    /// Begins; the bar shows if standard error is a terminal and `show` says so.
    pub fn start(show: bool) -> Progress {
        let bar = if show && io::stderr().is_terminal() {
            let style = ProgressStyle::with_template("{spinner} {wide_bar} {msg}");
            ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10))
                .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        } else {
            ProgressBar::hidden()
        };
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
    /// So many files have become durable by one sync.
    pub fn add_durable(&self, files: u64) {
        self.durable.fetch_add(files, Relaxed);
        self.syncs.fetch_add(1, Relaxed);
    }

    /// Tells an error without tearing the bar.
    pub fn failed(&self, path: &Path, e: &io::Error) {
        self.errors.fetch_add(1, Relaxed);
        self.bar
            .suspend(|| eprintln!("sluice: {}: {e}", path.display()));
    }

    pub fn errors(&self) -> u64 {
        self.errors.load(Relaxed)
    }

    /// Runs `work` with the bar kept up to date, and `count`, which counts the files beforehand if
    /// it can, beside it.
    pub fn during<T>(
        &self,
        count: impl FnOnce() -> Option<u64> + Send,
        work: impl FnOnce() -> T,
    ) -> T {
        if self.bar.is_hidden() {
            return work();
        }
        let (done, over) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                count()
                    .into_iter()
                    .for_each(|files| self.bar.set_length(files))
            });
            scope.spawn(move || {
                while over
                    .recv_timeout(TICK)
                    .is_err_and(|e| e == std::sync::mpsc::RecvTimeoutError::Timeout)
                {
                    self.bar.set_position(self.files.load(Relaxed));
                    self.bar.set_message(self.line());
                    self.bar.tick();
                }
            });
            let result = work();
            drop(done);
            result
        })
    }

    /// From now on the bar says that the rest is being written to the device.
    pub fn closing(&self) {
        let _ = self.copied.set(self.started.elapsed());
    }

    /// Takes the bar away.
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

    /// What was done, in a line, and over the whole time.
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

    /// The same for a program: `copied_s` until everything was copied, `wall_s` until it was on the
    /// device.
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
