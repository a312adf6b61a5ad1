//! One thread of one iteration.

use super::layout::Layout;
use super::sync_method::Pass;
use super::{FsMark, Fsync};
use crate::latency::Recorder;
use crate::measure::Ticker;
use crate::target::{Create, Directory, OpenFile, PendingSync};
use crate::{Latency, Target};
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

/// Latencies of the calls to the file system.
#[derive(Default)]
pub(super) struct Calls {
    create: Recorder,
    write: Recorder,
    fsync: Recorder,
    sync: Recorder,
    close: Recorder,
    open: Recorder,
    wait: Recorder,
}

impl Calls {
    pub(super) fn add(&mut self, other: &Calls) {
        self.create.add(&other.create);
        self.write.add(&other.write);
        self.fsync.add(&other.fsync);
        self.sync.add(&other.sync);
        self.close.add(&other.close);
        self.open.add(&other.open);
        self.wait.add(&other.wait);
    }

    /// By name, those that were made.
    pub(super) fn latencies(&self) -> BTreeMap<String, Latency> {
        let calls = [
            ("create", &self.create),
            ("write", &self.write),
            ("fsync", &self.fsync),
            ("sync", &self.sync),
            ("close", &self.close),
            ("open", &self.open),
            ("wait", &self.wait),
        ];
        let made = calls
            .into_iter()
            .filter_map(|(name, r)| Some((name, r.latency()?)));
        made.map(|(name, latency)| (name.to_owned(), latency))
            .collect()
    }
}

/// What a thread has done.
pub(super) struct Outcome {
    elapsed: Duration,
    in_calls: Duration,
    pub(super) calls: Calls,
    /// The files, in the order of their making.
    pub(super) names: Vec<String>,
}

impl Outcome {
    pub(super) fn files_per_sec(&self, files: u64) -> f64 {
        files as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Time spent outside the calls.
    pub(super) fn app_overhead_us(&self) -> u64 {
        self.elapsed.saturating_sub(self.in_calls).as_micros() as u64
    }
}

/// A thread at work.
pub(super) struct Worker<'a> {
    work: &'a FsMark,
    target: &'a dyn Target,
    directory: &'a dyn Directory,
    in_calls: Duration,
    calls: Calls,
    /// Syncs that have begun.
    pending: Vec<PendingSync>,
    /// Open files that wait for one sync of all.
    held: Vec<Box<dyn OpenFile>>,
}

impl<'a> Worker<'a> {
    pub(super) fn new(
        work: &'a FsMark,
        target: &'a dyn Target,
        directory: &'a dyn Directory,
    ) -> Worker<'a> {
        Worker {
            work,
            target,
            directory,
            in_calls: Duration::ZERO,
            calls: Calls::default(),
            pending: Vec::new(),
            held: Vec::new(),
        }
    }

    /// Writes the files and makes them durable as -S says.
    pub(super) fn run(mut self, mut ticker: Ticker<'_>) -> io::Result<Outcome> {
        let data = vec![0x5a; self.work.write_size.min(self.work.size as usize)];
        let mut layout = Layout::new(self.work.subdirectories);
        let mut names = Vec::with_capacity(self.work.files as usize);
        let start = Instant::now();
        for _ in 0..self.work.files {
            let (name, subdirectory) = layout.next();
            if let Some(subdirectory) = subdirectory {
                self.directory.make_subdirectory(&subdirectory)?;
            }
            self.write(&name, &data)?;
            names.push(name);
            ticker.tick();
        }
        self.make_durable(&names)?;
        Ok(Outcome {
            elapsed: start.elapsed(),
            in_calls: self.in_calls,
            calls: self.calls,
            names,
        })
    }

    fn write(&mut self, name: &str, data: &[u8]) -> io::Result<()> {
        let directory = self.directory;
        let create = || directory.create(name, Create::Truncate);
        let file = self.call(|calls| &mut calls.create, create)?;
        let mut at = 0;
        while at < self.work.size {
            let len = data.len().min((self.work.size - at) as usize);
            let write = || file.write_all_at(&data[..len], at);
            self.call(|calls| &mut calls.write, write)?;
            at += len as u64;
        }
        if self.work.sync_method.fsyncs_in_loop() {
            self.fsync(file)
        } else {
            self.close(file)
        }
    }

    /// What happens when all files are written.
    fn make_durable(&mut self, names: &[String]) -> io::Result<()> {
        let target = self.target;
        let method = self.work.sync_method;
        if method.syncs() {
            self.call(|calls| &mut calls.sync, || target.sync())?;
        }
        match method.pass() {
            Pass::None => {}
            Pass::First => names.iter().take(1).try_for_each(|n| self.reopen(n))?,
            Pass::Forward => names.iter().try_for_each(|n| self.reopen(n))?,
            Pass::Backward => names.iter().rev().try_for_each(|n| self.reopen(n))?,
        }
        self.settle()
    }

    fn reopen(&mut self, name: &str) -> io::Result<()> {
        let directory = self.directory;
        let file = self.call(|calls| &mut calls.open, || directory.open(name))?;
        self.fsync(file)
    }

    /// Makes a file durable and closes it, now or when it is [settled](Worker::settle).
    fn fsync(&mut self, file: Box<dyn OpenFile>) -> io::Result<()> {
        match self.work.fsync {
            Fsync::Blocking => self.call(|calls| &mut calls.fsync, || file.sync_all())?,
            Fsync::Async => {
                let pending = self.call(|calls| &mut calls.fsync, || file.sync_all_async())?;
                self.pending.push(pending);
            }
            Fsync::Bulk => {
                self.held.push(file);
                return Ok(());
            }
        }
        self.close(file)
    }

    /// Waits for what was begun, and makes durable what was held back.
    fn settle(&mut self) -> io::Result<()> {
        for pending in std::mem::take(&mut self.pending) {
            self.call(|calls| &mut calls.wait, pending)?;
        }
        let held = std::mem::take(&mut self.held);
        if held.is_empty() {
            return Ok(());
        }
        let target = self.target;
        self.call(|calls| &mut calls.fsync, || target.sync_files(&held))?;
        held.into_iter().try_for_each(|file| self.close(file))
    }

    fn close(&mut self, file: Box<dyn OpenFile>) -> io::Result<()> {
        let close = || {
            drop(file);
            Ok(())
        };
        self.call(|calls| &mut calls.close, close)
    }

    /// Makes one call to the file system and times it.
    fn call<T>(
        &mut self,
        kind: impl FnOnce(&mut Calls) -> &mut Recorder,
        call: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let start = Instant::now();
        let result = call();
        let took = start.elapsed();
        self.in_calls += took;
        kind(&mut self.calls).record(took);
        result
    }
}
