//! A thread that writes.

use super::{Pattern, RandWrite};
use crate::clock;
use crate::latency::Recorder;
use crate::measure::Ticker;
use crate::target::OpenFile;
use memmap2::MmapMut;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How a thread writes to its files.
pub(super) enum Access<'a> {
    Calls(Vec<&'a dyn OpenFile>),
    Mapped(Vec<MmapMut>),
}

impl<'a> Access<'a> {
    /// The files of thread number `thread`: all of them, or those that no other thread writes to.
    pub(super) fn new(
        work: &RandWrite,
        files: &'a [Box<dyn OpenFile>],
        thread: usize,
    ) -> io::Result<Access<'a>> {
        let shared = !work.mmap && work.pattern == Pattern::Random;
        let mine = files
            .iter()
            .enumerate()
            .filter(|(i, _)| shared || i % work.threads == thread)
            .map(|(_, file)| &**file);
        if work.mmap {
            let maps = mine.map(|file| file.map());
            return Ok(Access::Mapped(maps.collect::<io::Result<_>>()?));
        }
        Ok(Access::Calls(mine.collect()))
    }

    fn files(&self) -> usize {
        match self {
            Access::Calls(files) => files.len(),
            Access::Mapped(files) => files.len(),
        }
    }

    fn write(&mut self, file: usize, data: &[u8], at: u64) -> io::Result<()> {
        match self {
            Access::Calls(files) => files[file].write_all_at(data, at),
            Access::Mapped(files) => {
                let at = at as usize;
                files[file][at..at + data.len()].copy_from_slice(data);
                Ok(())
            }
        }
    }
}

/// Latency of a thread's calls.
#[derive(Default)]
pub(super) struct Calls {
    /// Without the warm-up.
    pub(super) latency: Recorder,
    /// With the warm-up.
    pub(super) longest: Duration,
}

impl Calls {
    pub(super) fn add(&mut self, other: &Calls) {
        self.latency.add(&other.latency);
        self.longest = self.longest.max(other.longest);
    }
}

/// One thread.
pub(super) struct Writer<'a> {
    pub(super) work: &'a RandWrite,
    pub(super) thread: usize,
    pub(super) written: &'a AtomicU64,
    pub(super) warm: &'a AtomicBool,
    pub(super) until: Instant,
    pub(super) ticker: Ticker<'a>,
}

impl Writer<'_> {
    /// Writes until the deadline `until`.
    pub(super) fn run(mut self, access: &mut Access<'_>) -> io::Result<Calls> {
        let len = self.work.write_bytes;
        let mut places = Places::new(self.work, access.files(), self.thread as u64);
        let mut calls = Calls::default();
        let mut written = 0;
        let data = vec![self.thread as u8; len];
        let mut began = clock::now();
        while began < self.until {
            let (file, at) = places.next();
            access.write(file, &data, at)?;
            let ended = clock::now();
            let took = ended - began;
            began = ended;
            calls.longest = calls.longest.max(took);
            if self.warm.load(Relaxed) {
                calls.latency.record(took);
            }
            let before = written >> 20;
            written += len as u64;
            (before..written >> 20).for_each(|_| self.ticker.tick());
            self.written.store(written, Relaxed);
        }
        Ok(calls)
    }
}

/// Generates the places of a thread's writes.
pub(super) struct Places {
    pattern: Pattern,
    random: fastrand::Rng,
    files: usize,
    len: u64,
    writes_per_file: u64,
    /// Number of the next write; only the sequential pattern counts.
    next: u64,
}

impl Places {
    pub(super) fn new(work: &RandWrite, files: usize, seed: u64) -> Places {
        let len = work.write_bytes as u64;
        Places {
            pattern: work.pattern,
            random: fastrand::Rng::with_seed(seed),
            files,
            len,
            writes_per_file: work.file_bytes / len,
            next: 0,
        }
    }

    /// Returns the index of a file and the offset in it.
    pub(super) fn next(&mut self) -> (usize, u64) {
        let (file, write) = match self.pattern {
            Pattern::Random => (
                self.random.usize(..self.files),
                self.random.u64(..self.writes_per_file),
            ),
            Pattern::Sequential => {
                let n = self.next;
                self.next += 1;
                let file = n / self.writes_per_file % self.files as u64;
                (file as usize, n % self.writes_per_file)
            }
        };
        (file, write * self.len)
    }
}
