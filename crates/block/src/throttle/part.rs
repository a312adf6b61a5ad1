//! The part that each request has in throttling, by its reason.

use crate::io::{Op, Reason};

/// A write of at most this many bytes that a thread waits for is judged as a read is.
const SMALL_WRITE: u64 = 64 << 10;

/// The part that a request has in throttling.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// A thread waits for it; its latency is judged.
    Judged,
    /// A reader will want it soon.
    Readahead,
    /// It is limited.
    Limited,
    /// Neither.
    Other,
}

pub(super) fn part_of(op: Op, reason: Reason, len: u64) -> Part {
    match (op, reason) {
        (Op::Read, Reason::Read | Reason::MetadataRead) => Part::Judged,
        (Op::Read, Reason::Readahead) => Part::Readahead,
        (Op::Write, Reason::Sync | Reason::Journal) if len <= SMALL_WRITE => Part::Judged,
        (Op::Write, _) if limit_part(reason).is_some() => Part::Limited,
        _ => Part::Other,
    }
}

/// The part of the limit, in halves, that writes of this reason may use while threads read; `None`
/// for writes that are not limited.
pub(super) fn limit_part(reason: Reason) -> Option<u64> {
    match reason {
        Reason::Background | Reason::Periodic | Reason::Checkpoint => Some(1),
        Reason::Reclaim | Reason::Throttled => Some(2),
        _ => None,
    }
}
