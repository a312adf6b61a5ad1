//! kill -9 in the middle of work: what an fsync acknowledged is there afterwards, and e2fsck finds nothing.
//!
//! Once with the real daemon behind a FUSE mount, under the real fs_mark and a storm of renames; once inside this process,
//! where the engine is stopped at any moment.

use ext4::{Fs, MkfsOptions};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use testing::disk::Disk;
use testing::image::{assert_clean, text};
use testing::needs::{Need, have, run, skipped, tool};
use testing::scratch::Scratch;
use testing::seed::Rng;
use testing::volume::{self, new, options, write_all};
use testing::watchdog::Watchdog;

/// Versions of one file that is replaced again and again: those before `acknowledged` are over.
#[derive(Clone, Copy, Default)]
struct Versions {
    begun: u64,
    acknowledged: u64,
}

/// What one worker was told.
#[derive(Default)]
struct Told {
    files: Vec<(String, u64)>,
    saved: Versions,
}

/// Contents that say which version they are; every version has another length.
fn contents(version: u64) -> Vec<u8> {
    let len = 100 + (version * 977 % 13_000) as usize;
    let mut rng = Rng::from_seed(version);
    let mut data = version.to_le_bytes().to_vec();
    data.extend(rng.bytes(len));
    data
}

fn assert_version(data: &[u8], versions: Versions, what: &str) {
    assert!(data.len() >= 8, "{what}: {} bytes", data.len());
    let version = u64::from_le_bytes(data[..8].try_into().unwrap());
    assert!(
        (versions.acknowledged..=versions.begun).contains(&version),
        "{what}: version {version}, but {} was durable",
        versions.acknowledged
    );
    assert!(
        data == contents(version),
        "{what}: version {version} in pieces"
    );
}

/// The daemon, in the foreground.
struct Daemon {
    child: Child,
    dir: PathBuf,
}

impl Daemon {
    fn start(sluice: &Path, image: &Path, dir: &Path) -> Daemon {
        let mut child = Command::new(sluice)
            .args(["mount", "-f", text(image), text(dir)])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("sluice starts");
        let end = Instant::now() + Duration::from_secs(30);
        while run("mountpoint", &["-q", text(dir)]).0 != 0 {
            if let Some(status) = child.try_wait().expect("a child") {
                let mut said = String::new();
                let stderr = child.stderr.as_mut().expect("piped");
                let _ = std::io::Read::read_to_string(stderr, &mut said);
                panic!("sluice mount ended with {status}: {said}");
            }
            assert!(Instant::now() < end, "sluice mount does not mount");
            std::thread::sleep(Duration::from_millis(20));
        }
        Daemon {
            child,
            dir: dir.to_owned(),
        }
    }

    fn kill(mut self) {
        self.child.kill().expect("kill -9");
        let _ = self.child.wait();
        self.detach();
    }

    fn unmount(mut self, sluice: &Path) {
        let status = Command::new(sluice).arg("unmount").arg(&self.dir).status();
        assert!(status.expect("sluice runs").success(), "sluice unmount");
        let status = self.child.wait().expect("the daemon ends");
        assert!(status.success(), "the daemon: {status}");
    }

    fn detach(&self) {
        for _ in 0..50 {
            if run("umount", &["-l", text(&self.dir)]).0 == 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
            self.detach();
        }
    }
}

/// Creates and replaces files until the daemon is gone.
fn work(dir: &Path, round: usize, worker: usize) -> Told {
    let mut told = Told::default();
    let base = dir.join(format!("w{round}-{worker}"));
    let _: std::io::Result<()> = (|| {
        fs::create_dir(&base)?;
        for i in 1.. {
            let name = format!("w{round}-{worker}/{i}");
            let mut file = File::create(dir.join(&name))?;
            file.write_all(&contents(i))?;
            file.sync_all()?;
            told.files.push((name, i));
            told.saved.begun = i;
            let new = base.join("new");
            let mut file = File::create(&new)?;
            file.write_all(&contents(i))?;
            file.sync_all()?;
            drop(file);
            fs::rename(&new, base.join("saved"))?;
            File::open(&base)?.sync_all()?;
            told.saved.acknowledged = i;
        }
        Ok(())
    })();
    told
}

fn sluice() -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/sluice");
    let path = std::env::var_os("SLUICE").map_or(built, PathBuf::from);
    path.is_file().then_some(path)
}

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
    let Some(sluice) = sluice() else {
        return skipped(
            test,
            "no sluice (cargo build --release --bins, or name it in SLUICE)",
        );
    };
    let rounds = testing::rounds(10, 50);
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
        // Each of fs_mark's threads was in the middle of one file at most.
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

/// The same inside this process, until `fs` stops.
fn work_inside(fs: &Fs, round: usize, worker: usize, told: &Mutex<Told>) -> ext4::Result<()> {
    let root = fs.root()?;
    let name = format!("w{round}-{worker}");
    let dir = fs.mkdir(&root, name.as_bytes(), new(0o040_755))?;
    for i in 1.. {
        let file = fs.create(&dir, i.to_string().as_bytes(), new(0o100_644))?;
        write_all(fs, &file, 0, &contents(i))?;
        fs.fsync(&file, false)?;
        told.lock().unwrap().files.push((format!("{name}/{i}"), i));
        told.lock().unwrap().saved.begun = i;
        let file = fs.create(&dir, b"new", new(0o100_644))?;
        write_all(fs, &file, 0, &contents(i))?;
        fs.fsync(&file, false)?;
        let flags = ext4::RenameFlags::Replace;
        fs.rename(&dir, b"new", &dir, b"saved", flags)?;
        fs.fsync(&dir, false)?;
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
    let rounds = testing::rounds(40, 1000);
    let _watchdog = Watchdog::new(test, Duration::from_secs(60 + rounds as u64));
    let mut rng = Rng::new(test);
    let disk = Disk::new(512 << 20);
    ext4::mkfs(&disk.queue(), &MkfsOptions::default()).unwrap();
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
