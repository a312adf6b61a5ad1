//! A reader that a writer joins: how much the writeback of one large file disturbs other work. It
//! is the test by which Linux's throttled background writeback was measured in 2016.
//!
//! The reader's files are made first and dropped from the caches. Then the reader runs alone, the
//! writer joins and writes as `dd bs=1M` does, and syncs its file; the reader runs through all of
//! that and for some time after it. [`Interference`] has the rates and the reader's latency for
//! each second and for each of these periods.

mod reader;
mod sampler;
mod stop;

pub use reader::Reader;

use crate::interference::{Interference, Period};
use crate::latency::Recorder;
use crate::measure::{Progress, Run, measure};
use crate::target::{Create, OpenFile, Target};
use crate::{Observer, Report, clock, threads};
use reader::Client;
use sampler::{Meter, Sampler};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use stop::Stop;

/// Bytes of one write of the writer.
const CALL: u64 = 1 << 20;
/// The directory of the writers' files.
const DIRECTORY: &str = "interfere-writer";
/// How the names of the writers' files begin.
const FILE: &str = "written";

/// The workload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Interfere {
    /// The kind of reader.
    pub reader: Reader,
    /// Threads of the reader, each with files of its own and one call at a time.
    pub threads: usize,
    /// Calls per second of all threads together, at most.
    pub rate: Option<f64>,
    /// Bytes in the files of all threads together.
    pub reader_bytes: u64,
    /// Names in the directory trees of all threads together.
    pub names: u64,
    /// Writers, each with a file of its own.
    pub writers: usize,
    /// Bytes that all writers write, unless their time ends before.
    pub writer_bytes: u64,
    /// The longest time of the writer, without its final sync.
    pub time: Duration,
    /// Time of the reader alone before the writer joins.
    pub alone: Duration,
    /// Time of the reader alone after the writer's final sync.
    pub after: Duration,
    /// Time between two samples.
    pub interval: Duration,
    /// Keep the files.
    pub keep: bool,
}

type Clients = Vec<Mutex<Box<dyn Client>>>;

impl Interfere {
    /// Checks the parameters.
    ///
    /// # Errors
    /// `InvalidInput`, with the parameter and its valid values.
    pub fn checked(self) -> io::Result<Interfere> {
        let refuse = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        if self.reader != Reader::None && self.threads == 0 {
            return refuse("the reader needs at least one thread".to_owned());
        }
        let least = self.reader.call_bytes();
        if self.reader_bytes < least * self.threads as u64 {
            return refuse(format!(
                "the reader's file must have at least {least} bytes for each thread"
            ));
        }
        if self.reader == Reader::Lookup && self.names < self.threads as u64 {
            return refuse("the reader needs at least one name for each thread".to_owned());
        }
        if self.rate.is_some_and(|rate| rate.is_nan() || rate <= 0.0) {
            return refuse("the reader's rate must be more than 0".to_owned());
        }
        if self.writers == 0 || self.each_writer() == 0 || self.time.is_zero() {
            return refuse("a writer needs some bytes and some time".to_owned());
        }
        if self.interval < Duration::from_millis(10) {
            return refuse("the interval must be at least 10 ms".to_owned());
        }
        Ok(self)
    }

    /// Runs the workload. Phases, in MiB: `prepare`, `alone`, `write`, `sync`, `after`. The totals
    /// of the report cover `write` and `sync`.
    ///
    /// # Errors
    /// The first error of any thread.
    pub fn run(&self, target: &dyn Target, observe: Observer<'_>) -> io::Result<Report> {
        measure("interfere", target, observe, |run| {
            let mib = self.prepared_bytes() >> 20;
            let clients = run.phase("prepare", mib, |progress| self.prepare(target, progress))?;
            let interference = self.run_periods(run, target, &clients)?;
            run.report().interference = Some(interference);
            if self.keep {
                return Ok(());
            }
            let directory = target.directory(Path::new(DIRECTORY))?;
            (0..self.writers).try_for_each(|nth| directory.unlink(&file_of(nth)))?;
            threads::each(&clients, |client| lock(client).clean_up()).map(drop)
        })
    }

    /// Runs the reader, and the writer in the middle of its time.
    fn run_periods(
        &self,
        run: &mut Run<'_>,
        target: &dyn Target,
        clients: &Clients,
    ) -> io::Result<Interference> {
        let stop = Stop::default();
        let written = AtomicU64::new(0);
        let meters: Vec<Meter> = clients.iter().map(|_| Meter::default()).collect();
        let call_bytes = self.reader.call_bytes();
        let mut sampler = Sampler::new(self.interval, target, &meters, call_bytes, &written);
        std::thread::scope(|scope| {
            let readers: Vec<_> = clients.iter().zip(&meters).collect();
            let stop = &stop;
            let reading = scope.spawn(move || {
                threads::each(&readers, |(client, meter)| {
                    let _stop = stop.when_dropped();
                    self.read(&mut **lock(client), meter, stop)
                })
            });
            let result = self.run_writer(run, target, &mut sampler, stop, &written);
            stop.set();
            let read = reading.join();
            // An error of the reader also stops the writer, so it is the first.
            read.unwrap_or_else(|_| Err(io::Error::other("a reader panicked")))?;
            result
        })?;
        let (periods, seconds) = sampler.end();
        let mut interference = Interference {
            reader: self.reader.to_string(),
            threads: clients.len(),
            wbt_lat_usec: target.wbt_lat_usec(),
            periods,
            seconds,
            ..Interference::default()
        };
        interference.compare();
        Ok(interference)
    }

    /// Waits for the time alone, writes, syncs, and waits again.
    fn run_writer(
        &self,
        run: &mut Run<'_>,
        target: &dyn Target,
        sampler: &mut Sampler<'_>,
        stop: &Stop,
        written: &AtomicU64,
    ) -> io::Result<()> {
        let wait = |time| {
            stop.wait_until(clock::now() + time);
            Ok(())
        };
        if self.reader != Reader::None && !self.alone.is_zero() {
            run.phase("alone", 0, |_| {
                sampler.during(Period::Alone, || wait(self.alone))
            })?;
        }
        let start = run.mark();
        let planned = self.writer_bytes >> 20;
        let writers: Vec<usize> = (0..self.writers).collect();
        let outcomes = run.phase("write", planned, |progress| {
            let write = |nth: &usize| self.write(*nth, target, progress, stop, written);
            sampler.during(Period::Writer, || threads::each(&writers, write))
        })?;
        let bytes = written.load(Relaxed);
        run.counted(bytes >> 20);
        run.phase("sync", bytes >> 20, |_| {
            sampler.during(Period::Sync, || {
                outcomes.iter().try_for_each(|(file, _)| file.sync_all())
            })
        })?;
        run.durable_since(&start, self.writers as u64, bytes);
        if self.reader != Reader::None && !self.after.is_zero() {
            run.phase("after", 0, |_| {
                sampler.during(Period::After, || wait(self.after))
            })?;
        }
        let mut calls = Recorder::default();
        outcomes.iter().for_each(|(_, of_one)| calls.add(of_one));
        let latencies = &mut run.report().latency;
        latencies.extend(calls.latency().map(|l| ("write".to_owned(), l)));
        let read = sampler.calls().latency();
        latencies.extend(read.map(|l| (self.reader.call().to_owned(), l)));
        Ok(())
    }

    /// Bytes of the reader's files.
    fn prepared_bytes(&self) -> u64 {
        match self.reader {
            Reader::Lookup | Reader::None => 0,
            Reader::Rand4k | Reader::Seq | Reader::Fsync => self.reader_bytes,
        }
    }

    /// Makes the files of all threads durable, and drops them from the caches.
    fn prepare(&self, target: &dyn Target, progress: &Progress) -> io::Result<Clients> {
        let threads = match self.reader {
            Reader::None => 0,
            _ => self.threads,
        };
        let threads: Vec<usize> = (0..threads).collect();
        let clients = threads::each(&threads, |&thread| {
            let directory = target.directory(Path::new(&format!("interfere-{thread}")))?;
            reader::prepare(self, thread, directory, progress)
        })?;
        target.sync()?;
        for client in &clients {
            client.drop_cache()?;
        }
        target.drop_caches();
        Ok(clients.into_iter().map(Mutex::new).collect())
    }

    /// Calls a client until `stop` is set.
    fn read(&self, client: &mut dyn Client, meter: &Meter, stop: &Stop) -> io::Result<()> {
        let per_call = |rate| Duration::from_secs_f64(self.threads as f64 / rate);
        let pause = self.rate.map(per_call);
        let mut next = clock::now();
        while !stop.is_set() {
            let began = clock::now();
            client.call()?;
            meter.record(clock::since(began));
            if let Some(pause) = pause {
                // Calls that are late are not made up for: the rate is an upper bound.
                next = (next + pause).max(clock::now());
                stop.wait_until(next);
            }
        }
        Ok(())
    }

    /// Bytes that each writer writes.
    fn each_writer(&self) -> u64 {
        self.writer_bytes / self.writers.max(1) as u64
    }

    /// Writes the file of one writer. Returns it, and the latency of the calls.
    fn write(
        &self,
        nth: usize,
        target: &dyn Target,
        progress: &Progress,
        stop: &Stop,
        written: &AtomicU64,
    ) -> io::Result<(Box<dyn OpenFile>, Recorder)> {
        let until = clock::now() + self.time;
        let file = target
            .directory(Path::new(DIRECTORY))?
            .create(&file_of(nth), Create::Truncate)?;
        let bytes = self.each_writer();
        let data = vec![0xa5; CALL.min(bytes) as usize];
        let mut ticker = progress.ticker();
        let mut calls = Recorder::default();
        let mut at = 0;
        let mut began = clock::now();
        while at < bytes && began < until && !stop.is_set() {
            let len = (bytes - at).min(CALL);
            file.write_all_at(&data[..len as usize], at)
                .map_err(|e| no_space(e, at))?;
            at += len;
            written.fetch_add(len, Relaxed);
            ticker.tick();
            let ended = clock::now();
            calls.record(ended - began);
            began = ended;
        }
        Ok((file, calls))
    }
}

/// The name of the file of a writer.
fn file_of(writer: usize) -> String {
    format!("{FILE}-{writer}")
}

/// Explains an error of the writer that is caused by its parameters.
fn no_space(e: io::Error, written: u64) -> io::Error {
    match e.kind() {
        io::ErrorKind::StorageFull => io::Error::new(
            e.kind(),
            format!(
                "no space left after {} MiB of the writer; give it less with --writer or --time",
                written >> 20
            ),
        ),
        _ => e,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
