//! A model with a clock that jumps from event to event.

use block::Op;
pub use sim::Ns;
use sim::{Decision, Io, Model, SimUrl};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;
pub const MICRO: Ns = 1_000;
pub const MILLI: Ns = 1_000_000;
pub const SECOND: Ns = 1_000_000_000;
/// The size of every device.
pub const SIZE: u64 = 64 * GIB;

pub struct Bench {
    pub now: Ns,
    /// Whether the model is advanced at each event, so that it decides only future ends.
    pub punctual: bool,
    model: Model,
    ends: BinaryHeap<Reverse<(Ns, u64)>>,
    decisions: Vec<Decision>,
    submitted: u64,
    decided: u64,
}

impl Bench {
    /// An idle device: a kind, and parameters after commas.
    pub fn new(kind: &str) -> Bench {
        let url = SimUrl::parse(&format!("{kind},size={SIZE}")).unwrap();
        Bench {
            now: 0,
            punctual: true,
            model: Model::new(url.profile(), SIZE),
            ends: BinaryHeap::new(),
            decisions: Vec::new(),
            submitted: 0,
            decided: 0,
        }
    }

    fn settle(&mut self) {
        for Decision { id, end } in self.decisions.drain(..) {
            let in_time = end >= self.now || !self.punctual;
            assert!(in_time, "request {id} ends before it is decided");
            assert!(id < self.submitted);
            self.decided += 1;
            self.ends.push(Reverse((end, id)));
        }
    }

    /// Submits a request now. Returns its number.
    pub fn submit(&mut self, op: Op, offset: u64, len: u64, fua: bool) -> u64 {
        let id = self.submitted;
        self.submitted += 1;
        let io = Io {
            op,
            offset,
            len,
            fua,
        };
        self.model.submit(self.now, id, io, &mut self.decisions);
        self.settle();
        id
    }

    pub fn read(&mut self, offset: u64, len: u64) -> u64 {
        self.submit(Op::Read, offset, len, false)
    }

    pub fn write(&mut self, offset: u64, len: u64) -> u64 {
        self.submit(Op::Write, offset, len, false)
    }

    pub fn flush(&mut self) -> u64 {
        self.submit(Op::Flush, 0, 0, false)
    }

    /// Advances the time.
    pub fn advance(&mut self, to: Ns) {
        self.now = to;
        self.model.advance(to, &mut self.decisions);
        self.settle();
    }

    /// The time of the model's next event.
    pub fn event(&self) -> Option<Ns> {
        self.model.next_event()
    }

    /// Advances to the next end. Returns its time and the number of the request.
    pub fn next(&mut self) -> (Ns, u64) {
        loop {
            let event = self.event().unwrap_or(Ns::MAX);
            let end = self.ends.peek().map_or(Ns::MAX, |Reverse((end, _))| *end);
            assert!(event.min(end) < Ns::MAX, "a request is never decided");
            if end <= event {
                let Reverse(ended) = self.ends.pop().unwrap();
                self.advance(end.max(self.now));
                return ended;
            }
            assert!(event >= self.now, "an event in the past");
            self.advance(event);
        }
    }

    /// Waits for all requests, each of which is decided once. Returns the ends in order.
    pub fn finish(&mut self) -> Vec<(Ns, u64)> {
        let mut ends = Vec::new();
        while !self.ends.is_empty() || self.decided < self.submitted {
            ends.push(self.next());
        }
        assert_eq!(self.event(), None, "nothing is undecided");
        ends
    }

    /// Waits for all requests and then for one more. Returns how long that one takes.
    pub fn lone(&mut self, op: Op, offset: u64, len: u64, fua: bool) -> Ns {
        self.finish();
        let start = self.now;
        self.submit(op, offset, len, fua);
        self.finish();
        self.now - start
    }
}

/// A deterministic random number generator (xorshift, Marsaglia 2003).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
