//! The queue's account of a request in flight.

use crate::completion::LatchHold;
use crate::io::{Durability, IoError, Op, Reason};
use crate::stats::Stats;
use crate::throttle::Throttle;
use std::sync::Arc;
use std::time::Duration;
use sync::atomic::{AtomicU64, Ordering};
use sync::{Mutex, Rank};

/// The part of a queue that requests in flight refer to.
pub(crate) struct Shared {
    pub(crate) stats: Stats,
    pub(crate) throttle: Throttle,
    /// Writes that completed and that a flush has to cover. Starts at 1: bytes that were written
    /// before the device was opened may not be durable.
    completed: AtomicU64,
    /// The largest `completed` that a successful flush saw before it started.
    flushed: AtomicU64,
    /// The first failed flush.
    flush_error: Mutex<Option<IoError>>,
}

impl Default for Shared {
    fn default() -> Shared {
        Shared {
            stats: Stats::default(),
            throttle: Throttle::default(),
            completed: AtomicU64::new(1),
            flushed: AtomicU64::new(0),
            flush_error: Rank::QueueState.mutex(None),
        }
    }
}

impl Shared {
    pub(crate) fn note_undurable_write(&self) {
        self.completed.fetch_add(1, Ordering::SeqCst);
    }

    /// Writes that a flush started now would cover.
    pub(crate) fn completed(&self) -> u64 {
        self.completed.load(Ordering::SeqCst)
    }

    /// Whether the first `count` writes are durable.
    pub(crate) fn covers(&self, count: u64) -> bool {
        self.flushed.load(Ordering::SeqCst) >= count
    }

    /// The first failed flush, if any.
    pub(crate) fn flush_error(&self) -> Option<IoError> {
        *self.flush_error.lock()
    }

    /// Whether a flush must go to the device.
    pub(crate) fn needs_flush(&self) -> bool {
        self.flush_error().is_none() && !self.covers(self.completed())
    }

    /// The result of a flush that does not go to the device.
    pub(crate) fn elided_flush(&self) -> Result<(), IoError> {
        match self.flush_error() {
            Some(error) => Err(error),
            None => {
                self.stats.count_elided_flush();
                Ok(())
            }
        }
    }
}

/// Attached to a request when it is handed to the device.
pub(crate) struct Tracking {
    shared: Arc<Shared>,
    /// As at submission: a device may change the request.
    reason: Reason,
    /// [`sync::time::monotonic`] at submission.
    began: Duration,
    /// Writes completed at the start, and their bytes; a flush covers them.
    covers: u64,
    covers_bytes: u64,
    latch: Option<LatchHold>,
}

impl Tracking {
    pub(crate) fn start(
        shared: &Arc<Shared>,
        (op, reason, len): (Op, Reason, u64),
        latch: Option<LatchHold>,
    ) -> Tracking {
        let began = sync::time::monotonic();
        shared.stats.count_start(reason);
        shared.throttle.start(op, reason, len, began);
        Tracking {
            reason,
            began,
            covers: shared.completed(),
            covers_bytes: shared.throttle.start_flush(),
            shared: shared.clone(),
            latch,
        }
    }

    /// Accounts for a completed request of `len` bytes and `bios` bios, before its bios complete.
    /// Returns what the caller drops after that.
    pub(crate) fn finish(
        self,
        op: Op,
        len: u64,
        bios: usize,
        durability: Durability,
        result: &Result<(), IoError>,
    ) -> Option<LatchHold> {
        match (op, result) {
            (Op::Read, _) => {}
            (Op::Write, Ok(())) if durability == Durability::Fua => {}
            // A part of a failed write may be on the device.
            (Op::Write, _) => self.shared.note_undurable_write(),
            (Op::Flush, Ok(())) => {
                self.shared.flushed.fetch_max(self.covers, Ordering::SeqCst);
            }
            (Op::Flush, Err(error)) => {
                self.shared.flush_error.lock().get_or_insert(*error);
            }
        }
        let stats = &self.shared.stats;
        if result.is_err() {
            stats.count_error();
        }
        let times = (self.began, sync::time::monotonic());
        stats.count_end(op, len, bios, self.reason, times.1.saturating_sub(times.0));
        let throttle = &self.shared.throttle;
        match op {
            Op::Flush => throttle.finish_flush(self.covers_bytes, times),
            _ => throttle.finish((op, self.reason, len), durability, times),
        }
        self.latch
    }
}
