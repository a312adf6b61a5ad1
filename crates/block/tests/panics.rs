//! Panics of devices and of the owners of bios: no thread waits for ever.

use block::{
    Bio, Buf, BufMut, Class, Completion, Durability, EndIo, IoError, Op, Payload, Queue, Reason,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{channel, sync_channel};
use std::time::Duration;
use testkit::disk::Disk;

fn page() -> Buf {
    BufMut::zeroed(4096).freeze()
}

fn write(offset: u64, end: Arc<dyn EndIo>) -> Bio {
    let bufs = std::iter::once(page()).collect();
    Bio::write(offset, bufs, Class::Data, Reason::Sync, end, 0)
}

fn panics(work: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(work)).is_err()
}

fn write_one(queue: &Queue) {
    let durability = Durability::Cached;
    queue
        .write(0, &[page()], Class::Data, Reason::Sync, durability)
        .unwrap();
}

#[test]
fn a_device_that_panics_fails_the_requests_that_it_has() {
    let disk = Disk::new(1 << 20);
    disk.inject(|op, _, _, _| match op {
        Op::Write => panic!("expected in this test"),
        _ => None,
    });
    let queue = disk.queue();
    // The second bio is in the same batch, or follows when the first one has completed.
    for second in [8192, 0] {
        let done = Completion::expecting(2);
        let mut bios = vec![write(0, done.clone()), write(second, done.clone())];
        assert!(panics(|| queue.submit_batch(&mut bios)));
        assert!(done.is_done(), "{second}");
        assert_eq!(done.wait().unwrap_err().errno, libc::EIO);
    }
    // They may have reached the device in part, so a flush has to cover them.
    assert!(!queue.is_durable(queue.written()));
}

/// Panics at its first bio.
#[derive(Default)]
struct Panics(AtomicUsize);

impl EndIo for Panics {
    fn end_io(&self, _: u64, _: Payload, _: Result<(), IoError>) {
        assert_ne!(
            self.0.fetch_add(1, Ordering::SeqCst),
            0,
            "expected in this test"
        );
    }
}

#[test]
fn an_owner_that_panics_leaves_no_other_bio_of_the_request() {
    let queue = Disk::new(1 << 20).queue();
    let (broken, done) = (Arc::<Panics>::default(), Completion::expecting(2));
    let mut bios = vec![
        write(0, done.clone()),
        write(4096, broken.clone()),
        write(8192, done.clone()),
    ];
    assert!(panics(|| queue.submit_batch(&mut bios)));
    assert_eq!(broken.0.load(Ordering::SeqCst), 1);
    assert!(done.is_done());
}

#[test]
fn a_flush_that_panics_ends_the_wait_of_others() {
    let disk = Disk::new(1 << 20);
    let (begun, has_begun) = sync_channel(1);
    disk.inject(move |op, _, _, _| {
        if op == Op::Flush {
            begun.send(()).unwrap();
            // Time for the other thread to wait for this flush.
            std::thread::sleep(Duration::from_millis(100));
            panic!("expected in this test");
        }
        None
    });
    let queue = disk.queue();
    write_one(&queue);
    let first = queue.clone();
    let first = std::thread::spawn(move || panics(|| _ = first.flush(Reason::Sync)));
    has_begun.recv().unwrap();
    let (told, outcome) = channel();
    std::thread::spawn(move || told.send(queue.flush(Reason::Sync)));
    assert!(first.join().unwrap());
    let outcome = outcome.recv_timeout(Duration::from_secs(10));
    assert!(outcome.expect("it ends").is_err());
}
