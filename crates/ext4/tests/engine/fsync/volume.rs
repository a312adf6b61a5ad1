//! A volume in memory, and the requests that an operation costs.

use block::{Op, StatsSnapshot};
use ext4::{AsyncCommit, Fs, InodeRef, MountOptions, SyncKind, SyncTarget};
use mkfs::MkfsOptions;
use std::sync::Arc;
use sync::Mutex;
use testkit::volume::{self, quiet};

/// A formatted device.
pub struct Disk {
    memory: testkit::disk::Disk,
    /// The option of all mounts.
    pub async_commit: AsyncCommit,
}

impl Disk {
    pub fn new() -> Disk {
        Disk::of(256 << 20)
    }
    pub fn small() -> Disk {
        Disk::of(32 << 20)
    }
    pub fn with_async_commit(mut self, async_commit: AsyncCommit) -> Disk {
        self.async_commit = async_commit;
        self
    }
    fn of(bytes: usize) -> Disk {
        let memory = testkit::disk::Disk::new(bytes);
        mkfs::format(&memory.queue(), &MkfsOptions::default()).unwrap();
        Disk {
            memory,
            async_commit: AsyncCommit::Never,
        }
    }
    pub fn mount(&self) -> Arc<Fs> {
        self.mount_with(|_| ())
    }
    pub fn mount_with(&self, change: impl FnOnce(&mut MountOptions)) -> Arc<Fs> {
        let mut options = MountOptions {
            async_commit: self.async_commit,
            ..quiet()
        };
        change(&mut options);
        Fs::mount(self.memory.queue(), options).unwrap()
    }
    pub fn mount_read_only(&self) -> Arc<Fs> {
        self.mount_with(|options| options.read_only = true)
    }
    /// Calls `verdict` with operation, offset and length of each request. `Some(errno)` fails it.
    pub fn inject(&self, verdict: impl FnMut(Op, u64, u64) -> Option<i32> + Send + 'static) {
        let verdict = Mutex::new(verdict);
        self.memory
            .inject(move |op, _, offset, len| verdict.lock()(op, offset, len));
    }
    pub fn heal(&self) {
        self.memory.heal();
    }
    /// Drops what was not written, and mounts the volume again.
    pub fn crash(&self, fs: Arc<Fs>) -> Arc<Fs> {
        fs.crash();
        drop(fs);
        self.mount()
    }
}

/// The requests and commits of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    pub writes: u64,
    pub flushes: u64,
    pub commits: u64,
}

/// The cost of an fsync whose data goes through the log.
pub fn through_the_log(disk: &Disk) -> Cost {
    match disk.async_commit {
        // Log blocks and commit block together.
        AsyncCommit::Always => Cost {
            writes: 1,
            flushes: 0,
            commits: 1,
        },
        // The log, a flush, the commit block.
        _ => Cost {
            writes: 2,
            flushes: 1,
            commits: 1,
        },
    }
}

/// Calls `work`; returns its cost and its result.
pub fn cost<T>(fs: &Fs, work: impl FnOnce() -> T) -> (Cost, T) {
    let look = || (fs.stats().device, fs.stats().journal.commits);
    let (device, commits) = look();
    let result = work();
    let (device_now, commits_now) = look();
    let delta: StatsSnapshot = device_now - device;
    let cost = Cost {
        writes: delta.write_ios,
        flushes: delta.flushes,
        commits: commits_now - commits,
    };
    (cost, result)
}

pub fn create(fs: &Fs, dir: &InodeRef, name: &str) -> InodeRef {
    volume::touch(fs, dir, name).unwrap()
}

pub fn mkdir(fs: &Fs, dir: &InodeRef, name: &str) -> InodeRef {
    volume::mkdir(fs, dir, name).unwrap()
}

/// Creates a file in the root with `data`.
pub fn put(fs: &Fs, name: &str, data: &[u8]) -> InodeRef {
    let file = create(fs, &fs.root().unwrap(), name);
    write(fs, &file, 0, data);
    file
}

pub fn write(fs: &Fs, file: &InodeRef, offset: u64, data: &[u8]) {
    volume::write_all(fs, file, offset, data).unwrap();
}

pub fn get(fs: &Fs, path: &str) -> Vec<u8> {
    volume::get(fs, path).unwrap()
}

pub fn contents(fs: &Fs, file: &InodeRef) -> Vec<u8> {
    let data = volume::contents(fs, file).unwrap();
    assert_eq!(data.len() as u64, file.size());
    data
}

/// A full fsync of each file.
pub fn all(files: &[InodeRef]) -> Vec<SyncTarget> {
    let target = |inode: &InodeRef| SyncTarget {
        inode: inode.clone(),
        kind: SyncKind::Fsync,
    };
    files.iter().map(target).collect()
}
