//! Durability through the kernel: concurrent fsyncs, and syncs of a mount.

mod common;

use block::devices::{IoEngine, UringDevice};
use block::{Bio, BufMut, Class, Completion, Durability, OpenMode, Queue, Reason};
use common::{Image, can_mount, ring, run};
use fuse::SyncScope;
use io_uring::{opcode, types};
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;

#[test]
fn fsyncs_of_one_thread_are_answered_together() {
    if !can_mount() {
        return;
    }
    const FILES: usize = 200;
    let mounted = Image::new(256).mount("");
    let files: Vec<File> = (0..FILES)
        .map(|i| {
            let mut file = File::create(mounted.dir().join(i.to_string())).unwrap();
            file.write_all(&[i as u8; 4096]).unwrap();
            file
        })
        .collect();
    let before = mounted.fs().stats().journal.commits;
    let Some(mut ring) = ring(256) else {
        return;
    };
    // The kernel's default of four for each processor limits the number of fsyncs in flight.
    ring.submitter()
        .register_iowq_max_workers(&mut [64, 64])
        .unwrap();
    for file in &files {
        let fsync = opcode::Fsync::new(types::Fd(file.as_raw_fd())).build();
        // SAFETY: the entry has no buffer, and the files outlive the ring.
        unsafe { ring.submission().push(&fsync) }.unwrap();
    }
    ring.submit_and_wait(FILES).unwrap();
    let results: Vec<i32> = ring.completion().map(|entry| entry.result()).collect();
    assert_eq!(results, [0; FILES]);
    let commits = mounted.fs().stats().journal.commits - before;
    eprintln!("{commits} commits");
    assert!(commits <= FILES as u64 / 2, "{commits} commits");
    assert_eq!(mounted.fs().stats().dirty_pages, 0);
    drop(files);
    mounted.unmount().check();
}

/// An aligned buffer.
#[repr(align(4096))]
struct Block([u8; 4096]);

/// The kernel sends no FSYNC after such a write.
#[test]
fn synchronous_direct_writes_of_io_uring_are_durable() {
    if !can_mount() {
        return;
    }
    let mounted = Image::new(64).mount("");
    let path = mounted.dir().join("f");
    fs::write(&path, [0; 1 << 16]).unwrap();
    let Some(mut ring) = ring(4) else {
        return;
    };
    let block = Block([1; 4096]);
    for (open_flags, write_flags) in [(0, libc::RWF_DSYNC), (libc::O_DSYNC, 0), (libc::O_SYNC, 0)] {
        let mut options = File::options();
        let file = options
            .write(true)
            .custom_flags(libc::O_DIRECT | open_flags);
        let file = file.open(&path).unwrap();
        file.sync_all().unwrap();
        for at in [0, 8192] {
            let fd = types::Fd(file.as_raw_fd());
            let write = opcode::Write::new(fd, block.0.as_ptr(), 4096)
                .offset(at)
                .rw_flags(write_flags)
                .build();
            // SAFETY: the buffer and the file outlive the request, which is waited for.
            unsafe { ring.submission().push(&write) }.unwrap();
            ring.submit_and_wait(1).unwrap();
            assert_eq!(ring.completion().next().unwrap().result(), 4096);
            let dirty = mounted.fs().stats().dirty_pages;
            assert_eq!(
                dirty, 0,
                "open flags {open_flags:#o}, write flags {write_flags}"
            );
        }
    }
    mounted.unmount().check();
}

/// A device in a file on FUSE flushes after a durable write: the server there may ignore its flag.
#[test]
fn durable_writes_to_an_image_on_fuse_are_followed_by_fsync() {
    if !can_mount() {
        return;
    }
    let mounted = Image::new(64).mount("");
    let path = mounted.dir().join("f");
    fs::write(&path, [0; 1 << 16]).unwrap();
    let fsyncs = || mounted.requests("fsync");
    for engine in [IoEngine::Auto, IoEngine::Threads] {
        let device = UringDevice::open_with(&path, OpenMode::ReadWrite, engine).unwrap();
        let queue = Queue::new(Box::new(device));
        for (durability, expected) in [(Durability::Fua, 1), (Durability::Cached, 0)] {
            let before = fsyncs();
            let data = [BufMut::zeroed(4096).freeze()];
            queue
                .write(0, &data, Class::Data, Reason::Other, durability)
                .unwrap();
            assert_eq!(fsyncs() - before, expected, "{engine:?} {durability:?}");
            let done = Completion::expecting(1);
            let bufs = data.into_iter().collect();
            let bio = Bio::write(4096, bufs, Class::Data, Reason::Other, done.clone(), 0);
            queue.submit(bio.with_durability(durability));
            done.wait().unwrap();
            assert_eq!(fsyncs() - before, 2 * expected, "{engine:?} {durability:?}");
        }
    }
    mounted.unmount().check();
}

#[test]
fn a_sync_reaches_the_volume_or_a_subtree() {
    if !can_mount() {
        return;
    }
    let mounted = Image::new(256).mount("");
    let (dir, fs) = (mounted.dir().to_owned(), mounted.fs().clone());
    fs::create_dir_all(dir.join("a/b")).unwrap();
    fs::write(dir.join("a/b/in"), [1; 8192]).unwrap();
    fs::write(dir.join("out"), [2; 8192]).unwrap();
    fuse::sync(&dir.join("a"), SyncScope::Tree).unwrap();
    assert_eq!(fs.stats().dirty_pages, 2, "only the file outside");
    // Written through a mapping: dirty in the kernel until msync.
    run(
        &dir,
        "python3 -c '
import mmap
f = open(\"a/b/in\", \"r+b\")
m = mmap.mmap(f.fileno(), 8192)
m[0:4] = b\"mmap\"
m.close()'",
    );
    fuse::sync(&dir, SyncScope::Volume).unwrap();
    assert_eq!(fs.stats().dirty_pages, 0);
    let root = fs.root().unwrap();
    let names = ["a", "b", "in"];
    let file = names
        .iter()
        .try_fold(root, |at, name| fs.lookup(&at, name.as_bytes()));
    let mut start = [0; 4];
    fs.read(&file.unwrap(), 0, &mut start).unwrap();
    assert_eq!(&start, b"mmap");
    let elsewhere = fuse::sync("/tmp".as_ref(), SyncScope::Volume).unwrap_err();
    assert!(elsewhere.to_string().contains("no volume"), "{elsewhere:#}");
    drop(fs);
    mounted.unmount().check();
}

#[test]
fn syncs_of_the_volume_wait_as_replies_and_not_as_threads() {
    if !can_mount() {
        return;
    }
    const SYNCS: usize = 50;
    let disk = testkit::disk::Disk::new(256 << 20);
    mkfs::format(&disk.queue(), &mkfs::MkfsOptions::default()).unwrap();
    let mounted = Image::new(16).mount_on(disk.queue(), "");
    let dir = mounted.dir().to_owned();
    fs::write(dir.join("dirty"), [1; 8192]).unwrap();
    // The first write of the first sync waits for `go`.
    let (begun, has_begun) = channel();
    let (go, wait) = channel::<()>();
    let (begun, wait) = (Mutex::new(begun), Mutex::new(wait));
    let held = AtomicBool::new(false);
    disk.inject(move |op, _, _, _| {
        if op == block::Op::Write && !held.swap(true, Ordering::SeqCst) {
            begun.lock().unwrap().send(()).unwrap();
            let _ = wait.lock().unwrap().recv();
        }
        None
    });
    let before = mounted.fs().stats().journal.commits;
    std::thread::scope(|scope| {
        let sync = || fuse::sync(&dir, SyncScope::Volume);
        let syncs: Vec<_> = (0..SYNCS).map(|_| scope.spawn(sync)).collect();
        has_begun.recv().unwrap();
        // The serving threads have nothing to wait for.
        for i in 0..SYNCS {
            fs::write(dir.join(format!("new{i}")), b"").unwrap();
        }
        let names = fs::read_dir("/proc/self/task").unwrap().filter_map(|task| {
            let name = fs::read_to_string(task.ok()?.path().join("comm")).ok()?;
            Some(name.trim().to_owned())
        });
        let waiting = names.filter(|name| name == "sluice-sync" || name == "sluice-fsync");
        assert!(
            waiting.count() <= 2,
            "a thread for the volume, one for files"
        );
        go.send(()).unwrap();
        syncs
            .into_iter()
            .for_each(|sync| sync.join().unwrap().unwrap());
    });
    let commits = mounted.fs().stats().journal.commits - before;
    assert!(commits <= 10, "{commits} commits for {SYNCS} syncs");
    disk.heal();
    mounted.abandon();
}
