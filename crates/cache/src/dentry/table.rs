//! A table of sets that grows with the names in it.
//!
//! Names that are few are in few cache lines and pages. At level 0 a name has its *home*, one of
//! `homes` sets. Each further level doubles the number of sets: the set `home` of level 0 is split
//! by one more bit of the fingerprint.
//!
//! ```text
//!   number of a set = (lowest `level` bits of the fingerprint) × homes + home
//! ```
//!
//! So sets keep their numbers, and a new one takes names of its *parent*, whose number lacks the
//! uppermost bit. It is born when a thread first changes it: under the counts of both, the names
//! move (Shalev and Shavit, Split-Ordered Lists, 2006, initialise buckets in this way). Until then
//! look-ups read the parent.
//!
//! The level is read without a lock, so a thread may use an old one:
//! - A change looks at the level again under the set's count. If another set has been born of this
//!   one, the count orders that birth before, and so the thread sees its level. If the birth comes
//!   later, it moves what was changed.
//! - A look-up that found a name in a parent is current as long as the parent's count is: a change
//!   of the name in a set that was born later comes after the birth, which changes the count.

use super::set::{Change, Fingerprint, Found, Set, Value};
use super::sync::{AtomicU32, Ordering};
use std::sync::OnceLock;

/// The table grows when one of so many sets has lost a name to another.
const CROWDED_PART: u32 = 256;

/// The place of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) name: Fingerprint,
    pub(crate) home: u32,
}

/// Sets, allocated `PIECE` at a time.
pub(crate) struct Table<const PIECE: usize> {
    pieces: Box<[OnceLock<Box<[Set; PIECE]>>]>,
    homes: u32,
    /// It only increases.
    level: AtomicU32,
    last_level: u32,
    /// Names that others have replaced since the table has grown. Apart from the level, which each
    /// look-up reads.
    replaced: Box<AtomicU32>,
    /// Called after a piece was allocated.
    allocated: Box<dyn Fn() + Send + Sync>,
}

impl<const PIECE: usize> Table<PIECE> {
    /// An empty table that grows to about `pieces` pieces, by at most `levels` doublings.
    pub(crate) fn new(
        pieces: usize,
        levels: u32,
        allocated: impl Fn() + Send + Sync + 'static,
    ) -> Table<PIECE> {
        let last_level = levels.min(pieces.ilog2());
        let first = pieces >> last_level;
        Table {
            pieces: (0..first << last_level).map(|_| OnceLock::new()).collect(),
            homes: (first * PIECE) as u32,
            level: AtomicU32::new(0),
            last_level,
            replaced: Box::new(AtomicU32::new(0)),
            allocated: Box::new(allocated),
        }
    }

    /// The number of homes.
    pub(crate) fn homes(&self) -> u32 {
        self.homes
    }

    /// Pieces that were allocated.
    pub(crate) fn allocated(&self) -> usize {
        let pieces = self.pieces.iter();
        pieces.filter(|piece| piece.get().is_some()).count()
    }

    /// Looks for a name. Takes no lock and writes nothing.
    #[inline]
    pub(crate) fn get(&self, place: Place) -> Option<(&Set, Found)> {
        let number = self.number(place, self.level.load(Ordering::Relaxed));
        let set = match self.existing(number) {
            Some(set) if number < self.homes || set.is_born() => set,
            _ => self.ancestor(number)?,
        };
        Some((set, set.get(place.name)?))
    }

    /// Stores what a name refers to. The caller has the lock of its directory.
    pub(crate) fn put(&self, place: Place, value: Value) {
        let replaced = self.change(place, |change| change.put(place.name, value));
        if replaced {
            self.note_replaced();
        }
    }

    /// Removes a name. The caller has its directory for itself.
    pub(crate) fn forget(&self, place: Place) {
        // A set of level 0 that was never made has nothing, and no other one was born of it.
        if self.existing(place.home).is_some() {
            self.change(place, |change| change.forget(place.name));
        }
    }

    /// Makes the table one level larger, unless another thread has done it.
    pub(crate) fn grow(&self, level: u32) {
        let grown =
            self.level
                .compare_exchange(level, level + 1, Ordering::Relaxed, Ordering::Relaxed);
        if grown.is_ok() {
            self.replaced.store(0, Ordering::Relaxed);
        }
    }

    fn note_replaced(&self) {
        let level = self.level.load(Ordering::Relaxed);
        if level == self.last_level {
            return;
        }
        let before = self.replaced.fetch_add(1, Ordering::Relaxed);
        if before >= (self.homes << level) / CROWDED_PART {
            self.grow(level);
        }
    }

    fn change<R>(&self, place: Place, make: impl Fn(&mut Change<'_>) -> R) -> R {
        loop {
            let level = self.level.load(Ordering::Relaxed);
            let mut change = self.born(self.number(place, level)).change();
            if self.level.load(Ordering::Relaxed) == level {
                return make(&mut change);
            }
        }
    }

    /// Returns the set that has the names of one that is not born.
    #[cold]
    fn ancestor(&self, mut number: u32) -> Option<&Set> {
        loop {
            let set = self.existing(number);
            if number < self.homes || set.is_some_and(Set::is_born) {
                return set;
            }
            number = self.parent(number);
        }
    }

    /// Returns a set, after the names that belong to it or to its neighbours in memory have moved
    /// there.
    pub(crate) fn born(&self, number: u32) -> &Set {
        let set = self.made(number);
        if number >= self.homes && !set.is_born() {
            let first = number - number % PIECE as u32;
            (first..first + PIECE as u32).for_each(|number| self.bear(number));
        }
        set
    }

    /// Moves the names of a set to it, unless it is born.
    #[cold]
    fn bear(&self, number: u32) {
        let set = self.made(number);
        if number < self.homes || set.is_born() {
            return;
        }
        let parent = self.parent(number);
        self.bear(parent);
        // Parents come first, so no two threads wait for each other.
        let mut from = self.made(parent).change();
        let mut to = set.change();
        let bits = number / self.homes;
        let mask = (2 << bits.ilog2()) - 1;
        // Nothing, if another thread has done it meanwhile.
        from.move_to(&mut to, |name| u32::from(name.low) & mask == bits);
    }

    /// The parent of a set that is not of level 0.
    fn parent(&self, number: u32) -> u32 {
        number - (self.homes << (number / self.homes).ilog2())
    }

    fn number(&self, place: Place, level: u32) -> u32 {
        let bits = u32::from(place.name.low) & ((1 << level) - 1);
        bits * self.homes + place.home
    }

    fn existing(&self, number: u32) -> Option<&Set> {
        let number = number as usize;
        Some(&self.pieces[number / PIECE].get()?[number % PIECE])
    }

    /// Returns a set, allocated if it is needed for the first time.
    pub(crate) fn made(&self, number: u32) -> &Set {
        let number = number as usize;
        let mut is_new = false;
        let piece = self.pieces[number / PIECE].get_or_init(|| {
            is_new = true;
            Box::new(std::array::from_fn(|_| Set::default()))
        });
        if is_new {
            (self.allocated)();
        }
        &piece[number % PIECE]
    }
}
