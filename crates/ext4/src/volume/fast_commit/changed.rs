//! A device whose changes stay in memory. Reads see, in this order, the changed blocks, the blocks
//! of the log that a replay would write, and the device below.

use block::{Buf, BufMut, Class, Device, IoError, Op, Payload, Queue, Reason, Request};
use cache::{Budget, Kind};
use jbd2::Overlay;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use sync::atomic::{AtomicBool, Ordering};
use sync::{Mutex, Rank};
use units::FsBlock;

/// The changed blocks take at most this part of the memory budget, and may take [`LEAST`] bytes.
const BUDGET_PART: u64 = 4;
const LEAST: u64 = 4 << 20;

const EIO: i32 = 5;
const ENOMEM: i32 = 12;

/// A device and the blocks of it that have changed. Clones share both.
#[derive(Clone)]
pub(super) struct ChangedDevice(Arc<Inner>);

struct Inner {
    below: Arc<Queue>,
    overlay: Overlay,
    block_size: u32,
    budget: Arc<Budget>,
    changed: Mutex<BTreeMap<FsBlock, Buf>>,
    is_full: AtomicBool,
}

impl ChangedDevice {
    pub fn new(
        below: Arc<Queue>,
        overlay: Overlay,
        block_size: u32,
        budget: Arc<Budget>,
    ) -> ChangedDevice {
        ChangedDevice(Arc::new(Inner {
            below,
            overlay,
            block_size,
            budget,
            changed: Rank::FastCommitBlocks.mutex(BTreeMap::new()),
            is_full: AtomicBool::new(false),
        }))
    }

    /// Returns a queue for the device.
    pub fn queue(&self) -> Arc<Queue> {
        Queue::new(Box::new(self.clone()))
    }

    /// Returns the changed blocks in ascending order.
    pub fn changed(&self) -> Vec<(FsBlock, Buf)> {
        let changed = self.0.changed.lock();
        changed.iter().map(|(at, buf)| (*at, buf.clone())).collect()
    }

    /// Returns the limit in bytes, if a write has failed because of it.
    pub fn exceeded(&self) -> Option<u64> {
        let is_full = self.0.is_full.load(Ordering::Relaxed);
        is_full.then(|| self.0.most())
    }
}

impl Inner {
    fn most(&self) -> u64 {
        (self.budget.limit() / BUDGET_PART).max(LEAST)
    }

    /// Returns the blocks that a range of bytes touches.
    fn touched(&self, bytes: Range<u64>) -> Range<FsBlock> {
        let size = u64::from(self.block_size);
        FsBlock(bytes.start / size)..FsBlock(bytes.end.div_ceil(size))
    }

    /// Returns whether the device below has the newest content of a range of bytes.
    fn is_below(&self, bytes: Range<u64>) -> bool {
        let touched = self.touched(bytes);
        self.overlay.first(touched.clone()).is_none()
            && self.changed.lock().range(touched).next().is_none()
    }

    /// Returns a block that is not read from the device below.
    fn above(&self, block: FsBlock) -> Result<Option<Buf>, IoError> {
        if let Some(buf) = self.changed.lock().get(&block) {
            return Ok(Some(buf.clone()));
        }
        self.overlay
            .read(&self.below, block)
            .map_err(|error| match error {
                jbd2::JournalError::Io(error) => error,
                _ => self.error(Op::Read, block, EIO),
            })
    }

    fn error(&self, op: Op, block: FsBlock, errno: i32) -> IoError {
        IoError {
            op,
            offset: block.offset(self.block_size),
            len: u64::from(self.block_size),
            errno,
        }
    }

    /// Reads bytes at an offset.
    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), IoError> {
        let size = u64::from(self.block_size);
        let (mut at, mut left) = (at, bytes);
        while !left.is_empty() {
            let (block, skip) = (FsBlock(at / size), (at % size) as usize);
            let len = left.len().min(size as usize - skip);
            let (part, rest) = left.split_at_mut(len);
            match self.above(block)? {
                Some(buf) => part.copy_from_slice(&buf[skip..skip + len]),
                None => {
                    let unit = block::PAGE_SIZE.min(len);
                    let read = self
                        .below
                        .read(at, len, unit, Class::Metadata, Reason::Recovery)?;
                    let (mut done, filled) = (0, part);
                    for buf in read {
                        filled[done..done + buf.len()].copy_from_slice(&buf);
                        done += buf.len();
                    }
                }
            }
            (at, left) = (at + len as u64, rest);
        }
        Ok(())
    }

    /// Keeps bytes at an offset, both multiples of the block size.
    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), IoError> {
        let size = self.block_size as usize;
        let first = FsBlock(at / size as u64);
        if !at.is_multiple_of(size as u64) || !bytes.len().is_multiple_of(size) {
            return Err(self.error(Op::Write, first, EIO));
        }
        let mut changed = self.changed.lock();
        for (nth, part) in bytes.chunks(size).enumerate() {
            let block = first + nth as u64;
            if changed
                .insert(block, BufMut::copy_of(part).freeze())
                .is_none()
            {
                self.budget.charge(Kind::Metadata, size as u64);
            }
            if (changed.len() * size) as u64 > self.most() {
                self.is_full.store(true, Ordering::Relaxed);
                return Err(self.error(Op::Write, block, ENOMEM));
            }
        }
        Ok(())
    }

    fn carry_out(&self, request: &mut Request) -> Result<(), IoError> {
        let mut at = request.offset;
        for bio in &mut request.bios {
            match &mut bio.payload {
                Payload::Read(bufs) => {
                    for buf in bufs {
                        self.read(at, buf)?;
                        at += buf.len() as u64;
                    }
                }
                Payload::Write(bufs) => {
                    for buf in bufs {
                        self.write(at, buf)?;
                        at += buf.len() as u64;
                    }
                }
                Payload::None => {}
            }
        }
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let blocks = self.changed.get_mut().len() as u64;
        let bytes = blocks * u64::from(self.block_size);
        self.budget.uncharge(Kind::Metadata, bytes);
    }
}

impl Device for ChangedDevice {
    fn name(&self) -> &str {
        self.0.below.name()
    }
    fn capacity(&self) -> u64 {
        self.0.below.capacity()
    }
    fn read_only(&self) -> bool {
        false
    }
    fn max_request_bytes(&self) -> u64 {
        self.0.below.device().max_request_bytes()
    }
    fn sector_size(&self) -> u64 {
        self.0.below.device().sector_size()
    }
    fn is_rotating(&self) -> Option<bool> {
        self.0.below.device().is_rotating()
    }
    fn submit(&self, batch: Vec<Request>) {
        let (below, here): (Vec<_>, Vec<_>) = batch.into_iter().partition(|request| {
            request.op == Op::Read && self.0.is_below(request.offset..request.end())
        });
        if !below.is_empty() {
            self.0.below.device().submit(below);
        }
        here.into_iter().for_each(|request| self.execute(request));
    }
    fn execute(&self, mut request: Request) {
        if request.op == Op::Read && self.0.is_below(request.offset..request.end()) {
            return self.0.below.device().execute(request);
        }
        let result = self.0.carry_out(&mut request);
        request.complete(result);
    }
}
