//! What a queue learns when a request completes.

use crate::completion::Latch;
use crate::{BioFlags, IoError, Op, Stats};
use std::sync::Arc;
use std::time::Instant;
use sync::atomic::{AtomicU64, Ordering};
use sync::{Mutex, Rank};

/// The part of a queue that requests in flight refer to.
pub(super) struct Shared {
    pub(super) stats: Stats,
    /// Writes that completed and that a flush has to cover. Starts at 1: what was there at opening
    /// may not be durable.
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
            completed: AtomicU64::new(1),
            flushed: AtomicU64::new(0),
            flush_error: Rank::QueueState.mutex(None),
        }
    }
}

impl Shared {
    pub(super) fn note_undurable_write(&self) {
        self.completed.fetch_add(1, Ordering::SeqCst);
    }

    /// Writes that a flush started now would cover.
    pub(super) fn completed(&self) -> u64 {
        self.completed.load(Ordering::SeqCst)
    }

    /// Whether the first `count` writes are durable.
    pub(super) fn covers(&self, count: u64) -> bool {
        self.flushed.load(Ordering::SeqCst) >= count
    }

    /// The first failed flush, if any.
    pub(super) fn flush_error(&self) -> Option<IoError> {
        *self.flush_error.lock()
    }

    /// Whether a flush must go to the device.
    pub(super) fn needs_flush(&self) -> bool {
        self.flush_error().is_none() && !self.covers(self.completed())
    }

    /// The result of a flush that does not go to the device.
    pub(super) fn elided_flush(&self) -> Result<(), IoError> {
        match self.flush_error() {
            Some(error) => Err(error),
            None => {
                self.note_elided_flush();
                Ok(())
            }
        }
    }

    pub(super) fn note_elided_flush(&self) {
        self.stats.flushes_elided.fetch_add(1, Ordering::Relaxed);
    }
}

/// Attached to a request when it is handed to the device.
pub(crate) struct Tracking {
    shared: Arc<Shared>,
    started: Instant,
    /// Writes completed at the start: what a flush covers.
    covers: u64,
    latch: Option<Arc<Latch>>,
}

impl Tracking {
    pub(super) fn start(shared: &Arc<Shared>, latch: Option<Arc<Latch>>) -> Tracking {
        shared.stats.in_flight.fetch_add(1, Ordering::Relaxed);
        Tracking {
            started: sync::time::now(),
            covers: shared.completed(),
            shared: shared.clone(),
            latch,
        }
    }

    /// Accounts for a completed request, before anybody is told of it; the latch to count down
    /// after they were.
    pub(crate) fn finish(
        self,
        op: Op,
        len: u64,
        bios: usize,
        flags: BioFlags,
        result: &Result<(), IoError>,
    ) -> Option<Arc<Latch>> {
        let stats = &self.shared.stats;
        let add = |counter: &AtomicU64, n: u64| counter.fetch_add(n, Ordering::Relaxed);
        match op {
            Op::Read => {
                add(&stats.read_ios, 1);
                add(&stats.read_bytes, len);
            }
            Op::Write => {
                stats.count_write(len);
                // A failed write may have landed in part.
                if !flags.fua || result.is_err() {
                    self.shared.note_undurable_write();
                }
            }
            Op::Flush => {
                add(&stats.flushes, 1);
                match result {
                    Ok(()) => {
                        self.shared.flushed.fetch_max(self.covers, Ordering::SeqCst);
                    }
                    Err(error) => {
                        self.shared.flush_error.lock().get_or_insert(*error);
                    }
                }
            }
        }
        if bios > 1 {
            add(&stats.merged, bios as u64 - 1);
        }
        if result.is_err() {
            add(&stats.errors, 1);
        }
        add(
            &stats.queue_ns,
            (sync::time::now() - self.started).as_nanos() as u64,
        );
        stats.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.latch
    }
}
