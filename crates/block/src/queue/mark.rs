//! How much has been written, to be compared with how much is durable.

use sync::atomic::{AtomicU64, Ordering};

/// What a queue had written at a moment, as far as a flush has to make it durable
/// ([`crate::Queue::written`]). Marks of one queue are ordered; the default is "nothing".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriteMark(pub(super) u64);

/// A mark that only moves on.
#[derive(Debug, Default)]
pub struct AtomicWriteMark(AtomicU64);

impl AtomicWriteMark {
    /// Moves on to `mark`, unless it is there already.
    pub fn advance(&self, mark: WriteMark) {
        self.0.fetch_max(mark.0, Ordering::AcqRel);
    }
    /// Where it is.
    pub fn get(&self) -> WriteMark {
        WriteMark(self.0.load(Ordering::Acquire))
    }
}
