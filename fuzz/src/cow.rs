//! A copy-on-write device over a shared image: only changed blocks take memory.

use block::{Class, Device, IoError, Op, Payload, Queue, Request};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// Bytes in a block.
pub const BLOCK: usize = 4096;

/// An image, and the blocks of it that have changed.
#[derive(Clone)]
pub struct Cow {
    base: Arc<Vec<u8>>,
    changed: Arc<Mutex<BTreeMap<u64, Box<[u8; BLOCK]>>>>,
    protected: Arc<Mutex<Vec<Range<u64>>>>,
}

impl Cow {
    /// A copy of `base`, whose length is a multiple of the block size.
    pub fn new(base: &Arc<Vec<u8>>) -> Cow {
        Cow {
            base: base.clone(),
            changed: Arc::default(),
            protected: Arc::default(),
        }
    }
    /// From now on a write of data to these bytes is a finding.
    pub fn protect(&self, ranges: Vec<Range<u64>>) {
        *self.protected.lock().unwrap() = ranges;
    }
    /// A queue for the device.
    pub fn queue(&self) -> Arc<Queue> {
        Queue::new(Box::new(self.clone()))
    }
    /// The number of blocks.
    pub fn blocks(&self) -> u64 {
        (self.base.len() / BLOCK) as u64
    }
    /// The blocks that have changed.
    pub fn snapshot(&self) -> BTreeMap<u64, Box<[u8; BLOCK]>> {
        self.changed.lock().unwrap().clone()
    }
    /// The numbers of the blocks that have changed.
    pub fn changed(&self) -> Vec<u64> {
        self.changed.lock().unwrap().keys().copied().collect()
    }
    /// A block's bytes.
    pub fn get(&self, block: u64) -> Box<[u8; BLOCK]> {
        let changed = self.changed.lock().unwrap();
        changed.get(&block).cloned().unwrap_or_else(|| {
            let at = block as usize * BLOCK;
            let mut bytes = Box::new([0; BLOCK]);
            bytes.copy_from_slice(&self.base[at..at + BLOCK]);
            bytes
        })
    }
    /// Changes a block. A number beyond the image is ignored.
    pub fn edit(&self, block: u64, change: impl FnOnce(&mut [u8])) {
        if block < self.blocks() {
            let mut bytes = self.get(block);
            change(&mut bytes[..]);
            self.changed.lock().unwrap().insert(block, bytes);
        }
    }

    /// Changes bytes within one block of the volume, which is not larger than [`BLOCK`].
    pub fn edit_bytes(&self, at: u64, len: usize, change: impl FnOnce(&mut [u8])) {
        let start = (at % BLOCK as u64) as usize;
        self.edit(at / BLOCK as u64, |bytes| {
            change(&mut bytes[start..start + len]);
        });
    }

    fn carry_out(&self, request: &mut Request) -> Result<(), IoError> {
        let end = request.offset.checked_add(request.len);
        if end.is_none_or(|end| end > self.capacity()) {
            return Err(IoError {
                op: request.op,
                offset: request.offset,
                len: request.len,
                errno: 5,
            });
        }
        if request.op == Op::Write && request.class == Class::Data {
            let written = request.offset..request.offset + request.len;
            let protected = self.protected.lock().unwrap();
            let hit = |range: &&Range<u64>| range.start < written.end && written.start < range.end;
            if let Some(hit) = protected.iter().find(hit) {
                panic!("data is written to {written:?}, but {hit:?} is metadata");
            }
        }
        let mut at = request.offset;
        for bio in &mut request.bios {
            match (&mut bio.payload, request.op) {
                (Payload::Read(bufs), Op::Read) => {
                    for buf in bufs {
                        self.move_bytes(&mut at, buf.len(), |block, range, done| {
                            buf[done..done + range.len()].copy_from_slice(&self.get(block)[range]);
                        });
                    }
                }
                (Payload::Write(bufs), Op::Write) => {
                    for buf in bufs.iter() {
                        self.move_bytes(&mut at, buf.len(), |block, range, done| {
                            let len = range.len();
                            self.edit(block, |bytes| {
                                bytes[range].copy_from_slice(&buf[done..done + len]);
                            });
                        });
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn move_bytes(
        &self,
        at: &mut u64,
        len: usize,
        mut part: impl FnMut(u64, std::ops::Range<usize>, usize),
    ) {
        let mut done = 0;
        while done < len {
            let start = (*at % BLOCK as u64) as usize;
            let n = (BLOCK - start).min(len - done);
            part(*at / BLOCK as u64, start..start + n, done);
            done += n;
            *at += n as u64;
        }
    }
}

impl Device for Cow {
    fn name(&self) -> &str {
        "fuzzed image"
    }
    fn capacity(&self) -> u64 {
        self.base.len() as u64
    }
    fn read_only(&self) -> bool {
        false
    }
    fn submit(&self, batch: Vec<Request>) {
        batch.into_iter().for_each(|request| self.execute(request));
    }
    fn execute(&self, mut request: Request) {
        let result = self.carry_out(&mut request);
        request.complete(result);
    }
}
