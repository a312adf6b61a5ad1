//! Waiting for bios.
//!
//! [`Completion`] counts pending bios in an atomic. The lock is taken only to keep read buffers and
//! errors, and by the last bio to wake the waiter.

use crate::{BufMut, EndIo, IoError, Payload};
use smallvec::SmallVec;
use std::sync::Arc;
use sync::atomic::{AtomicUsize, Ordering};
use sync::{Condvar, Mutex, Rank};

/// Waits for a number of bios and keeps the first error. A completion that is reused after an error
/// keeps failing.
pub struct Completion {
    pending: AtomicUsize,
    outcome: Mutex<Outcome>,
    done: Condvar,
}

#[derive(Default)]
struct Outcome {
    error: Option<IoError>,
    reads: Vec<(u64, SmallVec<[BufMut; 1]>)>,
}

impl Completion {
    /// A completion without pending bios.
    pub fn new() -> Arc<Completion> {
        Completion::expecting(0)
    }

    /// A completion with `count` pending bios.
    pub fn expecting(count: usize) -> Arc<Completion> {
        Arc::new(Completion {
            pending: AtomicUsize::new(count),
            outcome: Rank::Completion.mutex(Outcome::default()),
            done: Condvar::new(),
        })
    }

    /// Announces `count` more bios, before they are submitted.
    pub fn expect(&self, count: usize) {
        self.pending.fetch_add(count, Ordering::Relaxed);
    }

    /// Whether all expected bios have completed.
    pub fn is_done(&self) -> bool {
        self.pending.load(Ordering::Acquire) == 0
    }

    /// Waits for all expected bios.
    ///
    /// # Errors
    /// The first error of a bio.
    pub fn wait(&self) -> Result<(), IoError> {
        let mut outcome = self.outcome.lock();
        while !self.is_done() {
            self.done.wait(&mut outcome);
        }
        match outcome.error {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// After [`Completion::wait`]: the buffers of the reads, ordered by tag.
    pub fn take_reads(&self) -> Vec<(u64, SmallVec<[BufMut; 1]>)> {
        let mut reads = std::mem::take(&mut self.outcome.lock().reads);
        reads.sort_by_key(|(tag, _)| *tag);
        reads
    }
}

impl EndIo for Completion {
    fn end_io(&self, tag: u64, payload: Payload, result: Result<(), IoError>) {
        if result.is_err() || matches!(payload, Payload::Read(_)) {
            let mut outcome = self.outcome.lock();
            if let Err(error) = result {
                outcome.error.get_or_insert(error);
            }
            if let Payload::Read(bufs) = payload {
                outcome.reads.push((tag, bufs));
            }
        } else {
            drop(payload);
        }
        if self.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
            // Prevents lost wake-ups.
            drop(self.outcome.lock());
            self.done.notify_all();
        }
    }
}

/// Counts the requests of a batch that must complete before the next batch starts.
pub(crate) struct Latch {
    pending: Mutex<usize>,
    zero: Condvar,
}

impl Latch {
    pub(crate) fn new(count: usize) -> Arc<Latch> {
        Arc::new(Latch {
            pending: Rank::Completion.mutex(count),
            zero: Condvar::new(),
        })
    }

    fn count_down(&self) {
        let mut pending = self.pending.lock();
        *pending -= 1;
        if *pending == 0 {
            self.zero.notify_all();
        }
    }

    pub(crate) fn wait(&self) {
        let mut pending = self.pending.lock();
        while *pending > 0 {
            self.zero.wait(&mut pending);
        }
    }
}

/// A request that a [`Latch`] waits for. Counts the latch down on drop.
pub(crate) struct LatchHold(pub(crate) Arc<Latch>);

impl Drop for LatchHold {
    fn drop(&mut self) {
        self.0.count_down();
    }
}
