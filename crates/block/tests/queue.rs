//! The queue over memory: bounds, read-only devices, flush elision, failing flushes, names.

use block::devices::MemoryDevice;
use block::{
    Buf, BufMut, Class, Completion, DeviceUrl, Durability, Op, OpenMode, Queue, Reason, Writes,
    open, parse_size,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use testkit::disk::Disk;

fn memory(capacity: u64) -> Arc<Queue> {
    Queue::new(Box::new(MemoryDevice::new(capacity)))
}

fn page(byte: u8) -> [Buf; 1] {
    [BufMut::copy_of(&[byte; 4096]).freeze()]
}

fn errno<T>(result: Result<T, block::IoError>) -> i32 {
    result.err().expect("an error").errno
}

#[test]
fn beyond_the_end_is_an_error() {
    let queue = memory(10 * 4096);
    let write = |offset| {
        queue.write(
            offset,
            &page(1),
            Class::Data,
            Reason::Other,
            Durability::Cached,
        )
    };
    write(9 * 4096).unwrap();
    assert_eq!(errno(write(9 * 4096 + 512)), libc::ENOSPC);
    assert_eq!(errno(write(u64::MAX - 511)), libc::ENOSPC);
    assert_eq!(errno(write(100)), libc::EINVAL);
    let read = |offset, len| queue.read(offset, len, 4096, Class::Data, Reason::Other);
    assert_eq!(errno(read(10 * 4096, 4096)), libc::EIO);
    assert_eq!(errno(read(0, 1 << 40)), libc::EIO);
    assert_eq!(errno(read(0, 100)), libc::EINVAL);
    assert_eq!(
        errno(queue.read(0, 4096, 0, Class::Data, Reason::Other)),
        libc::EINVAL
    );
    assert_eq!(errno(queue.discard(0, 11 * 4096)), libc::ENOSPC);
    assert_eq!(read(9 * 4096, 4096).unwrap()[0][0], 1);
}

#[test]
fn writes_wait_or_fail_if_the_device_has_another_owner() {
    let queue = memory(1 << 20);
    let write = || queue.write(0, &page(1), Class::Data, Reason::Other, Durability::Cached);
    let first = || {
        queue
            .read(0, 4096, 4096, Class::Data, Reason::Other)
            .unwrap()[0][0]
    };
    queue.set_writes(Writes::Wait);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(write);
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(
            first(),
            0,
            "reads go on, and the write has not been carried out"
        );
        queue.set_writes(Writes::Pass);
        waiting.join().unwrap().unwrap();
    });
    assert_eq!(first(), 1);
    queue.set_writes(Writes::Wait);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| queue.discard(0, 4096));
        std::thread::sleep(std::time::Duration::from_millis(10));
        queue.set_writes(Writes::Fail);
        assert_eq!(errno(waiting.join().unwrap()), libc::EBUSY);
    });
    assert_eq!(errno(write()), libc::EBUSY);
    assert_eq!(first(), 1);
}

#[test]
fn a_read_only_device_refuses_writes() {
    let queue = open(&DeviceUrl::memory(1 << 20), OpenMode::ReadOnly).unwrap();
    assert!(queue.read_only());
    assert_eq!(
        errno(queue.write(0, &page(1), Class::Data, Reason::Other, Durability::Cached)),
        libc::EROFS
    );
    assert_eq!(
        errno(queue.write_zeroes(0, 4096, Reason::Other)),
        libc::EROFS
    );
    assert_eq!(
        queue
            .read(0, 4096, 4096, Class::Data, Reason::Other)
            .unwrap()[0][0],
        0
    );
}

#[test]
fn zeroes_and_discards() {
    let queue = memory(1 << 20);
    let bufs: Vec<_> = (0..256).map(|_| page(7)[0].clone()).collect();
    queue
        .write(0, &bufs, Class::Data, Reason::Other, Durability::Cached)
        .unwrap();
    queue.write_zeroes(512, 256 << 10, Reason::Other).unwrap();
    let back = queue
        .read(0, 512 << 10, 4096, Class::Data, Reason::Other)
        .unwrap();
    assert_eq!((back[0][511], back[0][512], back[63][0]), (7, 0, 0));
    assert_eq!((back[64][511], back[64][512]), (0, 7));
}

#[test]
fn an_unneeded_flush_is_skipped() {
    let queue = memory(1 << 20);
    let flushes = || queue.stats().snapshot().flushes;
    queue.flush(Reason::Other).unwrap();
    assert_eq!(
        flushes(),
        1,
        "the first is real: who knows what came before us"
    );
    queue.flush(Reason::Other).unwrap();
    assert_eq!(flushes(), 1);
    queue
        .write(0, &page(1), Class::Data, Reason::Other, Durability::Cached)
        .unwrap();
    queue.flush(Reason::Other).unwrap();
    queue.flush(Reason::Other).unwrap();
    assert_eq!(flushes(), 2);
    queue
        .write(0, &page(1), Class::Data, Reason::Other, Durability::Fua)
        .unwrap();
    queue.flush(Reason::Other).unwrap();
    assert_eq!(flushes(), 2, "FUA needs none");
    let done = Completion::expecting(2);
    queue.submit_flush(Reason::Other, done.clone(), 0);
    queue.discard(0, 4096).unwrap();
    queue.submit_flush(Reason::Other, done.clone(), 0);
    done.wait().unwrap();
    assert_eq!(flushes(), 3);
    assert_eq!(queue.stats().snapshot().flushes_elided, 4);
}

/// A device whose flush records how many writes had completed when it started.
#[test]
fn every_flush_is_covered_by_one_that_started_after_the_write() {
    let covered = Arc::new(AtomicU64::new(0));
    let landed = Arc::new(AtomicU64::new(0));
    let (c, l) = (covered.clone(), landed.clone());
    let disk = Disk::new(1 << 20);
    disk.inject(move |op, _, _, _| {
        if op == Op::Flush {
            let seen = l.load(Ordering::SeqCst);
            std::thread::yield_now();
            c.fetch_max(seen, Ordering::SeqCst);
        }
        None
    });
    let queue = disk.queue();
    std::thread::scope(|scope| {
        for n in 0..8u64 {
            let (queue, covered, landed) = (&queue, &covered, &landed);
            scope.spawn(move || {
                for _ in 0..500 {
                    queue
                        .write(
                            n * 4096,
                            &page(1),
                            Class::Data,
                            Reason::Other,
                            Durability::Cached,
                        )
                        .unwrap();
                    let mine = landed.fetch_add(1, Ordering::SeqCst) + 1;
                    // A flush may start between the write and the count above. Another write makes
                    // a flush after the count necessary.
                    queue
                        .write(
                            n * 4096,
                            &page(1),
                            Class::Data,
                            Reason::Other,
                            Durability::Cached,
                        )
                        .unwrap();
                    queue.flush(Reason::Other).unwrap();
                    assert!(covered.load(Ordering::SeqCst) >= mine);
                }
            });
        }
    });
    assert!(queue.stats().snapshot().flushes <= 4000);
}

#[test]
fn a_failed_flush_is_not_forgotten() {
    let failing = Arc::new(AtomicBool::new(true));
    let f = failing.clone();
    let disk = Disk::new(1 << 20);
    disk.inject(move |op, _, _, _| {
        (op == Op::Flush && f.load(Ordering::SeqCst)).then_some(libc::EIO)
    });
    let queue = disk.queue();
    queue
        .write(0, &page(1), Class::Data, Reason::Other, Durability::Cached)
        .unwrap();
    assert_eq!(errno(queue.flush(Reason::Other)), libc::EIO);
    failing.store(false, Ordering::SeqCst);
    assert_eq!(errno(queue.flush(Reason::Other)), libc::EIO);
    let done = Completion::expecting(1);
    queue.submit_flush(Reason::Other, done.clone(), 0);
    assert_eq!(errno(done.wait()), libc::EIO);
}

#[test]
fn sizes_and_names() {
    for (text, bytes) in [
        ("4096", 4096),
        ("64K", 65536),
        ("1KiB", 1024),
        ("10G", 10 << 30),
        ("1.5 TiB", 3 << 39),
        ("2m", 2 << 20),
    ] {
        assert_eq!(parse_size(text).unwrap(), bytes, "{text}");
    }
    for text in ["", "G", "1X", "-1", "1.2.3K", "99999999999T", "1.5"] {
        assert!(parse_size(text).is_err(), "{text}");
    }
    let memory = DeviceUrl::parse("mem:1GiB").unwrap();
    assert!(matches!(memory, DeviceUrl::Backend(_)) && memory.is_volatile());
    assert_eq!(memory.to_string(), "mem:1073741824");
    for name in ["./a:b", "disk.img"] {
        let url = DeviceUrl::parse(name).unwrap();
        assert!(matches!(&url, DeviceUrl::Path(path) if path == std::path::Path::new(name)));
        assert!(!url.is_volatile());
    }
    let error = DeviceUrl::parse("nbd:host").unwrap_err().to_string();
    assert!(error.contains("nbd") && error.contains("mem:"), "{error}");
    assert!(DeviceUrl::parse("mem:0").is_err());
}
