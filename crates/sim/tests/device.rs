//! Modelled devices in real time: they keep the bytes, every request completes, and dropping a
//! device ends its thread. No test measures time.

use block::{
    Bio, Buf, BufMut, Class, Completion, Create, DeviceUrl, Durability, IoError, OpenMode, Queue,
    Reason, Schemes, create_image, open,
};
use sim::SimUrl;
use smallvec::SmallVec;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const PAGE: u64 = 4096;
/// Each kind with short times, and caches that fill up.
const QUICK: [&str; 5] = [
    "sim:ssd,size=64MiB,cache=256KiB,flush_us=100",
    "sim:ssd,size=64MiB,cache=0,queue=2",
    "sim:nvme,size=64MiB,plp=0,cache=256KiB,flush_us=100",
    "sim:raid0-4ssd,size=64MiB,cache=256KiB,flush_us=100",
    "sim:hdd,size=64MiB,cache=256KiB,rpm=600000,seek_min_ms=0.01,seek_max_ms=0.1,media_mb_s=2000",
];

fn url(text: &str) -> DeviceUrl {
    parse(text).unwrap()
}

fn parse(text: &str) -> std::io::Result<DeviceUrl> {
    Schemes::new(&[sim::SCHEME]).parse(text)
}

fn device(text: &str) -> Arc<Queue> {
    open(&url(text), OpenMode::ReadWrite).unwrap()
}

/// Runs `work` in a thread and fails if it does not end.
fn ends(work: impl FnOnce() + Send + 'static) {
    let (tell, told) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        work();
        tell.send(()).unwrap();
    });
    let hangs = told.recv_timeout(Duration::from_secs(120))
        == Err(std::sync::mpsc::RecvTimeoutError::Timeout);
    assert!(!hangs, "it hangs");
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// `len` bytes that encode their offset and generation.
fn pattern(offset: u64, generation: u64, len: u64) -> SmallVec<[Buf; 1]> {
    let buf = |at: u64| {
        let mut buf = BufMut::zeroed(PAGE.min(len - at) as usize);
        for (n, word) in buf.chunks_exact_mut(8).enumerate() {
            let value = (offset + at + n as u64 * 8) ^ generation << 40;
            word.copy_from_slice(&value.to_le_bytes());
        }
        buf.freeze()
    };
    (0..len).step_by(PAGE as usize).map(buf).collect()
}

fn assert_pattern(bytes: &[u8], offset: u64, generation: u64) {
    for (n, word) in bytes.chunks_exact(8).enumerate() {
        let at = offset + n as u64 * 8;
        let found = u64::from_le_bytes(word.try_into().unwrap());
        assert_eq!(found, at ^ generation << 40, "at byte {at}");
    }
}

fn read(queue: &Queue, offset: u64, len: u64) -> Vec<u8> {
    let unit = (len as usize).min(PAGE as usize);
    let bufs = queue
        .read(offset, len as usize, unit, Class::Data, Reason::Other)
        .unwrap();
    bufs.iter().flat_map(|b| b.iter().copied()).collect()
}

fn errno<T>(result: Result<T, IoError>) -> i32 {
    result.err().expect("an error").errno
}

/// Rounds of requests of all sizes and alignments, in batches and alone, in `base..base + 4 MiB`.
fn churn(queue: &Queue, base: u64, mut seed: u64) {
    let mut random = move |bound: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % bound
    };
    for generation in 1..=12 {
        // Spans that do not overlap: each in a window of 256 KiB of its own, at any sector, of any
        // number of sectors.
        let spans: Vec<_> = (0..16)
            .map(|n| {
                let len = match random(3) {
                    0 => (random(16) + 1) * PAGE,
                    _ => (random(64) + 1) * 512,
                };
                (base + n * (256 << 10) + random(256) * 512, len)
            })
            .collect();
        let done = Completion::expecting(0);
        let mut batch = Vec::new();
        for &(offset, len) in &spans {
            let bufs = pattern(offset, generation, len);
            match random(4) {
                0 => {
                    let durability = match random(2) {
                        0 => Durability::Fua,
                        _ => Durability::Cached,
                    };
                    queue
                        .write(offset, &bufs, Class::Data, Reason::Other, durability)
                        .unwrap();
                }
                _ => {
                    done.expect(1);
                    batch.push(Bio::write(
                        offset,
                        bufs,
                        Class::Data,
                        Reason::Other,
                        done.clone(),
                        0,
                    ));
                }
            }
        }
        queue.submit_batch(&mut batch);
        done.wait().unwrap();
        if random(2) == 0 {
            queue.flush(Reason::Other).unwrap();
        }
        for (offset, len) in spans {
            assert_pattern(&read(queue, offset, len), offset, generation);
        }
    }
}

#[test]
fn many_threads_read_back_what_they_wrote() {
    for name in QUICK {
        ends(move || {
            let queue = device(name);
            std::thread::scope(|scope| {
                for n in 0..8_u64 {
                    let queue = &queue;
                    scope.spawn(move || churn(queue, n * (8 << 20), n + 1));
                }
            });
            let stats = queue.stats().snapshot();
            assert_eq!((stats.in_flight, stats.errors), (0, 0), "{name}");
        });
    }
}

#[test]
fn a_file_keeps_the_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sim.img");
    for (n, kind) in ["ssd", "nvme", "raid0-4ssd", "hdd,rpm=600000,seek_max_ms=1"]
        .iter()
        .enumerate()
    {
        let generation = n as u64 + 1;
        create_image(&path, 16 << 20, Create::Overwrite).unwrap();
        let name = format!("sim:{kind},file={}", path.display());
        let queue = device(&name);
        assert_eq!(queue.capacity(), 16 << 20);
        let bufs = pattern(1 << 20, generation, 1 << 20);
        queue
            .write(
                1 << 20,
                &bufs,
                Class::Data,
                Reason::Other,
                Durability::Cached,
            )
            .unwrap();
        queue
            .write(
                512,
                &pattern(512, generation, 512),
                Class::Data,
                Reason::Other,
                Durability::Fua,
            )
            .unwrap();
        queue.flush(Reason::Other).unwrap();
        let error = open(&url(&name), OpenMode::ReadWrite).err().unwrap();
        assert_eq!(error.kind(), std::io::ErrorKind::ResourceBusy, "{error}");
        drop(queue);

        let queue = open(&url(&format!("{name},size=16MiB")), OpenMode::ReadOnly).unwrap();
        assert_pattern(&read(&queue, 1 << 20, 1 << 20), 1 << 20, generation);
        assert_pattern(&read(&queue, 512, 512), 512, generation);
        let refused = queue.write(
            0,
            &pattern(0, 0, PAGE),
            Class::Data,
            Reason::Other,
            Durability::Cached,
        );
        assert_eq!(errno(refused), libc::EROFS);
        drop(queue);
        // The file is an ordinary image: the plain device reads the same bytes.
        let plain = open(&DeviceUrl::Path(path.clone()), OpenMode::ReadOnly).unwrap();
        assert_pattern(&read(&plain, 1 << 20, 1 << 20), 1 << 20, generation);
    }
}

#[test]
fn a_file_of_another_size_is_refused_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sim.img");
    let refusal = |name: String| open(&url(&name), OpenMode::ReadWrite).err().unwrap();
    let missing = refusal(format!("sim:ssd,size=1MiB,file={}", path.display()));
    assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
    assert!(missing.to_string().contains("sim.img"), "{missing}");
    create_image(&path, 1 << 20, Create::New).unwrap();
    let other = refusal(format!("sim:ssd,size=2MiB,file={}", path.display())).to_string();
    assert!(other.contains("sim.img has 1048576 bytes"), "{other}");
    let folder = refusal(format!("sim:ssd,file={}", dir.path().display())).to_string();
    assert!(folder.contains("neither a regular file"), "{folder}");
}

#[test]
fn zeroes_and_discards() {
    let dir = tempfile::tempdir().unwrap();
    let check = |name: &str| {
        let queue = device(name);
        let whole = 8 << 20;
        for at in (0..whole).step_by(1 << 20) {
            queue
                .write(
                    at,
                    &pattern(at, 1, 1 << 20),
                    Class::Data,
                    Reason::Other,
                    Durability::Cached,
                )
                .unwrap();
        }
        queue
            .write_zeroes(512, (3 << 20) + 512, Reason::Other)
            .unwrap();
        queue.discard(5 << 20, 1 << 20).unwrap();
        let (first, last) = (512, (3 << 20) + 1024);
        assert_pattern(&read(&queue, 0, 512), 0, 1);
        assert!(read(&queue, first, last - first).iter().all(|b| *b == 0));
        assert_pattern(&read(&queue, last, (5 << 20) - last), last, 1);
        assert!(read(&queue, 5 << 20, 1 << 20).iter().all(|b| *b == 0));
        assert_pattern(&read(&queue, 6 << 20, 2 << 20), 6 << 20, 1);
        assert_eq!(errno(queue.discard(queue.capacity(), 512)), libc::ENOSPC);
    };
    for kind in ["ssd", "nvme", "raid0-4ssd", "hdd,rpm=600000,seek_max_ms=1"] {
        let path = dir.path().join("sim.img");
        create_image(&path, 32 << 20, Create::Overwrite).unwrap();
        check(&format!("sim:{kind},size=32MiB"));
        check(&format!("sim:{kind},file={}", path.display()));
    }
}

#[test]
fn a_large_device_is_sparse() {
    let queue = device("sim:ssd,size=1PiB");
    assert_eq!(queue.capacity(), 1 << 50);
    let last = (1 << 50) - PAGE;
    queue
        .write(
            last,
            &pattern(last, 1, PAGE),
            Class::Data,
            Reason::Other,
            Durability::Cached,
        )
        .unwrap();
    assert_pattern(&read(&queue, last, PAGE), last, 1);
    assert!(read(&queue, 1 << 40, 1 << 20).iter().all(|b| *b == 0));
    queue.discard(0, 1 << 50).unwrap();
    assert!(read(&queue, last, PAGE).iter().all(|b| *b == 0));
}

/// The caller may change a page that the device keeps by reference.
#[test]
fn written_bytes_do_not_change_with_the_callers_buffer() {
    let queue = device("sim:nvme,size=1MiB");
    let mut page = pattern(0, 1, PAGE).remove(0);
    queue
        .write(
            0,
            std::slice::from_ref(&page),
            Class::Data,
            Reason::Other,
            Durability::Cached,
        )
        .unwrap();
    page.make_mut().fill(0xff);
    assert_pattern(&read(&queue, 0, PAGE), 0, 1);
    queue
        .write(
            0,
            &pattern(0, 2, 512),
            Class::Data,
            Reason::Other,
            Durability::Cached,
        )
        .unwrap();
    assert!(page.iter().all(|b| *b == 0xff));
}

#[test]
fn dropping_completes_requests_in_flight() {
    for name in QUICK {
        ends(move || {
            let queue = device(name);
            let done = Completion::expecting(0);
            let count = if name.contains("hdd") { 500 } else { 6000 };
            for n in 0..count {
                done.expect(1);
                let at = n * 7919 % 16_000 * PAGE;
                queue.submit(match n % 16 {
                    0 => Bio::flush(Reason::Other, done.clone(), n),
                    n if n < 8 => {
                        let bufs = SmallVec::from_iter([BufMut::scratch(PAGE as usize)]);
                        Bio::read(at, bufs, Class::Data, Reason::Other, done.clone(), n)
                    }
                    _ => Bio::write(
                        at,
                        pattern(at, 1, PAGE),
                        Class::Data,
                        Reason::Other,
                        done.clone(),
                        n,
                    ),
                });
            }
            drop(queue);
            assert!(done.is_done(), "{name}: dropped before all was complete");
            done.wait().unwrap();
        });
    }
}

/// A thread that executes its own request also gets a late decision (a full cache, a flush).
#[test]
fn late_decisions_reach_waiting_threads() {
    for name in QUICK {
        ends(move || {
            let queue = device(name);
            std::thread::scope(|scope| {
                for n in 0..6_u64 {
                    let queue = &queue;
                    scope.spawn(move || {
                        for round in 0..12 {
                            let at = n * (8 << 20) + round * (256 << 10);
                            let bufs = pattern(at, round, 256 << 10);
                            queue
                                .write(at, &bufs, Class::Data, Reason::Other, Durability::Cached)
                                .unwrap();
                            queue.flush(Reason::Other).unwrap();
                        }
                    });
                }
            });
        });
    }
}

#[test]
fn urls_are_printed_as_they_are_parsed() {
    for (text, printed) in [
        ("sim:ssd,size=8GiB", "sim:ssd,size=8GiB"),
        ("sim:hdd,size=1.5TiB", "sim:hdd,size=1536GiB"),
        ("sim:nvme,size=4608", "sim:nvme,size=4608"),
        ("sim:ssd,read_us=65,size=1G", "sim:ssd,size=1GiB"),
        (
            "sim:ssd,size=1G,read_us=60.125",
            "sim:ssd,size=1GiB,read_us=60.125",
        ),
        (
            "sim:hdd,file=/a/b.img,seek_min_ms=0.5",
            "sim:hdd,file=/a/b.img,seek_min_ms=0.5",
        ),
        (
            "sim:raid0-4ssd,size=1GiB,cache=0,chunk=1MiB,plp=1,link_mb_s=600.5",
            "sim:raid0-4ssd,size=1GiB,chunk=1MiB,link_mb_s=600.5,cache=0,plp=1",
        ),
        (
            "sim:nvme,size=1GiB,queue=8,plp=0,page=4096",
            "sim:nvme,size=1GiB,page=4KiB,plp=0,queue=8",
        ),
    ] {
        let parsed = SimUrl::parse(&text["sim:".len()..]).unwrap();
        assert_eq!(url(text).to_string(), printed, "{text}");
        assert_eq!(parsed.to_string(), printed, "{text}");
        assert_eq!(
            SimUrl::parse(&printed["sim:".len()..]).unwrap(),
            parsed,
            "{text}"
        );
    }
    let sim = SimUrl::parse("hdd,size=1GiB,file=x").unwrap();
    assert_eq!(
        (sim.size(), sim.file()),
        (Some(1 << 30), Some(Path::new("x")))
    );
    assert!(url("sim:ssd,size=1GiB").is_volatile() && !url("sim:ssd,file=x").is_volatile());
}

#[test]
fn bad_urls_name_what_is_wrong() {
    for (text, parts) in [
        ("sim:", &["\"\"", "ssd, nvme, raid0-4ssd, hdd"][..]),
        (
            "sim:sdd,size=1GiB",
            &["\"sdd\"", "ssd, nvme, raid0-4ssd, hdd"],
        ),
        ("sim:ssd", &["needs a size", "size=8GiB"]),
        ("sim:ssd,size=0", &["size=0", "no bytes"]),
        ("sim:ssd,size=1000", &["size=1000", "multiple of 512"]),
        ("sim:ssd,size=lots", &["size", "\"lots\""]),
        (
            "sim:ssd,size=1GiB,rpm=7200",
            &["\"rpm\"", "size, file, channels", "queue"],
        ),
        (
            "sim:hdd,size=1GiB,channels=8",
            &["\"channels\"", "size, file, rpm"],
        ),
        (
            "sim:raid0-4ssd,size=1GiB,x=1",
            &["\"x\"", "chunk, channels"],
        ),
        (
            "sim:ssd,size=1GiB,read_us=fast",
            &["read_us=fast", "microseconds", "0 to 10000000"],
        ),
        ("sim:ssd,size=1GiB,read_us=-1", &["read_us=-1"]),
        ("sim:ssd,size=1GiB,read_us=1e3", &["read_us=1e3"]),
        ("sim:ssd,size=1GiB,read_us=0.0001", &["read_us=0.0001"]),
        (
            "sim:ssd,size=1GiB,read_us=99999999999999999999",
            &["read_us=9999"],
        ),
        ("sim:ssd,size=1GiB,channels=0", &["channels=0", "1 to 1024"]),
        ("sim:ssd,size=1GiB,plp=2", &["plp=2", "0 to 1"]),
        ("sim:ssd,size=1GiB,cache=many", &["cache=many", "0 to 1TiB"]),
        ("sim:ssd,size=1GiB,queue", &["queue="]),
        ("sim:ssd,size=1GiB,size=2GiB", &["size is given twice"]),
        ("sim:ssd,size=1GiB,file=", &["file= needs a path"]),
        ("sim:ssd,size=1GiB,", &["\"\""]),
    ] {
        let error = parse(text).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{text}");
        for part in parts {
            assert!(error.to_string().contains(part), "{text}: {error}");
        }
    }
}
