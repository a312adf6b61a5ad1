//! Several threads fill a small volume in every way. Then all acknowledged changes are durable.
//!
//! Each thread changes its own files and has a model of their pages. All share the space.

use crate::space::volume::{PAGE, open, page};
use ext4::{Error, FallocateMode, Fs, InodeRef, SyncKind, SyncTarget};
use std::collections::BTreeMap;
use std::sync::Arc;
use testkit::oracle::Mke2fs;
use testkit::seed::{Rng, seeds};
use testkit::volume::{Image, any_sync, busy, mkdir, quiet};

/// The model of a file: the salts of its nonzero pages, and its size in pages.
#[derive(Default)]
struct Model {
    pages: BTreeMap<u64, u64>,
    size: u64,
}

impl Model {
    fn forget(&mut self, from: u64, end: u64) {
        self.pages.retain(|index, _| !(from..end).contains(index));
    }
}

/// `Ok(false)`: the volume is full.
fn fits<T>(result: Result<T, Error>) -> bool {
    match result {
        Ok(_) => true,
        Err(Error::NoSpace) => false,
        Err(error) => panic!("{error}"),
    }
}

struct Worker<'a> {
    fs: &'a Fs,
    name: String,
    rng: Rng,
    files: BTreeMap<u64, (InodeRef, Model)>,
    next: u64,
    salt: u64,
    dir: Option<InodeRef>,
    mood: u64,
}

/// The number of pages of a file.
const FILE_PAGES: u64 = 3000;

impl Worker<'_> {
    /// Runs one operation; returns how often the volume was full.
    fn step(&mut self, nth: u64) -> u64 {
        if nth.is_multiple_of(100) {
            self.mood = self.rng.below(4);
        }
        // For a while a thread prefers one kind of operation, so that it competes with the promises
        // of others.
        let kind = match (self.mood, self.rng.below(8)) {
            (0, 1..) => 8,
            (1, 1..) => 14,
            (2, 1..) => 70,
            _ => self.rng.below(100),
        };
        if kind < 8 || self.files.is_empty() {
            return self.create();
        }
        if kind < 12 {
            return self.mkdir();
        }
        let nth = self.rng.index(self.files.len());
        let key = *self.files.keys().nth(nth).unwrap();
        if kind < 14 {
            self.files.remove(&key);
            let name = format!("{}-{key}", self.name);
            let root = self.fs.root().unwrap();
            self.fs.unlink(&root, name.as_bytes()).unwrap();
            return 0;
        }
        let (file, model) = self.files.get_mut(&key).unwrap();
        let (fs, rng) = (self.fs, &mut self.rng);
        let from = rng.below(FILE_PAGES);
        let most = 1 << rng.below(8);
        let len = 1 + rng.below(most);
        let (at, bytes) = (from * PAGE as u64, len * PAGE as u64);
        match kind {
            // Separate pages, forwards or backwards.
            14..40 => {
                let stride = 1 + rng.below(4);
                let backwards = rng.below(2) == 0;
                let mut full = 0;
                for nth in 0..len.min(40) {
                    let nth = if backwards { len.min(40) - nth } else { nth };
                    self.salt += 1;
                    full += u64::from(!write(fs, file, model, self.salt, from + nth * stride, 1));
                }
                full
            }
            40..70 => {
                self.salt += 1;
                u64::from(!write(fs, file, model, self.salt, from, len))
            }
            70..76 => {
                self.salt += 1;
                let size = model.size;
                u64::from(!write(fs, file, model, self.salt, size, len))
            }
            76..84 => {
                let mode = FallocateMode::Allocate { keep_size: false };
                let result = fs.fallocate(file, mode, at, bytes);
                // Block maps have no unwritten blocks.
                if matches!(result, Err(Error::NotSupported)) {
                    return 0;
                }
                let done = fits(result);
                if done {
                    model.size = model.size.max(from + len);
                }
                u64::from(!done)
            }
            84..90 => {
                let done = fits(fs.fallocate(file, FallocateMode::PunchHole, at, bytes));
                // If it failed, the pages were dropped, and the blocks hold zeroes or old data.
                model.forget(from, from + len);
                if !done {
                    self.salt += 1;
                    return 1;
                }
                0
            }
            90..93 => {
                fs.truncate(file, at).unwrap();
                model.size = from;
                model.forget(from, u64::MAX);
                0
            }
            93..99 => {
                fs.fsync(file, any_sync(rng)).unwrap();
                0
            }
            _ => {
                fs.sync().unwrap();
                0
            }
        }
    }

    fn create(&mut self) -> u64 {
        if self.files.len() >= 40 {
            return 0;
        }
        let name = format!("{}-{}", self.name, self.next);
        let new = ext4::NewInode {
            mode: 0o100_644,
            ..Default::default()
        };
        let root = self.fs.root().unwrap();
        match self.fs.create(&root, name.as_bytes(), new) {
            Ok(file) => {
                self.files.insert(self.next, (file, Model::default()));
                self.next += 1;
                0
            }
            Err(Error::NoSpace) => 1,
            Err(error) => panic!("{error}"),
        }
    }

    fn mkdir(&mut self) -> u64 {
        self.next += 1;
        let name = format!("{}-dir-{}", self.name, self.next);
        let parent = match &self.dir {
            Some(dir) => dir.clone(),
            None => self.fs.root().unwrap(),
        };
        match mkdir(self.fs, &parent, &name) {
            Ok(dir) => {
                self.dir.get_or_insert(dir);
                0
            }
            Err(Error::NoSpace) => 1,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Writes `len` pages at page `from`; returns whether all were accepted.
fn write(fs: &Fs, file: &InodeRef, model: &mut Model, salt: u64, from: u64, len: u64) -> bool {
    let data: Vec<u8> = (from..from + len)
        .flat_map(|index| page(salt, index))
        .collect();
    let written = match fs.write(file, from * PAGE as u64, &data) {
        Ok(n) => n as u64 / PAGE as u64,
        Err(Error::NoSpace) => 0,
        Err(error) => panic!("{error}"),
    };
    for index in from..from + written {
        model.pages.insert(index, salt);
    }
    if written > 0 {
        model.size = model.size.max(from + written);
    }
    written == len
}

fn check(fs: &Fs, name: &str, model: &Model) {
    let file = open(fs, name);
    assert_eq!(file.size(), model.size * PAGE as u64, "{name}");
    let mut data = vec![0; PAGE];
    for index in 0..model.size {
        assert_eq!(
            fs.read(&file, index * PAGE as u64, &mut data).unwrap(),
            PAGE
        );
        let expected = match model.pages.get(&index) {
            Some(salt) => page(*salt, index),
            None => vec![0; PAGE],
        };
        assert!(data == expected, "page {index} of {name}");
    }
}

/// The volume of a seed, with 4 KiB blocks.
fn of_seed(kind: &str, seed: u64) -> Image {
    let mib = 16 + 16 * (seed % 3);
    println!("SLUICE_SEED={seed}: {kind}, {mib} MiB");
    Image::by_mke2fs(&Mke2fs::of_type(mib << 20, kind))
}

fn run(seed: u64, image: &Image) -> u64 {
    let is_busy = seed.is_multiple_of(2);
    let fs = image.mount_with(if is_busy { busy() } else { quiet() });
    let worker = |nth: u64| {
        let mut worker = Worker {
            fs: &fs,
            name: nth.to_string(),
            rng: Rng::from_seed(seed << 8 | nth),
            files: BTreeMap::new(),
            next: 0,
            salt: nth << 20,
            dir: None,
            mood: 0,
        };
        let full: u64 = (0..800).map(|nth| worker.step(nth)).sum();
        (worker.name, worker.files, full)
    };
    let worker = &worker;
    let done: Vec<_> = sync::thread::scope(|scope| {
        let workers: Vec<_> = (0..4).map(|nth| scope.spawn(move || worker(nth))).collect();
        workers.into_iter().map(|w| w.join().unwrap()).collect()
    });
    let full = done.iter().map(|(_, _, full)| full).sum();
    let mut models = Vec::new();
    let mut targets = Vec::new();
    for (name, files, _) in done {
        for (key, (file, model)) in files {
            targets.push(SyncTarget {
                inode: file,
                kind: SyncKind::Fsync,
            });
            models.push((format!("{name}-{key}"), model));
        }
    }
    for (result, (name, _)) in fs.fsync_many(&targets).into_iter().zip(&models) {
        result.unwrap_or_else(|error| panic!("seed {seed}: fsync of {name}: {error}"));
    }
    drop(targets);
    fs.sync().unwrap();
    let promised = fs.statfs();
    fs.drop_caches();
    image.unmount(fs);
    let fs: Arc<Fs> = image.mount_with(quiet());
    assert_eq!(
        fs.statfs(),
        promised,
        "seed {seed}: a promise was left over"
    );
    models
        .iter()
        .for_each(|(name, model)| check(&fs, name, model));
    image.unmount(fs);
    full
}

#[test]
fn nothing_that_was_acknowledged_is_lost_on_a_full_volume() {
    for kind in ["ext4", "ext3", "ext2"] {
        let mut full = 0;
        for seed in seeds(1..=8) {
            full += run(seed, &of_seed(kind, seed));
        }
        assert!(full > 0, "no {kind} volume was full");
    }
}
