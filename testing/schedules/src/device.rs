//! A device in memory with a queue and a volatile cache, driven by the schedule.
//!
//! A thread of the run carries requests out, in an order that the seed decides. They are recorded,
//! so that the crash model of the test kit ([`testkit::crash`]) can make the image of any moment.

use block::{Class, Device, IoError, Op, Payload, Queue, Request};
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::{self, GroupDesc};
use ext4_format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as Unscheduled};
use sync::thread::JoinHandle;
use sync::{Condvar, Mutex, explore};
use testkit::crash::{Log, Promises, Write};
use testkit::seed::Rng;
use units::GroupNo;

/// Bytes in a block of the device's store.
const BLOCK: usize = 4096;

/// Contents: shared bytes and the blocks that differ from them.
#[derive(Clone)]
pub struct Store {
    base: Arc<[u8]>,
    changed: BTreeMap<u64, Arc<[u8; BLOCK]>>,
}

impl Store {
    /// A store with these contents.
    pub fn new(base: Arc<[u8]>) -> Store {
        let changed = BTreeMap::new();
        Store { base, changed }
    }

    /// Bytes of the device: there is room behind the volume, which can grow. It reads as zeroes.
    /// With blocks of 1 KiB group 3 has a part of it, and so a copy of the super block.
    fn capacity(&self) -> usize {
        2 * self.base.len() + (2 << 20)
    }

    fn read(&self, offset: u64, out: &mut [u8]) {
        let mut at = offset as usize;
        let mut left = out;
        while !left.is_empty() {
            let (block, from) = (at / BLOCK, at % BLOCK);
            let len = left.len().min(BLOCK - from);
            let (part, rest) = left.split_at_mut(len);
            match self.changed.get(&(block as u64)) {
                Some(bytes) => part.copy_from_slice(&bytes[from..from + len]),
                None => part.copy_from_slice(&block_of(&self.base, block)[from..from + len]),
            }
            left = rest;
            at += len;
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        let mut at = offset as usize;
        let mut left = data;
        while !left.is_empty() {
            let (block, from) = (at / BLOCK, at % BLOCK);
            let len = left.len().min(BLOCK - from);
            let (part, rest) = left.split_at(len);
            let base = block_of(&self.base, block);
            let bytes = self
                .changed
                .entry(block as u64)
                .or_insert_with(|| Arc::new(base.try_into().expect("a block")));
            Arc::make_mut(bytes)[from..from + len].copy_from_slice(part);
            left = rest;
            at += len;
        }
    }

    /// Returns the first super block.
    pub fn superblock(&self) -> Result<Superblock, String> {
        let mut bytes = vec![0; SUPERBLOCK_SIZE];
        self.read(SUPERBLOCK_OFFSET, &mut bytes);
        Superblock::parse(&bytes).map_err(|error| error.to_string())
    }

    /// Returns whether the volume is larger than at the start of the run.
    pub fn has_grown(&self) -> Result<bool, String> {
        let geo = Geometry::from_superblock(&self.superblock()?).map_err(|e| e.to_string())?;
        Ok(geo.blocks_count * u64::from(geo.block_size) > self.base.len() as u64)
    }

    /// Checks that each group of the first super block has a valid descriptor: the kernel and
    /// e2fsck read both before they replay the log.
    pub fn check_groups(&self) -> Result<(), String> {
        let geo = Geometry::from_superblock(&self.superblock()?).map_err(|e| e.to_string())?;
        for group in (0..geo.groups).map(GroupNo) {
            let (block, at) = geo.group_desc_location(group);
            let mut bytes = vec![0; usize::from(geo.desc_size)];
            self.read(block.offset(geo.block_size) + u64::from(at), &mut bytes);
            GroupDesc::decode(&bytes, geo.desc_size)
                .and_then(|desc| desc.validate_places(&geo))
                .and_then(|()| group_desc::verify_checksum(&geo, group, &bytes))
                .map_err(|error| format!("group {} of the super block: {error}", group.0))?;
        }
        Ok(())
    }

    /// Returns all bytes.
    pub fn flatten(&self) -> Vec<u8> {
        let mut bytes = self.base.to_vec();
        bytes.resize(self.capacity(), 0);
        for (block, data) in &self.changed {
            let at = *block as usize * BLOCK;
            bytes[at..at + BLOCK].copy_from_slice(&data[..]);
        }
        bytes
    }
}

/// Returns a block of the contents at the beginning. Behind them it is zero.
fn block_of(base: &[u8], block: usize) -> &[u8] {
    let at = block * BLOCK;
    base.get(at..at + BLOCK).unwrap_or(&[0; BLOCK])
}

#[derive(Default)]
struct Pending {
    /// Requests with their positions in the log; those without one fail.
    requests: Vec<(Request, Option<usize>)>,
    stopped: bool,
}

struct Inner {
    /// Not held at a point of the schedule.
    store: Unscheduled<Store>,
    log: Unscheduled<Log>,
    initial: Store,
    pending: Mutex<Pending>,
    changed: Condvar,
    /// Every other write of data fails.
    failing: Unscheduled<bool>,
}

impl Inner {
    /// Records the beginning of a request; returns its position. A request that is to fail has
    /// none: it changes nothing.
    fn begin(&self, request: &Request) -> Option<usize> {
        let is_data = request.op == Op::Write && request.class == Class::Data;
        let may_fail = is_data && *self.failing.lock().expect("unscheduled");
        let fails = may_fail && explore::random().is_multiple_of(2);
        (!fails).then(|| self.log.lock().expect("unscheduled").begin(request))
    }

    fn carry_out(&self, mut request: Request, began: Option<usize>) {
        let Some(began) = began else {
            let failed = Err(request.error(rustix::io::Errno::IO.raw_os_error()));
            return request.complete(failed);
        };
        {
            let mut store = self.store.lock().expect("unscheduled");
            let mut at = request.offset;
            match request.op {
                Op::Write => store.write(at, &Write::of(&request).data),
                Op::Read => {
                    for bio in &mut request.bios {
                        if let Payload::Read(bufs) = &mut bio.payload {
                            for buf in bufs {
                                store.read(at, buf);
                                at += buf.len() as u64;
                            }
                        }
                    }
                }
                Op::Flush => {}
            }
        }
        let mut log = self.log.lock().expect("unscheduled");
        log.end(request.op, began);
        drop(log);
        request.complete(Ok(()));
    }

    /// The device's thread.
    fn serve(&self) {
        loop {
            let (request, began) = {
                let mut pending = self.pending.lock();
                while pending.requests.is_empty() {
                    if pending.stopped {
                        return;
                    }
                    self.changed.wait(&mut pending);
                }
                let at = explore::random() as usize % pending.requests.len();
                pending.requests.swap_remove(at)
            };
            self.carry_out(request, began);
        }
    }
}

/// The device. Clones are the same one.
#[derive(Clone)]
pub struct Disk(Arc<Inner>);

impl Disk {
    /// A device with these contents.
    pub fn new(store: Store) -> Disk {
        Disk(Arc::new(Inner {
            store: Unscheduled::new(store.clone()),
            log: Unscheduled::default(),
            initial: store,
            pending: Mutex::default(),
            changed: Condvar::new(),
            failing: Unscheduled::new(false),
        }))
    }

    /// Starts the thread of the device; [`Disk::stop`] ends it.
    pub fn start(&self) -> JoinHandle<()> {
        let inner = self.0.clone();
        let thread = sync::thread::Builder::new().name("device".into());
        thread.spawn(move || inner.serve()).expect("a thread")
    }

    /// Carries out all requests and ends the thread.
    pub fn stop(&self, thread: JoinHandle<()>) {
        self.0.pending.lock().stopped = true;
        self.0.changed.notify_all();
        thread.join().expect("the device's thread ends");
    }

    /// A queue in front of the device.
    pub fn queue(&self) -> Arc<Queue> {
        Queue::new(Box::new(Handle(self.0.clone())))
    }

    /// Lets every other write of data fail from now on, or none.
    pub fn set_failing(&self, failing: bool) {
        *self.0.failing.lock().expect("unscheduled") = failing;
    }

    /// The contents.
    pub fn contents(&self) -> Store {
        self.0.store.lock().expect("unscheduled").clone()
    }

    /// The number of events recorded so far.
    pub fn position(&self) -> usize {
        self.0.log.lock().expect("unscheduled").len()
    }

    /// The contents after a crash at `position`.
    pub fn crash(&self, position: usize, rng: &mut Rng) -> Store {
        let mut image = self.0.initial.clone();
        let log = self.0.log.lock().expect("unscheduled");
        log.crash(Promises::Kept, position, rng, |offset, data| {
            image.write(offset, data);
        });
        image
    }
}

struct Handle(Arc<Inner>);

impl Device for Handle {
    fn name(&self) -> &str {
        "scheduled"
    }
    fn capacity(&self) -> u64 {
        self.0.initial.capacity() as u64
    }
    fn read_only(&self) -> bool {
        false
    }
    fn submit(&self, batch: Vec<Request>) {
        let mut pending = self.0.pending.lock();
        for request in batch {
            let began = self.0.begin(&request);
            pending.requests.push((request, began));
        }
        drop(pending);
        self.0.changed.notify_one();
    }
    fn execute(&self, request: Request) {
        let began = self.0.begin(&request);
        // The other threads run while the request is under way.
        sync::atomic::fence(sync::atomic::Ordering::SeqCst);
        self.0.carry_out(request, began);
        sync::atomic::fence(sync::atomic::Ordering::SeqCst);
    }
    /// Overwrites what was written before, since the beginning of the run.
    fn discard(&self, offset: u64, len: u64) -> Result<(), IoError> {
        sync::atomic::fence(sync::atomic::Ordering::SeqCst);
        {
            let mut store = self.0.store.lock().expect("unscheduled");
            let mut log = self.0.log.lock().expect("unscheduled");
            let blocks = offset / BLOCK as u64..(offset + len) / BLOCK as u64;
            let written: Vec<u64> = store.changed.range(blocks).map(|(at, _)| *at).collect();
            for block in written {
                let write = Write {
                    offset: block * BLOCK as u64,
                    data: vec![0xdd; BLOCK],
                    fua: false,
                    class: Class::Data,
                };
                store.write(write.offset, &write.data);
                let began = log.begin_write(write);
                log.end(Op::Write, began);
            }
        }
        sync::atomic::fence(sync::atomic::Ordering::SeqCst);
        Ok(())
    }
    fn write_zeroes(&self, offset: u64, len: u64) -> Result<bool, IoError> {
        let _ = (offset, len);
        Ok(false)
    }
}
