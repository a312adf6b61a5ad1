//! A volume in memory on a device that can be told to fail, and what its requests amount to.

use block::devices::{FaultyDevice, MemoryDevice};
use block::{Device, IoError, Op, Queue, Request, StatsSnapshot};
use ext4::{AsyncCommit, Fs, InodeRef, MkfsOptions, MountOptions, NewInode, SyncTarget, mkfs};
use std::sync::Arc;
use sync::Mutex;
use writeback::Tunables;

/// Decides over a request: operation, offset, length.
type Verdict = Box<dyn FnMut(Op, u64, u64) -> Option<i32> + Send>;

/// Memory that outlives the queues on it.
struct Shared(Arc<MemoryDevice>);

impl Device for Shared {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn capacity(&self) -> u64 {
        self.0.capacity()
    }
    fn read_only(&self) -> bool {
        false
    }
    fn submit(&self, batch: Vec<Request>) {
        self.0.submit(batch);
    }
    fn execute(&self, request: Request) {
        self.0.execute(request);
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), IoError> {
        self.0.discard(offset, len)
    }
    fn write_zeroes(&self, offset: u64, len: u64) -> Result<bool, IoError> {
        self.0.write_zeroes(offset, len)
    }
}

/// A formatted device.
pub struct Disk {
    memory: Arc<MemoryDevice>,
    verdict: Arc<Mutex<Option<Verdict>>>,
    /// How it is mounted.
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
    fn of(bytes: u64) -> Disk {
        let disk = Disk {
            memory: Arc::new(MemoryDevice::new(bytes)),
            verdict: Arc::default(),
            async_commit: AsyncCommit::Never,
        };
        mkfs(&disk.queue(), &MkfsOptions::default()).unwrap();
        disk
    }
    fn queue(&self) -> Arc<Queue> {
        let verdict = self.verdict.clone();
        let shared = Box::new(Shared(self.memory.clone()));
        Queue::new(Box::new(FaultyDevice::new(
            shared,
            move |op, offset, len| verdict.lock().as_mut().and_then(|v| v(op, offset, len)),
        )))
    }
    pub fn mount(&self) -> Arc<Fs> {
        self.mount_with(|_| ())
    }
    pub fn mount_with(&self, change: impl FnOnce(&mut MountOptions)) -> Arc<Fs> {
        // Nothing is to be written but by who asks for it.
        let never = std::time::Duration::from_secs(3600);
        let mut options = MountOptions {
            commit_interval: never,
            async_commit: self.async_commit,
            tunables: Tunables {
                dirty_expire: never,
                dirty_writeback: never,
                ..Default::default()
            },
            ..MountOptions::default()
        };
        change(&mut options);
        Fs::mount(self.queue(), options).unwrap()
    }
    pub fn mount_read_only(&self) -> Arc<Fs> {
        let options = MountOptions {
            read_only: true,
            ..MountOptions::default()
        };
        Fs::mount(self.queue(), options).unwrap()
    }
    /// From now on requests are asked about.
    pub fn inject(&self, verdict: impl FnMut(Op, u64, u64) -> Option<i32> + Send + 'static) {
        *self.verdict.lock() = Some(Box::new(verdict));
    }
    pub fn heal(&self) {
        *self.verdict.lock() = None;
    }
    /// Throws away what was not written, and mounts what is there.
    pub fn crash(&self, fs: Arc<Fs>) -> Arc<Fs> {
        fs.crash();
        drop(fs);
        self.mount()
    }
}

/// What happened between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    pub writes: u64,
    pub flushes: u64,
    pub commits: u64,
}

/// What an fsync costs whose data goes through the log.
pub fn through_the_log(disk: &Disk) -> Cost {
    match disk.async_commit {
        // All of it at once.
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

/// What `work` costs.
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
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    fs.create(dir, name.as_bytes(), new).unwrap()
}

pub fn mkdir(fs: &Fs, dir: &InodeRef, name: &str) -> InodeRef {
    let new = NewInode {
        mode: 0o755,
        ..NewInode::default()
    };
    fs.mkdir(dir, name.as_bytes(), new).unwrap()
}

/// Creates a file in the root with `data`.
pub fn put(fs: &Fs, name: &str, data: &[u8]) -> InodeRef {
    let file = create(fs, &fs.root().unwrap(), name);
    write(fs, &file, 0, data);
    file
}

pub fn write(fs: &Fs, file: &InodeRef, offset: u64, data: &[u8]) {
    assert_eq!(fs.write(file, offset, data).unwrap(), data.len());
}

/// The contents under a name in the root.
pub fn get(fs: &Fs, name: &str) -> Vec<u8> {
    let file = fs.lookup(&fs.root().unwrap(), name.as_bytes()).unwrap();
    contents(fs, &file)
}

pub fn contents(fs: &Fs, file: &InodeRef) -> Vec<u8> {
    let mut data = vec![0; file.attr().size as usize];
    assert_eq!(fs.read(file, 0, &mut data).unwrap(), data.len());
    data
}

pub fn all(files: &[InodeRef]) -> Vec<SyncTarget> {
    let target = |inode: &InodeRef| SyncTarget {
        inode: inode.clone(),
        data_only: false,
    };
    files.iter().map(target).collect()
}
