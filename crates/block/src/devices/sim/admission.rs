//! What waits before a device and what is in it.
//!
//! ```text
//!   arrive ──▶ waiting (FIFO) ──next()──▶ in the device, end unknown ──decided()──▶ end known ──▶ gone at its end
//! ```
//!
//! At most `limit` requests are in the device. Where a flush is not queued (SATA: FLUSH CACHE is no
//! NCQ command, so the host sends it only into an idle disk and nothing beside it), it waits until
//! the device is empty and is alone in it.

use super::model::{Id, Io, Ns};
use crate::Op;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

pub(super) struct Admission {
    limit: usize,
    queued_flush: bool,
    waiting: VecDeque<(Id, Io)>,
    undecided: usize,
    ends: BinaryHeap<Reverse<Ns>>,
    /// A flush is in the device that tolerates nobody beside it.
    exclusive: bool,
}

impl Admission {
    pub(super) fn new(limit: u64, queued_flush: bool) -> Admission {
        Admission {
            limit: limit as usize,
            queued_flush,
            waiting: VecDeque::new(),
            undecided: 0,
            ends: BinaryHeap::new(),
            exclusive: false,
        }
    }

    pub(super) fn arrive(&mut self, id: Id, io: Io) {
        self.waiting.push_back((id, io));
    }

    /// The next request that may enter at `now`, and enters.
    pub(super) fn next(&mut self, now: Ns) -> Option<(Id, Io)> {
        let (_, io) = self.waiting.front()?;
        while self.ends.peek().is_some_and(|Reverse(end)| *end <= now) {
            self.ends.pop();
        }
        let inside = self.undecided + self.ends.len();
        let alone = io.op == Op::Flush && !self.queued_flush;
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
    pub(super) fn decided(&mut self, end: Ns) {
        self.undecided -= 1;
        self.ends.push(Reverse(end));
    }

    /// When the next one may enter at the earliest, as far as known ends tell.
    pub(super) fn next_entry(&self) -> Option<Ns> {
        let (_, io) = self.waiting.front()?;
        if !self.exclusive && (io.op != Op::Flush || self.queued_flush) {
            return self.ends.peek().map(|Reverse(end)| *end);
        }
        // It takes an empty device, and ends yet unknown come later than events that the device
        // knows of.
        if self.undecided > 0 {
            return None;
        }
        self.ends.iter().map(|Reverse(end)| *end).max()
    }
}
