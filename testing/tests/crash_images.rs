//! What every possible power failure leaves is recovered: workloads run on a recording device, and from the recording come
//! images in which each write since the last flush was applied, dropped or torn. We recover each and e2fsck finds nothing
//! wrong; what had been fsynced is there. Some of them e2fsck recovers alone. A device that ignores flushes must be noticed:
//! otherwise the checks prove nothing.

use ext4::{Fs, InodeRef, MkfsOptions, RenameFlags, Result};
use std::sync::Arc;
use std::time::Duration;
use testing::crash::{Promises, Recording};
use testing::disk::{Disk, save};
use testing::history::History;
use testing::image::{check, recover_by_e2fsck};
use testing::needs::{Need, have};
use testing::rounds;
use testing::scratch::Scratch;
use testing::seed::Rng;
use testing::volume::{self, new, options, put, write_all};
use testing::watchdog::Watchdog;

const SIZE: usize = 24 << 20;

/// The engine on a recording device, and what may be expected of it after a crash.
struct Work {
    disk: Disk,
    fs: Arc<Fs>,
    history: History,
    rng: Rng,
}

impl Work {
    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let len = 1 + self.rng.index(most);
        self.rng.bytes(len)
    }

    fn begin(&mut self, path: &str, contents: Option<&[u8]>) {
        let contents = contents.map(<[u8]>::to_vec);
        self.history.begin(path, contents, self.disk.position());
    }

    fn fsync(&mut self, path: &str, file: &InodeRef) -> Result<()> {
        self.fs.fsync(file, self.rng.one_in(2))?;
        self.history.acknowledge(path, self.disk.position());
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.fs.sync()?;
        self.history.acknowledge_all(self.disk.position());
        Ok(())
    }

    fn create_fsync(&mut self) -> Result<()> {
        for i in 0..12 {
            let (path, data) = (format!("created{i}"), self.bytes(12_000));
            self.begin(&path, Some(&data));
            let file = put(&self.fs, &path, &data)?;
            if i % 4 != 3 {
                self.fsync(&path, &file)?;
            }
        }
        Ok(())
    }

    fn overwrite_fsync(&mut self) -> Result<()> {
        let mut data = self.rng.bytes(40_000);
        self.begin("overwritten", Some(&data));
        let file = put(&self.fs, "overwritten", &data)?;
        self.fsync("overwritten", &file)?;
        for _ in 0..10 {
            let at = self.rng.index(36_000);
            let part = self.bytes(4_000);
            data[at..at + part.len()].copy_from_slice(&part);
            self.begin("overwritten", Some(&data));
            write_all(&self.fs, &file, at as u64, &part)?;
            self.fsync("overwritten", &file)?;
        }
        Ok(())
    }

    fn append(&mut self) -> Result<()> {
        let mut data = Vec::new();
        self.begin("appended", Some(&data));
        let file = put(&self.fs, "appended", &data)?;
        for i in 0..20 {
            let part = self.bytes(9_000);
            data.extend(&part);
            self.begin("appended", Some(&data));
            self.fs.append(&file, &part)?;
            if i % 3 != 1 {
                self.fsync("appended", &file)?;
            }
        }
        Ok(())
    }

    /// As careful programs save: a new file, fsynced, takes the old one's place.
    fn rename_over(&mut self) -> Result<()> {
        let root = self.fs.root()?;
        for i in 0..10 {
            let data = self.bytes(10_000);
            let position = self.disk.position();
            self.history
                .begin("saved.tmp", Some(data.clone()), position);
            let file = self.fs.create(&root, b"saved.tmp", new(0o100_644))?;
            write_all(&self.fs, &file, 0, &data)?;
            self.fsync("saved.tmp", &file)?;
            let position = self.disk.position();
            self.history.begin("saved.tmp", None, position);
            self.history.begin_atomic("saved", Some(data), position);
            let replace = RenameFlags::Replace;
            self.fs
                .rename(&root, b"saved.tmp", &root, b"saved", replace)?;
            if i % 2 == 0 {
                self.fs.fsync(&root, false)?;
                let position = self.disk.position();
                self.history.acknowledge("saved", position);
                self.history.acknowledge("saved.tmp", position);
            }
        }
        Ok(())
    }

    fn unlink(&mut self) -> Result<()> {
        for i in 0..8 {
            let (path, data) = (format!("unlinked{i}"), self.bytes(60_000));
            self.begin(&path, Some(&data));
            put(&self.fs, &path, &data)?;
        }
        self.sync()?;
        for i in 0..8 {
            let path = format!("unlinked{i}");
            let open = volume::at(&self.fs, &path)?;
            self.begin(&path, None);
            volume::remove(&self.fs, &path)?;
            if i % 3 == 0 {
                self.sync()?;
            }
            drop(open);
            // The blocks that were freed are wanted at once.
            let (other, data) = (format!("instead{i}"), self.bytes(60_000));
            self.begin(&other, Some(&data));
            let file = put(&self.fs, &other, &data)?;
            self.fsync(&other, &file)?;
        }
        Ok(())
    }

    fn truncate(&mut self) -> Result<()> {
        let mut data = self.rng.bytes(200_000);
        self.begin("truncated", Some(&data));
        let file = put(&self.fs, "truncated", &data)?;
        self.fsync("truncated", &file)?;
        for i in 0..12 {
            let size = match i % 3 {
                0 => data.len() / 2,
                1 => data.len() / 2 + 777,
                _ => data.len() + 30_000,
            };
            data.resize(size, 0);
            self.begin("truncated", Some(&data));
            self.fs.truncate(&file, size as u64)?;
            if i % 2 == 0 {
                self.fsync("truncated", &file)?;
            }
        }
        Ok(())
    }

    fn trees(&mut self) -> Result<()> {
        for i in 0..6 {
            volume::mkdir_all(&self.fs, &format!("tree{i}/a/b/c"))?;
            let (path, data) = (format!("tree{i}/a/b/c/file"), self.bytes(5_000));
            self.begin(&path, Some(&data));
            let file = put(&self.fs, &path, &data)?;
            self.fsync(&path, &file)?;
            for n in 0..60 {
                put(&self.fs, &format!("tree{i}/a/{n}-{}", "n".repeat(100)), b"")?;
            }
            if i % 2 == 1 {
                volume::rename(
                    &self.fs,
                    &format!("tree{}", i - 1),
                    &format!("tree{i}/moved"),
                )?;
                let (old, new) = (
                    format!("tree{}/a/b/c/file", i - 1),
                    format!("tree{i}/moved/a/b/c/file"),
                );
                // It is at one of the two places until the rename is durable, and this asks for neither.
                self.begin(&old, None);
                let data = volume::get(&self.fs, &new)?;
                self.begin(&new, Some(&data));
                self.sync()?;
            }
        }
        Ok(())
    }

    /// So much metadata that the small log wraps around.
    fn wrap_around(&mut self) -> Result<()> {
        for round in 0..12 {
            let dir = volume::mkdir_all(&self.fs, &format!("wrap{round}"))?;
            for n in 0..150 {
                self.fs.create(
                    &dir,
                    format!("{n}-{}", "w".repeat(120)).as_bytes(),
                    new(0o100_644),
                )?;
            }
            let (path, data) = (format!("wrap{round}/file"), self.bytes(30_000));
            self.begin(&path, Some(&data));
            let file = put(&self.fs, &path, &data)?;
            self.fsync(&path, &file)?;
            if round >= 2 {
                let gone = format!("wrap{}", round - 2);
                let path = format!("{gone}/file");
                self.begin(&path, None);
                let dir = volume::at(&self.fs, &gone)?;
                for (name, ..) in volume::list(&self.fs, &dir)? {
                    self.fs.unlink(&dir, &name)?;
                }
                self.fs.rmdir(&self.fs.root()?, gone.as_bytes())?;
            }
        }
        Ok(())
    }
}

/// Threads that share commits, and one that replaces a file again and again.
fn at_once(work: &mut Work) -> Result<()> {
    let histories: Vec<Result<History>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let mut own = Work {
                    disk: work.disk.clone(),
                    fs: work.fs.clone(),
                    history: History::default(),
                    rng: work.rng.fork(),
                };
                scope.spawn(move || own.one_of_many(thread).map(|()| own.history))
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    for history in histories {
        work.history.merge(history?);
    }
    Ok(())
}

impl Work {
    fn one_of_many(&mut self, thread: usize) -> Result<()> {
        let dir = volume::mkdir_all(&self.fs, &format!("t{thread}"))?;
        for i in 0..40 {
            let (path, data) = (format!("t{thread}/{i}"), self.bytes(20_000));
            self.begin(&path, Some(&data));
            let file = put(&self.fs, &path, &data)?;
            if i % 3 > 0 {
                self.fsync(&path, &file)?;
            }
            // Not the one that was renamed.
            if i % 5 == 4 && i != 29 {
                let gone = format!("t{thread}/{}", i - 3);
                self.begin(&gone, None);
                volume::remove(&self.fs, &gone)?;
            }
            if i % 7 == 6 {
                let (old, new) = (format!("t{thread}/{}", i - 1), format!("t{thread}/renamed"));
                let data = volume::get(&self.fs, &old)?;
                let file = volume::at(&self.fs, &old)?;
                self.fsync(&old, &file)?;
                self.begin(&old, None);
                let position = self.disk.position();
                self.history.begin_atomic(&new, Some(data), position);
                volume::rename(&self.fs, &old, &new)?;
                self.fs.fsync(&dir, false)?;
                let position = self.disk.position();
                self.history.acknowledge(&old, position);
                self.history.acknowledge(&new, position);
            }
        }
        Ok(())
    }
}

type Workload = fn(&mut Work) -> Result<()>;

fn record(
    work: Workload,
    features: &[&str],
    promises: Promises,
    rng: &mut Rng,
) -> (Recording, History) {
    let disk = Disk::new(SIZE);
    let mkfs = MkfsOptions {
        features: features.iter().map(|f| (*f).to_owned()).collect(),
        ..MkfsOptions::default()
    };
    ext4::mkfs(&disk.queue(), &mkfs).unwrap();
    let fs = Fs::mount(disk.queue(), options()).unwrap();
    let base = disk.start_recording();
    let mut state = Work {
        disk: disk.clone(),
        fs,
        history: History::default(),
        rng: rng.fork(),
    };
    work(&mut state).unwrap();
    let events = disk.take_log();
    state.fs.crash();
    (Recording::new(base, events, promises), state.history)
}

/// Positions of crashes, ascending: at flushes and anywhere.
fn positions(recording: &Recording, count: usize, rng: &mut Rng) -> Vec<usize> {
    let flushes = recording.flush_positions();
    let mut at: Vec<usize> = (0..count)
        .map(|i| match i % 3 {
            0 if !flushes.is_empty() => *rng.pick(&flushes),
            _ => rng.index(recording.len() + 1),
        })
        .collect();
    at.sort_unstable();
    at
}

/// Recovers an image by us, and lets e2fsck judge the result.
fn recover(image: Vec<u8>, history: &History, at: usize, scratch: &Scratch) -> Result<(), String> {
    let disk = Disk::from_bytes(image);
    let fs = Fs::mount(disk.queue(), options()).map_err(|e| format!("mount: {e}"))?;
    let checked = history.check(&fs, at);
    // It must also be fit for use.
    let used = put(&fs, "after", b"the crash").and_then(|file| fs.fsync(&file, false));
    let unmounted = fs.unmount();
    checked?;
    used.map_err(|e| format!("after recovery: {e}"))?;
    unmounted.map_err(|e| format!("unmount after recovery: {e}"))?;
    let path = scratch.join("recovered");
    disk.save(&path);
    check(&path).map_err(|e| format!("e2fsck after our recovery: {e}"))
}

/// Crashes once more while we recover; what is left then is recovered.
fn recover_twice(
    image: Vec<u8>,
    history: &History,
    at: usize,
    scratch: &Scratch,
    rng: &mut Rng,
) -> Result<(), String> {
    let disk = Disk::from_bytes(image);
    let base = disk.start_recording();
    let fs = Fs::mount(disk.queue(), options()).map_err(|e| format!("mount: {e}"))?;
    let events = disk.take_log();
    fs.crash();
    let mut recording = Recording::new(base, events, Promises::Kept);
    let again = rng.index(recording.len() + 1);
    let image = recording.image(again, rng);
    recover(image, history, at, scratch).map_err(|e| {
        format!(
            "second crash at event {again} of {} of recovery: {e}",
            recording.len()
        )
    })
}

/// Recovers an image by e2fsck alone.
fn recover_by_others(
    image: &[u8],
    history: &History,
    at: usize,
    scratch: &Scratch,
) -> Result<(), String> {
    let path = scratch.join("by-e2fsck");
    save(image, &path);
    recover_by_e2fsck(&path).map_err(|e| format!("e2fsck -fy: {e}"))?;
    let fs = Fs::mount(Disk::load(&path).queue(), options()).map_err(|e| e.to_string())?;
    let checked = history.check(&fs, at);
    fs.crash();
    checked.map_err(|e| format!("after e2fsck -fy: {e}"))
}

fn crash(name: &str, work: Workload, features: &[&str]) {
    if !have(name, &[Need::Tool("e2fsck")]) {
        return;
    }
    let _watchdog = Watchdog::new(
        name,
        Duration::from_secs(if testing::long() { 3600 } else { 240 }),
    );
    let mut rng = Rng::new(name);
    let scratch = Scratch::new();
    let (mut recording, history) = record(work, features, Promises::Kept, &mut rng);
    for (n, at) in positions(&recording, rounds(26, 800), &mut rng)
        .into_iter()
        .enumerate()
    {
        let image = recording.image(at, &mut rng);
        let mut result = Ok(());
        if n % 5 == 0 {
            result = recover_by_others(&image, &history, at, &scratch);
        }
        if n % 4 == 1 {
            let image = image.clone();
            result = result.and_then(|()| recover_twice(image, &history, at, &scratch, &mut rng));
        }
        let raw = image.clone();
        let result = result.and_then(|()| recover(image, &history, at, &scratch));
        if let Err(e) = result {
            if let Some(dir) = std::env::var_os("SLUICE_KEEP") {
                save(
                    &raw,
                    &std::path::Path::new(&dir).join(format!("{name}-{at}.img")),
                );
            }
            panic!("{name}: crash at event {at} of {}: {e}", recording.len());
        }
    }
}

macro_rules! workloads {
    ($($name:ident: $work:expr, $features:expr;)*) => {
        $(#[test]
        fn $name() {
            crash(stringify!($name), $work, $features);
        })*
    };
}

workloads! {
    creating: Work::create_fsync, &[];
    overwriting: Work::overwrite_fsync, &[];
    appending: Work::append, &["^metadata_csum"];
    replacing: Work::rename_over, &[];
    unlinking: Work::unlink, &[];
    unlinking_with_orphan_list: Work::unlink, &["^orphan_file"];
    truncating: Work::truncate, &[];
    making_trees: Work::trees, &[];
    wrapping_around: Work::wrap_around, &[];
    threads_at_once: at_once, &[];
    wrapping_around_without_checksums: Work::wrap_around, &["^metadata_csum,^64bit"];
}

/// A device that lies about flushes loses what was fsynced; checks that do not see that see nothing.
#[test]
fn the_canary_dies() {
    let name = "the canary";
    if !have(name, &[Need::Tool("e2fsck")]) {
        return;
    }
    let mut rng = Rng::new(name);
    let scratch = Scratch::new();
    let (mut recording, history) = record(Work::create_fsync, &[], Promises::Broken, &mut rng);
    let noticed = positions(&recording, 12, &mut rng).into_iter().any(|at| {
        let image = recording.image(at, &mut rng);
        recover(image, &history, at, &scratch).is_err()
    });
    assert!(noticed, "flushes were ignored and nobody noticed");
}
