//! Two threads at one file, many times over. The schedules in `testing/schedules` explore the same
//! races one step at a time; these run at full speed, on real threads.

use crate::extents::{self, Map};
use crate::test_volume::{self, create};
use crate::{Error, FallocateMode, Fs, InodeRef, MountOptions, SeekWhence, SyncKind};
use block::devices::MemoryDevice;
use block::{BufMut, Class, Durability, Op, PAGE_SIZE, Queue, Reason};
use ext4_format::inode::InodeFlags;
use mkfs::MkfsOptions;
use std::sync::Arc;
use std::time::Duration;
use sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use testkit::disk::Disk;
use units::FileBlock;

const PAGE: u64 = PAGE_SIZE as u64;
/// Rounds of a race. A race window of a microsecond is met about once in some thousand rounds.
const ROUNDS: usize = 10_000;

fn mount(queue: Arc<Queue>) -> Arc<Fs> {
    mkfs::format(&queue, &MkfsOptions::default()).unwrap();
    test_volume::mount(queue)
}

fn in_memory() -> Arc<Fs> {
    mount(Queue::new(Box::new(MemoryDevice::new(64 << 20))))
}

/// Runs `first` and `second` side by side, as often as it says; `before` and `after` run alone in
/// each round. Both threads spin, so that they start within a microsecond, and `second` starts a
/// little later in each round.
fn race(
    rounds: usize,
    before: impl Fn(usize) + Sync,
    first: impl Fn() + Sync,
    second: impl Fn() + Sync,
    after: impl Fn(usize) + Sync,
) {
    let step = AtomicUsize::new(0);
    /// Lets the other thread end where this one panics.
    struct End<'a>(&'a AtomicUsize);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(usize::MAX / 2, Ordering::Release);
        }
    }
    let wait_for = |wanted| {
        while step.load(Ordering::Acquire) < wanted {
            for _ in 0..100 {
                std::hint::spin_loop();
            }
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _end = End(&step);
            for round in 0..rounds {
                wait_for(2 * round + 1);
                for _ in 0..round % 997 {
                    std::hint::spin_loop();
                }
                second();
                step.fetch_add(1, Ordering::AcqRel);
            }
        });
        let _end = End(&step);
        for round in 0..rounds {
            before(round);
            step.fetch_add(1, Ordering::AcqRel);
            first();
            wait_for(2 * round + 2);
            after(round);
        }
    });
}

/// A write stores its pages one by one, and then the size. A crash must not find blocks behind the
/// end ([`crate::Inode::recorded`] asserts that).
#[test]
fn pages_behind_the_end_wait_for_the_size() {
    let fs = in_memory();
    let file = create(&fs, "f");
    let end = AtomicU64::new(0);
    race(
        ROUNDS / 4,
        |round| {
            let size = (round % 5000) as u64;
            fs.truncate(&file, size).unwrap();
            // A dirty page, so that the fsync has something to write.
            fs.write(&file, 0, &[1]).unwrap();
            end.store(size.max(1) + 300 * PAGE, Ordering::Release);
        },
        || {
            fs.append(&file, &[2; 300 * PAGE_SIZE]).unwrap();
        },
        || fs.fsync(&file, SyncKind::Fdatasync).unwrap(),
        |_| {
            fs.fsync(&file, SyncKind::Fdatasync).unwrap();
            let end = end.load(Ordering::Acquire);
            assert_eq!(sizes(&file), (end, end));
            assert!(!file.has_unlanded());
        },
    );
    fs.unmount().unwrap();
}

fn sizes(file: &InodeRef) -> (u64, u64) {
    let meta = file.meta.lock();
    (meta.size, meta.fields.size)
}

#[test]
fn an_fsync_waits_for_pages_that_another_has_gathered() {
    let fs = in_memory();
    let file = create(&fs, "file");
    let early = AtomicU64::new(0);
    let fsync = || {
        fs.fsync(&file, SyncKind::Fdatasync).unwrap();
        // Nothing is written beside the two, so after either of them nothing may be left.
        early.fetch_add(u64::from(file.has_unlanded()), Ordering::Relaxed);
    };
    let write = |_| {
        fs.write(&file, 0, &[7; PAGE_SIZE]).unwrap();
    };
    race(2 * ROUNDS, write, fsync, fsync, |_| ());
    assert_eq!(early.into_inner(), 0, "fsyncs returned before the data");
    drop(file);
    fs.unmount().unwrap();
}

/// The size on disk after `change` beside an fsync of the same file is the one that users see.
fn size_follows(change: impl Fn(&Fs, &InodeRef) + Sync) {
    let fs = in_memory();
    let root = fs.root().unwrap();
    let slot = std::sync::Mutex::new(create(&fs, "first"));
    let file = || slot.lock().unwrap().clone();
    let before = |round| {
        let new = create(&fs, &format!("{round}"));
        fs.write(&new, 0, &[7; PAGE_SIZE]).unwrap();
        *slot.lock().unwrap() = new;
    };
    let after = |round| {
        fs.fsync(&file(), SyncKind::Fsync).unwrap();
        let (size, on_disk) = sizes(&file());
        assert_eq!(on_disk, size, "round {round}");
        fs.unlink(&root, format!("{round}").as_bytes()).unwrap();
    };
    let fsync = || fs.fsync(&file(), SyncKind::Fsync).unwrap();
    race(ROUNDS, before, fsync, || change(&fs, &file()), after);
    drop((slot, root));
    fs.unmount().unwrap();
}

#[test]
fn the_size_follows_set_len_beside_fsync() {
    size_follows(|fs, file| fs.truncate(file, 1 << 20).unwrap());
}

#[test]
fn the_size_follows_an_append_beside_fsync() {
    size_follows(|fs, file| {
        fs.append(file, &[8; 100]).unwrap();
    });
}

#[test]
fn the_size_follows_fallocate_beside_fsync() {
    size_follows(|fs, file| {
        let mode = FallocateMode::Allocate { keep_size: false };
        fs.fallocate(file, mode, 0, 3 * PAGE).unwrap();
    });
}

#[test]
fn the_size_follows_when_the_last_dirty_page_is_punched_out() {
    let fs = in_memory();
    let file = create(&fs, "file");
    fs.write(&file, 0, &[7; PAGE_SIZE]).unwrap();
    fs.write(&file, 5 * PAGE, &[7; PAGE_SIZE]).unwrap();
    fs.truncate(&file, 9 * PAGE).unwrap();
    fs.fallocate(&file, FallocateMode::PunchHole, 0, 8 * PAGE)
        .unwrap();
    assert_eq!(sizes(&file), (9 * PAGE, 9 * PAGE));
    drop(file);
    fs.unmount().unwrap();
}

/// A size that was set beyond the pages of a file is durable after a sync, though another thread
/// has dirtied a page since.
#[test]
fn a_sync_beside_a_writer_covers_a_size_that_was_set() {
    let (fs, closed) = gated();
    let file = create(&fs, "file");
    fs.write(&file, 0, &[7; PAGE_SIZE]).unwrap();
    fs.truncate(&file, 1 << 20).unwrap();
    closed.store(true, Ordering::Release);
    std::thread::scope(|scope| {
        let syncing = scope.spawn(|| fs.sync().unwrap());
        // The first page is on its way: a page that is dirtied now is not part of the sync.
        let began = std::time::Instant::now();
        while file.mapping.writeback_pages() == 0 && began.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
        fs.write(&file, 9 * PAGE, &[8; PAGE_SIZE]).unwrap();
        closed.store(false, Ordering::Release);
        syncing.join().unwrap();
    });
    assert_eq!(sizes(&file), (1 << 20, 1 << 20));
    drop(file);
    fs.unmount().unwrap();
}

/// Nothing of a file system that is being dropped can reach the journal: a commit then would name
/// inodes that are not there.
#[test]
fn a_volume_that_is_dropped_without_unmount_is_as_after_a_crash() {
    let queue = Queue::new(Box::new(MemoryDevice::new(64 << 20)));
    let fs = mount(queue.clone());
    let durable = create(&fs, "durable");
    fs.write(&durable, 0, &[7; PAGE_SIZE]).unwrap();
    fs.fsync(&durable, SyncKind::Fsync).unwrap();
    let lost = create(&fs, "lost");
    drop((durable, lost, fs));
    let fs = Fs::mount(queue, MountOptions::default()).unwrap();
    assert!(fs.info().recovery.transactions > 0);
    let root = fs.root().unwrap();
    assert_eq!(fs.lookup(&root, b"durable").unwrap().size(), PAGE);
    let lost = fs.lookup(&root, b"lost").map(drop);
    assert!(matches!(lost, Err(Error::NotFound)), "{lost:?}");
    drop(root);
    fs.unmount().unwrap();
}

#[test]
fn data_is_no_hole_while_it_lands() {
    let fs = in_memory();
    let file = create(&fs, "file");
    let holes = AtomicU64::new(0);
    let before = |_| {
        fs.truncate(&file, 0).unwrap();
        fs.write(&file, 0, &[7; PAGE_SIZE]).unwrap();
    };
    let fsync = || fs.fsync(&file, SyncKind::Fdatasync).unwrap();
    let seek = || match fs.seek(&file, 0, SeekWhence::Data) {
        Ok(0) => {}
        Ok(_) | Err(Error::NoData) => _ = holes.fetch_add(1, Ordering::Relaxed),
        Err(error) => panic!("{error}"),
    };
    race(2 * ROUNDS, before, fsync, seek, |_| ());
    assert_eq!(holes.into_inner(), 0);
    drop(file);
    fs.unmount().unwrap();
}

/// A volume whose data writes wait while the gate is closed.
fn gated() -> (Arc<Fs>, Arc<AtomicBool>) {
    let closed = Arc::new(AtomicBool::new(false));
    let gate = closed.clone();
    let disk = Disk::new(64 << 20);
    disk.inject(move |op, _, _, _| {
        while op == Op::Write && gate.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    });
    (mount(disk.queue()), closed)
}

/// A timed commit after a file was emptied and rewritten waits until the new
/// contents have landed.
fn commit_waits(begin: impl FnOnce(&Arc<Fs>, &InodeRef) + Send) {
    let (fs, closed) = gated();
    let file = create(&fs, "file");
    fs.write(&file, 0, b"old").unwrap();
    fs.fsync(&file, SyncKind::Fsync).unwrap();
    fs.truncate(&file, 0).unwrap();
    fs.write(&file, 0, b"new").unwrap();
    closed.store(true, Ordering::Release);
    std::thread::scope(|scope| {
        scope.spawn(|| begin(&fs, &file));
        std::thread::sleep(Duration::from_millis(100));
        let commit = scope.spawn(|| fs.write_truncated_files());
        std::thread::sleep(Duration::from_millis(100));
        let waits = !commit.is_finished();
        closed.store(false, Ordering::Release);
        commit.join().unwrap();
        assert!(waits, "the truncation would be durable without the data");
    });
    assert!(!file.has_unlanded());
    drop(file);
    fs.unmount().unwrap();
}

#[test]
fn contents_under_writeback_land_before_the_truncation_is_committed() {
    commit_waits(|fs, file| fs.write_back(file).unwrap());
}

#[test]
fn contents_of_a_closed_file_land_before_the_truncation_is_committed() {
    commit_waits(|fs, file| fs.release(file));
}

/// Block 0 of the file as it is on the device.
fn on_device(fs: &Fs, file: &InodeRef) -> Vec<u8> {
    let Map::Mapped { start, .. } = extents::lookup(fs, file, FileBlock(0)).unwrap() else {
        panic!("it has a block");
    };
    let read = fs.queue.read(
        start.0 * PAGE,
        PAGE_SIZE,
        PAGE_SIZE,
        Class::Data,
        Reason::Other,
    );
    read.unwrap()[0].to_vec()
}

#[test]
fn a_truncation_is_durable_with_the_zeroes_behind_the_end() {
    let queue = Queue::new(Box::new(MemoryDevice::new(64 << 20)));
    let fs = mount(queue.clone());
    let file = create(&fs, "file");
    fs.write(&file, 0, &[7; PAGE_SIZE]).unwrap();
    fs.fsync(&file, SyncKind::Fsync).unwrap();
    fs.journal.flush().unwrap();
    assert_eq!(on_device(&fs, &file), [7; PAGE_SIZE]);
    fs.truncate(&file, 100).unwrap();
    fs.commit_all().unwrap();
    fs.crash();
    drop((file, fs));
    let fs = Fs::mount(queue, MountOptions::default()).unwrap();
    let file = fs.lookup(&fs.root().unwrap(), b"file").unwrap();
    assert_eq!(file.size(), 100);
    assert_eq!(on_device(&fs, &file)[90..110], [[7; 10], [0; 10]].concat());
    drop(file);
    fs.unmount().unwrap();
}

#[test]
fn bytes_that_another_system_left_behind_the_end_are_zeroed_before_the_file_grows() {
    let queue = Queue::new(Box::new(MemoryDevice::new(64 << 20)));
    let fs = mount(queue.clone());
    let file = create(&fs, "file");
    fs.write(&file, 0, &[7; 100]).unwrap();
    fs.sync().unwrap();
    fs.journal.flush().unwrap();
    let mut stale = on_device(&fs, &file);
    stale[100..].fill(9);
    let Map::Mapped { start, .. } = extents::lookup(&fs, &file, FileBlock(0)).unwrap() else {
        panic!("it has a block");
    };
    let stale = BufMut::copy_of(&stale).freeze();
    queue
        .write(
            start.0 * PAGE,
            &[stale],
            Class::Data,
            Reason::Other,
            Durability::Fua,
        )
        .unwrap();
    fs.invalidate(&file);
    // The last byte of the second page is recorded without the first page.
    fs.write(&file, 2 * PAGE - 1, &[1]).unwrap();
    fs.commit_all().unwrap();
    fs.crash();
    drop((file, fs));
    let fs = Fs::mount(queue, MountOptions::default()).unwrap();
    let file = fs.lookup(&fs.root().unwrap(), b"file").unwrap();
    assert_eq!(on_device(&fs, &file)[90..110], [[7; 10], [0; 10]].concat());
    drop(file);
    fs.unmount().unwrap();
}

/// The kernel journals the data of such files. Freed blocks of them are neither read from the log
/// nor replayed.
#[test]
fn freed_blocks_of_a_file_that_is_marked_for_journaling_are_revoked() {
    let queue = Queue::new(Box::new(MemoryDevice::new(64 << 20)));
    let fs = mount(queue.clone());
    let file = create(&fs, "file");
    fs.write(&file, 0, &[1; 3 * PAGE_SIZE]).unwrap();
    fs.fsync(&file, SyncKind::Fsync).unwrap();
    file.meta.lock().fields.flags |= InodeFlags::JOURNAL_DATA;
    fs.truncate(&file, 0).unwrap();
    fs.sync().unwrap();
    let heir = create(&fs, "heir");
    let data = vec![2; 100 * PAGE_SIZE];
    fs.write(&heir, 0, &data).unwrap();
    fs.fsync(&heir, SyncKind::Fsync).unwrap();
    fs.crash();
    drop((file, heir, fs));
    let fs = Fs::mount(queue, MountOptions::default()).unwrap();
    let heir = fs.lookup(&fs.root().unwrap(), b"heir").unwrap();
    let mut found = vec![0; data.len()];
    fs.read(&heir, 0, &mut found).unwrap();
    assert!(found == data);
    drop(heir);
    fs.unmount().unwrap();
}
