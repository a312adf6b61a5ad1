//! Several threads on a device that fails some requests. No thread panics or hangs, acknowledged
//! contents survive recovery, and e2fsck finds no damage.

use super::{Clock, Outcome, Round, StopOnPanic};
use crate::versions::contents;
use block::Op;
use ext4::Fs;
use mkfs::MkfsOptions;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use testkit::disk::Disk;
use testkit::oracle::recover_by_e2fsck;
use testkit::seed::Rng;
use testkit::volume::{self, any_sync, mkdir_all, options, put};

/// The part `faults`.
pub fn run(mut round: Round) -> Outcome {
    let clock = Clock::new(round.time);
    let operations = AtomicU64::new(0);
    let (mut volumes, mut failures) = (0, 0);
    while clock.runs() {
        volumes += 1;
        failures += one_volume(&mut round, &operations);
    }
    Outcome {
        operations: operations.into_inner(),
        note: format!("{volumes} volumes, {failures} failed requests"),
        ..Outcome::default()
    }
}

/// Fails one of `odds` requests of the chosen kind.
fn injector(odds: u64, kind: u64, seed: u64) -> impl Fn(Op, block::Class, u64, u64) -> Option<i32> {
    let count = AtomicU64::new(seed);
    move |op, class, _, _| {
        let chosen = match kind {
            0 => op == Op::Write && class == block::Class::Data,
            1 => op == Op::Write && class != block::Class::Data,
            2 => op == Op::Flush,
            3 => op == Op::Read,
            _ => true,
        };
        let n = count.fetch_add(1, Ordering::Relaxed);
        let lot = Rng::from_seed(n).below(odds);
        (chosen && lot == 0).then_some(libc::EIO)
    }
}

/// The number of requests that failed.
fn one_volume(round: &mut Round, operations: &AtomicU64) -> usize {
    let disk = Disk::new(128 << 20);
    mkfs::format(&disk.queue(), &MkfsOptions::default()).expect("mkfs");
    let fs = Fs::mount(disk.queue(), options()).expect("mount");
    for nth in 0..round.threads {
        mkdir_all(&fs, &format!("t{nth}")).expect("mkdir");
    }
    fs.sync().expect("sync");
    let kind = round.rng.below(5);
    let (odds, seed) = (1 << (4 + round.rng.below(7)), round.rng.next_u64());
    if round.rng.one_in(2) {
        disk.tear_failed_writes(round.rng.fork());
    }
    let clock = Clock::new(Duration::from_millis(300 + round.rng.below(700)));
    let mut durable = Vec::new();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..round.threads)
            .map(|nth| {
                let (fs, clock, rng) = (&fs, &clock, round.rng.fork());
                scope.spawn(move || {
                    let _stop = StopOnPanic(clock);
                    work(fs, nth, rng, clock, operations)
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(100));
        disk.inject(injector(odds, kind, seed));
        for worker in workers {
            durable.extend(worker.join().expect("a worker"));
        }
    });
    let failed = disk.failures().len();
    // Half of the volumes are unmounted, which may fail, and half crash.
    if round.rng.one_in(2) {
        let _ = fs.unmount();
    } else {
        fs.crash();
    }
    drop(fs);
    disk.heal();
    let what = format!("kind {kind}, one of {odds}, {failed} failures");
    let image = round.dir.join("image");
    disk.save(&image);
    let fs = Fs::mount(disk.queue(), options()).unwrap_or_else(|e| panic!("{what}: {e}"));
    for (path, version) in durable {
        let found = volume::get(&fs, &path).unwrap_or_else(|e| panic!("{what}, {path}: {e}"));
        assert!(found == contents(version), "{what}, {path}: other bytes");
    }
    fs.unmount().unwrap_or_else(|e| panic!("{what}: {e}"));
    drop(fs);
    check_image(&image, &what);
    failed
}

/// Recovers the volume with e2fsck. A recorded error makes e2fsck check the whole volume; it must
/// find no damage.
fn check_image(image: &std::path::Path, what: &str) {
    if let Err(output) = recover_by_e2fsck(image) {
        let recorded = ["contains a file system with errors", "Clear? yes"];
        let damage = output.lines().any(|line| {
            line.ends_with("? yes") && !recorded.iter().any(|known| line.contains(known))
        });
        assert!(!damage, "{what}: {output}");
    }
}

/// Creates files and syncs each, until the time is over or the volume has stopped. Returns the
/// acknowledged ones.
fn work(
    fs: &Fs,
    nth: usize,
    mut rng: Rng,
    clock: &Clock,
    operations: &AtomicU64,
) -> Vec<(String, u64)> {
    let mut durable = Vec::new();
    for i in 1.. {
        if !clock.runs() || fs.is_read_only() {
            break;
        }
        operations.fetch_add(1, Ordering::Relaxed);
        let version = i * 64 + nth as u64;
        let path = format!("t{nth}/{i}");
        if let Ok(file) = put(fs, &path, &contents(version))
            && fs.fsync(&file, any_sync(&mut rng)).is_ok()
        {
            // The fsync of a new file covers its name.
            durable.push((path, version));
        }
    }
    durable
}
