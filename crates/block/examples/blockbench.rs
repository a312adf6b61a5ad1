//! Measures the block layer on a device: `blockbench PATH|mem:SIZE [GiB]`. An image is made where
//! there is none.
//!
//! Compare with `fio --direct=1 --ioengine=io_uring --filename=PATH` and
//! `--bs=1m --rw=write --iodepth=16` for the sequential rows,
//! `--bs=4k --rw=randwrite|randread --iodepth=32` (or `--ioengine=psync`) for the random ones.

use block::{
    Bio, Buf, BufMut, Class, Completion, Create, DeviceUrl, Durability, EndIo, IoError, Op,
    OpenMode, PAGE_SIZE, Payload, Queue, Reason, create_image, open,
};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const PAGE: u64 = PAGE_SIZE as u64;

/// Gives a token back for every bio that ends.
struct Tokens(Mutex<SyncSender<()>>);

impl EndIo for Tokens {
    fn end_io(&self, _tag: u64, payload: Payload, result: Result<(), IoError>) {
        result.expect("I/O");
        drop(payload);
        self.0.lock().unwrap().send(()).unwrap();
    }
}

fn tokens(depth: usize) -> (Arc<Tokens>, Receiver<()>) {
    let (tx, rx) = sync_channel(depth + 1);
    (0..depth).for_each(|_| tx.send(()).unwrap());
    (Arc::new(Tokens(Mutex::new(tx))), rx)
}

fn pages(bytes: u64) -> SmallVec<[Buf; 1]> {
    (0..bytes / PAGE)
        .map(|n| {
            let mut page = BufMut::scratch(PAGE_SIZE);
            page.fill(n as u8);
            page.freeze()
        })
        .collect()
}

fn scratch(bytes: u64) -> SmallVec<[BufMut; 1]> {
    (0..bytes / PAGE)
        .map(|_| BufMut::scratch(PAGE_SIZE))
        .collect()
}

fn bio(op: Op, offset: u64, bytes: u64, end: Arc<dyn EndIo>) -> Bio {
    match op {
        Op::Read => Bio::read(offset, scratch(bytes), Class::Data, Reason::Other, end, 0),
        _ => Bio::write(offset, pages(bytes), Class::Data, Reason::Other, end, 0),
    }
}

fn report(what: &str, ios: u64, bytes: u64, time: Duration, cpu: Duration) {
    let seconds = time.as_secs_f64();
    println!(
        "{what:<44} {:>8.0} MiB/s {:>9.0} IOPS {:>6.0}% CPU",
        bytes as f64 / MIB as f64 / seconds,
        ios as f64 / seconds,
        cpu.as_secs_f64() / seconds * 100.0
    );
}

fn cpu_now() -> Duration {
    let usage = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(usage.tv_sec as u64, usage.tv_nsec as u32)
}

fn timed(what: &str, ios: u64, bytes: u64, f: impl FnOnce()) {
    let (start, cpu) = (Instant::now(), cpu_now());
    f();
    report(what, ios, bytes, start.elapsed(), cpu_now() - cpu);
}

fn sequential(queue: &Queue, op: Op, total: u64, chunk: u64, depth: usize) {
    let (end, tokens) = tokens(depth);
    for offset in (0..total).step_by(chunk as usize) {
        tokens.recv().unwrap();
        queue.submit(bio(op, offset, chunk, end.clone()));
    }
    (0..depth).for_each(|_| tokens.recv().unwrap());
}

/// Single-page bios through a plug, as the flusher hands them over.
fn plugged(queue: &Queue, total: u64) {
    let (end, tokens) = tokens(16384);
    let mut plug = queue.plug();
    for offset in (0..total).step_by(PAGE_SIZE) {
        tokens.recv().unwrap();
        plug.add(bio(Op::Write, offset, PAGE, end.clone()));
    }
    plug.flush();
    (0..16384).for_each(|_| tokens.recv().unwrap());
}

struct Random(u64);

impl Random {
    fn page(&mut self, total: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % (total / PAGE) * PAGE
    }
}

fn random_deep(queue: &Queue, op: Op, total: u64, count: u64) {
    let (end, tokens) = tokens(32);
    let mut random = Random(42);
    let mut batch = Vec::new();
    let mut left = count;
    while left > 0 {
        tokens.recv().unwrap();
        batch.push(bio(op, random.page(total), PAGE, end.clone()));
        left -= 1;
        while left > 0 && tokens.try_recv().is_ok() {
            batch.push(bio(op, random.page(total), PAGE, end.clone()));
            left -= 1;
        }
        queue.submit_batch(&mut batch);
    }
    (0..32).for_each(|_| tokens.recv().unwrap());
}

fn random_lone(queue: &Queue, op: Op, total: u64, count: u64) {
    let mut random = Random(7);
    for _ in 0..count {
        let done = Completion::expecting(1);
        let bio = bio(op, random.page(total), PAGE, done.clone());
        queue.submit_and_wait(&mut vec![bio], &done).expect("I/O");
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_else(|| "mem:2GiB".into());
    let total = args.next().map_or(1, |n| n.parse::<u64>().expect("GiB")) << 30;
    let url = DeviceUrl::parse(&name).expect("a device");
    if let DeviceUrl::Path(path) = &url
        && !path.exists()
    {
        create_image(path, total, Create::New).expect("an image");
    }
    let queue = open(&url, OpenMode::ReadWrite).expect("a device");
    assert!(queue.capacity() >= total, "the device is too small");
    let mega = total / MIB;
    timed(
        "sequential write 1 MiB, depth 16, first",
        mega,
        total,
        || {
            sequential(&queue, Op::Write, total, MIB, 16);
            queue.flush(Reason::Other).expect("flush");
        },
    );
    timed(
        "sequential write 1 MiB, depth 16, again",
        mega,
        total,
        || {
            sequential(&queue, Op::Write, total, MIB, 16);
            queue.flush(Reason::Other).expect("flush");
        },
    );
    timed("sequential write, 4 KiB bios, plug", mega, total, || {
        plugged(&queue, total);
        queue.flush(Reason::Other).expect("flush");
    });
    timed("sequential read 1 MiB, depth 16", mega, total, || {
        sequential(&queue, Op::Read, total, MIB, 16);
    });
    let deep = 200_000;
    for (what, op) in [
        ("random write 4 KiB, depth 32", Op::Write),
        ("random read 4 KiB, depth 32", Op::Read),
    ] {
        timed(what, deep, deep * PAGE, || {
            random_deep(&queue, op, total, deep)
        });
    }
    let lone = 30_000;
    for (what, op) in [
        ("random write 4 KiB, depth 1 (execute)", Op::Write),
        ("random read 4 KiB, depth 1 (execute)", Op::Read),
    ] {
        timed(what, lone, lone * PAGE, || {
            random_lone(&queue, op, total, lone)
        });
    }
    timed(
        "write 4 KiB + flush, depth 1",
        lone / 6,
        lone / 6 * PAGE,
        || {
            let page = [pages(PAGE).remove(0)];
            let mut random = Random(3);
            for _ in 0..lone / 6 {
                queue
                    .write(
                        random.page(total),
                        &page,
                        Class::Data,
                        Reason::Other,
                        Durability::Cached,
                    )
                    .expect("write");
                queue.flush(Reason::Other).expect("flush");
            }
        },
    );
    println!("{:?}\n{:?}", queue.stats().snapshot(), block::pool::stats());
}
