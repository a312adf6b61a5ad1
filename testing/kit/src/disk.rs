//! The device of the tests: memory whose requests can be recorded, delayed and made to fail.

mod handle;

use crate::crash::{Log, Recording, Write};
use crate::oracle::{journal_of, journal_path};
use crate::seed::Rng;
use block::{Class, IoError, Op, Payload, Queue, Request};
use handle::Handle;
use parking_lot::{Condvar, Mutex, RwLock};
use std::collections::VecDeque;
use std::io::{Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Threads of a disk with delays.
const THREADS: usize = 4;

/// Upper bounds on the time that requests take, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Delays {
    /// Writes of file data.
    pub data_us: u64,
    /// Writes to the log.
    pub journal_us: u64,
    /// Writes of metadata, and of a checkpoint.
    pub home_us: u64,
    /// Flushes.
    pub flush_us: u64,
}

/// A request that an injector failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The operation.
    pub op: Op,
    /// The kind of data.
    pub class: Class,
    /// The bytes that were to be written.
    pub data: Vec<u8>,
}

/// Requests that the disk was given, failed ones too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// All requests.
    pub requests: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
}

/// Called before each request with operation, class, byte offset and length. `Some(errno)` fails
/// it.
pub type Injector = dyn Fn(Op, Class, u64, u64) -> Option<i32> + Send + Sync;

/// How requests are carried out.
struct Timing {
    delays: Delays,
    rng: Mutex<Rng>,
    waiting: Mutex<Waiting>,
    arrived: Condvar,
}

#[derive(Default)]
struct Waiting {
    requests: VecDeque<Request>,
    over: bool,
}

struct Inner {
    bytes: RwLock<Vec<u8>>,
    /// The first byte of the second device, if there are two.
    second: Option<u64>,
    recording: Mutex<Option<Recording>>,
    /// Held shared by each request that is under way, and exclusively where a recording begins: it
    /// has all of a request or nothing.
    under_way: RwLock<()>,
    injector: RwLock<Option<Arc<Injector>>>,
    failures: Mutex<Vec<Failure>>,
    /// Chooses the sectors of a failed write that are on the device.
    torn: Mutex<Option<Rng>>,
    /// `None`: a request completes on submission.
    timing: Option<Timing>,
    requests: AtomicU64,
    writes: AtomicU64,
    flushes: AtomicU64,
}

/// A device in memory. Clones are the same device.
///
/// A disk may be two devices, of which the second one has the journal of the volume on the first.
/// The bytes of the second one follow those of the first, in images too. Each device has a queue,
/// and in the crash model a write cache, of its own.
#[derive(Clone)]
pub struct Disk(Arc<Inner>);

impl Disk {
    /// A disk of `size` zero bytes.
    pub fn new(size: usize) -> Disk {
        Disk::from_bytes(vec![0; size])
    }

    /// A disk with these contents.
    pub fn from_bytes(bytes: Vec<u8>) -> Disk {
        Disk::build(bytes, None, None)
    }

    /// A disk with the contents of an image. An image of two devices is one that has more bytes
    /// than the volume, whose journal is on a device of its own.
    pub fn of_image(bytes: Vec<u8>) -> Disk {
        let second = end_of_volume_with_external_journal(&bytes);
        let second = second.filter(|end| *end < bytes.len() as u64);
        Disk::build(bytes, second, None)
    }

    /// A disk with a volume by mke2fs whose journal of `journal_size` bytes is on the second
    /// device. `None` if this machine has no loop devices, which mke2fs needs.
    #[cfg(feature = "volume")]
    pub fn by_mke2fs_with_journal(how: &crate::oracle::Mke2fs, journal_size: u64) -> Option<Disk> {
        let scratch = crate::scratch::Scratch::new();
        let image = scratch.join("volume.img");
        how.make_with_journal(&image, journal_size)?
            .expect("mke2fs");
        Some(Disk::load(&image))
    }

    /// A disk with a volume by mke2fs.
    #[cfg(feature = "volume")]
    pub fn by_mke2fs(how: &crate::oracle::Mke2fs) -> Disk {
        let scratch = crate::scratch::Scratch::new();
        let image = scratch.join("volume.img");
        how.make(&image).expect("mke2fs");
        Disk::from_bytes(std::fs::read(&image).expect("the image"))
    }

    /// A disk whose requests overlap in time and end in any order, with random delays.
    pub fn with_delays(bytes: Vec<u8>, delays: Delays, rng: Rng) -> Disk {
        let timing = Timing {
            delays,
            rng: Mutex::new(rng),
            waiting: Mutex::default(),
            arrived: Condvar::new(),
        };
        Disk::build(bytes, None, Some(timing))
    }

    fn build(bytes: Vec<u8>, second: Option<u64>, timing: Option<Timing>) -> Disk {
        Disk(Arc::new(Inner {
            bytes: RwLock::new(bytes),
            second,
            recording: Mutex::default(),
            under_way: RwLock::default(),
            injector: RwLock::default(),
            failures: Mutex::default(),
            torn: Mutex::default(),
            timing,
            requests: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
        }))
    }

    /// A disk with the contents of an image file, and of that of its journal if there is one.
    pub fn load(path: &Path) -> Disk {
        let mut bytes = std::fs::read(path).expect("an image");
        if let Some(journal) = journal_of(path) {
            bytes.extend(std::fs::read(journal).expect("a journal"));
        }
        Disk::of_image(bytes)
    }

    /// A new queue in front of the disk. The threads of a disk with delays end with the queue.
    pub fn queue(&self) -> Arc<Queue> {
        self.queue_of(0..self.0.second.unwrap_or(self.0.capacity()))
    }

    /// A new queue in front of the second device, if there are two.
    pub fn journal(&self) -> Option<Arc<Queue>> {
        let second = self.0.second?;
        Some(self.queue_of(second..self.0.capacity()))
    }

    fn queue_of(&self, part: Range<u64>) -> Arc<Queue> {
        let mut threads = Vec::new();
        if let Some(timing) = &self.0.timing {
            timing.waiting.lock().over = false;
            threads.resize_with(THREADS, || {
                let disk = self.0.clone();
                std::thread::spawn(move || disk.serve())
            });
        }
        let disk = self.0.clone();
        Queue::new(Box::new(Handle {
            disk,
            part,
            threads,
        }))
    }

    /// The contents.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.bytes.read().clone()
    }

    /// Copies `len` bytes of the contents.
    pub fn bytes_at(&self, offset: usize, len: usize) -> Vec<u8> {
        self.0.bytes.read()[offset..][..len].to_vec()
    }

    /// Changes the contents past every queue.
    pub fn edit(&self, change: impl FnOnce(&mut Vec<u8>)) {
        change(&mut self.0.bytes.write());
    }

    /// Writes the contents into a sparse file, and the second device into another one beside it.
    pub fn save(&self, path: &Path) {
        let bytes = self.0.bytes.read();
        let end = self.0.second.map_or(bytes.len(), |second| second as usize);
        save(&bytes[..end], path);
        if end < bytes.len() {
            save(&bytes[end..], &journal_path(path));
        }
    }

    /// Begins to record, after the requests that are under way. Their writes are durable.
    pub fn start_recording(&self) {
        let _none = self.0.under_way.write();
        let bytes = self.0.bytes.read();
        *self.0.recording.lock() = Some(Recording {
            base: bytes.clone(),
            log: self.0.second.map_or_else(Log::default, Log::of_two_devices),
        });
    }

    /// The number of events recorded so far.
    pub fn position(&self) -> usize {
        self.0.recording.lock().as_ref().map_or(0, |r| r.log.len())
    }

    /// Ends the recording.
    ///
    /// # Panics
    /// If there is none.
    pub fn take_recording(&self) -> Recording {
        let recording = self.0.recording.lock().take();
        recording.expect("the disk is being recorded")
    }

    /// The contents after a power failure at this moment.
    ///
    /// # Panics
    /// If the disk is not being recorded.
    pub fn crash(&self, rng: &mut Rng) -> Vec<u8> {
        let recording = self.0.recording.lock();
        let recording = recording.as_ref().expect("the disk is being recorded");
        recording.image(recording.log.len(), rng)
    }

    /// Makes the requests fail for which `injector` returns an errno.
    pub fn inject(
        &self,
        injector: impl Fn(Op, Class, u64, u64) -> Option<i32> + Send + Sync + 'static,
    ) {
        *self.0.injector.write() = Some(Arc::new(injector));
    }

    /// Makes all writes fail after the next `count`.
    pub fn fail_writes_after(&self, count: u64) {
        let left = AtomicU64::new(count);
        let take =
            move || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        self.inject(move |op, _, _, _| (op == Op::Write && take().is_err()).then_some(libc::EIO));
    }

    /// Removes the injector.
    pub fn heal(&self) {
        *self.0.injector.write() = None;
    }

    /// Lets failed writes leave some of their sectors on the device.
    pub fn tear_failed_writes(&self, rng: Rng) {
        *self.0.torn.lock() = Some(rng);
    }

    /// The requests that injectors have failed so far.
    pub fn failures(&self) -> Vec<Failure> {
        self.0.failures.lock().clone()
    }

    /// The requests so far.
    pub fn counts(&self) -> Counts {
        Counts {
            requests: self.0.requests.load(Ordering::Relaxed),
            writes: self.0.writes.load(Ordering::Relaxed),
            flushes: self.0.flushes.load(Ordering::Relaxed),
        }
    }
}

/// The size of a volume, by its super block, if its journal is on a device of its own.
fn end_of_volume_with_external_journal(bytes: &[u8]) -> Option<u64> {
    let field = |at: usize| {
        let field = bytes.get(1024 + at..1024 + at + 4)?;
        Some(u32::from_le_bytes(field.try_into().ok()?))
    };
    let (compat, journal_inum) = (field(0x5C)?, field(0xE0)?);
    let is_volume = field(0x38)? & 0xffff == 0xef53;
    let has_journal = compat & 4 != 0;
    let blocks = u64::from(field(0x150)?) << 32 | u64::from(field(0x4)?);
    (is_volume && has_journal && journal_inum == 0)
        .then(|| blocks << (10 + field(0x18).unwrap_or(0)))
}

/// Writes `bytes` into a sparse file.
pub fn save(bytes: &[u8], path: &Path) {
    use std::io::Write;
    let mut file = std::fs::File::create(path).expect("an image");
    file.set_len(bytes.len() as u64).expect("its size");
    const UNIT: usize = 64 << 10;
    for (i, chunk) in bytes.chunks(UNIT).enumerate() {
        if chunk.iter().any(|&b| b != 0) {
            file.seek(SeekFrom::Start((i * UNIT) as u64)).expect("seek");
            file.write_all(chunk).expect("write");
        }
    }
}

impl Inner {
    fn capacity(&self) -> u64 {
        self.bytes.read().len() as u64
    }

    fn verdict(&self, op: Op, class: Class, offset: u64, len: u64) -> Result<(), IoError> {
        let injector = self.injector.read().clone();
        let beyond = (offset + len > self.capacity()).then_some(libc::EIO);
        let errno = injector.and_then(|f| f(op, class, offset, len)).or(beyond);
        errno.map_or(Ok(()), |errno| {
            Err(IoError {
                op,
                offset,
                len,
                errno,
            })
        })
    }

    fn record<T: Default>(&self, event: impl FnOnce(&mut Log) -> T) -> T {
        let mut recording = self.recording.lock();
        recording
            .as_mut()
            .map_or_else(T::default, |r| event(&mut r.log))
    }

    fn carry_out(&self, mut request: Request) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        match request.op {
            Op::Read => {}
            Op::Write => _ = self.writes.fetch_add(1, Ordering::Relaxed),
            Op::Flush => _ = self.flushes.fetch_add(1, Ordering::Relaxed),
        }
        let result = self.verdict(request.op, request.class, request.offset, request.len);
        match &result {
            Ok(()) => {
                let _under_way = self.under_way.read();
                let began = self.record(|log| log.begin(&request));
                self.delay(&request);
                self.transfer(&mut request, began);
            }
            Err(_) => self.fail(&request),
        }
        request.complete(result);
    }

    /// Moves the bytes, and records the end of the request under their lock: the log has the order
    /// in which they changed.
    fn transfer(&self, request: &mut Request, began: usize) {
        let mut at = request.offset as usize;
        if request.op == Op::Read {
            let bytes = self.bytes.read();
            for bio in &mut request.bios {
                if let Payload::Read(bufs) = &mut bio.payload {
                    for buf in bufs {
                        let end = at + buf.len();
                        buf.copy_from_slice(&bytes[at..end]);
                        at = end;
                    }
                }
            }
            return;
        }
        let mut bytes = self.bytes.write();
        for bio in &request.bios {
            if let Payload::Write(bufs) = &bio.payload {
                for buf in bufs {
                    bytes[at..at + buf.len()].copy_from_slice(buf);
                    at += buf.len();
                }
            }
        }
        self.record(|log| log.end(request.op, began));
    }

    /// Notes a failed request, and applies some of its sectors if failed writes are torn.
    fn fail(&self, request: &Request) {
        let mut write = Write::of(request);
        self.failures.lock().push(Failure {
            op: request.op,
            class: request.class,
            data: write.data.clone(),
        });
        if let (Op::Write, Some(rng)) = (request.op, self.torn.lock().as_mut()) {
            let mut bytes = self.bytes.write();
            write.tear(rng, |offset, sector| {
                bytes[offset as usize..][..sector.len()].copy_from_slice(sector);
            });
            let at = request.offset as usize;
            let len = write.data.len();
            write.data.copy_from_slice(&bytes[at..at + len]);
            write.fua = false;
            self.record(|log| {
                let began = log.begin_write(write);
                log.end(Op::Write, began);
            });
        }
    }

    fn delay(&self, request: &Request) {
        let Some(timing) = &self.timing else {
            if request.durability == block::Durability::Fua {
                // A crash may find the write in flight.
                std::thread::yield_now();
            }
            return;
        };
        let most = match (request.op, request.class) {
            (Op::Read, _) => 0,
            (Op::Flush, _) => timing.delays.flush_us,
            (Op::Write, Class::Data) => timing.delays.data_us,
            (Op::Write, Class::Journal) => timing.delays.journal_us,
            (Op::Write, _) => timing.delays.home_us,
        };
        if most > 0 {
            let delay = timing.rng.lock().below(most);
            std::thread::sleep(Duration::from_micros(delay));
        }
    }

    /// A thread of a disk with delays.
    fn serve(&self) {
        let timing = self.timing.as_ref().expect("a disk with delays");
        loop {
            let request = {
                let mut waiting = timing.waiting.lock();
                while waiting.requests.is_empty() {
                    if waiting.over {
                        return;
                    }
                    timing.arrived.wait(&mut waiting);
                }
                let nth = timing.rng.lock().index(waiting.requests.len());
                waiting.requests.swap_remove_back(nth)
            };
            self.carry_out(request.expect("an index in range"));
        }
    }
}
