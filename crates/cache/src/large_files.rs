//! Files with many cached pages, in the order in which pages are reclaimed from them.

use std::collections::BTreeSet;
use std::ops::Bound;
use sync::{Mutex, Rank};
use units::Ino;

/// A ring of inode numbers. A number may belong to a file that has become small, or is not cached
/// any more.
pub(crate) struct LargeFiles {
    ring: Mutex<Ring>,
}

#[derive(Default)]
struct Ring {
    inos: BTreeSet<Ino>,
    /// The number that was returned last.
    hand: Option<Ino>,
}

impl Default for LargeFiles {
    fn default() -> LargeFiles {
        LargeFiles {
            ring: Rank::LargeFiles.mutex(Ring::default()),
        }
    }
}

impl LargeFiles {
    /// The number of files.
    pub(crate) fn len(&self) -> usize {
        self.ring.lock().inos.len()
    }
    /// Adds a file, unless it is there.
    pub(crate) fn add(&self, ino: Ino) {
        self.ring.lock().inos.insert(ino);
    }
    /// Removes a file.
    pub(crate) fn remove(&self, ino: Ino) {
        self.ring.lock().inos.remove(&ino);
    }
    /// Moves the hand to the next file.
    pub(crate) fn next(&self) -> Option<Ino> {
        let mut ring = self.ring.lock();
        let from = ring.hand.map_or(Bound::Unbounded, Bound::Excluded);
        let next = ring.inos.range((from, Bound::Unbounded)).next();
        let next = next.or_else(|| ring.inos.first()).copied();
        ring.hand = next;
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hand_goes_round() {
        let files = LargeFiles::default();
        assert_eq!(files.next(), None);
        for ino in [7, 3, 5, 3] {
            files.add(Ino(ino));
        }
        let next = || files.next().map_or(0, |ino| ino.0);
        assert_eq!([next(), next(), next(), next()], [3, 5, 7, 3]);
        files.remove(Ino(3));
        files.remove(Ino(5));
        assert_eq!([next(), next()], [7, 7]);
        assert_eq!(files.len(), 1);
    }
}
