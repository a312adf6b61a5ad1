//! Threads that get in each other's way: everything at once in shared directories, with sync, fsync and reclaim beside it.
//! Nothing hangs, and e2fsck finds nothing.

use ext4::{FallocateMode, Fs, MkfsOptions, RenameFlags, SetAttr, SetXattrMode};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use testing::disk::Disk;
use testing::image::assert_clean;
use testing::needs::{Need, have};
use testing::scratch::Scratch;
use testing::seed::Rng;
use testing::snapshot::Snapshot;
use testing::volume::{self, new, options};
use testing::watchdog::Watchdog;

const DIRS: u64 = 4;
const NAMES: u64 = 40;

/// One operation somewhere; it may fail as the others please, but not because something is damaged.
fn hammer(fs: &Fs, rng: &mut Rng) -> ext4::Result<()> {
    let root = fs.root()?;
    let dir = |rng: &mut Rng| fs.lookup(&root, format!("d{}", rng.below(DIRS)).as_bytes());
    let name = |rng: &mut Rng| format!("name-{}", rng.below(NAMES)).into_bytes();
    let (d, n) = (dir(rng)?, name(rng));
    match rng.below(16) {
        0..3 => fs.create(&d, &n, new(0o100_644)).map(|_| ()),
        3 => fs.mkdir(&d, &n, new(0o040_755)).map(|_| ()),
        4 | 5 => fs.unlink(&d, &n),
        6 => fs.rmdir(&d, &n),
        7 | 8 => {
            let (to, to_name) = (dir(rng)?, name(rng));
            let flags = [
                RenameFlags::Replace,
                RenameFlags::NoReplace,
                RenameFlags::Exchange,
            ];
            fs.rename(&d, &n, &to, &to_name, *rng.pick(&flags))
        }
        9 => {
            let file = fs.lookup(&d, &n)?;
            fs.link(&file, &dir(rng)?, &name(rng))
        }
        10 => fs.symlink(&d, &n, b"target", new(0o120_777)).map(|_| ()),
        11 => volume::list(fs, &d).map(|_| ()),
        _ => {
            let file = fs.lookup(&d, &n)?;
            contents(fs, &file, rng)
        }
    }
}

fn contents(fs: &Fs, file: &ext4::InodeRef, rng: &mut Rng) -> ext4::Result<()> {
    let at = rng.below(200_000);
    let len = 1 + rng.index(30_000);
    match rng.below(10) {
        0..3 => fs.write(file, at, &rng.bytes(len)).map(|_| ()),
        3 => fs.append(file, &rng.bytes(len)).map(|_| ()),
        4 | 5 => fs.read(file, at, &mut vec![0; len]).map(|_| ()),
        6 => fs.truncate(file, at),
        7 => fs.fsync(file, rng.one_in(2)),
        8 => fs.fallocate(file, FallocateMode::PunchHole, at, len as u64),
        _ => {
            fs.set_xattr(file, b"user.x", &rng.bytes(len % 300), SetXattrMode::Any)?;
            let set = SetAttr {
                mode: Some(0o600),
                ..SetAttr::default()
            };
            fs.set_attr(file, &set).map(|_| ())
        }
    }
}

#[test]
fn everything_at_once() {
    let test = "concurrency";
    let mut rng = Rng::new(test);
    let seconds = testing::rounds(8, 300) as u64;
    let watchdog = Watchdog::new(test, Duration::from_secs(seconds + 90));
    let disk = Disk::new(512 << 20);
    ext4::mkfs(&disk.queue(), &MkfsOptions::default()).unwrap();
    let mut small = options();
    // So small that reclaim and the dirty limits are at work all the time.
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
    // Before that, numbers of blocks are estimates.
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
