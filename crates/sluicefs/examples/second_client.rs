//! Measures small fsyncs during a large sync: `second_client DEVICE|DIRECTORY [FILES] [ROUNDS]`
//! (default: 50,000 files, 5 rounds). One client creates a file of 4 KiB, syncs it, and repeats.
//! The other makes FILES files of 4 KiB durable at once. In each round the small client runs alone
//! for a second, then during the large sync.
//!
//! DEVICE is formatted. If it does not exist, an image of 8 GiB is created. DIRECTORY is on a
//! mounted file system, of FUSE or of the kernel. `BULK` chooses the large sync:
//!
//! | `BULK` | on a volume in this process | in a directory |
//! |---|---|---|
//! | `files` (default on a volume) | `Volume::sync_files` | |
//! | `async` | `File::sync_all_async` for each file | |
//! | `volume` (default in a directory) | `Volume::sync` | the command `SYNC` (`sluice sync`) with the directory |
//! | `tree` | `Volume::sync_tree` | the same with `--tree` and the directory of the files |
//! | `each` | 16 threads that open, fsync and close each file | the same |
//!
//! `PAUSE_MS` is the pause of the small client between two files. The result is percentiles of
//! create, write, fsync and close together, in microseconds, and the duration of the large sync.

use hdrhistogram::Histogram;
use sluicefs::{File, FormatOptions, Volume, VolumeOptions};
use std::env;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const BYTES: usize = 4096;
/// Memory for caches, in bytes.
const MEMORY: u64 = 4 << 30;
/// Thresholds that keep background writeback from starting.
const TUNABLES: &str = "dirty_background_bytes=2GiB,dirty_bytes=3GiB,dirty_expire=600";
/// Duration for which the small client runs alone in each round.
const ALONE: Duration = Duration::from_secs(1);
/// Threads of `BULK=each`.
const THREADS: usize = 16;

fn main() -> io::Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let usage = || io::Error::other("usage: second_client DEVICE|DIRECTORY [FILES] [ROUNDS]");
    let place = Place::at(args.first().ok_or_else(usage)?)?;
    let number = |i: usize, usual| args.get(i).and_then(|n| n.parse().ok()).unwrap_or(usual);
    let (files, rounds) = (number(1, 50_000), number(2, 5));
    let default = match place {
        Place::Volume(_) => "files",
        Place::Mounted(_) => "volume",
    };
    let bulk = env::var("BULK").unwrap_or_else(|_| default.into());
    let histogram = || Histogram::<u64>::new_with_max(60_000_000_000, 3).map_err(io::Error::other);
    let (mut alone, mut during) = (histogram()?, histogram()?);
    let mut took = Duration::ZERO;
    for round in 0..rounds {
        let many = place.create_dir(&format!("many{round}"))?;
        let dirty = place.write_many(&many, files)?;
        let small = place.create_dir(&format!("small{round}"))?;
        let start = Instant::now();
        client(&place, &small.join("alone"), &mut alone, || {
            start.elapsed() >= ALONE
        })?;
        let done = AtomicBool::new(false);
        thread::scope(|scope| -> io::Result<()> {
            let sync = scope.spawn(|| {
                let start = Instant::now();
                let result = place.make_durable(&bulk, &many, files, &dirty);
                done.store(true, Ordering::Release);
                result.map(|()| start.elapsed())
            });
            client(&place, &small.join("during"), &mut during, || {
                done.load(Ordering::Acquire)
            })?;
            let sync = sync.join();
            took += sync.unwrap_or_else(|e| std::panic::resume_unwind(e))?;
            Ok(())
        })?;
    }
    print("alone", &alone);
    print("during", &during);
    let us = |latency: &Histogram<u64>, q| latency.value_at_quantile(q) as f64;
    println!(
        "p50 {:.2} x, p99 {:.2} x; the large sync ({bulk}) of {files} files took {:.3} s on average",
        us(&during, 0.5) / us(&alone, 0.5),
        us(&during, 0.99) / us(&alone, 0.99),
        took.as_secs_f64() / rounds as f64
    );
    Ok(())
}

enum Place {
    Volume(Volume),
    Mounted(PathBuf),
}

impl Place {
    fn at(name: &str) -> io::Result<Place> {
        if Path::new(name).is_dir() {
            let dir = Path::new(name).join(format!("second-client-{}", std::process::id()));
            std::fs::create_dir(&dir)?;
            return Ok(Place::Mounted(dir));
        }
        let mut format = FormatOptions::new().force(true);
        if !name.contains(':') && !Path::new(name).exists() {
            format = format.size(8 << 30);
        }
        let volume = VolumeOptions::new().memory(MEMORY).format(name, &format)?;
        let mut tunables = volume.tunables();
        tunables.apply(TUNABLES)?;
        volume.set_tunables(tunables)?;
        Ok(Place::Volume(volume))
    }

    fn create_dir(&self, name: &str) -> io::Result<PathBuf> {
        match self {
            Place::Volume(volume) => volume.create_dir(name).map(|_| name.into()),
            Place::Mounted(root) => std::fs::create_dir(root.join(name)).map(|()| root.join(name)),
        }
    }

    /// Writes files without a sync. On a volume, returns them open.
    fn write_many(&self, dir: &Path, files: usize) -> io::Result<Vec<File>> {
        let mut open = Vec::new();
        for i in 0..files {
            let path = dir.join(i.to_string());
            match self {
                Place::Volume(volume) => {
                    let mut file = volume.create_new_file(path)?;
                    file.write_all(&[0x5a; BYTES])?;
                    open.push(file);
                }
                Place::Mounted(_) => std::fs::write(path, [0x5a; BYTES])?,
            }
        }
        Ok(open)
    }

    fn write_durably(&self, path: &Path) -> io::Result<()> {
        match self {
            Place::Volume(volume) => {
                let mut file = volume.create_new_file(path)?;
                file.write_all(&[0xa5; BYTES])?;
                file.sync_all()
            }
            Place::Mounted(_) => {
                let mut file = std::fs::File::create_new(path)?;
                file.write_all(&[0xa5; BYTES])?;
                file.sync_all()
            }
        }
    }

    fn fsync(&self, path: &Path) -> io::Result<()> {
        match self {
            Place::Volume(volume) => volume.open_file(path)?.sync_all(),
            Place::Mounted(_) => std::fs::File::open(path)?.sync_all(),
        }
    }

    /// The large sync.
    fn make_durable(&self, bulk: &str, dir: &Path, files: usize, open: &[File]) -> io::Result<()> {
        match (bulk, self) {
            ("files", Place::Volume(volume)) => volume.sync_files(open).into_iter().collect(),
            ("async", Place::Volume(_)) => {
                let syncs: Vec<_> = open.iter().map(File::sync_all_async).collect();
                syncs.into_iter().try_for_each(|sync| sync.wait())
            }
            ("volume", Place::Volume(volume)) => volume.sync(),
            ("volume", Place::Mounted(root)) => sync_command(&[], root),
            ("tree", Place::Volume(volume)) => volume.sync_tree(dir),
            ("tree", Place::Mounted(_)) => sync_command(&["--tree"], dir),
            ("each", _) => {
                let next = AtomicUsize::new(0);
                let work = || -> io::Result<()> {
                    loop {
                        match next.fetch_add(1, Ordering::Relaxed) {
                            i if i < files => self.fsync(&dir.join(i.to_string()))?,
                            _ => return Ok(()),
                        }
                    }
                };
                thread::scope(|scope| {
                    let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
                    threads.into_iter().try_for_each(|thread| {
                        let result = thread.join();
                        result.unwrap_or_else(|e| std::panic::resume_unwind(e))
                    })
                })
            }
            _ => Err(io::Error::other(format!(
                "BULK={bulk} is unknown, or not possible here"
            ))),
        }
    }
}

fn sync_command(options: &[&str], dir: &Path) -> io::Result<()> {
    let command = env::var("SYNC").unwrap_or_else(|_| "sluice sync".into());
    let mut words = command.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("sluice"));
    let status = command.args(words).args(options).arg(dir).status()?;
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("{command:?}: {status}"))),
    }
}

/// The small client: creates and syncs one file after another until `enough` returns true.
fn client(
    place: &Place,
    name: &Path,
    latency: &mut Histogram<u64>,
    enough: impl Fn() -> bool,
) -> io::Result<()> {
    let pause = env::var("PAUSE_MS").ok().and_then(|ms| ms.parse().ok());
    for i in 0.. {
        let path = format!("{}{i}", name.display());
        let start = Instant::now();
        place.write_durably(path.as_ref())?;
        latency.saturating_record(start.elapsed().as_nanos() as u64);
        if enough() {
            break;
        }
        if let Some(pause) = pause {
            thread::sleep(Duration::from_millis(pause));
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
