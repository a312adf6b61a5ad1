//! Threads that change shared directories concurrently with sync, fsync and reclaim. Nothing hangs,
//! and e2fsck finds nothing.

use ext4::Fs;
use mkfs::MkfsOptions;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use testing::hammer::{DIRS, hammer};
use testing::snapshot::Snapshot;
use testkit::disk::Disk;
use testkit::needs::{Need, have};
use testkit::oracle::assert_clean;
use testkit::scratch::Scratch;
use testkit::seed::Rng;
use testkit::volume::{self, options};
use testkit::watchdog::Watchdog;

#[test]
fn everything_at_once() {
    let test = "concurrency";
    let mut rng = Rng::new(test);
    let seconds = testkit::rounds(8, 300) as u64;
    let watchdog = Watchdog::new(test, Duration::from_secs(seconds + 90));
    let disk = Disk::new(512 << 20);
    mkfs::format(&disk.queue(), &MkfsOptions::default()).unwrap();
    let mut small = options();
    // The budget is so small that reclaim and the dirty limits work all the time.
    small.memory = 12 << 20;
    let fs = Fs::mount(disk.queue(), small).unwrap();
    for i in 0..DIRS {
        volume::mkdir_all(&fs, &format!("d{i}")).unwrap();
    }
    let (done, operations) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let (mut rng, fs, done, operations) = (rng.fork(), &fs, &done, &operations);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let result = hammer(fs, &mut rng);
                    operations.fetch_add(1, Ordering::Relaxed);
                    match result {
                        Ok(()) => {}
                        Err(
                            e @ (ext4::Error::Corrupt(_)
                            | ext4::Error::CorruptInode { .. }
                            | ext4::Error::Journal(_)
                            | ext4::Error::Io(_)
                            | ext4::Error::ReadOnly),
                        ) => panic!("{e}"),
                        Err(_) => {}
                    }
                }
            });
        }
        let (fs, done) = (&fs, &done);
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(30));
                fs.sync().unwrap();
                fs.drop_caches();
            }
        });
        let end = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(50));
        }
        done.store(true, Ordering::Relaxed);
    });
    eprintln!("{} operations in {seconds} s", operations.into_inner());
    // Before the sync, numbers of blocks are estimates.
    fs.sync().unwrap();
    let before = Snapshot::of_volume(&fs).unwrap();
    fs.unmount().unwrap();
    drop(fs);
    let fs = Fs::mount(disk.queue(), options()).unwrap();
    let after = Snapshot::of_volume(&fs).unwrap();
    before.assert_same(
        &after,
        testing::snapshot::Compare::Everything,
        "before / after unmount",
    );
    fs.unmount().unwrap();
    drop(watchdog);
    if have(test, &[Need::Tool("e2fsck")]) {
        let scratch = Scratch::new();
        let image = scratch.join("image");
        disk.save(&image);
        assert_clean(&image, "after everything at once");
    }
}
