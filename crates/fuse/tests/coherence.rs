//! The kernel's page cache and direct I/O: all readers see the file's contents.

mod common;

use common::{Image, can_mount, ring};
use io_uring::{IoUring, opcode, types};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;
const BLOCKS: usize = 64;
/// Writes in flight at a time, to different blocks.
const DEPTH: usize = 16;

/// A block for direct I/O.
#[repr(align(4096))]
#[derive(Clone, Copy)]
struct Block([u8; BLOCK]);

/// The version that each block of `file` holds.
fn versions(file: &File) -> Vec<u64> {
    let mut block = Box::new(Block([0; BLOCK]));
    (0..BLOCKS)
        .map(|n| {
            file.read_exact_at(&mut block.0, (n * BLOCK) as u64)
                .unwrap();
            u64::from_le_bytes(*block.0.first_chunk().unwrap())
        })
        .collect()
}

/// Writes new versions of all blocks, `DEPTH` at a time and without the page cache.
fn write_round(ring: &mut IoUring, file: &File, version: u64) {
    let mut blocks = vec![Block([0; BLOCK]); DEPTH];
    for first in (0..BLOCKS).step_by(DEPTH) {
        for (i, block) in blocks.iter_mut().enumerate() {
            block.0[..8].copy_from_slice(&version.to_le_bytes());
            let fd = types::Fd(file.as_raw_fd());
            let entry = opcode::Write::new(fd, block.0.as_ptr(), BLOCK as u32)
                .offset(((first + i) * BLOCK) as u64)
                .build();
            // SAFETY: the blocks outlive the requests, because the code below waits for them.
            unsafe { ring.submission().push(&entry) }.unwrap();
        }
        ring.submit_and_wait(DEPTH).unwrap();
        let results: Vec<i32> = ring.completion().map(|entry| entry.result()).collect();
        assert_eq!(results, [BLOCK as i32; DEPTH]);
    }
}

fn readers_see_direct_writes(options: &str) {
    if !can_mount() {
        return;
    }
    let mounted = Image::new(128).mount(options);
    let path = mounted.dir().join("f");
    let mut file = File::create(&path).unwrap();
    file.write_all(&[0; BLOCK * BLOCKS]).unwrap();
    let direct = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(&path)
        .unwrap();
    let Some(mut ring) = ring(DEPTH as u32) else {
        return;
    };
    let begun = Instant::now();
    let mut version = 0;
    while begun.elapsed() < Duration::from_secs(4) {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        versions(&File::open(&path).unwrap());
                    }
                });
            }
            for _ in 0..50 {
                version += 1;
                write_round(&mut ring, &direct, version);
            }
            done.store(true, Ordering::Relaxed);
        });
        let expected = vec![version; BLOCKS];
        assert_eq!(versions(&direct), expected, "read directly");
        let opened = File::open(&path).unwrap();
        assert_eq!(versions(&opened), expected, "read through the page cache");
    }
    drop((direct, file));
    mounted.unmount();
}

#[test]
fn new_readers_see_asynchronous_direct_writes() {
    readers_see_direct_writes("");
}

#[test]
fn one_serving_thread_does_not_wait_for_itself() {
    readers_see_direct_writes("threads=1");
}

/// Programs write different bytes of the same pages, one directly and one through the page cache.
/// Each reads its own writes.
fn writers_see_their_own_writes(options: &str) {
    const PART: usize = 512;
    if !can_mount() {
        return;
    }
    let mounted = Image::new(128).mount(options);
    let path = mounted.dir().join("f");
    std::fs::write(&path, [0; BLOCK * BLOCKS]).unwrap();
    let open = |flags| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(flags);
        options.open(&path).unwrap()
    };
    let (direct, cached) = (open(libc::O_DIRECT), open(0));
    let Some(mut ring) = ring(DEPTH as u32) else {
        return;
    };
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                versions(&cached);
            }
        });
        let writer = scope.spawn(|| {
            let begun = Instant::now();
            let mut version = 0_u64;
            while begun.elapsed() < Duration::from_secs(4) {
                version += 1;
                let mut data = version.to_le_bytes().repeat(BLOCKS * BLOCK / 8);
                cached.write_all_at(&data, 0).unwrap();
                thread::yield_now();
                cached.read_exact_at(&mut data, 0).unwrap();
                let stale = data.chunks(BLOCK).position(|page| {
                    let own = page[PART..].as_chunks::<8>().0;
                    own.iter().any(|&v| u64::from_le_bytes(v) != version)
                });
                if let Some(page) = stale {
                    return Err((version, page));
                }
            }
            Ok(version)
        });
        let blocks = vec![Block([1; BLOCK]); DEPTH];
        let mut first = 0;
        while !writer.is_finished() {
            for (i, block) in blocks.iter().enumerate() {
                let fd = types::Fd(direct.as_raw_fd());
                let entry = opcode::Write::new(fd, block.0.as_ptr(), PART as u32)
                    .offset(((first + i) % BLOCKS * BLOCK) as u64)
                    .build();
                // SAFETY: the blocks outlive the requests, which are waited for below.
                unsafe { ring.submission().push(&entry) }.unwrap();
            }
            ring.submit_and_wait(DEPTH).unwrap();
            assert!(ring.completion().all(|entry| entry.result() == PART as i32));
            first += 5;
        }
        done.store(true, Ordering::Relaxed);
        let written = writer.join().unwrap();
        assert!(
            written.is_ok(),
            "(version, page with an older one): {written:?}"
        );
    });
    drop((direct, cached));
    mounted.unmount();
}

#[test]
fn cached_writes_survive_asynchronous_direct_writes() {
    writers_see_their_own_writes("threads=8");
}

#[test]
fn cached_writes_survive_with_one_serving_thread() {
    writers_see_their_own_writes("threads=1");
}

/// A program maps a file, and others write it directly, from the mapping too.
#[test]
fn mappings_and_direct_writes_end() {
    if !can_mount() {
        return;
    }
    let mounted = Image::new(128).mount("threads=2");
    let script = r#"
import mmap, os, threading
path = "m"
size = 1 << 20
with open(path, "wb") as f: f.write(b"\0" * size)
buffered = os.open(path, os.O_RDWR)
direct = os.open(path, os.O_RDWR | os.O_DIRECT)
shared = mmap.mmap(buffered, size)
def direct_writes(k):
    block = mmap.mmap(-1, 65536)
    for i in range(100):
        block[0:1] = bytes([i % 256])
        os.pwrite(direct, block, ((i * 7 + k) % 16) * 65536)
def stores():
    for i in range(1000):
        at = (i * 37) % 256 * 4096
        shared[at:at+4] = b"stor"
def syncs():
    for i in range(10):
        os.fsync(buffered)
def from_mapping():
    view = memoryview(shared)
    for i in range(100):
        os.pwrite(direct, view[65536:131072], 262144)
        os.pwrite(direct, view[65536:131072], 65536)
    view.release()
ts = [threading.Thread(target=t, args=a) for t, a in
      [(direct_writes, (0,)), (direct_writes, (5,)), (stores, ()), (syncs, ()), (from_mapping, ())]]
for t in ts: t.start()
for t in ts: t.join()
os.fsync(buffered)
shared.close()
"#;
    std::fs::write(mounted.dir().join("script.py"), script).unwrap();
    common::run(mounted.dir(), "timeout 40 python3 script.py");
    mounted.unmount();
}

/// O_DIRECT reads come from the device each time, and see what a cached write has left in memory.
#[test]
fn direct_reads_bypass_the_caches() {
    if !can_mount() {
        return;
    }
    let mounted = Image::new(128).mount("");
    let path = mounted.dir().join("f");
    let mut file = File::create(&path).unwrap();
    file.write_all(&[3; BLOCK * BLOCKS]).unwrap();
    file.sync_all().unwrap();
    mounted.run("setfattr -n user.sluicefs.drop_caches -v 1 .");
    let direct = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(&path)
        .unwrap();
    let read = || mounted.fs().queue().stats().snapshot().read_bytes;
    for _ in 0..2 {
        let before = read();
        versions(&direct);
        assert_eq!(read() - before, (BLOCK * BLOCKS) as u64);
    }
    file.write_all_at(&[4; BLOCK], 0).unwrap();
    assert_eq!(versions(&direct)[0], u64::from_le_bytes([4; 8]));
    drop((direct, file));
    mounted.unmount();
}
