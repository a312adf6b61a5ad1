//! The queue of one processor.
//!
//! The kernel gives a request to an entry that waits in the queue of the caller's processor, the
//! one that began to wait last. Without one the request waits in the kernel until a *reply* of this
//! queue is sent; an entry that is registered later does not take it. Two rules follow:
//!
//! - A queue has all of its entries from the start, many more than usual loads need. So a slow
//!   request delays no other, unless as many requests as entries are in progress.
//! - Replies that wait for another request of the kernel, for example for one that has locked a
//!   page, leave at least one entry of the queue out ([`Queue::try_hold`]). The reply of that entry
//!   does not wait, and then takes whatever is queued. So such waits always end.

use crate::abi::opcode::WRITE;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Entries of a queue on machines with few processors. Each holds at most one request, also one
/// whose reply is sent later.
const MOST_ENTRIES: usize = 128;
/// Entries of a queue on machines with many processors.
const FEWEST_ENTRIES: usize = 8;
/// Entries of all queues, unless that leaves fewer than [`FEWEST_ENTRIES`] for each.
const ALL_ENTRIES: usize = 2048;

/// The number of entries of each of `queues` queues.
pub fn entries_per_queue(queues: u16) -> usize {
    (ALL_ENTRIES / usize::from(queues.max(1))).clamp(FEWEST_ENTRIES, MOST_ENTRIES)
}

/// A queue.
#[derive(Debug)]
pub struct Queue {
    number: u16,
    entries: usize,
    /// Replies that wait for another request.
    held: AtomicUsize,
    requests: AtomicU64,
    changes: AtomicU64,
    writes: AtomicU64,
    /// The thread that has sent the last request.
    caller: AtomicU32,
    /// A bit for each worker that has had a request since the last call of [`Queue::take_workers`];
    /// some share one.
    workers: AtomicU64,
}

/// Requests that a queue has had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub requests: u64,
    /// Requests whose caller was not that of the request before.
    pub changes: u64,
    /// Requests that write data.
    pub writes: u64,
}

impl Traffic {
    /// The difference to an earlier count.
    pub fn since(self, earlier: Traffic) -> Traffic {
        Traffic {
            requests: self.requests.wrapping_sub(earlier.requests),
            changes: self.changes.wrapping_sub(earlier.changes),
            writes: self.writes.wrapping_sub(earlier.writes),
        }
    }
}

impl Queue {
    /// The queue of the processor `number`.
    pub fn new(number: u16, entries: usize) -> Queue {
        Queue {
            number,
            entries,
            held: AtomicUsize::new(0),
            requests: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            caller: AtomicU32::new(0),
            workers: AtomicU64::new(0),
        }
    }

    pub fn number(&self) -> u16 {
        self.number
    }

    /// Counts a request of the thread `caller`, which the worker `worker` carries out. The caller 0
    /// is the kernel itself.
    pub fn note_request(&self, opcode: u32, caller: u32, worker: usize) {
        // Two threads at once may count one change twice or not at all.
        if caller != 0 && self.caller.load(Ordering::Relaxed) != caller {
            self.caller.store(caller, Ordering::Relaxed);
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
        if opcode == WRITE {
            self.writes.fetch_add(1, Ordering::Relaxed);
        }
        self.workers.fetch_or(1 << (worker % 64), Ordering::Relaxed);
        self.requests.fetch_add(1, Ordering::SeqCst);
    }

    /// The requests until now.
    pub fn traffic(&self) -> Traffic {
        Traffic {
            requests: self.requests.load(Ordering::SeqCst),
            changes: self.changes.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
        }
    }

    /// The number of workers that have had requests since the last call, at most 64.
    pub fn take_workers(&self) -> u32 {
        self.workers.swap(0, Ordering::Relaxed).count_ones()
    }

    /// The thread that has sent the last request.
    pub fn caller(&self) -> u32 {
        self.caller.load(Ordering::Relaxed)
    }

    /// Whether one more reply may wait for another request. [`Queue::release_held`] ends it.
    #[must_use]
    pub fn try_hold(&self) -> bool {
        let more = |held: usize| (held + 1 < self.entries).then_some(held + 1);
        self.held
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, more)
            .is_ok()
    }

    pub fn release_held(&self) {
        self.held.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::opcode::READ;

    #[test]
    fn one_entry_of_a_queue_never_holds_its_reply() {
        let queue = Queue::new(0, 3);
        assert!(queue.try_hold() && queue.try_hold());
        assert!(!queue.try_hold());
        queue.release_held();
        assert!(queue.try_hold());
    }

    #[test]
    fn requests_callers_and_workers_are_counted() {
        let queue = Queue::new(0, 3);
        for (worker, caller) in [7, 7, 0, 7, 8, 7].into_iter().enumerate() {
            let opcode = if worker < 2 { WRITE } else { READ };
            queue.note_request(opcode, caller, worker % 3);
        }
        assert_eq!(queue.take_workers(), 3);
        assert_eq!(queue.take_workers(), 0);
        let expected = Traffic {
            requests: 6,
            changes: 3,
            writes: 2,
        };
        assert_eq!(queue.traffic(), expected);
    }

    #[test]
    fn many_processors_have_fewer_entries_each() {
        assert_eq!(entries_per_queue(1), 128);
        assert_eq!(entries_per_queue(2), 128);
        assert_eq!(entries_per_queue(64), 32);
        assert_eq!(entries_per_queue(512), 8);
        assert_eq!(entries_per_queue(8192), 8);
    }
}
