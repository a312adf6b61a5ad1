//! Failing devices and full volumes. Each fsync of an affected file fails until its data is
//! written, no acknowledged change is lost, and nothing hangs.

use block::{Class, Op};
use ext4::{AsyncCommit, Error, Fs, MountOptions, SyncKind};
use mkfs::MkfsOptions;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use testkit::disk::Disk;
use testkit::needs::{Need, have};
use testkit::oracle::assert_clean;
use testkit::scratch::Scratch;
use testkit::seed::Rng;
use testkit::volume::{self, new, options, put, write_all};
use testkit::watchdog::Watchdog;

fn format(size: usize) -> Disk {
    let disk = Disk::new(size);
    mkfs::format(&disk.queue(), &MkfsOptions::default()).unwrap();
    disk
}

fn mount(disk: &Disk) -> Arc<Fs> {
    Fs::mount(disk.queue(), options()).unwrap()
}

fn assert_disk_clean(disk: &Disk, when: &str) {
    if have(when, &[Need::Tool("e2fsck")]) {
        let scratch = Scratch::new();
        let image = scratch.join("image");
        disk.save(&image);
        assert_clean(&image, when);
    }
}

fn watchdog(what: &str) -> Watchdog {
    Watchdog::new(what, Duration::from_secs(120))
}

const EIO: i32 = 5;

#[test]
fn a_failed_data_write_is_reported_until_it_succeeds() {
    let _watchdog = watchdog("failed data writes");
    let disk = format(128 << 20);
    let fs = mount(&disk);
    let mut rng = Rng::new("faults, data");
    // Too large for the log.
    let (first, second) = (rng.bytes(500_000), rng.bytes(700_001));
    let file = put(&fs, "file", &first).unwrap();
    fs.fsync(&file, SyncKind::Fsync).unwrap();
    let other = put(&fs, "other", b"not concerned").unwrap();
    fs.fsync(&other, SyncKind::Fsync).unwrap();

    disk.inject(|op, class, _, _| (op == Op::Write && class == Class::Data).then_some(EIO));
    write_all(&fs, &file, 200_000, &second).unwrap();
    for attempt in 0..4 {
        let error = fs.fsync(&file, [SyncKind::Fdatasync, SyncKind::Fsync][attempt % 2]);
        let error = error.expect_err("the data is not on disk, so fsync must not say so");
        assert_eq!(error.errno(), EIO, "{error}");
    }
    assert!(fs.sync().is_err(), "sync says so too");
    fs.fsync(&other, SyncKind::Fsync)
        .expect("another file is not concerned");
    // The written data can still be read, and written again.
    let mut expected = first.clone();
    expected.resize(900_001, 0);
    expected[200_000..].copy_from_slice(&second);
    assert!(volume::contents(&fs, &file).unwrap() == expected);
    fs.drop_caches();
    assert!(
        volume::contents(&fs, &file).unwrap() == expected,
        "dirty pages stay"
    );

    disk.heal();
    // One more error is allowed, because no call may have returned the last failure. Then the data
    // is on disk.
    let _ = fs.fsync(&file, SyncKind::Fsync);
    fs.fsync(&file, SyncKind::Fsync)
        .expect("the device works again");
    fs.fsync(&file, SyncKind::Fsync).expect("and so it stays");
    fs.crash();
    drop((file, other, fs));
    let fs = mount(&disk);
    assert!(volume::get(&fs, "file").unwrap() == expected);
    fs.unmount().unwrap();
    assert_disk_clean(&disk, "after data writes failed and healed");
}

/// A small file that cannot be written in place does not go through the log. It could not be
/// written home from there either, and the volume would stop because of one file.
#[test]
fn a_small_file_whose_write_failed_keeps_out_of_the_log() {
    let _watchdog = watchdog("failed small writes");
    let disk = format(128 << 20);
    let fs = mount(&disk);
    let file = put(&fs, "file", &[1; 5_000]).unwrap();
    disk.inject(|op, class, _, _| (op == Op::Write && class == Class::Data).then_some(EIO));
    assert!(fs.sync().is_err());
    for attempt in 0..4 {
        let error = fs.fsync(&file, [SyncKind::Fdatasync, SyncKind::Fsync][attempt % 2]);
        let error = error.expect_err("the data is not on disk, so fsync must not say so");
        assert_eq!(error.errno(), EIO, "{error}");
    }
    let other = put(&fs, "other", &[2; 5_000]).unwrap();
    fs.fsync(&other, SyncKind::Fsync)
        .expect("it goes through the log");
    assert!(!fs.is_read_only());
    disk.heal();
    let _ = fs.fsync(&file, SyncKind::Fsync);
    fs.fsync(&file, SyncKind::Fsync)
        .expect("the device works again");
    fs.crash();
    drop((file, other, fs));
    let fs = mount(&disk);
    assert_eq!(volume::get(&fs, "file").unwrap(), [1; 5_000]);
    assert_eq!(volume::get(&fs, "other").unwrap(), [2; 5_000]);
    fs.unmount().unwrap();
    assert_disk_clean(&disk, "after small writes failed and healed");
}

/// During a slow checkpoint small writes do not use the log; metadata does.
#[test]
fn a_log_that_fills_up_takes_no_more_data() {
    let _watchdog = watchdog("a slow checkpoint");
    let disk = format(32 << 20);
    // A change of the log's form waits for the checkpoint.
    let options = MountOptions {
        async_commit: AsyncCommit::Never,
        ..options()
    };
    let fs = Fs::mount(disk.queue(), options).unwrap();
    let slow = Arc::new(AtomicBool::new(true));
    let in_place = Arc::new(AtomicBool::new(false));
    let (waits, seen) = (slow.clone(), in_place.clone());
    disk.inject(move |op, class, _, _| {
        while op == Op::Write && class == Class::Metadata && waits.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        seen.fetch_or(op == Op::Write && class == Class::Data, Ordering::SeqCst);
        None
    });
    let mut files = 0;
    while !in_place.load(Ordering::SeqCst) {
        let file = put(&fs, &format!("{files}"), &[files as u8; 16 << 12]).unwrap();
        fs.fsync(&file, SyncKind::Fsync).unwrap();
        files += 1;
    }
    assert!(
        files > 20,
        "half of the log is the least that data may have"
    );
    slow.store(false, Ordering::SeqCst);
    fs.crash();
    drop(fs);
    let fs = mount(&disk);
    for i in 0..files {
        let expected = [i as u8; 16 << 12];
        assert!(volume::get(&fs, &format!("{i}")).unwrap() == expected);
    }
    fs.unmount().unwrap();
    assert_disk_clean(&disk, "after a slow checkpoint");
}

/// Data in the log that cannot be written home stays readable and in the log.
#[test]
fn a_failed_checkpoint_stops_the_journal_and_loses_nothing() {
    let _watchdog = watchdog("failed writes home");
    let disk = format(32 << 20);
    let fs = mount(&disk);
    let file = put(&fs, "file", &[1; 5_000]).unwrap();
    fs.fsync(&file, SyncKind::Fsync).unwrap();
    disk.inject(|op, class, _, _| (op == Op::Write && class == Class::Metadata).then_some(EIO));
    // Fills the log.
    let fill = |i: usize| {
        let other = put(&fs, &format!("{i}"), &[2; 16 << 12])?;
        fs.fsync(&other, SyncKind::Fsync)
    };
    assert!((0..500).any(|i| fill(i).is_err()), "the log takes no end");
    assert!(fs.is_read_only());
    for _ in 0..3 {
        fs.fsync(&file, SyncKind::Fsync)
            .expect_err("nothing is certain now");
    }
    fs.drop_caches();
    assert_eq!(volume::contents(&fs, &file).unwrap(), [1; 5_000]);
    disk.heal();
    fs.crash();
    drop((file, fs));
    let fs = mount(&disk);
    assert_eq!(volume::get(&fs, "file").unwrap(), [1; 5_000]);
    fs.unmount().unwrap();
    assert_disk_clean(&disk, "after writes home had failed");
}

#[test]
fn the_next_fsync_reports_failed_writes_of_the_flusher() {
    let _watchdog = watchdog("failed writeback");
    let disk = format(128 << 20);
    let options = MountOptions {
        tunables: writeback::Tunables {
            dirty_expire: Duration::from_millis(50),
            dirty_writeback: Duration::from_millis(50),
            ..Default::default()
        },
        ..options()
    };
    let fs = Fs::mount(disk.queue(), options).unwrap();
    disk.inject(|op, class, _, _| (op == Op::Write && class == Class::Data).then_some(EIO));
    let file = put(&fs, "file", &[7; 10_000]).unwrap();
    std::thread::sleep(Duration::from_millis(600));
    disk.heal();
    // The flusher may have succeeded since. Then the failure before was reported or repaired.
    let reported = fs.fsync(&file, SyncKind::Fsync).is_err();
    fs.fsync(&file, SyncKind::Fsync).unwrap();
    eprintln!(
        "the flusher's failure was {}",
        if reported { "reported" } else { "repaired" }
    );
    assert_eq!(volume::contents(&fs, &file).unwrap(), [7; 10_000]);
    fs.unmount().unwrap();
    assert_disk_clean(&disk, "after writeback failed and healed");
}

#[test]
fn a_failed_journal_write_makes_the_volume_read_only() {
    for op in [Op::Write, Op::Flush] {
        let _watchdog = watchdog("failed journal writes");
        let disk = format(128 << 20);
        let fs = mount(&disk);
        let kept = put(&fs, "kept", b"fsynced before").unwrap();
        fs.fsync(&kept, SyncKind::Fsync).unwrap();
        disk.inject(move |o, class, _, _| {
            (o == op && (op == Op::Flush || class == Class::Journal)).then_some(EIO)
        });
        // Many threads wait for the same commit, and each gets the error.
        std::thread::scope(|scope| {
            for t in 0..6 {
                let fs = &fs;
                scope.spawn(move || {
                    // Large data is written in place and flushed before the commit.
                    let file = put(fs, &format!("file{t}"), &[1; 200_000]);
                    let reported = file.and_then(|file| fs.fsync(&file, SyncKind::Fsync));
                    assert!(reported.is_err(), "the fsync of thread {t} succeeded");
                });
            }
        });
        assert!(fs.is_read_only(), "no journal, no changes");
        let why = fs.info().read_only_reason.expect("and a reason");
        eprintln!("read-only: {why}");
        assert!(matches!(
            put(&fs, "more", b""),
            Err(Error::ReadOnly | Error::Journal(_))
        ));
        assert!(fs.sync().is_err(), "what was not committed is lost");
        assert_eq!(
            volume::get(&fs, "kept").unwrap(),
            b"fsynced before",
            "reading goes on"
        );
        assert!(
            fs.unmount().is_err(),
            "an fsync after the failure reports it"
        );
        drop((kept, fs));
        disk.heal();
        let fs = mount(&disk);
        assert_eq!(volume::get(&fs, "kept").unwrap(), b"fsynced before");
        let file = put(&fs, "again", b"all is well").unwrap();
        fs.fsync(&file, SyncKind::Fsync).unwrap();
        fs.unmount().unwrap();
        assert_disk_clean(&disk, "after the journal had failed");
    }
}

#[test]
fn failed_reads_name_the_block_and_change_nothing() {
    let _watchdog = watchdog("failed reads");
    let disk = format(128 << 20);
    let fs = mount(&disk);
    let mut rng = Rng::new("faults, reads");
    let data = rng.bytes(300_000);
    volume::mkdir_all(&fs, "dir/sub").unwrap();
    for i in 0..200 {
        put(&fs, &format!("dir/sub/{i}"), &data[..i * 100]).unwrap();
    }
    put(&fs, "file", &data).unwrap();
    fs.unmount().unwrap();
    drop(fs);

    for class in [Class::Data, Class::Metadata] {
        let fs = mount(&disk);
        let root = fs.root().unwrap();
        disk.inject(move |op, c, _, _| (op == Op::Read && c == class).then_some(EIO));
        let result = match class {
            Class::Data => volume::get(&fs, "file").map(|_| ()),
            _ => volume::list(&fs, &root)
                .and_then(|_| volume::get(&fs, "dir/sub/7"))
                .map(|_| ()),
        };
        let error = result.expect_err("the device fails");
        assert!(
            error.to_string().contains("at byte"),
            "no place in: {error}"
        );
        let _ = volume::at(&fs, "dir/sub/8").map(|f| f.attr());
        let _ = put(&fs, "dir/sub/new", b"x");
        disk.heal();
        assert!(
            volume::get(&fs, "file").unwrap() == data,
            "nothing wrong was cached"
        );
        put(&fs, "dir/sub/works", b"x").unwrap();
        fs.unmount().unwrap();
    }
    assert_disk_clean(&disk, "after reads failed");
}

#[test]
fn random_failures_of_everything_never_hang_or_panic() {
    let _watchdog = watchdog("random failures");
    let mut rng = Rng::new("faults, random");
    for round in 0..testkit::rounds(12, 300) {
        let disk = format(64 << 20);
        let fs = mount(&disk);
        let salt = rng.next_u64();
        let rarity = 1 + rng.below(40);
        let count = std::sync::atomic::AtomicU64::new(0);
        disk.inject(move |_, _, _, _| {
            let n = count.fetch_add(1, Ordering::Relaxed);
            (Rng::from_seed(salt ^ n).below(rarity * 3) == 0).then_some(EIO)
        });
        let mut acknowledged = Vec::new();
        for i in 0..60usize {
            let name = format!("f{i}");
            let len = rng.index(30_000);
            let data = rng.bytes(len);
            if let Ok(file) = put(&fs, &name, &data)
                && fs.fsync(&file, SyncKind::Fsync).is_ok()
            {
                acknowledged.push((name, data));
            }
            if i % 7 == 6 {
                let _ = fs.sync();
                fs.drop_caches();
            }
        }
        let _ = fs.unmount();
        drop(fs);
        disk.heal();
        let fs = mount(&disk);
        for (name, data) in acknowledged {
            let found =
                volume::get(&fs, &name).unwrap_or_else(|e| panic!("round {round}, {name}: {e}"));
            assert!(found == data, "round {round}: {name} had been fsynced");
        }
        fs.unmount().unwrap();
        drop(fs);
        assert_disk_clean(&disk, "after random failures");
    }
}

/// Fills the volume by several threads; returns the acknowledged contents.
fn fill(fs: &Fs, rng: &mut Rng) -> BTreeMap<String, Vec<u8>> {
    let full = AtomicBool::new(false);
    let mut all = BTreeMap::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|t| {
                let (mut rng, full) = (rng.fork(), &full);
                scope.spawn(move || {
                    let mut written = BTreeMap::new();
                    volume::mkdir_all(fs, &format!("t{t}")).unwrap();
                    for i in 0.. {
                        let (name, len) = (
                            format!("t{t}/{i}"),
                            1 + rng.index(if t == 0 { 2 << 20 } else { 9000 }),
                        );
                        let data = rng.bytes(len);
                        let file = match put(fs, &name, &data) {
                            Ok(file) => file,
                            Err(Error::NoSpace) => {
                                full.store(true, Ordering::Relaxed);
                                // A file that was not written as a whole is not checked.
                                break;
                            }
                            Err(e) => panic!("{name}: {e}"),
                        };
                        if i % 16 == 0 {
                            fs.fsync(&file, SyncKind::Fsync)
                                .unwrap_or_else(|e| panic!("fsync of {name}: {e}"));
                        }
                        written.insert(name, data);
                    }
                    written
                })
            })
            .collect();
        for thread in threads {
            all.extend(thread.join().unwrap());
        }
    });
    assert!(full.into_inner());
    all
}

#[test]
fn a_full_volume_loses_nothing_that_was_acknowledged() {
    let _watchdog = watchdog("a full volume");
    let mut rng = Rng::new("faults, full");
    for round in 0..testkit::rounds(2, 10) {
        let disk = format(48 << 20);
        let fs = mount(&disk);
        let before = fs.statfs().free;
        let written = fill(&fs, &mut rng);
        fs.sync().expect("what was written fits");
        assert!(written.len() > 300, "{} files", written.len());
        for (name, data) in &written {
            assert!(&volume::get(&fs, name).unwrap() == data, "{name} before");
        }
        if round % 2 == 0 {
            fs.unmount().unwrap();
        } else {
            fs.crash();
        }
        drop(fs);
        let fs = mount(&disk);
        for (name, data) in &written {
            assert!(&volume::get(&fs, name).unwrap() == data, "{name} after");
        }
        // Overwriting needs no space.
        let (name, data) = written.iter().next().unwrap();
        write_all(&fs, &volume::at(&fs, name).unwrap(), 0, data).unwrap();
        let root = fs.root().unwrap();
        for t in 0..4 {
            let dir = volume::at(&fs, &format!("t{t}")).unwrap();
            for (name, ..) in volume::list(&fs, &dir).unwrap() {
                fs.unlink(&dir, &name).unwrap();
            }
            fs.rmdir(&root, format!("t{t}").as_bytes()).unwrap();
        }
        fs.sync().unwrap();
        let after = fs.statfs().free;
        assert!(
            after + 16 >= before,
            "space returns: {before} blocks before, {after} after"
        );
        put(&fs, "fits again", &rng.bytes(8 << 20)).unwrap();
        fs.unmount().unwrap();
        drop(fs);
        assert_disk_clean(&disk, "after a volume was full");
    }
}

#[test]
fn no_inodes_left_is_no_space_left() {
    let _watchdog = watchdog("no inodes");
    let disk = Disk::new(32 << 20);
    let mkfs = MkfsOptions {
        inodes: Some(256),
        ..MkfsOptions::default()
    };
    mkfs::format(&disk.queue(), &mkfs).unwrap();
    let fs = mount(&disk);
    let root = fs.root().unwrap();
    let free = fs.statfs().free_inodes;
    let mut made = 0;
    let error = loop {
        match fs.create(&root, format!("{made}").as_bytes(), new(0o100_644)) {
            Ok(_) => made += 1,
            Err(e) => break e,
        }
    };
    assert!(matches!(error, Error::NoSpace), "{error}");
    assert_eq!(made, free);
    for i in 0..made {
        fs.unlink(&root, format!("{i}").as_bytes()).unwrap();
    }
    fs.sync().unwrap();
    assert_eq!(fs.statfs().free_inodes, free);
    fs.unmount().unwrap();
    assert_disk_clean(&disk, "after the inodes were used up");
}
