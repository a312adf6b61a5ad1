//! What a client that makes one small file after another durable gets while another one makes very many durable at once:
//! `second_client DEVICE [FILES] [ROUNDS]` (50,000 files of 4 KiB, 5 rounds). DEVICE is formatted; an image is made (8 GiB)
//! where there is none. In each round the client runs alone for a second, then beside `Volume::sync_files`.
//! `TREE=1` lets the other one call `Volume::sync_tree` instead, `ASYNC=1` `File::sync_all_async` for each file.
//!
//! Prints percentiles of create, write 4 KiB, fsync, close in microseconds, and how long the other one took.

use hdrhistogram::Histogram;
use sluicefs::{Dir, File, FormatOptions, Volume, VolumeOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const BYTES: usize = 4096;
/// Memory for caches, and how much of it may be dirty before writeback begins by itself.
const MEMORY: u64 = 4 << 30;
const TUNABLES: &str = "dirty_background_bytes=2GiB,dirty_bytes=3GiB,dirty_expire=600";
/// How long the client runs alone in each round.
const ALONE: Duration = Duration::from_secs(1);

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let usage = || io::Error::other("usage: second_client DEVICE [FILES] [ROUNDS]");
    let device = args.first().ok_or_else(usage)?;
    let number = |i: usize, usual| args.get(i).and_then(|n| n.parse().ok()).unwrap_or(usual);
    let (files, rounds) = (number(1, 50_000), number(2, 5));
    let mut format = FormatOptions::new().force(true);
    if !device.contains(':') && !Path::new(device).exists() {
        format = format.size(8 << 30);
    }
    let volume = VolumeOptions::new()
        .memory(MEMORY)
        .format(device, &format)?;
    let mut tunables = volume.tunables();
    tunables.apply(TUNABLES)?;
    volume.set_tunables(tunables)?;
    let histogram = || Histogram::<u64>::new_with_max(60_000_000_000, 3).map_err(io::Error::other);
    let (mut alone, mut beside) = (histogram()?, histogram()?);
    let mut bulk = Duration::ZERO;
    for round in 0..rounds {
        let dirty = write_many(&volume.create_dir(format!("/many{round}"))?, files)?;
        let small = volume.create_dir(format!("/small{round}"))?;
        let start = Instant::now();
        client(&small, "alone", &mut alone, || start.elapsed() >= ALONE)?;
        let done = AtomicBool::new(false);
        thread::scope(|scope| -> io::Result<()> {
            let sync = scope.spawn(|| {
                let start = Instant::now();
                let result = make_durable(&volume, round, &dirty);
                done.store(true, Ordering::Release);
                result.map(|()| start.elapsed())
            });
            client(&small, "beside", &mut beside, || {
                done.load(Ordering::Acquire)
            })?;
            let took = sync
                .join()
                .unwrap_or_else(|e| std::panic::resume_unwind(e))?;
            bulk += took;
            Ok(())
        })?;
    }
    print("alone", &alone);
    print("beside", &beside);
    let us = |latency: &Histogram<u64>, q| latency.value_at_quantile(q) as f64;
    println!(
        "p50 {:.2} x, p99 {:.2} x; the other one made {files} files durable in {:.3} s on average",
        us(&beside, 0.5) / us(&alone, 0.5),
        us(&beside, 0.99) / us(&alone, 0.99),
        bulk.as_secs_f64() / rounds as f64
    );
    Ok(())
}

fn write_many(dir: &Dir, files: usize) -> io::Result<Vec<File>> {
    let write = |i: usize| {
        let mut file = dir.create_new_file(i.to_string())?;
        file.write_all(&[0x5a; BYTES])?;
        Ok(file)
    };
    (0..files).map(write).collect()
}

fn make_durable(volume: &Volume, round: usize, files: &[File]) -> io::Result<()> {
    if std::env::var_os("TREE").is_some() {
        volume.sync_tree(format!("/many{round}"))
    } else if std::env::var_os("ASYNC").is_some() {
        let syncs: Vec<_> = files.iter().map(File::sync_all_async).collect();
        syncs.into_iter().try_for_each(|sync| sync.wait())
    } else {
        volume.sync_files(files).into_iter().collect()
    }
}

/// Makes one file after another durable.
fn client(
    dir: &Dir,
    name: &str,
    latency: &mut Histogram<u64>,
    enough: impl Fn() -> bool,
) -> io::Result<()> {
    for i in 0.. {
        let start = Instant::now();
        let mut file = dir.create_new_file(format!("{name}{i}"))?;
        file.write_all(&[0xa5; BYTES])?;
        file.sync_all()?;
        drop(file);
        latency.saturating_record(start.elapsed().as_nanos() as u64);
        if enough() {
            break;
        }
    }
    Ok(())
}

fn print(what: &str, latency: &Histogram<u64>) {
    let us = |q| latency.value_at_quantile(q) as f64 / 1000.0;
    println!(
        "{what:8} {:6} files  p50 {:8.1}  p99 {:8.1}  p99.9 {:8.1}  max {:8.1} us",
        latency.len(),
        us(0.5),
        us(0.99),
        us(0.999),
        latency.max() as f64 / 1000.0
    );
}
