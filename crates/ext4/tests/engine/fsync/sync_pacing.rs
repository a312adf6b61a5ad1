//! Small fsyncs during large syncs.

use crate::fsync::volume::{Disk, all, contents, cost, create, get, mkdir, put, write};
use block::Op;
use ext4::{Fs, InodeRef, SyncKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use sync::clock::Clock;

/// A clock that only the test advances.
#[derive(Default)]
struct Stopped(AtomicU64);

impl Stopped {
    fn advance(&self, time: Duration) {
        self.0.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }
}

impl Clock for Stopped {
    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
    fn realtime(&self) -> (i64, u32) {
        (1_700_000_000, 0)
    }
}

/// 12 MiB.
fn many(fs: &Arc<Fs>, name: &str) -> Vec<InodeRef> {
    (0..3000)
        .map(|i| put(fs, &format!("{name}{i}"), &[i as u8; 4096]))
        .collect()
}

#[test]
fn a_large_sync_goes_in_steps_during_small_ones() {
    let disk = Disk::new();
    let clock = Arc::new(Stopped::default());
    let fs = disk.mount_with(|options| options.clock = clock.clone());
    let flushes = |name| {
        let files = many(&fs, name);
        let (cost, results) = cost(&fs, || fs.fsync_many(&all(&files)));
        assert!(results.iter().all(Result::is_ok));
        assert_eq!(cost.commits, 1);
        cost.flushes
    };
    assert_eq!(flushes("alone"), 1);
    fs.fsync(&put(&fs, "large", &vec![1; 8 << 20]), SyncKind::Fsync)
        .unwrap();
    assert_eq!(flushes("beside large"), 1);
    fs.fsync(&put(&fs, "small", b"x"), SyncKind::Fsync).unwrap();
    let beside = flushes("beside");
    assert!(
        (3..=6).contains(&beside),
        "steps of 1, 2, 4 and more MiB: {beside}"
    );
    clock.advance(Duration::from_secs(1));
    assert_eq!(flushes("alone again"), 1);
    let fs = disk.crash(fs);
    assert_eq!(get(&fs, "beside2999"), [(2999 % 256) as u8; 4096]);
}

/// A large sync of the given files, of the directory or of the volume.
type Large = fn(&Fs, &InodeRef, &[InodeRef]);
const LARGE: [(&str, Large); 3] = [
    ("files", |fs, _, files| {
        assert!(fs.fsync_many(&all(files)).iter().all(Result::is_ok));
    }),
    ("volume", |fs, _, _| fs.sync().unwrap()),
    ("tree", |fs, dir, _| fs.sync_tree(dir).unwrap()),
];

/// Runs `work` on a device with 450 MB/s, and a millisecond for a flush after all earlier writes.
/// Returns the longest time of a flush from its submission on.
fn longest_wait(disk: &Disk, clock: &Arc<Stopped>, work: impl FnOnce()) -> Duration {
    let longest = Arc::new(AtomicU64::new(0));
    let (time, written) = (clock.clone(), AtomicU64::new(0));
    disk.inject({
        let longest = longest.clone();
        move |op, _, len| {
            match op {
                Op::Write => {
                    let took = Duration::from_nanos(len * 20 / 9);
                    time.advance(took);
                    written.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
                }
                Op::Flush => {
                    time.advance(Duration::from_millis(1));
                    let took = written.swap(0, Ordering::Relaxed) + 1_000_000;
                    longest.fetch_max(took, Ordering::Relaxed);
                }
                Op::Read => {}
            }
            None
        }
    });
    work();
    disk.heal();
    Duration::from_nanos(longest.load(Ordering::Relaxed))
}

#[test]
fn no_large_sync_fills_the_device_during_small_ones() {
    for (name, large) in LARGE {
        let wait = |beside: bool| {
            // With an empty log, so that no checkpoint flushes within the large sync.
            let disk = Disk::new();
            let clock = Arc::new(Stopped::default());
            let fs = disk.mount_with(|options| options.clock = clock.clone());
            let dir = mkdir(&fs, &fs.root().unwrap(), name);
            let mut files: Vec<_> = (0..4000)
                .map(|i| create(&fs, &dir, &i.to_string()))
                .collect();
            // Names and inodes are durable before the measurement.
            fs.sync().unwrap();
            for (i, file) in files.iter().enumerate() {
                write(&fs, file, 0, &[i as u8; 4096]);
            }
            files.push(create(&fs, &dir, "large"));
            write(&fs, &files[4000], 0, &vec![7; 16 << 20]);
            if beside {
                fs.fsync(&put(&fs, "small", b"x"), SyncKind::Fsync).unwrap();
            }
            let wait = longest_wait(&disk, &clock, || large(&fs, &dir, &files));
            assert_eq!(contents(&fs, &files[1]), [1; 4096]);
            wait
        };
        let alone = wait(false);
        assert!(alone > Duration::from_millis(60), "{name}: {alone:?}");
        let beside = wait(true);
        assert!(beside < Duration::from_millis(6), "{name}: {beside:?}");
    }
}

#[test]
fn a_step_with_many_changes_is_committed() {
    let disk = Disk::new();
    let clock = Arc::new(Stopped::default());
    let fs = disk.mount_with(|options| options.clock = clock.clone());
    // Sixteen inodes share a block of their table.
    let files: Vec<_> = (0..16 * 1000)
        .map(|i| put(&fs, &format!("f{i}"), b""))
        .collect();
    fs.sync().unwrap();
    let spread: Vec<_> = files.into_iter().step_by(16).collect();
    for beside in [false, true] {
        spread
            .iter()
            .for_each(|file| write(&fs, file, 0, &[1; 4096]));
        clock.advance(Duration::from_secs(1));
        if beside {
            fs.fsync(&put(&fs, "small", b"x"), SyncKind::Fsync).unwrap();
        }
        let (cost, results) = cost(&fs, || fs.fsync_many(&all(&spread)));
        assert!(results.iter().all(Result::is_ok));
        // After steps of 256 and 512 inodes, and at the end.
        assert_eq!(cost.commits, if beside { 2 } else { 1 });
    }
}

#[test]
fn a_large_sync_ends_during_endless_small_ones() {
    let disk = Disk::new();
    let fs = disk.mount();
    let small = put(&fs, "small", b"x");
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Acquire) {
                write(&fs, &small, 0, b"y");
                fs.fsync(&small, SyncKind::Fsync).unwrap();
            }
        });
        for (name, large) in LARGE {
            let dir = mkdir(&fs, &fs.root().unwrap(), name);
            let file = create(&fs, &dir, "large");
            write(&fs, &file, 0, &vec![1; 24 << 20]);
            large(&fs, &dir, &[file]);
        }
        ended.store(true, Ordering::Release);
    });
}

#[test]
fn a_failed_flush_between_steps_fails_all_files() {
    let disk = Disk::new();
    let fs = disk.mount_with(|options| options.clock = Arc::new(Stopped::default()));
    fs.fsync(&put(&fs, "small", b"x"), SyncKind::Fsync).unwrap();
    let files = many(&fs, "f");
    let mut failed = false;
    disk.inject(move |op, _, _| {
        let first = op == Op::Flush && !failed;
        failed |= first;
        first.then_some(5)
    });
    let results = fs.fsync_many(&all(&files));
    disk.heal();
    assert!(results.iter().all(Result::is_err));
}
