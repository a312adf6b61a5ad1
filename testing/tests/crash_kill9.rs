//! kill -9 in the middle of work: what an fsync acknowledged is there afterwards, and e2fsck finds
//! nothing.
//!
//! Once with the real daemon behind a FUSE mount, under the real fs_mark and a storm of renames;
//! once inside this process, where the engine is stopped at any moment.

use ext4::{Fs, SyncKind};
use mkfs::MkfsOptions;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use testing::daemon::{self, Daemon};
use testing::versions::{Told, assert_version, contents, work};
use testkit::disk::Disk;
use testkit::needs::{Need, have, skipped, tool};
use testkit::oracle::{assert_clean, text};
use testkit::scratch::Scratch;
use testkit::seed::Rng;
use testkit::volume::{self, new, options, write_all};
use testkit::watchdog::Watchdog;

#[test]
fn the_daemon_is_killed() {
    let test = "kill -9 of the daemon";
    if !have(
        test,
        &[
            Need::Root,
            Need::Fuse,
            Need::Tool("e2fsck"),
            Need::Tool("fs_mark"),
            Need::Tool("mountpoint"),
        ],
    ) {
        return;
    }
    let Some(sluice) = daemon::sluice() else {
        return skipped(
            test,
            "no sluice (cargo build --release --bins, or name it in SLUICE)",
        );
    };
    let rounds = testkit::rounds(10, 50);
    let _watchdog = Watchdog::new(test, Duration::from_secs(30 + 15 * rounds as u64));
    let mut rng = Rng::new(test);
    let scratch = Scratch::new();
    let (image, dir) = (scratch.join("image"), scratch.join("mnt"));
    fs::create_dir(&dir).unwrap();
    let made = Command::new(&sluice)
        .args(["mkfs", text(&image), "--size", "2GiB"])
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let mut acknowledged = 0;
    for round in 0..rounds {
        let daemon = Daemon::start(&sluice, &image, &dir);
        let fs_mark_dir = dir.join(format!("fs_mark{round}"));
        fs::create_dir(&fs_mark_dir).unwrap();
        let threads = 2;
        let mut fs_mark = Command::new(tool("fs_mark").unwrap())
            .args([
                "-S1",
                "-k",
                "-s",
                "4096",
                "-n",
                "100000",
                "-t",
                &threads.to_string(),
            ])
            .args(["-d", text(&fs_mark_dir)])
            .current_dir(scratch.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let pause = Duration::from_millis(300 + rng.below(900));
        let mut tolds = Vec::new();
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..3)
                .map(|worker| {
                    let dir = &dir;
                    scope.spawn(move || work(dir, round, worker))
                })
                .collect();
            std::thread::sleep(pause);
            daemon.kill();
            tolds.extend(workers.into_iter().map(|w| w.join().unwrap()));
        });
        let _ = fs_mark.kill();
        let _ = fs_mark.wait();

        let daemon = Daemon::start(&sluice, &image, &dir);
        for (worker, told) in tolds.iter().enumerate() {
            acknowledged += told.files.len();
            for (name, version) in &told.files {
                let found = fs::read(dir.join(name))
                    .unwrap_or_else(|e| panic!("round {round}, {name}: {e}"));
                assert!(
                    found == contents(*version),
                    "round {round}, {name}: other bytes"
                );
            }
            if told.saved.acknowledged > 0 {
                let name = format!("w{round}-{worker}/saved");
                assert_version(&fs::read(dir.join(&name)).unwrap(), told.saved, &name);
            }
        }
        // Each thread of fs_mark may have written a part of one file.
        let mut unfinished = 0;
        for entry in fs::read_dir(dir.join(format!("fs_mark{round}")))
            .into_iter()
            .flatten()
        {
            unfinished += usize::from(entry.unwrap().metadata().unwrap().len() != 4096);
        }
        assert!(
            unfinished <= threads,
            "round {round}: {unfinished} files of fs_mark are not whole"
        );
        daemon.unmount(&sluice);
        assert_clean(
            &image,
            &format!("after kill -9 in round {round} and recovery"),
        );
    }
    eprintln!("{acknowledged} files had been acknowledged in {rounds} rounds");
    assert!(acknowledged > rounds, "hardly anything was under way");
}

/// The same in this process, until `fs` stops.
fn work_inside(fs: &Fs, round: usize, worker: usize, told: &Mutex<Told>) -> ext4::Result<()> {
    let root = fs.root()?;
    let name = format!("w{round}-{worker}");
    let dir = fs.mkdir(&root, name.as_bytes(), new(0o040_755))?;
    for i in 1.. {
        let file = fs.create(&dir, i.to_string().as_bytes(), new(0o100_644))?;
        write_all(fs, &file, 0, &contents(i))?;
        fs.fsync(&file, SyncKind::Fsync)?;
        told.lock().unwrap().files.push((format!("{name}/{i}"), i));
        told.lock().unwrap().saved.begun = i;
        let file = fs.create(&dir, b"new", new(0o100_644))?;
        write_all(fs, &file, 0, &contents(i))?;
        fs.fsync(&file, SyncKind::Fsync)?;
        let flags = ext4::RenameFlags::Replace;
        fs.rename(&dir, b"new", &dir, b"saved", flags)?;
        fs.fsync(&dir, SyncKind::Fsync)?;
        told.lock().unwrap().saved.acknowledged = i;
        if i % 5 == 0 {
            fs.unlink(&dir, (i - 1).to_string().as_bytes())?;
            told.lock().unwrap().files.retain(|(_, v)| *v != i - 1);
        }
    }
    Ok(())
}

#[test]
fn the_engine_stops_at_any_moment() {
    let test = "stop in process";
    let rounds = testkit::rounds(40, 1000);
    let _watchdog = Watchdog::new(test, Duration::from_secs(60 + rounds as u64));
    let mut rng = Rng::new(test);
    let disk = Disk::new(512 << 20);
    mkfs::format(&disk.queue(), &MkfsOptions::default()).unwrap();
    let mut acknowledged = 0;
    for round in 0..rounds {
        let fs = Fs::mount(disk.queue(), options()).unwrap();
        let tolds: Vec<Mutex<Told>> = (0..4).map(|_| Mutex::default()).collect();
        let stopped = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for (worker, told) in tolds.iter().enumerate() {
                let (fs, stopped) = (&fs, &stopped);
                scope.spawn(move || {
                    let error =
                        work_inside(fs, round, worker, told).expect_err("it goes on until stopped");
                    assert!(stopped.load(Ordering::SeqCst), "stopped by itself: {error}");
                });
            }
            std::thread::sleep(Duration::from_micros(rng.below(60_000)));
            stopped.store(true, Ordering::SeqCst);
            fs.crash();
        });
        drop(fs);
        let fs = Fs::mount(disk.queue(), options()).unwrap();
        for (worker, told) in tolds.into_iter().enumerate() {
            let told = told.into_inner().unwrap();
            acknowledged += told.files.len();
            for (name, version) in &told.files {
                match volume::get(&fs, name) {
                    Ok(found) => assert!(
                        found == contents(*version),
                        "round {round}, {name}: other bytes"
                    ),
                    // Its removal may have been under way.
                    Err(ext4::Error::NotFound) if version % 5 == 4 => {}
                    Err(e) => panic!("round {round}, {name}: {e}"),
                }
            }
            if told.saved.acknowledged > 0 {
                let name = format!("w{round}-{worker}/saved");
                assert_version(&volume::get(&fs, &name).unwrap(), told.saved, &name);
            }
        }
        fs.unmount().unwrap();
        drop(fs);
        if round % 8 == 0 && have(test, &[Need::Tool("e2fsck")]) {
            let scratch = Scratch::new();
            let image = scratch.join("image");
            disk.save(&image);
            assert_clean(&image, &format!("after stop {round}"));
        }
    }
    eprintln!("{acknowledged} files had been acknowledged in {rounds} rounds");
}
