//! Image files: contents under many threads, the lock, odd sizes, both engines.

use block::devices::{IoEngine, UringDevice};
use block::{
    Bio, Buf, BufMut, Class, Completion, Create, DeviceUrl, Durability, EndIo, IoError, OpenMode,
    Payload, Queue, Reason, create_image, open,
};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use testkit::kernel::LoopDevice;
use testkit::scratch::Scratch;

const SIZE: u64 = 64 << 20;

fn image(dir: &Scratch, size: u64) -> PathBuf {
    let path = dir.join("disk.img");
    create_image(&path, size, Create::New).unwrap();
    path
}

fn queue(path: &Path, engine: IoEngine) -> Arc<Queue> {
    let device = UringDevice::open_with(path, OpenMode::ReadWrite, engine).unwrap();
    Queue::new(Box::new(device))
}

fn stamp(thread: u64, round: u64, n: u64) -> Buf {
    let mut page = BufMut::scratch(4096);
    for (i, word) in page.chunks_exact_mut(8).enumerate() {
        let value =
            (thread << 48 | round << 32 | n << 16 | i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word.copy_from_slice(&value.to_le_bytes());
    }
    page.freeze()
}

fn hammer(queue: &Queue) {
    const PAGES: u64 = 512;
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            scope.spawn(move || {
                for round in 0..4u64 {
                    let base = thread * PAGES * 4096;
                    let done = Completion::new();
                    let mut plug = queue.plug();
                    // Every other page first, so that some merge and some do not.
                    for n in (0..PAGES).step_by(2).chain((1..PAGES / 2).step_by(2)) {
                        done.expect(1);
                        let bufs = [stamp(thread, round, n)].into_iter().collect();
                        plug.add(Bio::write(
                            base + n * 4096,
                            bufs,
                            Class::Data,
                            Reason::Other,
                            done.clone(),
                            n,
                        ));
                    }
                    drop(plug);
                    done.wait().unwrap();
                    queue.flush(Reason::Other).unwrap();
                    let lone = [stamp(thread, round, 777)];
                    queue
                        .write(
                            base + 511 * 4096,
                            &lone,
                            Class::Data,
                            Reason::Other,
                            Durability::Fua,
                        )
                        .unwrap();
                    let back = queue
                        .read(
                            base,
                            (PAGES * 4096) as usize,
                            4096,
                            Class::Data,
                            Reason::Other,
                        )
                        .unwrap();
                    for n in (0..PAGES).step_by(2).chain((1..PAGES / 2).step_by(2)) {
                        assert!(*back[n as usize] == *stamp(thread, round, n), "page {n}");
                    }
                    assert!(*back[511] == *lone[0]);
                    assert!(back[509].iter().all(|b| *b == 0));
                }
            });
        }
    });
    assert_eq!(queue.stats().snapshot().in_flight, 0);
}

#[test]
fn eight_threads_read_back_what_they_wrote() {
    for engine in [IoEngine::Auto, IoEngine::Threads] {
        let dir = Scratch::new();
        hammer(&queue(&image(&dir, SIZE), engine));
    }
}

#[test]
fn requests_complete_after_their_thread_has_ended() {
    let dir = Scratch::new();
    let queue = queue(&image(&dir, SIZE), IoEngine::Auto);
    let done = Completion::new();
    for n in 0..64u64 {
        done.expect(2);
        let (queue, done) = (queue.clone(), done.clone());
        std::thread::spawn(move || {
            let bufs = [stamp(0, 0, n)].into_iter().collect();
            // The write allocates in a sparse file, so the kernel hands it to a worker, like a
            // flush.
            queue.submit(Bio::write(
                n << 20,
                bufs,
                Class::Data,
                Reason::Other,
                done.clone(),
                n,
            ));
            queue.submit_flush(Reason::Other, done, n);
        })
        .join()
        .unwrap();
    }
    done.wait().unwrap();
}

#[test]
fn closing_waits_for_requests_in_flight() {
    let dir = Scratch::new();
    let path = image(&dir, SIZE);
    let queue = queue(&path, IoEngine::Auto);
    let done = Completion::expecting(1000);
    for n in 0..1000u64 {
        let bufs = [stamp(1, 1, n)].into_iter().collect();
        queue.submit(Bio::write(
            n * 8192,
            bufs,
            Class::Data,
            Reason::Other,
            done.clone(),
            n,
        ));
    }
    drop(queue);
    assert!(done.is_done());
    done.wait().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert!((0..1000).all(|n| bytes[n * 8192..][..4096] == *stamp(1, 1, n as u64)));
}

#[test]
fn a_second_opener_is_refused_with_a_reason() {
    let dir = Scratch::new();
    let path = image(&dir, 1 << 20);
    let url = DeviceUrl::Path(path.clone());
    let first = open(&url, OpenMode::ReadWrite).unwrap();
    for mode in [OpenMode::ReadWrite, OpenMode::ReadOnly] {
        let error = open(&url, mode).err().expect("locked");
        assert_eq!(error.kind(), std::io::ErrorKind::ResourceBusy);
        let text = error.to_string();
        assert!(text.contains("disk.img is in use by"), "{text}");
    }
    assert!(create_image(&path, 1 << 20, Create::Overwrite).is_err());
    drop(first);
    let (_a, _b) = (
        open(&url, OpenMode::ReadOnly).unwrap(),
        open(&url, OpenMode::ReadOnly).unwrap(),
    );
    assert!(open(&url, OpenMode::ReadWrite).is_err());
}

#[test]
fn odd_sizes_are_readable_to_the_last_sector() {
    let dir = Scratch::new();
    let path = image(&dir, 8192 + 1024 + 100);
    let queue = queue(&path, IoEngine::Auto);
    assert_eq!(queue.capacity(), 8192 + 1024);
    queue
        .write(
            8192,
            &[BufMut::copy_of(&[3; 1024]).freeze()],
            Class::Data,
            Reason::Other,
            Durability::Cached,
        )
        .unwrap();
    let back = queue
        .read(4096, 4096 + 1024, 4096, Class::Data, Reason::Other)
        .unwrap();
    assert_eq!((back[1].len(), back[1][1023]), (1024, 3));
    let done = Completion::expecting(1);
    let bufs = [BufMut::scratch(1024)].into_iter().collect();
    queue.submit(Bio::read(
        8192,
        bufs,
        Class::Data,
        Reason::Other,
        done.clone(),
        5,
    ));
    done.wait().unwrap();
    assert_eq!(done.take_reads()[0].1[0][0], 3);
}

#[test]
fn a_file_that_shrank_fails_reads_and_survives() {
    let dir = Scratch::new();
    let path = image(&dir, 1 << 20);
    let queue = queue(&path, IoEngine::Auto);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(4096).unwrap();
    let error = queue
        .read(8192, 4096, 4096, Class::Data, Reason::Other)
        .unwrap_err();
    assert_eq!(error.errno, 0);
    let error = std::io::Error::from(error);
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    let done = Completion::expecting(1);
    let bufs = (0..2).map(|_| BufMut::scratch(4096)).collect();
    queue.submit(Bio::read(
        0,
        bufs,
        Class::Data,
        Reason::Other,
        done.clone(),
        0,
    ));
    assert!(done.wait().is_err(), "a short read that cannot be resumed");
}

#[test]
fn zero_ranges_and_holes() {
    let dir = Scratch::new();
    let queue = queue(&image(&dir, 1 << 20), IoEngine::Auto);
    let bufs: Vec<_> = (0..256).map(|n| stamp(2, 2, n)).collect();
    queue
        .write(0, &bufs, Class::Data, Reason::Other, Durability::Cached)
        .unwrap();
    queue.write_zeroes(4096, 8192, Reason::Other).unwrap();
    queue.discard(65536, 65536).unwrap();
    let back = queue
        .read(0, 1 << 20, 4096, Class::Data, Reason::Other)
        .unwrap();
    assert!(*back[0] == *bufs[0] && *back[3] == *bufs[3]);
    assert!(back[1..3].iter().all(|p| p.iter().all(|b| *b == 0)));
}

#[test]
fn without_direct_io_the_page_cache_is_used() {
    let Ok(dir) = Scratch::new_in(Path::new("/dev/shm")) else {
        return;
    };
    let queue = queue(&image(&dir, SIZE), IoEngine::Auto);
    hammer(&queue);
}

#[test]
fn missing_files_and_directories_are_named() {
    let dir = Scratch::new();
    for path in [dir.join("no.img"), dir.path().to_path_buf()] {
        let error = open(&DeviceUrl::Path(path.clone()), OpenMode::ReadWrite)
            .err()
            .unwrap();
        assert!(error.to_string().contains(&path.display().to_string()));
    }
    let path = image(&dir, 4096);
    let error = create_image(&path, 4096, Create::New).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
}

#[test]
fn block_devices_work_like_images() {
    let dir = Scratch::new();
    let Some(device) = LoopDevice::attach(&image(&dir, SIZE)) else {
        return;
    };
    for _ in 0..3 {
        // The first queue has no claim on the device once it is closed.
        let queue = queue(device.path(), IoEngine::Auto);
        assert_eq!(queue.capacity(), SIZE);
        let second = UringDevice::open(device.path(), OpenMode::ReadWrite);
        assert_eq!(
            second.err().expect("claimed").kind(),
            std::io::ErrorKind::ResourceBusy
        );
        queue.write_zeroes(0, SIZE, Reason::Other).unwrap();
        hammer(&queue);
        queue.discard(0, SIZE).unwrap();
    }
}

/// A completion that holds a reference to its queue, like the readahead of a cache.
struct LastReference {
    queue: Mutex<Option<Arc<Queue>>>,
    others_gone: Mutex<Receiver<()>>,
    dropped: Sender<bool>,
}

impl EndIo for LastReference {
    fn end_io(&self, _tag: u64, _payload: Payload, _result: Result<(), IoError>) {
        self.others_gone.lock().unwrap().recv().unwrap();
        let queue = self.queue.lock().unwrap().take();
        let drop_it = std::panic::AssertUnwindSafe(|| drop(queue));
        let dropped = std::panic::catch_unwind(drop_it).is_ok();
        self.dropped.send(dropped).unwrap();
    }
}

#[test]
fn a_completion_may_drop_the_last_reference_to_the_device() {
    let dir = Scratch::new();
    let path = image(&dir, SIZE);
    for engine in [IoEngine::Auto, IoEngine::Threads] {
        let queue = queue(&path, engine);
        let (others_gone, wait) = channel();
        let (dropped, outcome) = channel();
        let end = Arc::new(LastReference {
            queue: Mutex::new(Some(queue.clone())),
            others_gone: Mutex::new(wait),
            dropped,
        });
        let bufs = [BufMut::scratch(4096)].into_iter().collect();
        queue.submit(Bio::read(0, bufs, Class::Metadata, Reason::Other, end, 0));
        drop(queue);
        others_gone.send(()).unwrap();
        let in_time = outcome.recv_timeout(std::time::Duration::from_secs(20));
        assert_eq!(in_time, Ok(true), "{engine:?}");
        // The thread ends by itself and closes the image.
        let start = std::time::Instant::now();
        while UringDevice::open_with(&path, OpenMode::ReadWrite, engine).is_err() {
            assert!(
                start.elapsed().as_secs() < 20,
                "{engine:?}: the image stays open"
            );
            std::thread::yield_now();
        }
    }
}
