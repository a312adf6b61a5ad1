//! One interface for all models: requests in, ends out, over a clock that the caller owns.
//!
//! A model is a deterministic state machine. It reads no clock and knows no threads: the caller
//! passes the time in nanoseconds to every call, and it must not go backwards. The end of a request
//! is *decided* as soon as no later request can change it, often at once. A flush, or a write that
//! waits for room, is decided when the drain has progressed far enough.
//!
//! ```text
//!   submit(now, id, io) ─┐
//!                        ├──▶ decisions: (id, end) …      end ≥ now
//!   advance(now) ────────┘
//!   next_event() ── when to call advance for the next decision, unless a request comes before
//! ```
//!
//! Work that no request waits for (the drain of a cache) is simulated at the next call, so it costs
//! no wake-up.

use crate::disk::Disk;
use crate::flash::Flash;
use crate::io::{Decision, Id, Io, Ns};
use crate::profile::Profile;
use crate::raid0::Raid0;

/// A modelled device.
pub struct Model(Kind);

enum Kind {
    Flash(Flash),
    Raid0(Raid0),
    Disk(Disk),
}

impl Model {
    /// An idle device of `capacity` bytes.
    pub fn new(profile: &Profile, capacity: u64) -> Model {
        Model(match profile {
            Profile::Ssd(p) | Profile::Nvme(p) => Kind::Flash(Flash::new(p)),
            Profile::Raid0(p) => Kind::Raid0(Raid0::new(p)),
            Profile::Hdd(p) => Kind::Disk(Disk::new(p, capacity)),
        })
    }

    /// Takes a request that arrives at `now`, and appends the decisions to `out`.
    pub fn submit(&mut self, now: Ns, id: Id, io: Io, out: &mut Vec<Decision>) {
        match &mut self.0 {
            Kind::Flash(m) => m.submit(now, id, io, out),
            Kind::Raid0(m) => m.submit(now, id, io, out),
            Kind::Disk(m) => m.submit(now, id, io, out),
        }
    }

    /// Advances the time to `now`, and appends the decisions to `out`.
    pub fn advance(&mut self, now: Ns, out: &mut Vec<Decision>) {
        match &mut self.0 {
            Kind::Flash(m) => m.advance(now, out),
            Kind::Raid0(m) => m.advance(now, out),
            Kind::Disk(m) => m.advance(now, out),
        }
    }

    /// When to advance next; `None` if every request is decided.
    pub fn next_event(&self) -> Option<Ns> {
        match &self.0 {
            Kind::Flash(m) => m.next_event(),
            Kind::Raid0(m) => m.next_event(),
            Kind::Disk(m) => m.next_event(),
        }
    }
}
