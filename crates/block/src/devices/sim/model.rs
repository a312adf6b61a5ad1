//! The models as one: requests in, ends out, over a clock that the caller owns.
//!
//! A model is a deterministic state machine. It reads no clock and knows no threads: every call is
//! given the time in nanoseconds, which must not go backwards. What a request will cost is
//! *decided* as soon as nothing that may still come can change it, often at once; a flush or a
//! write that waits for room is decided when the drain has got so far.
//!
//! ```text
//!   submit(now, id, io) ─┐
//!                        ├──▶ decisions: (id, end) …      end ≥ now
//!   advance(now) ────────┘
//!   next_event() ── when to call advance for the next decision, if no other request comes before; never too late
//! ```
//!
//! Work that nobody waits for (the drain of a cache) is simulated when the next call comes, so it
//! costs no wake-up.

use super::disk::Disk;
use super::flash::Flash;
use super::raid0::Raid0;
use super::url::Profile;
use crate::Op;

/// Nanoseconds since some beginning.
pub type Ns = u64;
/// Names a request; the caller's to choose.
pub type Id = u64;

/// What is asked of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// Read, write or flush.
    pub op: Op,
    /// Byte offset.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// For a write: durable when it ends.
    pub fua: bool,
}

/// When a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Of the request.
    pub id: Id,
    /// Not before the call that told it.
    pub end: Ns,
}

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

    /// Takes a request that comes at `now`, and tells what has been decided.
    pub fn submit(&mut self, now: Ns, id: Id, io: Io, out: &mut Vec<Decision>) {
        match &mut self.0 {
            Kind::Flash(m) => m.submit(now, id, io, out),
            Kind::Raid0(m) => m.submit(now, id, io, out),
            Kind::Disk(m) => m.submit(now, id, io, out),
        }
    }

    /// Lets time pass until `now`, and tells what has been decided.
    pub fn advance(&mut self, now: Ns, out: &mut Vec<Decision>) {
        match &mut self.0 {
            Kind::Flash(m) => m.advance(now, out),
            Kind::Raid0(m) => m.advance(now, out),
            Kind::Disk(m) => m.advance(now, out),
        }
    }

    /// When to advance next; `None` while nothing is undecided.
    pub fn next_event(&self) -> Option<Ns> {
        match &self.0 {
            Kind::Flash(m) => m.next_event(),
            Kind::Raid0(m) => m.next_event(),
            Kind::Disk(m) => m.next_event(),
        }
    }
}

/// The earlier of two moments that may not come.
pub(super) fn earlier(a: Option<Ns>, b: Option<Ns>) -> Option<Ns> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
