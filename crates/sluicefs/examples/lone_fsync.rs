//! What one thread gets that makes each small file durable before the next: create, write 4 KiB (or
//! `BYTES`), fsync, close.
//!
//! `lone_fsync DIRECTORY [COUNT]` does it in any mounted directory; `lone_fsync DEVICE [COUNT]`
//! formats a device or image (of 1 GiB, where there is none) and does it in process. Variables of
//! the environment change that:
//!
//! - `EXISTING=1` overwrites one file with fdatasync instead, and `APPEND=1` appends to one.
//! - `ASYNC_COMMIT=always` mounts with `journal_async_commit`, `ASYNC_COMMIT=never` with
//!   `nojournal_async_commit`.
//! - `FORMATTED=1` opens the volume that is there. That of an image whose every block has been
//!   written (by `dd if=image of=image bs=1M conv=notrunc`) costs the file system below no
//!   allocations.
//! - `BESIDE=FILE` writes 4 KiB of that file (written before, O_DIRECT) and calls fdatasync before
//!   each, as fio does at depth 1: the two are then measured under the same conditions.
//!
//! Prints how often a second it could be done, and percentiles in microseconds.

use hdrhistogram::Histogram;
use sluicefs::{AsyncCommit, FormatOptions, VolumeOptions};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
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

/// Bytes of a file.
fn bytes() -> usize {
    let given = std::env::var("BYTES").ok().and_then(|n| n.parse().ok());
    given.unwrap_or(BYTES)
}

/// When commit blocks go out together with what they commit.
fn async_commit() -> io::Result<AsyncCommit> {
    match std::env::var("ASYNC_COMMIT").as_deref() {
        Err(_) => Ok(AsyncCommit::Adaptive),
        Ok("always") => Ok(AsyncCommit::Always),
        Ok("never") => Ok(AsyncCommit::Never),
        Ok(other) => Err(io::Error::other(format!(
            "ASYNC_COMMIT={other}: always or never"
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

/// The least that durability of 4 KiB costs there.
struct Beside {
    file: fs::File,
    pages: u64,
    page: block::BufMut,
}

impl Beside {
    fn open(path: &Path) -> io::Result<Beside> {
        let file = fs::OpenOptions::new()
            .write(true)
            .custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32)
            .open(path)?;
        Ok(Beside {
            pages: file.metadata()?.len() / BYTES as u64,
            file,
            page: block::BufMut::zeroed(BYTES),
        })
    }
    fn write(&self, i: usize) -> io::Result<()> {
        let page = i as u64 * 389 % self.pages;
        self.file.write_all_at(&self.page, page * BYTES as u64)?;
        self.file.sync_data()
    }
}

fn measure(count: usize, mut once: impl FnMut(usize) -> io::Result<()>) -> io::Result<()> {
    let beside = std::env::var_os("BESIDE").map(|path| Beside::open(Path::new(&path)));
    let beside = beside.transpose()?;
    let (mut ours, mut raw) = (Latency::new()?, Latency::new()?);
    for i in 0..count {
        if let Some(beside) = &beside {
            raw.time(|| beside.write(i))?;
        }
        ours.time(|| once(i))?;
    }
    ours.print("file, fsync");
    if beside.is_some() {
        raw.print("write, fdatasync");
        println!(
            "{:.0} % of its rate by the medians, {:.0} % by the means",
            100.0 * raw.us(0.5) / ours.us(0.5),
            100.0 * raw.0.mean() / ours.0.mean()
        );
    }
    Ok(())
}

fn in_directory(dir: &Path, work: Work, count: usize) -> io::Result<()> {
    let data = vec![0x5a; bytes()];
    let base = dir.join("lone_fsync");
    fs::create_dir(&base)?;
    if work == Work::Create {
        for d in 0..=count / FILES {
            fs::create_dir(base.join(d.to_string()))?;
        }
        measure(count, |i| {
            let path = base.join((i / FILES).to_string()).join(i.to_string());
            let mut file = fs::File::create_new(path)?;
            file.write_all(&data)?;
            file.sync_all()
        })?;
    } else {
        let mut file = fs::File::create_new(base.join("file"))?;
        let pages = if work == Work::Overwrite { 1024 } else { 0 };
        file.write_all(&vec![0; pages * BYTES])?;
        file.sync_all()?;
        measure(count, |i| {
            let page = if work == Work::Overwrite {
                i * 389 % pages
            } else {
                i
            };
            file.write_all_at(&data, (page * BYTES) as u64)?;
            file.sync_data()
        })?;
    }
    fs::remove_dir_all(base)
}

fn in_process(device: &Path, work: Work, count: usize) -> io::Result<()> {
    let data = vec![0x5a; bytes()];
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
    let base = format!("/lone_fsync.{}", std::process::id());
    volume.create_dir(&base)?;
    let before = volume.stats();
    if work == Work::Create {
        for d in 0..=count / FILES {
            volume.create_dir(format!("{base}/{d}"))?;
        }
        volume.sync()?;
        measure(count, |i| {
            let mut file = volume.create_new_file(format!("{base}/{}/{i}", i / FILES))?;
            file.write_all(&data)?;
            file.sync_all()
        })?;
    } else {
        let mut file = volume.create_new_file(format!("{base}/file"))?;
        let pages = if work == Work::Overwrite { 1024 } else { 0 };
        file.write_all(&vec![0; pages * BYTES])?;
        file.sync_all()?;
        measure(count, |i| {
            let page = if work == Work::Overwrite {
                i * 389 % pages
            } else {
                i
            };
            file.write_all_at(&data, (page * BYTES) as u64)?;
            file.sync_data()
        })?;
    }
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
    volume.close()
}
