//! Plugs: merging, order, limits; and a property test of batches against a model.

use block::devices::MemoryDevice;
use block::{
    Bio, Buf, BufMut, Class, Completion, Device, Durability, EndIo, Op, Queue, Reason, Request,
};
use parking_lot::Mutex;
use proptest::prelude::*;
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;
use testkit::disk::Disk;
use testkit::scratch::Scratch;

type Log = Arc<Mutex<Vec<(Op, Class, u64, u64, Durability, Reason)>>>;

/// Records requests before memory executes them.
struct Recorder(MemoryDevice, Log);

impl Device for Recorder {
    fn name(&self) -> &str {
        "recorder"
    }
    fn capacity(&self) -> u64 {
        self.0.capacity()
    }
    fn read_only(&self) -> bool {
        false
    }
    fn submit(&self, batch: Vec<Request>) {
        for r in batch {
            self.execute(r);
        }
    }
    fn execute(&self, r: Request) {
        self.1
            .lock()
            .push((r.op, r.class, r.offset, r.len, r.durability, r.reason));
        self.0.execute(r);
    }
}

fn recorded(capacity: u64) -> (Arc<Queue>, Log) {
    let log = Log::default();
    let device = Recorder(MemoryDevice::new(capacity), log.clone());
    (Queue::new(Box::new(device)), log)
}

fn page(byte: u8) -> SmallVec<[Buf; 1]> {
    smallvec![BufMut::copy_of(&[byte; 4096]).freeze()]
}

fn write(done: &Arc<Completion>, offset: u64, byte: u8, class: Class) -> Bio {
    done.expect(1);
    Bio::write(offset, page(byte), class, Reason::Other, done.clone(), 0)
}

#[test]
fn adjacent_bios_become_one_request_and_classes_stay_apart() {
    let (queue, log) = recorded(1 << 20);
    let done = Completion::new();
    let mut plug = queue.plug();
    for n in [3u64, 1, 0, 2] {
        plug.add(write(&done, n * 4096, n as u8, Class::Data));
    }
    plug.add(write(&done, 4 * 4096, 9, Class::Metadata));
    plug.add(write(&done, 5 * 4096, 9, Class::Metadata));
    plug.add(write(&done, 9 * 4096, 9, Class::Data));
    assert_eq!(plug.bytes(), 7 * 4096);
    assert!(log.lock().is_empty(), "held back");
    drop(plug);
    done.wait().unwrap();
    let spans: Vec<_> = log.lock().iter().map(|r| (r.1, r.2, r.3)).collect();
    assert_eq!(
        spans,
        [
            (Class::Data, 0, 4 * 4096),
            (Class::Data, 9 * 4096, 4096),
            (Class::Metadata, 4 * 4096, 2 * 4096),
        ]
    );
    let stats = queue.stats().snapshot();
    assert_eq!((stats.write_ios, stats.merged, stats.in_flight), (3, 4, 0));
    assert_eq!(stats.write_bytes, 7 * 4096);
}

#[test]
fn fua_survives_merging() {
    let (queue, log) = recorded(1 << 20);
    let done = Completion::new();
    let mut plug = queue.plug();
    plug.add(write(&done, 0, 1, Class::Journal));
    plug.add(write(&done, 4096, 1, Class::Journal).with_durability(Durability::Fua));
    plug.flush();
    done.wait().unwrap();
    assert_eq!(log.lock()[0].4, Durability::Fua);
    assert_eq!(log.lock().len(), 1);
}

#[test]
fn bios_of_different_reasons_merge_and_the_most_urgent_reason_counts() {
    let (queue, log) = recorded(1 << 20);
    let done = Completion::new();
    let mut plug = queue.plug();
    for (n, reason) in [Reason::Periodic, Reason::Sync, Reason::Background]
        .into_iter()
        .enumerate()
    {
        let mut bio = write(&done, n as u64 * 4096, 1, Class::Data);
        bio.reason = reason;
        plug.add(bio);
    }
    plug.flush();
    done.wait().unwrap();
    let requests: Vec<_> = log.lock().iter().map(|r| (r.3, r.5)).collect();
    assert_eq!(requests, [(3 * 4096, Reason::Sync)]);
    let by_reason = queue.stats().snapshot().by_reason;
    let sync = by_reason[Reason::Sync];
    assert_eq!(
        (sync.requests, sync.bytes, sync.in_flight),
        (1, 3 * 4096, 0)
    );
    assert_eq!(by_reason[Reason::Background].requests, 0);
    assert_eq!(by_reason[Reason::Periodic].requests, 0);
}

#[test]
fn a_plug_flushes_itself_at_its_limit_and_between_files_without_plugging() {
    let (queue, log) = recorded(64 << 20);
    let done = Completion::new();
    let mut plug = queue.plug();
    for n in 0..(block::PLUG_BYTES / 4096) {
        plug.add(write(&done, n * 4096, 1, Class::Data));
    }
    // On a slow machine the plug may have flushed earlier because of its age.
    assert!(plug.bytes() < block::PLUG_BYTES);
    assert!(!log.lock().is_empty());
    plug.flush();
    log.lock().clear();
    let mut two_files = || {
        for n in [0, 1] {
            plug.add(write(&done, n * 4096, 1, Class::Data));
        }
        plug.boundary();
        plug.add(write(&done, 2 * 4096, 1, Class::Data));
        plug.flush();
        std::mem::take(&mut *log.lock()).len()
    };
    assert_eq!(two_files(), 1);
    queue.set_plugging(false);
    assert_eq!(two_files(), 2, "merged within a file only");
    drop(plug);
    done.wait().unwrap();
}

#[test]
fn requests_respect_the_devices_limit_and_large_bios_come_back_whole() {
    let (queue, log) = recorded(16 << 20);
    let bufs: Vec<_> = (0..1000u32)
        .map(|n| BufMut::copy_of(&[n as u8; 4096]).freeze())
        .collect();
    queue
        .write(4096, &bufs, Class::Data, Reason::Other, Durability::Cached)
        .unwrap();
    assert!(log.lock().iter().all(|r| r.3 <= 1 << 20));
    assert_eq!(log.lock().iter().map(|r| r.3).sum::<u64>(), 1000 * 4096);
    let back = queue
        .read(4096, 1000 * 4096, 4096, Class::Data, Reason::Other)
        .unwrap();
    assert_eq!(back.len(), 1000);
    assert!(back.iter().zip(&bufs).all(|(a, b)| **a == **b));
    let small = queue
        .read(4096, 8192, 1024, Class::Data, Reason::Other)
        .unwrap();
    assert_eq!(small.len(), 8);
    assert_eq!((small[3].len(), small[4][0]), (1024, 1));
}

#[test]
fn a_failed_request_fails_each_of_its_bios_and_no_other() {
    let disk = Disk::new(1 << 20);
    disk.inject(|op, _, offset, _| (op == Op::Write && offset == 0).then_some(libc::EIO));
    let queue = disk.queue();
    struct Each(Mutex<Vec<(u64, Option<i32>)>>);
    impl EndIo for Each {
        fn end_io(&self, tag: u64, _: block::Payload, result: Result<(), block::IoError>) {
            self.0.lock().push((tag, result.err().map(|e| e.errno)));
        }
    }
    let each = Arc::new(Each(Mutex::default()));
    let mut plug = queue.plug();
    for n in [0u64, 1, 3] {
        plug.add(Bio::write(
            n * 4096,
            page(1),
            Class::Data,
            Reason::Other,
            each.clone(),
            n,
        ));
    }
    drop(plug);
    let mut seen = each.0.lock().clone();
    seen.sort();
    assert_eq!(
        seen,
        [(0, Some(libc::EIO)), (1, Some(libc::EIO)), (3, None)]
    );
    assert_eq!(queue.stats().snapshot().errors, 1);
}

#[derive(Clone, Debug)]
struct Step {
    page: u64,
    pages: u64,
    byte: u8,
    class: Class,
    read: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let class = prop_oneof![
        Just(Class::Data),
        Just(Class::Metadata),
        Just(Class::Journal)
    ];
    (
        0..60u64,
        1..4u64,
        any::<u8>(),
        class,
        prop::bool::weighted(0.2),
    )
        .prop_map(|(page, pages, byte, class, read)| Step {
            page,
            pages,
            byte,
            class,
            read,
        })
}

/// After a plug the device holds the same bytes as if each bio had been carried out in order, and
/// reads return the bytes that were written before them.
fn check(queue: &Arc<Queue>, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut model = vec![0u8; 64 * 4096];
    queue.write_zeroes(0, 64 * 4096, Reason::Other).unwrap();
    let done = Completion::new();
    let mut expected = Vec::new();
    let mut plug = queue.plug();
    for (tag, s) in steps.iter().enumerate() {
        let (offset, len) = (s.page * 4096, (s.pages * 4096) as usize);
        let span = offset as usize..offset as usize + len;
        done.expect(1);
        plug.add(if s.read {
            expected.push(model[span].to_vec());
            let bufs = (0..s.pages).map(|_| BufMut::scratch(4096)).collect();
            Bio::read(
                offset,
                bufs,
                s.class,
                Reason::Other,
                done.clone(),
                tag as u64,
            )
        } else {
            model[span].fill(s.byte);
            let bufs = (0..s.pages).flat_map(|_| page(s.byte)).collect();
            Bio::write(
                offset,
                bufs,
                s.class,
                Reason::Other,
                done.clone(),
                tag as u64,
            )
        });
    }
    drop(plug);
    done.wait().unwrap();
    let reads: Vec<Vec<u8>> = done
        .take_reads()
        .iter()
        .map(|(_, bufs)| bufs.iter().flat_map(|b| b.to_vec()).collect())
        .collect();
    prop_assert_eq!(reads.len(), expected.len());
    prop_assert!(reads == expected, "a read saw the wrong bytes");
    let back = queue
        .read(0, model.len(), 4096, Class::Data, Reason::Other)
        .unwrap();
    let back: Vec<u8> = back.iter().flat_map(|b| b.to_vec()).collect();
    prop_assert!(back == model, "the device differs from the model");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn batches_end_as_if_in_order(steps in prop::collection::vec(step(), 1..60)) {
        let (queue, log) = recorded(64 * 4096);
        check(&queue, &steps)?;
        prop_assert!(log.lock().iter().all(|r| r.3 > 0));
    }

    #[test]
    fn batches_on_a_file_end_as_if_in_order(steps in prop::collection::vec(step(), 1..40)) {
        let dir = Scratch::new();
        let path = dir.join("disk.img");
        block::create_image(&path, 64 * 4096, block::Create::New).unwrap();
        let queue = block::open(&block::DeviceUrl::Path(path), block::OpenMode::ReadWrite).unwrap();
        check(&queue, &steps)?;
    }
}
