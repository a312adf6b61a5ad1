//! Measures fsync in one thread: create a file, write 4 KiB (or `BYTES`), fsync, close, repeat.
//!
//! `lone_fsync DIRECTORY [COUNT]` works in any mounted directory. `lone_fsync DEVICE [COUNT]`
//! formats a device or image and works in process; a missing image is created with 1 GiB.
//! Environment variables:
//!
//! - `EXISTING=1` overwrites one file and calls fdatasync; `APPEND=1` appends to one.
//! - `ASYNC_COMMIT=always` mounts with `journal_async_commit`, `ASYNC_COMMIT=never` with
//!   `nojournal_async_commit`.
//! - `FORMATTED=1` opens the existing volume. If all blocks of its image have been written (by
//!   `dd if=image of=image bs=1M conv=notrunc`), the file system below allocates nothing.
//! - `RAW=FILE` also measures, before each file, a write of 4 KiB to that file with O_DIRECT and
//!   fdatasync, as fio does at depth 1. FILE must be written before.
//!
//! The result is the rate per second, and percentiles in microseconds.

use hdrhistogram::Histogram;
use sluicefs::{AsyncCommit, Dir, File, FormatOptions, VolumeOptions};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

const BYTES: usize = 4096;
/// Files in a directory.
const FILES: usize = 1000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Create,
    Overwrite,
    Append,
}

/// Size of a file, in bytes.
fn bytes() -> usize {
    let given = std::env::var("BYTES").ok().and_then(|n| n.parse().ok());
    given.unwrap_or(BYTES)
}

fn async_commit() -> io::Result<AsyncCommit> {
    match std::env::var("ASYNC_COMMIT").as_deref() {
        Err(_) => Ok(AsyncCommit::Adaptive),
        Ok("always") => Ok(AsyncCommit::Always),
        Ok("never") => Ok(AsyncCommit::Never),
        Ok(other) => Err(io::Error::other(format!(
            "ASYNC_COMMIT={other}: use always or never"
        ))),
    }
}

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let usage = || io::Error::other("usage: lone_fsync DEVICE|DIRECTORY [COUNT]");
    let place = Path::new(args.first().ok_or_else(usage)?);
    let count = args.get(1).and_then(|n| n.parse().ok()).unwrap_or(5000);
    let work = match (std::env::var_os("EXISTING"), std::env::var_os("APPEND")) {
        (Some(_), _) => Work::Overwrite,
        (_, Some(_)) => Work::Append,
        _ => Work::Create,
    };
    if place.is_dir() {
        in_directory(place, work, count)
    } else {
        in_process(place, work, count)
    }
}

/// Latencies in nanoseconds.
struct Latency(Histogram<u64>);

impl Latency {
    fn new() -> io::Result<Latency> {
        let histogram = Histogram::new_with_max(60_000_000_000, 3);
        histogram.map(Latency).map_err(io::Error::other)
    }
    fn time(&mut self, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let start = Instant::now();
        work()?;
        self.0.saturating_record(start.elapsed().as_nanos() as u64);
        Ok(())
    }
    fn us(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1000.0
    }
    fn print(&self, what: &str) {
        println!(
            "{what:18} {:7.0} /s  mean {:7.1}  p50 {:7.1}  p99 {:7.1}  p99.9 {:7.1} us",
            1e9 / self.0.mean(),
            self.0.mean() / 1000.0,
            self.us(0.5),
            self.us(0.99),
            self.us(0.999)
        );
    }
}

/// Durable writes to a file without a file system operation: the lower bound of the cost.
struct Raw {
    file: fs::File,
    pages: u64,
    page: block::BufMut,
}

impl Raw {
    fn open(path: &Path) -> io::Result<Raw> {
        let file = fs::OpenOptions::new()
            .write(true)
            .custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32)
            .open(path)?;
        Ok(Raw {
            pages: file.metadata()?.len() / BYTES as u64,
            file,
            page: block::BufMut::zeroed(BYTES),
        })
    }
    fn write(&self, i: usize) -> io::Result<()> {
        let page = i as u64 * 389 % self.pages;
        FileExt::write_all_at(&self.file, &self.page, page * BYTES as u64)?;
        self.file.sync_data()
    }
}

fn measure(count: usize, mut once: impl FnMut(usize) -> io::Result<()>) -> io::Result<()> {
    let raw = std::env::var_os("RAW").map(|path| Raw::open(Path::new(&path)));
    let raw = raw.transpose()?;
    let (mut files, mut raw_writes) = (Latency::new()?, Latency::new()?);
    for i in 0..count {
        if let Some(raw) = &raw {
            raw_writes.time(|| raw.write(i))?;
        }
        files.time(|| once(i))?;
    }
    files.print("file, fsync");
    if raw.is_some() {
        raw_writes.print("write, fdatasync");
        println!(
            "{:.0} % of the raw rate by medians, {:.0} % by means",
            100.0 * raw_writes.us(0.5) / files.us(0.5),
            100.0 * raw_writes.0.mean() / files.0.mean()
        );
    }
    Ok(())
}

/// A directory of the system or of a volume.
trait Base {
    type File: Contents;
    fn create_dir(&self, name: &str) -> io::Result<()>;
    fn create_new(&self, name: &str) -> io::Result<Self::File>;
}

/// An open file of either.
trait Contents: Write {
    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()>;
    fn sync_all(&self) -> io::Result<()>;
    fn sync_data(&self) -> io::Result<()>;
}

struct Mounted(PathBuf);

impl Base for Mounted {
    type File = fs::File;
    fn create_dir(&self, name: &str) -> io::Result<()> {
        fs::create_dir(self.0.join(name))
    }
    fn create_new(&self, name: &str) -> io::Result<fs::File> {
        fs::File::create_new(self.0.join(name))
    }
}

impl Contents for fs::File {
    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(self, data, offset)
    }
    fn sync_all(&self) -> io::Result<()> {
        fs::File::sync_all(self)
    }
    fn sync_data(&self) -> io::Result<()> {
        fs::File::sync_data(self)
    }
}

impl Base for Dir {
    type File = File;
    fn create_dir(&self, name: &str) -> io::Result<()> {
        Dir::create_dir(self, name).map(drop)
    }
    fn create_new(&self, name: &str) -> io::Result<File> {
        self.create_new_file(name)
    }
}

impl Contents for File {
    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        File::write_all_at(self, data, offset)
    }
    fn sync_all(&self) -> io::Result<()> {
        File::sync_all(self)
    }
    fn sync_data(&self) -> io::Result<()> {
        File::sync_data(self)
    }
}

/// Creates the directories of the files.
fn create_dirs(base: &impl Base, count: usize) -> io::Result<()> {
    (0..=count / FILES).try_for_each(|d| base.create_dir(&d.to_string()))
}

fn run(base: &impl Base, work: Work, count: usize) -> io::Result<()> {
    let data = vec![0x5a; bytes()];
    if work == Work::Create {
        return measure(count, |i| {
            let mut file = base.create_new(&format!("{}/{i}", i / FILES))?;
            file.write_all(&data)?;
            file.sync_all()
        });
    }
    let mut file = base.create_new("file")?;
    let pages = if work == Work::Overwrite { 1024 } else { 0 };
    file.write_all(&vec![0; pages * BYTES])?;
    file.sync_all()?;
    measure(count, |i| {
        let page = match work {
            Work::Overwrite => i * 389 % pages,
            _ => i,
        };
        file.write_all_at(&data, (page * BYTES) as u64)?;
        file.sync_data()
    })
}

fn in_directory(dir: &Path, work: Work, count: usize) -> io::Result<()> {
    let base = dir.join("lone_fsync");
    fs::create_dir(&base)?;
    let mounted = Mounted(base);
    if work == Work::Create {
        create_dirs(&mounted, count)?;
    }
    run(&mounted, work, count)?;
    fs::remove_dir_all(mounted.0)
}

fn in_process(device: &Path, work: Work, count: usize) -> io::Result<()> {
    let options = VolumeOptions::new().journal_async_commit(async_commit()?);
    let volume = if std::env::var_os("FORMATTED").is_some() {
        options.open(device)?
    } else {
        let mut format = FormatOptions::new().force(true);
        if !device.exists() && !device.to_string_lossy().contains(':') {
            format = format.size(1 << 30);
        }
        options.format(device, &format)?
    };
    let base = volume.create_dir(format!("/lone_fsync.{}", std::process::id()))?;
    let before = volume.stats();
    if work == Work::Create {
        create_dirs(&base, count)?;
        volume.sync()?;
    }
    run(&base, work, count)?;
    let after = volume.stats();
    let device = after.device - before.device;
    let each = |n: u64| n as f64 / count as f64;
    println!(
        "each: {:.2} writes, {:.1} KiB, {:.2} flushes, {:.2} commits, {:.1} log blocks",
        each(device.write_ios),
        each(device.write_bytes) / 1024.0,
        each(device.flushes),
        each(after.journal.commits - before.journal.commits),
        each(after.journal.logged_blocks - before.journal.logged_blocks)
    );
    drop(base);
    volume.close()
}
