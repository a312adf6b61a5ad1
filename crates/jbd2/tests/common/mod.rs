//! A device that loses what was not flushed, and a volume to run journals on.
#![allow(dead_code)]

use block::{Device, IoError, Op, Payload, Queue, Request};
use cache::Budget;
use jbd2::{AsyncCommit, Journal, JournalExtent, JournalOptions, LogFormat};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const BLOCK: u32 = 4096;
/// Blocks of a test volume.
pub const VOLUME: u64 = 6144;
const SECTOR: usize = 512;

/// SplitMix64: small, seeded, good enough to choose what is lost.
pub struct Rng(pub u64);
impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

#[derive(Default)]
struct Disk {
    durable: Vec<u8>,
    /// What a sector held since it was last durable, oldest first. A crash keeps the durable
    /// content or any of these, each sector on its own.
    volatile: HashMap<usize, Vec<[u8; SECTOR]>>,
}
impl Disk {
    fn read(&self, offset: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.durable[offset..offset + out.len()]);
        for (i, part) in out.chunks_mut(SECTOR).enumerate() {
            if let Some(versions) = self.volatile.get(&(offset / SECTOR + i)) {
                part.copy_from_slice(versions.last().unwrap());
            }
        }
    }
    fn write(&mut self, offset: usize, data: &[u8], fua: bool) {
        for (i, part) in data.chunks(SECTOR).enumerate() {
            let sector = offset / SECTOR + i;
            if fua {
                self.volatile.remove(&sector);
                self.durable[sector * SECTOR..][..SECTOR].copy_from_slice(part);
            } else {
                let versions = self.volatile.entry(sector).or_default();
                versions.push(part.try_into().unwrap());
            }
        }
    }
    fn flush(&mut self) {
        for (sector, versions) in self.volatile.drain() {
            let at = sector * SECTOR;
            self.durable[at..at + SECTOR].copy_from_slice(versions.last().unwrap());
        }
    }
}

/// Called before a write, on the thread that submits it, with its byte offset.
pub type BeforeWrite = dyn Fn(u64) + Send + Sync;

/// The shared half of a [`CrashDevice`].
#[derive(Default)]
pub struct Control {
    disk: Mutex<Disk>,
    pub before_write: Mutex<Option<Arc<BeforeWrite>>>,
    /// Writes that still succeed; all fail once it is used up (`u64::MAX`: never).
    pub writes_left: AtomicU64,
    pub flushes: AtomicU64,
    pub writes: AtomicU64,
    pub requests: AtomicU64,
}
impl Control {
    /// What a power failure now might leave behind.
    pub fn crash(&self, rng: &mut Rng) -> Vec<u8> {
        let disk = self.disk.lock().unwrap();
        let mut image = disk.durable.clone();
        let mut sectors: Vec<_> = disk.volatile.iter().collect();
        sectors.sort_by_key(|(sector, _)| **sector);
        for (&sector, versions) in sectors {
            let pick = rng.below(versions.len() as u64 + 1) as usize;
            if pick > 0 {
                image[sector * SECTOR..][..SECTOR].copy_from_slice(&versions[pick - 1]);
            }
        }
        image
    }
    /// What a block of the device holds.
    pub fn block(&self, block: u64) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK as usize];
        let disk = self.disk.lock().unwrap();
        disk.read(block as usize * BLOCK as usize, &mut bytes);
        bytes
    }
    /// What the device holds, as if everything had landed.
    pub fn content(&self) -> Vec<u8> {
        let disk = self.disk.lock().unwrap();
        let mut image = vec![0; disk.durable.len()];
        disk.read(0, &mut image);
        image
    }
}

/// Memory with a volatile write cache. Everything completes on submission.
pub struct CrashDevice(pub Arc<Control>);
impl CrashDevice {
    pub fn new(image: Vec<u8>) -> (CrashDevice, Arc<Control>) {
        let control = Arc::new(Control {
            disk: Mutex::new(Disk {
                durable: image,
                volatile: HashMap::new(),
            }),
            writes_left: AtomicU64::new(u64::MAX),
            ..Control::default()
        });
        (CrashDevice(control.clone()), control)
    }
}
impl Device for CrashDevice {
    fn name(&self) -> &str {
        "crash"
    }
    fn capacity(&self) -> u64 {
        self.0.disk.lock().unwrap().durable.len() as u64
    }
    fn read_only(&self) -> bool {
        false
    }
    fn submit(&self, batch: Vec<Request>) {
        for request in batch {
            self.execute(request);
        }
    }
    fn execute(&self, mut request: Request) {
        let fua = request.flags.fua;
        let mut result = Ok(());
        let before_write = self.0.before_write.lock().unwrap().clone();
        if let (Op::Write, Some(before_write)) = (request.op, before_write) {
            before_write(request.offset);
        }
        self.0.requests.fetch_add(1, Ordering::Relaxed);
        {
            let mut disk = self.0.disk.lock().unwrap();
            if request.op == Op::Write {
                self.0.writes.fetch_add(1, Ordering::Relaxed);
                let left = self.0.writes_left.load(Ordering::Relaxed);
                if left == 0 {
                    result = Err(IoError {
                        op: Op::Write,
                        offset: request.offset,
                        len: request.len,
                        errno: 5,
                    });
                } else if left != u64::MAX {
                    self.0.writes_left.store(left - 1, Ordering::Relaxed);
                }
            }
            if request.op == Op::Flush {
                self.0.flushes.fetch_add(1, Ordering::Relaxed);
                disk.flush();
            }
            if fua {
                // On its way, any part of it may have arrived.
                for bio in &request.bios {
                    let mut at = bio.offset as usize;
                    if let (Payload::Write(bufs), Ok(())) = (&bio.payload, &result) {
                        for buf in bufs.iter() {
                            disk.write(at, buf, false);
                            at += buf.len();
                        }
                    }
                }
                drop(disk);
                std::thread::yield_now();
                disk = self.0.disk.lock().unwrap();
            }
            if result.is_ok() {
                for bio in &mut request.bios {
                    let mut at = bio.offset as usize;
                    match &mut bio.payload {
                        Payload::Write(bufs) => {
                            for buf in bufs.iter() {
                                disk.write(at, buf, fua);
                                at += buf.len();
                            }
                        }
                        Payload::Read(bufs) => {
                            for buf in bufs.iter_mut() {
                                disk.read(at, buf);
                                at += buf.len();
                            }
                        }
                        Payload::None => {}
                    }
                }
            }
        }
        request.complete(result);
    }
}

/// Where the journal of a test volume lies: in three pieces, out of order.
pub fn extents(blocks: u32) -> Vec<JournalExtent> {
    let (a, b) = (blocks / 3, blocks / 2);
    let c = b + (blocks - b) / 2;
    let extent = |logical, physical, len| JournalExtent {
        logical,
        physical,
        len,
    };
    vec![
        extent(0, 2000, a),
        extent(a, 40, b - a),
        extent(b, 800, c - b),
        extent(c, 3400, blocks - c),
    ]
}

/// First block that tests may use as they like; none before [`extents`] end.
pub const FREE: u64 = 5000;

/// Bytes of a volume of `blocks` blocks with a fresh journal of `log` blocks.
pub fn volume(blocks: u64, log: u32, features: u32) -> Vec<u8> {
    let mut image = vec![0; blocks as usize * BLOCK as usize];
    let sb = jbd2::journal::format_new(log, BLOCK, [7; 16], features);
    let at = extents(log)[0].physical as usize * BLOCK as usize;
    image[at..at + sb.len()].copy_from_slice(&sb);
    image
}

pub fn options() -> JournalOptions {
    JournalOptions {
        commit_interval: Duration::from_secs(3600),
        block_size: BLOCK,
        format: LogFormat::ChecksumV3,
        async_commit: AsyncCommit::Never,
        uuid: [7; 16],
    }
}

/// With commit blocks that go out together with what they commit.
pub fn async_commit() -> JournalOptions {
    JournalOptions {
        async_commit: AsyncCommit::Always,
        ..options()
    }
}

/// With commit blocks that do so while small commits follow one another.
pub fn adaptive() -> JournalOptions {
    JournalOptions {
        async_commit: AsyncCommit::Adaptive,
        ..options()
    }
}

pub struct Rig {
    pub control: Arc<Control>,
    pub queue: Arc<Queue>,
    pub budget: Arc<Budget>,
    pub journal: Arc<Journal>,
}

/// A volume with an open journal of `log` blocks.
pub fn rig(log: u32) -> Rig {
    rig_with(volume(VOLUME, log, 0), log, options())
}
pub fn rig_with(image: Vec<u8>, log: u32, options: JournalOptions) -> Rig {
    let (device, control) = CrashDevice::new(image);
    let queue = Queue::new(Box::new(device));
    let budget = Budget::new(64 << 20);
    let journal = Journal::open(queue.clone(), extents(log), budget.clone(), options).unwrap();
    Rig {
        control,
        queue,
        budget,
        journal,
    }
}

/// Recovers an image; the bytes afterwards.
pub fn recovered(image: Vec<u8>, log: u32) -> (Vec<u8>, jbd2::RecoveryReport) {
    let (device, control) = CrashDevice::new(image);
    let queue = Queue::new(Box::new(device));
    let budget = Budget::new(64 << 20);
    let (overlay, in_memory) =
        jbd2::recover_to_memory(&queue, &extents(log), BLOCK, &budget).unwrap();
    let report = jbd2::recover(&queue, &extents(log), BLOCK, &budget).unwrap();
    assert_eq!(report, in_memory);
    let image = control.content();
    for block in overlay.blocks() {
        let buf = overlay.read(&queue, block).unwrap().unwrap();
        assert_eq!(block_of(&image, block), &buf[..]);
    }
    drop(overlay);
    assert_eq!(budget.used(), 0);
    // What recovery did is durable, and there is nothing left to do.
    assert_eq!(control.crash(&mut Rng(1)), image);
    let again = jbd2::recover(&queue, &extents(log), BLOCK, &budget).unwrap();
    assert_eq!(again, jbd2::RecoveryReport::default());
    (image, report)
}

pub fn block_of(image: &[u8], block: u64) -> &[u8] {
    &image[block as usize * BLOCK as usize..][..BLOCK as usize]
}
