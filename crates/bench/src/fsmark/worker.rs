//! One thread of one iteration.

use super::layout::Layout;
use super::sync_method::Pass;
use super::{FsMark, Fsync};
use crate::latency::Recorder;
use crate::measure::Ticker;
use crate::target::{Create, Directory, FsyncQueue, OpenFile, Target};
use crate::{Latency, clock};
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

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

    /// By name; calls that were not made are left out.
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

/// The result of one thread.
pub(super) struct Outcome {
    elapsed: Duration,
    in_calls: Duration,
    pub(super) calls: Calls,
    /// The files, in the order of creation.
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

/// The state of one thread.
pub(super) struct Worker<'a> {
    work: &'a FsMark,
    target: &'a dyn Target,
    directory: &'a dyn Directory,
    in_calls: Duration,
    calls: Calls,
    /// With asynchronous fsync.
    queue: Option<Box<dyn FsyncQueue>>,
    /// Open files for bulk fsync.
    held: Vec<Box<dyn OpenFile>>,
}

impl<'a> Worker<'a> {
    pub(super) fn new(
        work: &'a FsMark,
        target: &'a dyn Target,
        directory: &'a dyn Directory,
    ) -> io::Result<Worker<'a>> {
        let queue = match work.fsync {
            Fsync::Async => Some(target.fsync_queue(work.fsync_depth)?),
            Fsync::Blocking | Fsync::Bulk => None,
        };
        Ok(Worker {
            work,
            target,
            directory,
            in_calls: Duration::ZERO,
            calls: Calls::default(),
            queue,
            held: Vec::new(),
        })
    }

    /// Writes the files and makes them durable by the sync method (-S).
    pub(super) fn run(mut self, mut ticker: Ticker<'_>) -> io::Result<Outcome> {
        let data = vec![0x5a; self.work.write_size.min(self.work.size as usize)];
        let mut layout = Layout::new(self.work.subdirectories);
        let mut names = Vec::with_capacity(self.work.files as usize);
        let start = clock::now();
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
            elapsed: clock::since(start),
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

    /// Runs the sync method's calls that follow the writing of all files.
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
        self.finish_fsyncs()
    }

    fn reopen(&mut self, name: &str) -> io::Result<()> {
        let directory = self.directory;
        let file = self.call(|calls| &mut calls.open, || directory.open(name))?;
        self.fsync(file)
    }

    /// Makes a file durable and closes it. With asynchronous and bulk fsync
    /// [`Worker::finish_fsyncs`] completes that.
    fn fsync(&mut self, file: Box<dyn OpenFile>) -> io::Result<()> {
        match self.work.fsync {
            Fsync::Blocking => {
                self.call(|calls| &mut calls.fsync, || file.sync_all())?;
                self.close(file)
            }
            Fsync::Async => self.with_queue(|worker, queue| {
                worker.call(|calls| &mut calls.fsync, || queue.start(file))
            }),
            Fsync::Bulk => {
                self.held.push(file);
                Ok(())
            }
        }
    }

    /// Waits for all asynchronous fsyncs; makes the files of the bulk fsync durable and closes
    /// them.
    fn finish_fsyncs(&mut self) -> io::Result<()> {
        while self.queue.as_ref().is_some_and(|queue| !queue.is_empty()) {
            self.with_queue(|worker, queue| {
                worker.call(|calls| &mut calls.wait, || queue.wait_one())
            })?;
        }
        let held = std::mem::take(&mut self.held);
        if held.is_empty() {
            return Ok(());
        }
        let target = self.target;
        self.call(|calls| &mut calls.fsync, || target.sync_files(&held))?;
        held.into_iter().try_for_each(|file| self.close(file))
    }

    /// Calls `work` with the queue of asynchronous fsyncs, then closes the files that it releases.
    fn with_queue(
        &mut self,
        work: impl FnOnce(&mut Self, &mut dyn FsyncQueue) -> io::Result<()>,
    ) -> io::Result<()> {
        let Some(mut queue) = self.queue.take() else {
            return Ok(());
        };
        work(self, &mut *queue)?;
        while let Some(file) = queue.take_closable() {
            self.close(file)?;
        }
        self.queue = Some(queue);
        Ok(())
    }

    fn close(&mut self, file: Box<dyn OpenFile>) -> io::Result<()> {
        let close = || {
            drop(file);
            Ok(())
        };
        self.call(|calls| &mut calls.close, close)
    }

    /// Times one call to the file system.
    fn call<T>(
        &mut self,
        kind: impl FnOnce(&mut Calls) -> &mut Recorder,
        call: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let start = clock::now();
        let result = call();
        let took = clock::since(start);
        self.in_calls += took;
        kind(&mut self.calls).record(took);
        result
    }
}
