//! A device in memory that can be copied, saved, recorded and told to fail.

use crate::crash::tear;
use crate::seed::Rng;
use block::{Bio, Buf, Class, Device, IoError, Op, Payload, Queue, Request};
use parking_lot::{Mutex, RwLock};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

/// Something that reached the device.
#[derive(Clone, Debug)]
pub enum Event {
    /// A write that completed.
    Write {
        /// Byte offset.
        offset: u64,
        /// What was written.
        data: Vec<u8>,
        /// Durable on completion.
        fua: bool,
        /// What the bytes are.
        class: Class,
    },
    /// A flush: everything before it is durable.
    Flush,
}

/// A request that was failed by an injector.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What was asked.
    pub op: Op,
    /// What the bytes are.
    pub class: Class,
    /// What was to be written.
    pub data: Vec<u8>,
}

/// Asked before each request: operation, class, byte offset, length. `Some(errno)` fails it.
pub type Injector = dyn Fn(Op, Class, u64, u64) -> Option<i32> + Send + Sync;

struct Inner {
    bytes: RwLock<Vec<u8>>,
    log: Mutex<Option<Vec<Event>>>,
    injector: RwLock<Option<Arc<Injector>>>,
    failures: Mutex<Vec<Failure>>,
    /// Decides what of a failed write is on the device all the same.
    torn: Mutex<Option<Rng>>,
}

/// A device in memory. Clones are the same device.
#[derive(Clone)]
pub struct Disk(Arc<Inner>);

impl Disk {
    /// One of `size` zero bytes.
    pub fn new(size: usize) -> Disk {
        Disk::from_bytes(vec![0; size])
    }

    /// One with these contents.
    pub fn from_bytes(bytes: Vec<u8>) -> Disk {
        Disk(Arc::new(Inner {
            bytes: RwLock::new(bytes),
            log: Mutex::new(None),
            injector: RwLock::new(None),
            failures: Mutex::default(),
            torn: Mutex::new(None),
        }))
    }

    /// One with the contents of an image.
    pub fn load(path: &Path) -> Disk {
        Disk::from_bytes(std::fs::read(path).expect("an image"))
    }

    /// A new queue in front of it.
    pub fn queue(&self) -> Arc<Queue> {
        Queue::new(Box::new(Handle(self.0.clone())))
    }

    /// Its contents now.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.bytes.read().clone()
    }

    /// Changes its contents past every queue.
    pub fn edit(&self, change: impl FnOnce(&mut Vec<u8>)) {
        change(&mut self.0.bytes.write());
    }

    /// Writes its contents into an image.
    pub fn save(&self, path: &Path) {
        save(&self.0.bytes.read(), path);
    }

    /// Begins to record from here on; the contents now.
    pub fn start_recording(&self) -> Vec<u8> {
        let bytes = self.0.bytes.read();
        *self.0.log.lock() = Some(Vec::new());
        bytes.clone()
    }

    /// Events recorded so far.
    pub fn position(&self) -> usize {
        self.0.log.lock().as_ref().map_or(0, Vec::len)
    }

    /// The events recorded so far.
    pub fn log(&self) -> Vec<Event> {
        self.0.log.lock().clone().unwrap_or_default()
    }

    /// Ends the recording.
    pub fn take_log(&self) -> Vec<Event> {
        self.0.log.lock().take().unwrap_or_default()
    }

    /// Lets requests fail from now on.
    pub fn inject(
        &self,
        injector: impl Fn(Op, Class, u64, u64) -> Option<i32> + Send + Sync + 'static,
    ) {
        *self.0.injector.write() = Some(Arc::new(injector));
    }

    /// Lets writes that fail from now on leave some of their sectors, by lot, instead of none.
    pub fn tear_failed_writes(&self, rng: Rng) {
        *self.0.torn.lock() = Some(rng);
    }

    /// The requests that an injector has failed so far.
    pub fn failures(&self) -> Vec<Failure> {
        self.0.failures.lock().clone()
    }

    /// Lets nothing fail any more.
    pub fn heal(&self) {
        *self.0.injector.write() = None;
    }
}

/// Writes `bytes` into a sparse file.
pub fn save(bytes: &[u8], path: &Path) {
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

/// What a bio writes.
fn bufs(bio: &Bio) -> &[Buf] {
    match &bio.payload {
        Payload::Write(bufs) => bufs,
        _ => &[],
    }
}

fn bytes_of(request: &Request) -> Vec<u8> {
    let bufs = request.bios.iter().flat_map(bufs);
    bufs.flat_map(|buf| buf.iter().copied()).collect()
}

struct Handle(Arc<Inner>);

impl Handle {
    fn verdict(&self, op: Op, class: Class, offset: u64, len: u64) -> Result<(), IoError> {
        let injector = self.0.injector.read().clone();
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

    /// Notes a failed request, and perhaps carries it out in part.
    fn fail(&self, request: &Request) {
        let data: Vec<u8> = bytes_of(request);
        if request.op == Op::Write
            && let Some(rng) = self.0.torn.lock().as_mut()
        {
            let mut bytes = self.0.bytes.write();
            let write = |data| Event::Write {
                offset: request.offset,
                data,
                fua: false,
                class: request.class,
            };
            tear(&mut bytes, &write(data.clone()), rng);
            let at = request.offset as usize;
            let found = bytes[at..at + data.len()].to_vec();
            self.record(|| write(found));
        }
        self.0.failures.lock().push(Failure {
            op: request.op,
            class: request.class,
            data,
        });
    }

    fn record(&self, event: impl FnOnce() -> Event) {
        if let Some(log) = self.0.log.lock().as_mut() {
            log.push(event());
        }
    }

    fn carry_out(&self, request: &mut Request) -> Result<(), IoError> {
        let verdict = self.verdict(request.op, request.class, request.offset, request.len);
        if verdict.is_err() {
            self.fail(request);
            return verdict;
        }
        let mut at = request.offset as usize;
        match request.op {
            Op::Flush => self.record(|| Event::Flush),
            Op::Read => {
                let bytes = self.0.bytes.read();
                for bio in &mut request.bios {
                    if let Payload::Read(bufs) = &mut bio.payload {
                        for buf in bufs {
                            let end = at + buf.len();
                            buf.copy_from_slice(&bytes[at..end]);
                            at = end;
                        }
                    }
                }
            }
            Op::Write => {
                // Under the lock of the bytes, so that the log has the order in which they changed.
                let mut bytes = self.0.bytes.write();
                for buf in request.bios.iter().flat_map(bufs) {
                    bytes[at..at + buf.len()].copy_from_slice(buf);
                    at += buf.len();
                }
                let (fua, class) = (request.flags.fua, request.class);
                self.record(|| Event::Write {
                    offset: request.offset,
                    data: bytes[request.offset as usize..at].to_vec(),
                    fua,
                    class,
                });
            }
        }
        Ok(())
    }
}

impl Device for Handle {
    fn name(&self) -> &str {
        "disk in memory"
    }

    fn capacity(&self) -> u64 {
        self.0.bytes.read().len() as u64
    }

    fn read_only(&self) -> bool {
        false
    }

    fn submit(&self, batch: Vec<Request>) {
        batch.into_iter().for_each(|r| self.execute(r));
    }

    fn execute(&self, mut request: Request) {
        let result = self.carry_out(&mut request);
        request.complete(result);
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> Result<bool, IoError> {
        self.verdict(Op::Write, Class::Data, offset, len)?;
        let mut bytes = self.0.bytes.write();
        let range = offset as usize..(offset + len) as usize;
        bytes[range.clone()].fill(0);
        self.record(|| Event::Write {
            offset,
            data: vec![0; range.len()],
            fua: false,
            class: Class::Data,
        });
        Ok(true)
    }
}
