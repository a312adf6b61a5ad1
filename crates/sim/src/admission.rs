//! Requests that wait before a device, and requests in it.
//!
//! ```text
//!   arrive ──▶ waiting (FIFO) ──next()──▶ in the device, end unknown ──decided()──▶ end known ──▶ gone at its end
//! ```
//!
//! At most `limit` requests are in the device. If a flush is not queued, it waits until the device
//! is empty, and no other request enters during it. (SATA: FLUSH CACHE is not an NCQ command, so
//! the host sends it only to an idle disk.)

use crate::io::{Id, Io, Ns};
use block::Op;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// How a flush enters the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlushEntry {
    /// As any request, beside others.
    Queued,
    /// Alone, into the empty device.
    Exclusive,
}

pub(crate) struct Admission {
    limit: usize,
    flush_entry: FlushEntry,
    waiting: VecDeque<(Id, Io)>,
    undecided: usize,
    ends: BinaryHeap<Reverse<Ns>>,
    /// The request in the device is a flush that is not queued.
    exclusive: bool,
}

impl Admission {
    pub(crate) fn new(limit: u64, flush_entry: FlushEntry) -> Admission {
        Admission {
            limit: limit as usize,
            flush_entry,
            waiting: VecDeque::new(),
            undecided: 0,
            ends: BinaryHeap::new(),
            exclusive: false,
        }
    }

    fn enters_alone(&self, io: &Io) -> bool {
        io.op == Op::Flush && self.flush_entry == FlushEntry::Exclusive
    }

    pub(crate) fn arrive(&mut self, id: Id, io: Io) {
        self.waiting.push_back((id, io));
    }

    /// Moves the next request that may enter at `now` into the device and returns it.
    pub(crate) fn next(&mut self, now: Ns) -> Option<(Id, Io)> {
        let (_, io) = self.waiting.front()?;
        while self.ends.peek().is_some_and(|Reverse(end)| *end <= now) {
            self.ends.pop();
        }
        let inside = self.undecided + self.ends.len();
        let alone = self.enters_alone(io);
        let limit = if alone || self.exclusive {
            1
        } else {
            self.limit
        };
        if inside >= limit {
            return None;
        }
        self.exclusive = alone;
        self.undecided += 1;
        self.waiting.pop_front()
    }

    /// A request in the device ends at `end`.
    pub(crate) fn decided(&mut self, end: Ns) {
        self.undecided -= 1;
        self.ends.push(Reverse(end));
    }

    /// The earliest time at which the next request may enter, according to the known ends.
    pub(crate) fn next_entry(&self) -> Option<Ns> {
        let (_, io) = self.waiting.front()?;
        if !self.exclusive && !self.enters_alone(io) {
            return self.ends.peek().map(|Reverse(end)| *end);
        }
        // The device must be empty. Unknown ends come later than the events that the device knows.
        if self.undecided > 0 {
            return None;
        }
        self.ends.iter().map(|Reverse(end)| *end).max()
    }
}
