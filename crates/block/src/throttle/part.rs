//! The part that each request has in throttling, by its reason.

use crate::io::{Op, Reason};

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

pub(super) fn part_of(op: Op, reason: Reason) -> Part {
    match (op, reason) {
        (Op::Read, Reason::Read | Reason::MetadataRead) => Part::Judged,
        (Op::Read, Reason::Readahead) => Part::Readahead,
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
