//! Times, requests and decisions, which all models share.

use block::Op;

/// Nanoseconds since an arbitrary fixed moment.
pub type Ns = u64;
/// The caller's number for a request.
pub type Id = u64;

/// A request to a modelled device.
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
    /// The request.
    pub id: Id,
    /// Not before the call that returned the decision.
    pub end: Ns,
}

/// The earlier of two optional times.
pub(crate) fn earlier(a: Option<Ns>, b: Option<Ns>) -> Option<Ns> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
