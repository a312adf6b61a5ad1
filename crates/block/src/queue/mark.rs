//! A position in the sequence of completed writes, to compare with the durable ones.

use sync::atomic::{AtomicU64, Ordering};

/// The completed writes of a queue that need a flush to be durable ([`crate::Queue::written`]).
/// Marks of one queue are ordered; the default covers no write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriteMark(pub(super) u64);

/// A mark that only moves forward.
#[derive(Debug, Default)]
pub struct AtomicWriteMark(AtomicU64);

impl AtomicWriteMark {
    /// Moves the mark forward to `mark`.
    pub fn advance(&self, mark: WriteMark) {
        self.0.fetch_max(mark.0, Ordering::AcqRel);
    }
    /// The current mark.
    pub fn get(&self) -> WriteMark {
        WriteMark(self.0.load(Ordering::Acquire))
    }
}
