//! Transaction numbers.

use std::fmt;
use sync::atomic::{AtomicU32, Ordering};

/// Number of a transaction, and its sequence number in the log.
///
/// Numbers wrap around, so they have no total order. [`Tid::reached`] compares two numbers that are
/// less than 2^31 apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tid(pub u32);

impl Tid {
    /// Returns whether this transaction is `other` or a later one.
    #[must_use]
    pub fn reached(self, other: Tid) -> bool {
        self.ahead_of(other) < 1 << 31
    }
    /// Returns how many transactions after `other` this one is, modulo 2^32.
    #[must_use]
    pub fn ahead_of(self, other: Tid) -> u32 {
        self.0.wrapping_sub(other.0)
    }
    /// Returns the number after this one.
    #[must_use]
    pub fn next(self) -> Tid {
        Tid(self.0.wrapping_add(1))
    }
    /// Returns the number before this one.
    #[must_use]
    pub fn previous(self) -> Tid {
        Tid(self.0.wrapping_sub(1))
    }
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A transaction number that several threads read and write.
pub(crate) struct AtomicTid(AtomicU32);

impl AtomicTid {
    pub fn new(tid: Tid) -> AtomicTid {
        AtomicTid(AtomicU32::new(tid.0))
    }
    pub fn load(&self) -> Tid {
        Tid(self.0.load(Ordering::Acquire))
    }
    pub fn store(&self, tid: Tid) {
        self.0.store(tid.0, Ordering::Release);
    }
    /// Sets the number, unless it has reached `tid` already.
    pub fn advance(&self, tid: Tid) {
        let later = |now| (!Tid(now).reached(tid)).then_some(tid.0);
        let _ = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, later);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_compare_by_distance() {
        assert!(Tid(5).reached(Tid(5)));
        assert!(Tid(6).reached(Tid(5)));
        assert!(!Tid(5).reached(Tid(6)));
        assert!(Tid(2).reached(Tid(u32::MAX - 2)));
        assert!(!Tid(u32::MAX - 2).reached(Tid(2)));
    }

    #[test]
    fn a_shared_number_only_advances() {
        let shared = AtomicTid::new(Tid(u32::MAX));
        shared.advance(Tid(2));
        shared.advance(Tid(u32::MAX - 1));
        assert_eq!(shared.load(), Tid(2));
    }
}
