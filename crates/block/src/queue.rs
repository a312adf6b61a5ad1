//! The queue in front of a device: statistics, plugs, splitting to the device's limits, and
//! blocking conveniences.
//!
//! Unneeded flushes are skipped. `completed` counts completed writes that are not durable by
//! themselves. A flush reads the count before it starts, and stores it in `flushed` when it has
//! succeeded. A caller whose count is at most `flushed` is covered by a flush that started after
//! its writes completed. Callers that arrive while a flush runs share the next one.
//!
//! A failed flush is final: writes before it may be lost even if a later flush succeeds, because
//! the kernel reports a writeback error once. So every later flush of this queue fails until the
//! device is opened again.

mod flush;
mod gate;
mod look;
mod mark;
mod merge;
mod plug;

use crate::completion::{Latch, LatchHold};
use crate::tracking::{Shared, Tracking};
use crate::{
    Bio, Buf, BufMut, Class, Completion, Device, Durability, EndIo, IoError, Op, Payload, Reason,
    Request, SECTOR, Stats, Throttle,
};
pub use gate::Writes;
pub use mark::{AtomicWriteMark, WriteMark};
use merge::{cut_at_conflicts, has_conflict, merge};
pub use plug::{PLUG_BYTES, Plug};
use smallvec::SmallVec;
use std::sync::Arc;
use sync::atomic::{AtomicBool, Ordering};
use sync::waits::waiting;

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

    /// The path or URL of the device.
    pub fn name(&self) -> &str {
        self.device.name()
    }

    /// The size of the device in bytes.
    pub fn capacity(&self) -> u64 {
        self.device.capacity()
    }
    /// See [`Device::grow`].
    ///
    /// # Errors
    /// The system's.
    pub fn grow_device(&self, at_least: u64) -> std::io::Result<u64> {
        self.device.grow(at_least)
    }

    /// Whether writes are refused.
    pub fn read_only(&self) -> bool {
        self.device.read_only()
    }

    /// The device behind the queue.
    pub fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// Counters since the queue was made.
    pub fn stats(&self) -> &Stats {
        &self.shared.stats
    }

    /// The throttle of background writes.
    pub fn throttle(&self) -> &Throttle {
        &self.shared.throttle
    }

    /// Waits until a producer that wants to submit `want` bytes of limited writes has room for
    /// them, or for as many as are worth the while ([`Throttle`]). Returns the room in bytes,
    /// perhaps more than `want`; `u64::MAX` while there is no limit. The caller holds nothing back
    /// in a plug, and submits the writes next. Returns at once if `is_urgent`, which is asked again
    /// after each [`Throttle::kick`].
    pub fn wait_for_room(&self, reason: Reason, want: u64, is_urgent: impl Fn() -> bool) -> u64 {
        let throttle = self.throttle();
        if !Throttle::limits(reason) {
            return u64::MAX;
        }
        if throttle.needs_look() {
            throttle.set_rotating(look::is_rotating(self));
        }
        if throttle.wants_flush() {
            let _quiet = throttle.wait_for_flush(&is_urgent);
            // An error is kept for those who need the flush.
            let _ = self.flush(reason);
        }
        throttle.wait_for_room(reason, want, is_urgent)
    }

    /// Whether a plug may be held across several files, or flushes between two files (the
    /// `plug=off` ablation; see [`Plug::boundary`]). Bios that are submitted as one list (a commit,
    /// a checkpoint) are merged in both cases.
    pub fn set_plugging(&self, plugging: bool) {
        self.plugging.store(plugging, Ordering::Relaxed);
    }

    /// Whether a plug may be held across several files.
    pub fn plugging(&self) -> bool {
        self.plugging.load(Ordering::Relaxed)
    }

    /// Lets writes and discards pass, wait, or fail from now on. Those that have passed are
    /// executed.
    pub fn set_writes(&self, writes: Writes) {
        self.writes.set(writes);
    }

    /// A new plug.
    pub fn plug(&self) -> Plug<'_> {
        Plug::new(self)
    }

    /// Submits one bio at once.
    pub fn submit(&self, bio: Bio) {
        self.submit_batch(&mut vec![bio]);
    }

    /// Submits sorted or unsorted bios as one batch of merged requests and leaves `bios` empty.
    /// Returns before they complete, unless a bio overlaps an earlier one of the batch and must
    /// wait for it. The caller avoids overlap with bios of other batches.
    pub fn submit_batch(&self, bios: &mut Vec<Bio>) {
        self.refuse_bad(bios);
        if !has_conflict(bios) {
            let requests = self.start(bios);
            if !requests.is_empty() {
                self.device.submit(requests);
            }
            return;
        }
        // All bios are in requests before the first one is submitted: what a panic drops fails.
        let merged = |mut part| merge(&mut part, self.device.max_request_bytes());
        let parts: Vec<_> = cut_at_conflicts(bios).into_iter().map(merged).collect();
        let mut parts = parts.into_iter().peekable();
        while let Some(part) = parts.next() {
            let latch = parts.peek().map(|_| Latch::new(part.len()));
            let track = |request| self.track(request, latch.clone().map(LatchHold));
            let requests: Vec<_> = part.into_iter().map(track).collect();
            if !requests.is_empty() {
                self.device.submit(requests);
            }
            if let Some(latch) = latch {
                latch.wait();
            }
        }
    }

    /// Starts a flush. Calls `end` at once if no write has completed since the last flush began.
    pub fn submit_flush(&self, reason: Reason, end: Arc<dyn EndIo>, tag: u64) {
        self.submit(Bio::flush(reason, end, tag));
    }

    /// Reads `len` bytes at `offset` and waits; one buffer per `unit` bytes (`unit` ≤ page size). A
    /// lone request is executed by the calling thread (no hand-over to the completion thread).
    ///
    /// # Errors
    /// The device's, or `EIO` beyond its capacity, or `EINVAL` if `offset`, `len` or `unit` is not
    /// a multiple of [`SECTOR`].
    pub fn read(
        &self,
        offset: u64,
        len: usize,
        unit: usize,
        class: Class,
        reason: Reason,
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
        let bio = Bio::read(offset, bufs, class, reason, done.clone(), 0);
        self.submit_and_wait(&mut vec![bio], &done)?;
        let reads = done.take_reads();
        Ok(reads
            .into_iter()
            .flat_map(|(_, bufs)| bufs)
            .map(BufMut::freeze)
            .collect())
    }

    /// Writes `bufs` at `offset` and waits.
    ///
    /// # Errors
    /// The device's, or `ENOSPC` beyond its capacity, `EROFS` where it is read-only, or `EINVAL`
    /// where `offset` or the length is not a multiple of [`SECTOR`].
    pub fn write(
        &self,
        offset: u64,
        bufs: &[Buf],
        class: Class,
        reason: Reason,
        durability: Durability,
    ) -> Result<(), IoError> {
        let done = Completion::expecting(1);
        let bufs = bufs.iter().cloned().collect();
        let bio = Bio::write(offset, bufs, class, reason, done.clone(), 0);
        self.submit_and_wait(&mut vec![bio.with_durability(durability)], &done)
    }

    /// Submits `bios`, which `done` expects, and waits for `done`. The calling thread executes a
    /// single merged request.
    ///
    /// # Errors
    /// The first error of a bio.
    pub fn submit_and_wait(
        &self,
        bios: &mut Vec<Bio>,
        done: &crate::Completion,
    ) -> Result<(), IoError> {
        self.submit_inline(bios);
        done.wait()
    }

    /// As [`Queue::submit_batch`], for a caller that waits next: the calling thread executes a
    /// single merged request, which has completed on return.
    pub fn submit_inline(&self, bios: &mut Vec<Bio>) {
        self.refuse_bad(bios);
        if has_conflict(bios) {
            return self.submit_batch(bios);
        }
        let mut requests = self.start(bios);
        match requests.len() {
            0 => {}
            1 => self.execute(requests.pop().expect("there is one")),
            _ => self.device.submit(requests),
        }
    }

    /// Executes a request on the calling thread, which waits for the device.
    fn execute(&self, request: Request) {
        waiting(|| self.device.execute(request));
    }

    /// Makes every completed write durable and waits. Skipped if no write has completed since the
    /// last flush began.
    ///
    /// # Errors
    /// The device's; every later flush fails, too.
    pub fn flush(&self, reason: Reason) -> Result<(), IoError> {
        self.flush_up_to(self.written(), reason)
    }

    /// The completed writes that are not durable by themselves.
    pub fn written(&self) -> WriteMark {
        WriteMark(self.shared.completed())
    }

    /// Whether the writes that `mark` covers are durable.
    pub fn is_durable(&self, mark: WriteMark) -> bool {
        self.shared.covers(mark.0)
    }

    /// As [`Queue::flush`], for the writes that `mark` covers. Skipped if a flush since then covers
    /// them.
    ///
    /// # Errors
    /// As for [`Queue::flush`].
    pub fn flush_up_to(&self, mark: WriteMark, reason: Reason) -> Result<(), IoError> {
        self.flushing.flush(&self.shared, mark.0, |done| {
            let request = Request::of(Bio::flush(reason, done.clone(), 0));
            self.execute(self.track(request, None));
        })
    }

    /// Discards `len` bytes at `offset`, which are unused. They read as zeroes or as before.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the device has no discard; otherwise as for [`Queue::write`].
    pub fn discard(&self, offset: u64, len: u64) -> Result<(), IoError> {
        self.check(Op::Write, offset, len)?;
        let result = waiting(|| self.device.discard(offset, len));
        self.shared.note_undurable_write();
        result
    }

    /// Makes `len` bytes at `offset` read as zeroes, without writing them if the device can (punch
    /// hole, zero range).
    ///
    /// # Errors
    /// As for [`Queue::write`].
    pub fn write_zeroes(&self, offset: u64, len: u64, reason: Reason) -> Result<(), IoError> {
        self.check(Op::Write, offset, len)?;
        let result = waiting(|| self.device.write_zeroes(offset, len));
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
            self.write(at, &bufs, Class::Data, reason, Durability::Cached)?;
            at += step;
        }
        Ok(())
    }

    /// Returns an error if the bytes cannot be read or written. Waits while writes wait.
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

    /// Completes bios that cannot be executed, and flushes that are not needed.
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

    /// Merges `bios` and starts to account for them.
    fn start(&self, bios: &mut Vec<Bio>) -> Vec<Request> {
        let requests = merge(bios, self.device.max_request_bytes());
        let requests = requests.into_iter();
        requests.map(|r| self.track(r, None)).collect()
    }

    fn track(&self, mut request: Request, latch: Option<LatchHold>) -> Request {
        request.tracking = Some(Tracking::start(
            &self.shared,
            (request.op, request.reason, request.len),
            latch,
        ));
        request
    }
}

fn error(op: Op, offset: u64, len: u64, errno: i32) -> IoError {
    IoError {
        op,
        offset,
        len,
        errno,
    }
}
