//! What one thread gets that makes each small file durable before the next: create, write 4 KiB, fsync, close.
//!
//! `lone_fsync DIRECTORY [COUNT]` does it in any mounted directory; `lone_fsync DEVICE [COUNT]` formats a device or image
//! (of 1 GiB, where there is none) and does it in process. `EXISTING=1` overwrites one file with fdatasync instead, and
//! `APPEND=1` appends to one. Prints files a second and percentiles in microseconds.

use hdrhistogram::Histogram;
use sluicefs::{FormatOptions, Volume};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
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

fn measure(count: usize, mut once: impl FnMut(usize) -> io::Result<()>) -> io::Result<()> {
    let mut latency =
        Histogram::<u64>::new_with_max(60_000_000_000, 3).map_err(io::Error::other)?;
    let all = Instant::now();
    for i in 0..count {
        let start = Instant::now();
        once(i)?;
        latency.saturating_record(start.elapsed().as_nanos() as u64);
    }
    let rate = count as f64 / all.elapsed().as_secs_f64();
    let us = |q: f64| latency.value_at_quantile(q) as f64 / 1000.0;
    println!(
        "{rate:8.0} /s   mean {:7.1}  p50 {:7.1}  p99 {:7.1}  p99.9 {:7.1} us",
        latency.mean() / 1000.0,
        us(0.5),
        us(0.99),
        us(0.999)
    );
    Ok(())
}

fn in_directory(dir: &Path, work: Work, count: usize) -> io::Result<()> {
    let data = [0x5a; BYTES];
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
    let data = [0x5a; BYTES];
    let mut format = FormatOptions::new().force(true);
    if !device.exists() {
        format = format.size(1 << 30);
    }
    let volume = Volume::format(device, format)?;
    let before = volume.stats();
    if work == Work::Create {
        for d in 0..=count / FILES {
            volume.create_dir(format!("/{d}"))?;
        }
        volume.sync()?;
        measure(count, |i| {
            let mut file = volume.create_new_file(format!("/{}/{i}", i / FILES))?;
            file.write_all(&data)?;
            file.sync_all()
        })?;
    } else {
        let mut file = volume.create_new_file("/file")?;
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
