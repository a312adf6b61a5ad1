//! A device in memory with a queue and a volatile cache, driven by the schedule.
//!
//! A thread of the run carries requests out, in an order that the seed decides. What happens is
//! recorded, so that what a crash may leave can be made for any moment: a write is kept or lost
//! sector by sector until a flush that was submitted after its completion has completed (or until
//! its own completion, with FUA), one that is still under way too.

use block::{Device, IoError, Op, Payload, Queue, Request};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as Unscheduled};
use sync::thread::JoinHandle;
use sync::{Condvar, Mutex, explore};
use testing::seed::Rng;

/// Bytes in a block of the device's store.
const BLOCK: usize = 4096;
/// The unit that a device writes whole.
pub const SECTOR: usize = 512;
/// The second sector of the super block. It goes with the first one: its checksum covers both, and
/// no implementation of ext4 survives one without the other (docs/MEDIA_ASSUMPTIONS.md).
const SUPERBLOCK_TAIL: u64 = 1024 + SECTOR as u64;

/// Contents: what all share, and what differs.
#[derive(Clone)]
pub struct Store {
    base: Arc<[u8]>,
    changed: BTreeMap<u64, Arc<[u8; BLOCK]>>,
}

impl Store {
    /// One with these contents.
    pub fn new(base: Arc<[u8]>) -> Store {
        let changed = BTreeMap::new();
        Store { base, changed }
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
                None => part.copy_from_slice(&self.base[at..at + len]),
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
            let base = &self.base[block * BLOCK..(block + 1) * BLOCK];
            let bytes = self
                .changed
                .entry(block as u64)
                .or_insert_with(|| Arc::new(base.try_into().expect("a block")));
            Arc::make_mut(bytes)[from..from + len].copy_from_slice(part);
            left = rest;
            at += len;
        }
    }

    /// All bytes.
    pub fn flatten(&self) -> Vec<u8> {
        let mut bytes = self.base.to_vec();
        for (block, data) in &self.changed {
            let at = *block as usize * BLOCK;
            bytes[at..at + BLOCK].copy_from_slice(&data[..]);
        }
        bytes
    }
}

/// Something that happened on the device.
enum Event {
    /// A write was submitted.
    Write {
        offset: u64,
        data: Box<[u8]>,
        fua: bool,
    },
    Flush,
    /// What was submitted by the event of this number has completed.
    Completed(usize),
}

#[derive(Default)]
struct Pending {
    /// Requests with the numbers of their events.
    requests: Vec<(Request, usize)>,
    stopped: bool,
}

struct Inner {
    /// Never held at a point.
    store: Unscheduled<Store>,
    events: Unscheduled<Vec<Event>>,
    initial: Store,
    pending: Mutex<Pending>,
    changed: Condvar,
}

impl Inner {
    /// Notes that a request was submitted; its number.
    fn note(&self, request: &Request) -> usize {
        let event = match request.op {
            Op::Write => Event::Write {
                offset: request.offset,
                data: written(request).into(),
                fua: request.flags.fua,
            },
            _ => Event::Flush,
        };
        let mut events = self.events.lock().expect("unscheduled");
        if request.op != Op::Read {
            events.push(event);
        }
        events.len().saturating_sub(1)
    }

    fn carry_out(&self, mut request: Request, number: usize) {
        {
            let mut store = self.store.lock().expect("unscheduled");
            let mut at = request.offset;
            match request.op {
                Op::Write => store.write(at, &written(&request)),
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
        if request.op != Op::Read {
            let mut events = self.events.lock().expect("unscheduled");
            events.push(Event::Completed(number));
        }
        request.complete(Ok(()));
    }

    /// The device's thread.
    fn serve(&self) {
        loop {
            let (request, number) = {
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
            self.carry_out(request, number);
        }
    }
}

fn written(request: &Request) -> Vec<u8> {
    let mut data = Vec::with_capacity(request.len as usize);
    for bio in &request.bios {
        if let Payload::Write(bufs) = &bio.payload {
            bufs.iter().for_each(|buf| data.extend_from_slice(buf));
        }
    }
    data
}

/// The device. Clones are the same one.
#[derive(Clone)]
pub struct Disk(Arc<Inner>);

impl Disk {
    /// One with these contents.
    pub fn new(store: Store) -> Disk {
        Disk(Arc::new(Inner {
            store: Unscheduled::new(store.clone()),
            events: Unscheduled::default(),
            initial: store,
            pending: Mutex::default(),
            changed: Condvar::new(),
        }))
    }

    /// Starts its thread. To be ended by [`Disk::stop`].
    pub fn start(&self) -> JoinHandle<()> {
        let inner = self.0.clone();
        let thread = sync::thread::Builder::new().name("device".into());
        thread.spawn(move || inner.serve()).expect("a thread")
    }

    /// Ends its thread when all is carried out.
    pub fn stop(&self, thread: JoinHandle<()>) {
        self.0.pending.lock().stopped = true;
        self.0.changed.notify_all();
        thread.join().expect("the device's thread ends");
    }

    /// A queue in front of it.
    pub fn queue(&self) -> Arc<Queue> {
        Queue::new(Box::new(Handle(self.0.clone())))
    }

    /// What it holds now.
    pub fn contents(&self) -> Store {
        self.0.store.lock().expect("unscheduled").clone()
    }

    /// How many events there were so far.
    pub fn position(&self) -> usize {
        self.0.events.lock().expect("unscheduled").len()
    }

    /// What a crash after the first `position` events may leave.
    pub fn crash(&self, position: usize, rng: &mut Rng) -> Store {
        let events = self.0.events.lock().expect("unscheduled");
        let events = &events[..position];
        let mut completed = BTreeMap::new();
        for (at, event) in events.iter().enumerate() {
            if let Event::Completed(number) = event {
                completed.insert(*number, at);
            }
        }
        // The last flush that completed, by when it was submitted.
        let flushed = completed
            .keys()
            .filter(|&&number| matches!(events[number], Event::Flush))
            .max()
            .copied();
        let mut image = self.0.initial.clone();
        let odds = 1 + rng.below(8);
        let mut apply = |number: usize, is_safe: bool| {
            if let Event::Write { offset, data, .. } = &events[number] {
                let mut kept = true;
                for (i, sector) in data.chunks(SECTOR).enumerate() {
                    let at = offset + (i * SECTOR) as u64;
                    if at != SUPERBLOCK_TAIL {
                        kept = is_safe || rng.below(9) < odds;
                    }
                    if kept {
                        image.write(at, sector);
                    }
                }
            }
        };
        for (at, event) in events.iter().enumerate() {
            if let Event::Completed(number) = event {
                let covered = flushed.is_some_and(|flush| at < flush);
                let fua = matches!(events[*number], Event::Write { fua: true, .. });
                apply(*number, covered || fua);
            }
        }
        for number in 0..events.len() {
            if !completed.contains_key(&number) {
                apply(number, false);
            }
        }
        image
    }
}

struct Handle(Arc<Inner>);

impl Device for Handle {
    fn name(&self) -> &str {
        "scheduled"
    }
    fn capacity(&self) -> u64 {
        self.0.initial.base.len() as u64
    }
    fn read_only(&self) -> bool {
        false
    }
    fn submit(&self, batch: Vec<Request>) {
        let mut pending = self.0.pending.lock();
        for request in batch {
            let number = self.0.note(&request);
            pending.requests.push((request, number));
        }
        drop(pending);
        self.0.changed.notify_one();
    }
    fn execute(&self, request: Request) {
        let number = self.0.note(&request);
        // Others may go on while the request is under way.
        sync::atomic::fence(sync::atomic::Ordering::SeqCst);
        self.0.carry_out(request, number);
        sync::atomic::fence(sync::atomic::Ordering::SeqCst);
    }
    fn write_zeroes(&self, offset: u64, len: u64) -> Result<bool, IoError> {
        let _ = (offset, len);
        Ok(false)
    }
}
