//! Measures how other dirty data of the volume slows a scoped sync:
//! `scoped_sync DEVICE [GIB] [ROUNDS]` (default: 8 GiB of other dirty data, 21 rounds). DEVICE is
//! formatted. If it does not exist, a sparse image of 32 GiB is created. The memory needed is 1.5
//! times the dirty data, which is discarded at the end.
//!
//! Each round measures `Volume::sync_files` of 1,000 files of 4 KiB, `Volume::sync_tree` of a
//! directory with as many, and `File::sync_all` of one. The rounds alternate between this volume
//! and one without other dirty data (DEVICE.alone; for a URL, a second device of the same kind).
//! The result is the medians in milliseconds.

use sluicefs::{Dir, File, FormatOptions, Volume, VolumeOptions};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// Files that are made durable together.
const FILES: usize = 1000;
/// Size of each, in bytes.
const BYTES: usize = 4096;
/// Half of the other dirty data is in files of 1 GiB, half in files of this size, in bytes.
const MEDIUM: usize = 64 << 10;

const WAYS: [&str; 3] = ["sync_files", "sync_tree", "sync_all"];

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let usage = || io::Error::other("usage: scoped_sync DEVICE [GIB] [ROUNDS]");
    let device = args.first().ok_or_else(usage)?;
    let number = |i: usize, usual| args.get(i).and_then(|n| n.parse().ok()).unwrap_or(usual);
    let (gib, rounds) = (number(1, 8), number(2, 21) as usize);
    let volume = open(device, (gib << 30) * 3 / 2)?;
    let url = device.contains(':');
    let device_alone = if url {
        device
    } else {
        &format!("{device}.alone")
    };
    let alone = open(device_alone, 256 << 20)?;

    let start = Instant::now();
    write_unrelated(&volume.create_dir("/unrelated")?, gib << 30)?;
    let dirty_gib = || volume.stats().dirty_pages as f64 * 4096.0 / f64::from(1 << 30);
    let seconds = start.elapsed().as_secs_f64();
    println!("{:.2} GiB dirty after {seconds:.1} s", dirty_gib());
    // This commits the names and inodes of the unrelated files, so that no measured sync does.
    volume.create_new_file("/first")?.sync_all()?;
    let written = volume.stats().device.write_bytes;
    let (mut times_alone, mut times) = (Times::default(), Times::default());
    for round in 0..rounds {
        measure(&alone, round, &mut times_alone)?;
        measure(&volume, round, &mut times)?;
    }
    let written = volume.stats().device.write_bytes - written;
    for (way, (alone, loaded)) in WAYS.iter().zip(times_alone.iter_mut().zip(&mut times)) {
        let (alone, loaded) = (median_ms(alone), median_ms(loaded));
        println!(
            "{way:10} alone {alone:8.2} ms  with dirty data {loaded:8.2} ms  {:.2} x",
            loaded / alone
        );
    }
    println!(
        "{} MiB written meanwhile; {:.2} GiB are still dirty",
        written >> 20,
        dirty_gib()
    );
    if !url {
        std::fs::remove_file(device_alone)?;
    }
    // Unmounting would write all dirty data.
    std::process::exit(0)
}

/// Durations of each round, for each of [`WAYS`].
type Times = [Vec<Duration>; 3];

fn open(device: &str, memory: u64) -> io::Result<Volume> {
    let mut format = FormatOptions::new().force(true);
    if !device.contains(':') && !Path::new(device).exists() {
        format = format.size(32 << 30);
    }
    let volume = VolumeOptions::new()
        .memory(memory)
        .format(device, &format)?;
    let mut tunables = volume.tunables();
    let (background, limit) = (memory / 8 * 7, memory / 16 * 15);
    tunables.apply(&format!(
        "dirty_background_bytes={background},dirty_bytes={limit},dirty_expire=3600"
    ))?;
    volume.set_tunables(tunables)?;
    Ok(volume)
}

fn measure(volume: &Volume, round: usize, times: &mut Times) -> io::Result<()> {
    let top = volume.create_dir(format!("/{round}"))?;
    let files = write_many(&top.create_dir("files")?)?;
    times[0].push(time(|| volume.sync_files(&files).into_iter().collect())?);
    let tree = top.create_dir("tree")?;
    drop(write_many(&tree)?);
    times[1].push(time(|| volume.sync_tree(tree.path()))?);
    let mut one = top.create_new_file("one")?;
    one.write_all(&[0x5a; BYTES])?;
    times[2].push(time(|| one.sync_all())?);
    Ok(())
}

fn median_ms(times: &mut [Duration]) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1000.0
}

fn time(work: impl FnOnce() -> io::Result<()>) -> io::Result<Duration> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}

fn write_many(dir: &Dir) -> io::Result<Vec<File>> {
    let write = |i: usize| {
        let mut file = dir.create_new_file(i.to_string())?;
        file.write_all(&[0x5a; BYTES])?;
        Ok(file)
    };
    (0..FILES).map(write).collect()
}

/// Writes `bytes` bytes of dirty data.
fn write_unrelated(dir: &Dir, bytes: u64) -> io::Result<()> {
    let chunk = vec![0xa5; 1 << 20];
    let gib = bytes >> 30;
    for large in 0..gib / 2 {
        let mut file = dir.create_new_file(format!("large{large}"))?;
        (0..1 << 10).try_for_each(|_| file.write_all(&chunk))?;
    }
    for medium in 0..((gib - gib / 2) << 30) / MEDIUM as u64 {
        let mut file = dir.create_new_file(format!("medium{medium}"))?;
        file.write_all(&chunk[..MEDIUM])?;
    }
    Ok(())
}
