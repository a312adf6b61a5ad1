//! The engine at work, without paths or FUSE:
//! `work DEVICE files [threads] [files per thread] [bytes]` creates, writes and syncs small files
//! in a directory per thread, then looks them up and reads them; `work DEVICE stream [GiB]` writes
//! and reads one large file. The device is formatted first. For profiles (`perf record`,
//! callgrind).

use ext4::{Fs, MountOptions, NewInode, Result, SyncKind};
use mkfs::MkfsOptions;
use std::sync::Arc;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |i: usize, default: usize| args.get(i).and_then(|a| a.parse().ok()).unwrap_or(default);
    let device = args.first().ok_or("usage: work DEVICE files|stream …")?;
    let queue = block::open(
        &block::DeviceUrl::parse(device)?,
        block::OpenMode::ReadWrite,
    )?;
    mkfs::format(&queue, &MkfsOptions::default())?;
    let memory = std::env::var("MEMORY")
        .ok()
        .and_then(|m| m.parse().ok())
        .unwrap_or(4 << 30);
    let fs = Fs::mount(
        queue,
        MountOptions {
            memory,
            ..MountOptions::default()
        },
    )?;
    match args.get(1).map(String::as_str) {
        Some("stream") => stream(&fs, number(2, 1) << 30)?,
        _ => files(&fs, number(2, 8), number(3, 20_000), number(4, 4096))?,
    }
    let start = Instant::now();
    fs.unmount()?;
    println!("unmount      {:8.3} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn report(what: &str, count: usize, start: Instant) {
    let s = start.elapsed().as_secs_f64();
    println!("{what:12} {s:8.3} s  {:10.0} /s", count as f64 / s);
}

fn files(fs: &Arc<Fs>, threads: usize, per_thread: usize, bytes: usize) -> Result<()> {
    let root = fs.root()?;
    let dirs: Vec<_> = (0..threads)
        .map(|t| {
            fs.mkdir(
                &root,
                format!("{t}").as_bytes(),
                NewInode {
                    mode: 0o40755,
                    ..NewInode::default()
                },
            )
        })
        .collect::<Result<_>>()?;
    let total = threads * per_thread;
    let each =
        |what: &str, work: &(dyn Fn(&ext4::InodeRef, &[u8]) -> Result<()> + Sync)| -> Result<()> {
            let start = Instant::now();
            std::thread::scope(|s| {
                let workers: Vec<_> = dirs
                    .iter()
                    .map(|dir| {
                        s.spawn(move || -> Result<()> {
                            for i in 0..per_thread {
                                work(dir, format!("{i:08x}~~~~~~~~~~~~~~~~").as_bytes())?;
                            }
                            Ok(())
                        })
                    })
                    .collect();
                workers
                    .into_iter()
                    .try_for_each(|w| w.join().expect("a worker panicked"))
            })?;
            report(what, total, start);
            Ok(())
        };
    let data = vec![0x5a; bytes];
    let all = Instant::now();
    each("create+write", &|dir, name| {
        let file = fs.create(
            dir,
            name,
            NewInode {
                mode: 0o100_644,
                ..NewInode::default()
            },
        )?;
        fs.write(&file, 0, &data).map(|_| ())
    })?;
    let start = Instant::now();
    fs.sync()?;
    report("sync", total, start);
    report("all", total, all);
    let stats = fs.stats();
    println!(
        "device: {} writes, {} MiB, {} merged, {} flushes; {} commits; memory {} MiB",
        stats.device.write_ios,
        stats.device.write_bytes >> 20,
        stats.device.merged,
        stats.device.flushes,
        stats.journal.commits,
        stats.memory_used >> 20
    );
    each("look up", &|dir, name| fs.lookup(dir, name).map(|_| ()))?;
    each("read", &|dir, name| {
        let mut buf = [0; 4096];
        fs.read(&fs.lookup(dir, name)?, 0, &mut buf).map(|_| ())
    })?;
    each("unlink", &|dir, name| fs.unlink(dir, name))
}

fn stream(fs: &Arc<Fs>, bytes: usize) -> Result<()> {
    let root = fs.root()?;
    let file = fs.create(
        &root,
        b"stream",
        NewInode {
            mode: 0o100_644,
            ..NewInode::default()
        },
    )?;
    let mut buf = vec![0xa5; 1 << 20];
    let mib = bytes >> 20;
    let start = Instant::now();
    for i in 0..mib {
        fs.write(&file, (i << 20) as u64, &buf)?;
    }
    report("write, MiB", mib, start);
    fs.fsync(&file, SyncKind::Fsync)?;
    report("with fsync", mib, start);
    fs.invalidate(&file);
    let start = Instant::now();
    for i in 0..mib {
        fs.read(&file, (i << 20) as u64, &mut buf)?;
    }
    report("read, MiB", mib, start);
    Ok(())
}
