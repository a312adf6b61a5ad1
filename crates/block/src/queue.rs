//! The queue in front of a device: statistics, plugs, splitting to the device's limits, and
//! blocking conveniences.
//!
//! Flushes are elided. `completed` counts writes that completed and are not durable by themselves;
//! a flush notes the count before it starts and, when it has succeeded, that note becomes
//! `flushed`. A caller whose count is at most `flushed` is covered by a flush that started after
//! its writes completed. Callers that arrive while a flush runs share the next one.
//!
//! A flush that failed stays failed: what was written before it may be lost although a later flush
//! succeeds (the kernel reports a writeback error once), so every later flush of this queue fails
//! until the device is opened anew.

mod flush;
mod gate;
mod mark;
mod tracking;

use crate::completion::Latch;
use crate::merge::{cut_at_conflicts, has_conflict, merge};
use crate::{
    Bio, BioFlags, Buf, BufMut, Class, Completion, Device, EndIo, IoError, Op, Payload, Plug,
    Request, Stats,
};
pub use gate::Writes;
pub use mark::{AtomicWriteMark, WriteMark};
use smallvec::SmallVec;
use std::sync::Arc;
use sync::atomic::{AtomicBool, Ordering};
use tracking::Shared;
pub(crate) use tracking::Tracking;

/// Offsets and lengths on a device are multiples of this many bytes.
pub const SECTOR: u64 = 512;

/// A device with its plug policy and counters.
pub struct Queue {
    device: Box<dyn Device>,
    shared: Arc<Shared>,
    plugging: AtomicBool,
    flushing: flush::FlushGate,
    writes: gate::WriteGate,
}

impl Queue {
    /// Puts a queue in front of `device`.
    pub fn new(device: Box<dyn Device>) -> Arc<Queue> {
        Arc::new(Queue {
            device,
            shared: Arc::default(),
            plugging: AtomicBool::new(true),
            flushing: flush::FlushGate::default(),
            writes: gate::WriteGate::default(),
        })
    }

    /// What the device is called (its path or URL).
    pub fn name(&self) -> &str {
        self.device.name()
    }

    /// Bytes the device holds.
    pub fn capacity(&self) -> u64 {
        self.device.capacity()
    }

    /// Whether writes are refused.
    pub fn read_only(&self) -> bool {
        self.device.read_only()
    }

    /// The device behind it.
    pub fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// Counters since it was opened.
    pub fn stats(&self) -> &Stats {
        &self.shared.stats
    }

    /// Whether a plug may be held across several files, or flushes between two of them (the
    /// `plug=off` ablation; see [`Plug::boundary`]). What is submitted as one list (the journal's
    /// stream, a checkpoint) is merged either way.
    pub fn set_plugging(&self, on: bool) {
        self.plugging.store(on, Ordering::Relaxed);
    }

    /// Whether a plug may be held across several files.
    pub fn plugging(&self) -> bool {
        self.plugging.load(Ordering::Relaxed)
    }

    /// Lets writes (and discards) pass, wait, or fail from now on. Those that have passed are
    /// carried out.
    pub fn set_writes(&self, writes: Writes) {
        self.writes.set(writes);
    }

    /// Starts gathering.
    pub fn plug(&self) -> Plug<'_> {
        Plug::new(self)
    }

    /// Submits one bio at once.
    pub fn submit(&self, bio: Bio) {
        self.submit_batch(&mut vec![bio]);
    }

    /// Submits sorted or unsorted bios as one batch of merged requests and leaves `bios` empty.
    /// Returns before they complete, except where a bio overlaps an earlier one of the batch and
    /// must wait for it. Overlap with bios of other batches is the caller's to avoid.
    pub fn submit_batch(&self, bios: &mut Vec<Bio>) {
        self.refuse_bad(bios);
        if !has_conflict(bios) {
            let requests = self.start(bios, false).0;
            if !requests.is_empty() {
                self.device.submit(requests);
            }
            return;
        }
        let mut parts = cut_at_conflicts(bios).into_iter().peekable();
        while let Some(mut part) = parts.next() {
            let (requests, latch) = self.start(&mut part, parts.peek().is_some());
            if !requests.is_empty() {
                self.device.submit(requests);
            }
            if let Some(latch) = latch {
                latch.wait();
            }
        }
    }

    /// Starts a flush. `end` is called at once where nothing has completed since the last flush
    /// began.
    pub fn submit_flush(&self, end: Arc<dyn EndIo>, tag: u64) {
        self.submit(Bio::flush(end, tag));
    }

    /// Reads `len` bytes at `offset` and waits; one buffer per `unit` bytes (`unit` ≤ page size). A
    /// lone request is executed by the calling thread (no hand-over to the completion thread).
    ///
    /// # Errors
    /// The device's, or `EIO` beyond its capacity, or `EINVAL` where `offset`, `len` or `unit` is
    /// not a multiple of [`SECTOR`].
    pub fn read(
        &self,
        offset: u64,
        len: usize,
        unit: usize,
        class: Class,
    ) -> Result<Vec<Buf>, IoError> {
        if unit == 0 || unit > crate::PAGE_SIZE {
            return Err(error(Op::Read, offset, len as u64, libc::EINVAL));
        }
        if len as u64 > self.capacity() {
            return Err(error(Op::Read, offset, len as u64, libc::EIO));
        }
        let mut bufs = SmallVec::with_capacity(len.div_ceil(unit));
        let mut left = len;
        while left > 0 {
            bufs.push(BufMut::scratch(left.min(unit)));
            left -= left.min(unit);
        }
        let done = Completion::expecting(1);
        let bio = Bio::read(offset, bufs, class, done.clone(), 0).with_flags(SYNC);
        self.submit_and_wait(&mut vec![bio], &done)?;
        let reads = done.take_reads();
        Ok(reads
            .into_iter()
            .flat_map(|(_, bufs)| bufs)
            .map(BufMut::freeze)
            .collect())
    }

    /// Writes `bufs` at `offset` and waits; durable on return where `fua` is set.
    ///
    /// # Errors
    /// The device's, or `ENOSPC` beyond its capacity, `EROFS` where it is read-only, or `EINVAL`
    /// where `offset` or the length is not a multiple of [`SECTOR`].
    pub fn write(&self, offset: u64, bufs: &[Buf], class: Class, fua: bool) -> Result<(), IoError> {
        let done = Completion::expecting(1);
        let bufs = bufs.iter().cloned().collect();
        let flags = BioFlags { fua, ..SYNC };
        let bio = Bio::write(offset, bufs, class, done.clone(), 0).with_flags(flags);
        self.submit_and_wait(&mut vec![bio], &done)
    }

    /// Submits `bios` (already counted on `done` by the caller) and waits for `done`; a single
    /// merged request is executed by the calling thread.
    ///
    /// # Errors
    /// The first of those that `done` was told.
    pub fn submit_and_wait(
        &self,
        bios: &mut Vec<Bio>,
        done: &crate::Completion,
    ) -> Result<(), IoError> {
        self.submit_inline(bios);
        done.wait()
    }

    /// As [`Queue::submit_batch`], for a caller that is about to wait: a single merged request is
    /// executed by the calling thread and has completed on return.
    pub fn submit_inline(&self, bios: &mut Vec<Bio>) {
        self.refuse_bad(bios);
        if has_conflict(bios) {
            return self.submit_batch(bios);
        }
        let mut requests = self.start(bios, false).0;
        match requests.len() {
            0 => {}
            1 => self.device.execute(requests.pop().expect("there is one")),
            _ => self.device.submit(requests),
        }
    }

    /// Makes every completed write durable and waits. Skipped where no write has completed since
    /// the last flush began.
    ///
    /// # Errors
    /// The device's; then for good, see the module.
    pub fn flush(&self) -> Result<(), IoError> {
        self.flush_up_to(self.written())
    }

    /// What has been written by writes that completed and are not durable by themselves.
    pub fn written(&self) -> WriteMark {
        WriteMark(self.shared.completed())
    }

    /// As [`Queue::flush`], for what had been written when `mark` was taken: skipped where a later
    /// flush covers it.
    ///
    /// # Errors
    /// As for [`Queue::flush`].
    pub fn flush_up_to(&self, mark: WriteMark) -> Result<(), IoError> {
        self.flushing.flush(&self.shared, mark.0, |done| {
            let request = Request::of(Bio::flush(done.clone(), 0));
            self.device.execute(self.track(request, None));
        })
    }

    /// Tells the device that `len` bytes at `offset` hold nothing (they read as zeroes or as
    /// before).
    ///
    /// # Errors
    /// `EOPNOTSUPP` where the device has no such thing. As for [`Queue::write`].
    pub fn discard(&self, offset: u64, len: u64) -> Result<(), IoError> {
        self.check(Op::Write, offset, len)?;
        let result = self.device.discard(offset, len);
        self.shared.note_undurable_write();
        result
    }

    /// Makes `len` bytes at `offset` read as zeroes, cheaply where the device can (punch hole, zero
    /// range).
    ///
    /// # Errors
    /// As for [`Queue::write`].
    pub fn write_zeroes(&self, offset: u64, len: u64) -> Result<(), IoError> {
        self.check(Op::Write, offset, len)?;
        let result = self.device.write_zeroes(offset, len);
        self.shared.note_undurable_write();
        if result? {
            return Ok(());
        }
        // One page of zeroes, shared by every buffer, a request at a time.
        let zeroes = BufMut::zeroed(crate::PAGE_SIZE).freeze();
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let step = (end - at).min(self.device.max_request_bytes());
            let mut bufs = vec![zeroes.clone(); step as usize / crate::PAGE_SIZE];
            let tail = step as usize % crate::PAGE_SIZE;
            if tail > 0 {
                bufs.push(BufMut::zeroed(tail).freeze());
            }
            self.write(at, &bufs, Class::Data, false)?;
            at += step;
        }
        Ok(())
    }

    /// Why bytes cannot be read or written there, if they cannot; waits where writes have to.
    fn check(&self, op: Op, offset: u64, len: u64) -> Result<(), IoError> {
        let fail = |errno| Err(error(op, offset, len, errno));
        if op == Op::Write && self.read_only() {
            return fail(libc::EROFS);
        }
        if op == Op::Write && !self.writes.pass() {
            return fail(libc::EBUSY);
        }
        if !offset.is_multiple_of(SECTOR) || !len.is_multiple_of(SECTOR) {
            return fail(libc::EINVAL);
        }
        match offset.checked_add(len) {
            Some(end) if end <= self.capacity() => Ok(()),
            _ if op == Op::Write => fail(libc::ENOSPC),
            _ => fail(libc::EIO),
        }
    }

    /// Completes bios that cannot be carried out, and flushes that need not be.
    fn refuse_bad(&self, bios: &mut Vec<Bio>) {
        let bad = |bio: &mut Bio| match bio.op {
            Op::Flush => !self.shared.needs_flush(),
            op => {
                let mismatch = match bio.payload {
                    Payload::Write(_) => op != Op::Write,
                    Payload::Read(_) => op != Op::Read,
                    Payload::None => true,
                };
                mismatch || bio.is_empty() || self.check(op, bio.offset, bio.len()).is_err()
            }
        };
        if bios.len() == 1 && !bad(&mut bios[0]) {
            return;
        }
        for bio in bios.extract_if(.., bad) {
            let result = match bio.op {
                Op::Flush => self.shared.elided_flush(),
                op if bio.is_empty() => Err(error(op, bio.offset, 0, libc::EINVAL)),
                op => self.check(op, bio.offset, bio.len()),
            };
            match result {
                Err(e) => bio.complete(Err(e)),
                Ok(()) if bio.op == Op::Flush => bio.complete(Ok(())),
                Ok(()) => bio.fail(libc::EINVAL),
            }
        }
    }

    /// Merges `bios` and starts accounting for them; with a latch to wait for them on request.
    fn start(&self, bios: &mut Vec<Bio>, wait: bool) -> (Vec<Request>, Option<Arc<Latch>>) {
        let requests = merge(bios, self.device.max_request_bytes());
        let latch = (wait && !requests.is_empty()).then(|| Latch::new(requests.len()));
        let requests = requests
            .into_iter()
            .map(|r| self.track(r, latch.clone()))
            .collect();
        (requests, latch)
    }

    fn track(&self, mut request: Request, latch: Option<Arc<Latch>>) -> Request {
        request.tracking = Some(Tracking::start(&self.shared, latch));
        request
    }
}

const SYNC: BioFlags = BioFlags {
    fua: false,
    sync: true,
    readahead: false,
};

fn error(op: Op, offset: u64, len: u64, errno: i32) -> IoError {
    IoError {
        op,
        offset,
        len,
        errno,
    }
}
