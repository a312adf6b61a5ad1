//! Scans beside threads that create, rename, unlink and change inodes, with commits, checkpoints
//! and reclaim.

use block::{Class, Op};
use ext4::{Attr, Error, Fs, NewInode, Scanned, SetAttr, SetTime, Timestamp};
use mkfs::MkfsOptions;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use testkit::disk::Disk;
use testkit::seed::Rng;
use testkit::volume::{busy, mkdir_all, new};
use testkit::watchdog::Watchdog;
use units::Ino;

/// Files that exist all the time.
const KEPT: usize = 2000;
/// Owners from this number on are those of files that come and go.
const PASSING: u32 = 1 << 20;
const DIRS: usize = 3;

/// A file that exists all the time. Its owner, group and time of change are its version.
struct Kept {
    ino: Ino,
    /// The last version whose change has begun.
    begun: AtomicU32,
    /// The last version whose change has returned.
    done: AtomicU32,
}

struct Rig {
    fs: std::sync::Arc<Fs>,
    kept: Vec<Kept>,
    over: AtomicBool,
}

fn rig() -> Rig {
    let disk = Disk::new(96 << 20);
    let format = MkfsOptions {
        inodes: Some(16_384),
        journal_bytes: Some(4 << 20),
        ..MkfsOptions::default()
    };
    mkfs::format(&disk.queue(), &format).unwrap();
    // Large reads of metadata are those of a scan. Others get time to change what it reads.
    disk.inject(|op, class, _, len| {
        if (op, class) == (Op::Read, Class::Metadata) && len > 4096 {
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    });
    let mut options = busy();
    options.memory = 8 << 20;
    let fs = Fs::mount(disk.queue(), options).unwrap();
    for dir in 0..DIRS {
        mkdir_all(&fs, &format!("passing{dir}")).unwrap();
    }
    let mut kept = Vec::new();
    for dir in 0..10 {
        let dir = mkdir_all(&fs, &format!("kept{dir}")).unwrap();
        for file in 0..KEPT / 10 {
            let name = format!("f{file}");
            let file = fs.create(&dir, name.as_bytes(), new(0o100_644)).unwrap();
            set_version(&fs, file.ino(), 1).unwrap();
            kept.push(Kept {
                ino: file.ino(),
                begun: AtomicU32::new(1),
                done: AtomicU32::new(1),
            });
        }
    }
    Rig {
        fs,
        kept,
        over: AtomicBool::new(false),
    }
}

fn set_version(fs: &Fs, ino: Ino, version: u32) -> ext4::Result<()> {
    let set = SetAttr {
        uid: Some(version),
        gid: Some(version),
        mtime: Some(SetTime::At(Timestamp {
            secs: version.into(),
            nanos: 0,
        })),
        ..SetAttr::default()
    };
    fs.set_attr(&fs.inode(ino)?, &set)?;
    Ok(())
}

impl Rig {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Changes half of the kept files: a file has one thread that changes it.
    fn change(&self, rng: &mut Rng, half: usize) {
        while !self.is_over() {
            // Runs of neighbours, so that most table blocks are not in memory.
            let first = rng.index(KEPT / 2 - 10) * 2 + half;
            for kept in self.kept[first..].iter().step_by(2).take(10) {
                let version = kept.begun.load(Ordering::SeqCst) + 1;
                kept.begun.store(version, Ordering::SeqCst);
                set_version(&self.fs, kept.ino, version).unwrap();
                kept.done.store(version, Ordering::SeqCst);
            }
        }
    }

    /// Creates, renames and unlinks files whose owner and group are equal.
    fn come_and_go(&self, rng: &mut Rng, thread: u32) -> ext4::Result<()> {
        let mut count = 0;
        while !self.is_over() {
            let from = self.fs.lookup(&self.fs.root()?, dir(rng).as_bytes())?;
            let to = self.fs.lookup(&self.fs.root()?, dir(rng).as_bytes())?;
            let name = format!("{thread}-{}", rng.index(60));
            count += 1;
            let owner = PASSING + thread * 10_000_000 + count;
            let new = NewInode {
                uid: owner,
                gid: owner,
                ..new(0o100_644)
            };
            let result = match rng.index(4) {
                0 | 1 => self.fs.create(&from, name.as_bytes(), new).map(|_| ()),
                2 => self.fs.unlink(&from, name.as_bytes()),
                _ => {
                    let (name, flags) = (name.as_bytes(), ext4::RenameFlags::Replace);
                    self.fs.rename(&from, name, &to, name, flags)
                }
            };
            match result {
                Ok(()) | Err(Error::NotFound | Error::Exists) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn check_passing(&self, attr: &Attr) {
        if attr.uid >= PASSING {
            assert_eq!(attr.uid, attr.gid, "a mix of two inodes");
            assert!(attr.nlink == 1, "{} links", attr.nlink);
        }
    }

    fn scan(&self, index: &HashMap<Ino, usize>) {
        let done = |kept: &Kept| kept.done.load(Ordering::SeqCst);
        let least: Vec<u32> = self.kept.iter().map(done).collect();
        let seen = Mutex::new(HashSet::new());
        self.fs.scan_inodes(&|scanned| {
            let attr = match scanned {
                Scanned::Inode(attr) => attr,
                Scanned::Unreadable { first, error, .. } => panic!("inode {first}: {error}"),
            };
            assert!(seen.lock().unwrap().insert(attr.ino), "visited twice");
            self.check_passing(&attr);
            if let Some(&at) = index.get(&attr.ino) {
                let most = self.kept[at].begun.load(Ordering::SeqCst);
                let range = least[at]..=most;
                let ino = attr.ino;
                assert!(
                    range.contains(&attr.uid),
                    "inode {ino}: {} of {range:?}",
                    attr.uid
                );
                let versions = (attr.gid, attr.mtime.secs);
                assert_eq!(versions, (attr.uid, attr.uid.into()), "inode {ino}: a mix");
            }
            ControlFlow::Continue(())
        });
        let seen = seen.into_inner().unwrap();
        let missing: Vec<_> = index.keys().filter(|ino| !seen.contains(ino)).collect();
        assert!(missing.is_empty(), "not visited: {missing:?}");
    }
}

fn dir(rng: &mut Rng) -> String {
    format!("passing{}", rng.index(DIRS))
}

/// Ends the threads, also after a failed assertion.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn each_kept_inode_is_visited_once_with_attributes_that_it_had() {
    let mut rng = Rng::new("bulkstat, beside changes");
    let _watchdog = Watchdog::new("bulkstat, beside changes", Duration::from_secs(400));
    let rig = &rig();
    let index: HashMap<Ino, usize> = rig.kept.iter().map(|k| k.ino).zip(0..).collect();
    std::thread::scope(|scope| {
        let _end = End(&rig.over);
        for half in 0..2 {
            let mut rng = rng.fork();
            scope.spawn(move || {
                let _end = End(&rig.over);
                rig.change(&mut rng, half);
            });
        }
        for thread in 0..2 {
            let mut rng = rng.fork();
            scope.spawn(move || {
                let _end = End(&rig.over);
                rig.come_and_go(&mut rng, thread).unwrap();
            });
        }
        scope.spawn(move || {
            let _end = End(&rig.over);
            while !rig.is_over() {
                rig.fs.sync().unwrap();
                rig.fs.drop_caches();
                // A reader fills the cache again, so that inodes and buffers also come and go.
                for kept in rig.kept.iter().step_by(97) {
                    rig.fs.inode(kept.ino).unwrap();
                }
            }
        });
        for _ in 0..testkit::rounds(400, 10_000) {
            rig.scan(&index);
            assert!(!rig.is_over(), "a thread has failed");
        }
    });
    let stats = rig.fs.stats().journal;
    eprintln!("{stats:?}");
    assert!(stats.commits > 0 && stats.checkpointed_blocks > 0);
    rig.fs.unmount().unwrap();
}
