//! Parts that run the engine in this process.

use super::{Clock, Outcome, Round, StopOnPanic};
use crate::hammer::{DIRS, hammer};
use crate::random_ops::Pair;
use crate::snapshot::{Compare, Snapshot};
use ext4::{Error, Fs, MountOptions};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use testkit::oracle::assert_clean;
use testkit::seed::Rng;
use testkit::volume::{self, any_sync, contents, mkfs, mount_with, new, options, put};

fn mount(image: &Path, memory: u64) -> Arc<Fs> {
    let options = MountOptions {
        memory,
        ..options()
    };
    mount_with(image, options).expect("mount")
}

/// Syncs, drops caches and watches memory while the workers run. Returns the peak of the budget in
/// bytes.
fn disturb(fs: &Fs, clock: &Clock, mut rng: Rng) -> u64 {
    let mut most = 0;
    while clock.runs() {
        std::thread::sleep(Duration::from_millis(rng.below(60)));
        most = most.max(fs.budget().used());
        match rng.below(40) {
            0 | 1 => fs.sync().expect("sync"),
            2 => fs.drop_caches(),
            _ => {}
        }
    }
    most
}

/// Asserts that the budget was kept. Batches of charges and pages in use may exceed it.
fn assert_kept(most: u64, memory: u64) {
    let allowed = memory + memory / 4 + (4 << 20);
    assert!(
        most <= allowed,
        "{most} bytes in use, the budget is {memory}"
    );
}

/// Threads on one volume, each with a model of its own files, with remounts.
pub fn model(round: Round) -> Outcome {
    with_models(round, 48 << 20)
}

/// The part `model` with budgets from 4 MiB on.
pub fn budget(mut round: Round) -> Outcome {
    let memory = (4 << 20) << round.rng.below(3);
    with_models(round, memory)
}

fn with_models(mut round: Round, memory: u64) -> Outcome {
    let image = round.dir.join("image");
    mkfs(&image, 2 << 30, &[]);
    let mut fs = mount(&image, memory);
    let mut pairs: Vec<Pair> = (0..round.threads)
        .map(|nth| Pair::new(&fs, &format!("model{nth}"), round.rng.fork()))
        .collect();
    let (operations, mut most) = (AtomicU64::new(0), 0);
    // Small budgets are slow; the pieces between remounts are equal.
    let pieces = 3;
    for _ in 0..pieces {
        let clock = Clock::new(round.time / pieces);
        std::thread::scope(|scope| {
            let disturber = {
                let (fs, clock, rng) = (&fs, &clock, round.rng.fork());
                scope.spawn(move || disturb(fs, clock, rng))
            };
            for pair in &mut pairs {
                let (fs, clock, operations) = (&fs, &clock, &operations);
                scope.spawn(move || {
                    let _stop = StopOnPanic(clock);
                    while clock.runs() {
                        pair.step(fs);
                        operations.fetch_add(1, Ordering::Relaxed);
                    }
                    pair.close_all();
                });
            }
            most = most.max(disturber.join().expect("the disturber"));
        });
        pairs.iter().for_each(|pair| pair.compare(&fs));
        fs.unmount().expect("unmount");
        drop(fs);
        fs = mount(&image, memory);
        pairs.iter().for_each(|pair| pair.compare(&fs));
    }
    fs.unmount().expect("unmount");
    drop(fs);
    assert_clean(&image, "after operations against models");
    assert_kept(most, memory);
    Outcome {
        operations: operations.into_inner(),
        memory: most,
        budget: memory,
        note: format!("{} threads", round.threads),
    }
}

/// Threads in shared directories.
pub fn shared(mut round: Round) -> Outcome {
    let memory = 12 << 20;
    let image = round.dir.join("image");
    mkfs(&image, 1 << 30, &[]);
    let fs = mount(&image, memory);
    for i in 0..DIRS {
        volume::mkdir_all(&fs, &format!("d{i}")).expect("mkdir");
    }
    let clock = Clock::new(round.time);
    let operations = AtomicU64::new(0);
    let mut most = 0;
    std::thread::scope(|scope| {
        let disturber = {
            let (fs, clock, rng) = (&fs, &clock, round.rng.fork());
            scope.spawn(move || disturb(fs, clock, rng))
        };
        for _ in 0..2 * round.threads {
            let (mut rng, fs, clock, operations) = (round.rng.fork(), &fs, &clock, &operations);
            scope.spawn(move || {
                let _stop = StopOnPanic(clock);
                while clock.runs() {
                    operations.fetch_add(1, Ordering::Relaxed);
                    if let Err(
                        e @ (Error::Corrupt(_)
                        | Error::CorruptInode { .. }
                        | Error::CorruptDirectory { .. }
                        | Error::Journal(_)
                        | Error::Io(_)
                        | Error::ReadOnly),
                    ) = hammer(fs, &mut rng)
                    {
                        panic!("{e}");
                    }
                }
            });
        }
        most = disturber.join().expect("the disturber");
    });
    fs.sync().expect("sync");
    let before = Snapshot::of_volume(&fs).expect("a snapshot");
    fs.unmount().expect("unmount");
    drop(fs);
    let fs = mount(&image, memory);
    let after = Snapshot::of_volume(&fs).expect("a snapshot");
    before.assert_same(&after, Compare::Everything, "before / after unmount");
    fs.unmount().expect("unmount");
    drop(fs);
    assert_clean(&image, "after work in shared directories");
    assert_kept(most, memory);
    Outcome {
        operations: operations.into_inner(),
        memory: most,
        budget: memory,
        note: format!("{} threads", 2 * round.threads),
    }
}

/// A small volume fills up and is emptied. Acknowledged contents are there, and all space becomes
/// free.
pub fn full(mut round: Round) -> Outcome {
    let memory = 16 << 20;
    let image = round.dir.join("image");
    mkfs(&image, 96 << 20, &[]);
    let mut fs = mount(&image, memory);
    let free = fs.statfs().free;
    let clock = Clock::new(round.time);
    let (operations, fillings) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut most = 0;
    while clock.runs() {
        fillings.fetch_add(1, Ordering::Relaxed);
        std::thread::scope(|scope| {
            for nth in 0..round.threads {
                let (fs, operations, rng) = (&fs, &operations, round.rng.fork());
                scope.spawn(move || fill(fs, nth, rng, operations));
            }
        });
        most = most.max(fs.budget().used());
        fs.sync().expect("a full volume can be synced");
        if round.rng.one_in(2) {
            fs.unmount().expect("a full volume can be unmounted");
            drop(fs);
            fs = mount(&image, memory);
        }
        for nth in 0..round.threads {
            empty(&fs, nth);
        }
        fs.sync().expect("sync");
        let now = fs.statfs().free;
        // The root directory may keep a block or two.
        assert!(
            now + 4 >= free,
            "{now} blocks are free, {free} were at first"
        );
    }
    fs.unmount().expect("unmount");
    drop(fs);
    assert_clean(&image, "after a volume was full");
    assert_kept(most, memory);
    Outcome {
        operations: operations.into_inner(),
        memory: most,
        budget: memory,
        note: format!("full {} times", fillings.into_inner()),
    }
}

/// Writes files until the volume is full, and reads back the acknowledged ones.
fn fill(fs: &Fs, nth: usize, mut rng: Rng, operations: &AtomicU64) {
    let dir = format!("full{nth}");
    if let Err(e) = volume::mkdir_all(fs, &dir) {
        assert!(matches!(e, Error::NoSpace), "{e}");
        return;
    }
    let mut durable = Vec::new();
    for i in 0.. {
        let most = if rng.one_in(8) { 2 << 20 } else { 40 << 10 };
        let len = 1 + rng.index(most);
        let data = rng.bytes(len);
        let path = format!("{dir}/{i}");
        operations.fetch_add(1, Ordering::Relaxed);
        let file = match put(fs, &path, &data) {
            Ok(file) => file,
            Err(Error::NoSpace) => break,
            Err(e) => panic!("{path}: {e}"),
        };
        if rng.one_in(3) {
            fs.fsync(&file, any_sync(&mut rng))
                .unwrap_or_else(|e| panic!("fsync of {path}, whose write was accepted: {e}"));
            durable.push((path, data));
        }
        if durable.len() > 40 {
            durable.swap_remove(rng.index(40));
        }
    }
    for (path, data) in durable {
        let file = volume::at(fs, &path).expect("a file");
        assert!(
            contents(fs, &file).expect("reads") == data,
            "{path}: other bytes"
        );
    }
}

fn empty(fs: &Fs, nth: usize) {
    let name = format!("full{nth}");
    let root = fs.root().expect("a root");
    let Ok(dir) = fs.lookup(&root, name.as_bytes()) else {
        return;
    };
    for (entry, _, _) in volume::list(fs, &dir).expect("lists") {
        fs.unlink(&dir, &entry)
            .expect("a full volume can be emptied");
    }
    drop(dir);
    fs.rmdir(&root, name.as_bytes()).expect("rmdir");
    let _ = fs.create(&root, b"after", new(0o100_644));
    let _ = fs.unlink(&root, b"after");
}
