//! A table of sets that grows with the names in it.
//!
//! Names that are few are in few cache lines and pages. At level 0 a name has its *home*, one of
//! `homes` sets. Each further level doubles the number of sets: the set `home` of level 0 is split
//! by one more bit of the fingerprint.
//!
//! ```text
//!   number of a set = (home, lowest `level` bits of the fingerprint)
//! ```
//!
//! So sets keep their numbers, and a new one takes names of its *parent*, whose number lacks the
//! uppermost bit. It is born when a thread first changes it: under the counts of both, the names
//! move (Shalev and Shavit, Split-Ordered Lists, 2006, initialise buckets in this way). Until then
//! look-ups read the parent. The new sets of a level have memory of their own, so no set moves.
//!
//! The level is read without a lock, so a thread may use an old one:
//! - A change looks at the level again under the set's count. If another set has been born of this
//!   one, the count orders that birth before, and so the thread sees its level. If the birth comes
//!   later, it moves what was changed.
//! - A look-up that found a name in a parent is current as long as the parent's count is: a change
//!   of the name in a set that was born later comes after the birth, which changes the count.

use super::set::{Change, Fingerprint, Found, Set, Value};
use super::sync::{AtomicU32, Ordering};
use std::ops::Deref;
use std::sync::OnceLock;

/// The table grows when one of so many sets has lost a name to another. Each loss costs a search of
/// a directory later, about as much time as the birth of so many sets.
const CROWDED_PART: u32 = 32;

/// The place of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) name: Fingerprint,
    pub(crate) home: u32,
}

impl Place {
    /// Returns the set of the name in a table of this level.
    fn at(self, level: u32) -> Number {
        Number {
            home: self.home,
            bits: u32::from(self.name.low) & ((1 << level) - 1),
        }
    }
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number {
    pub(crate) home: u32,
    pub(crate) bits: u32,
}

impl Number {
    /// The level that has brought the set.
    fn level(self) -> u32 {
        u32::BITS - self.bits.leading_zeros()
    }

    /// The bit by which it differs from its parent; 0 at level 0.
    fn own_bit(self) -> u32 {
        (1 << self.level()) >> 1
    }

    fn parent(self) -> Number {
        Number {
            bits: self.bits - self.own_bit(),
            ..self
        }
    }
}

/// A table whose sets of a level are in an `L`. Of these, `TOGETHER` neighbours are born together.
pub(crate) struct Table<L, const TOGETHER: u32> {
    levels: Box<[OnceLock<L>]>,
    homes: u32,
    /// It only increases. Levels up to it have their sets, level 0 from the first name on.
    level: AtomicU32,
    /// Names that others have replaced since the table has grown. Apart from the level, which each
    /// look-up reads.
    replaced: Box<AtomicU32>,
    /// Returns so many sets, empty; `None` if there is no memory.
    make: Box<dyn Fn(u32) -> Option<L> + Send + Sync>,
}

impl<L: Deref<Target = [Set]>, const TOGETHER: u32> Table<L, TOGETHER> {
    /// An empty table that grows to about `sets` sets, by at most `levels` doublings.
    pub(crate) fn new(
        sets: u32,
        levels: u32,
        make: impl Fn(u32) -> Option<L> + Send + Sync + 'static,
    ) -> Table<L, TOGETHER> {
        let neighbours = (sets / TOGETHER).max(1);
        let levels = levels.min(neighbours.ilog2());
        Table {
            levels: (0..=levels).map(|_| OnceLock::new()).collect(),
            homes: (neighbours >> levels) * TOGETHER,
            level: AtomicU32::new(0),
            replaced: Box::new(AtomicU32::new(0)),
            make: Box::new(make),
        }
    }

    /// The number of homes.
    pub(crate) fn homes(&self) -> u32 {
        self.homes
    }

    /// Doublings until now.
    #[cfg(test)]
    pub(crate) fn level(&self) -> u32 {
        self.level.load(Ordering::Relaxed)
    }

    /// Looks for a name. Takes no lock and writes nothing.
    #[inline]
    pub(crate) fn get(&self, place: Place) -> Option<(&Set, Found)> {
        let number = place.at(self.level.load(Ordering::Acquire));
        let mut set = self.set(number)?;
        if number.bits != 0 && !set.is_born() {
            set = self.ancestor(number)?;
        }
        Some((set, set.get(place.name)?))
    }

    /// Stores what a name refers to, if there is memory. The caller has the lock of its directory.
    pub(crate) fn put(&self, place: Place, value: Value) {
        if self.levels[0].get().is_none() {
            self.make(0);
        }
        let replaced = self.change(place, |change| change.put(place.name, value));
        if replaced == Some(true) {
            self.note_replaced();
        }
    }

    /// Removes a name. The caller has its directory for itself.
    pub(crate) fn forget(&self, place: Place) {
        self.change(place, |change| change.forget(place.name));
    }

    /// Makes the table one level larger, unless another thread has done it or there is no memory.
    pub(crate) fn grow(&self, level: u32) {
        self.replaced.store(0, Ordering::Relaxed);
        if self.make(level + 1) {
            let (old, new) = (level, level + 1);
            let _ = self
                .level
                .compare_exchange(old, new, Ordering::Release, Ordering::Relaxed);
        }
    }

    fn note_replaced(&self) {
        let level = self.level.load(Ordering::Relaxed);
        if level as usize + 1 == self.levels.len() {
            return;
        }
        let before = self.replaced.fetch_add(1, Ordering::Relaxed);
        if before >= (self.homes << level) / CROWDED_PART {
            self.grow(level);
        }
    }

    /// Changes the set of a name, unless the table is empty.
    fn change<R>(&self, place: Place, make: impl Fn(&mut Change<'_>) -> R) -> Option<R> {
        loop {
            let level = self.level.load(Ordering::Acquire);
            let mut change = self.born(place.at(level))?.change();
            if self.level.load(Ordering::Relaxed) == level {
                return Some(make(&mut change));
            }
        }
    }

    /// Returns the set that has the names of one that is not born.
    #[cold]
    fn ancestor(&self, mut number: Number) -> Option<&Set> {
        loop {
            number = number.parent();
            let set = self.set(number)?;
            if number.bits == 0 || set.is_born() {
                return Some(set);
            }
        }
    }

    /// Returns a set, after the names that belong to it or to its neighbours in memory have moved
    /// there.
    pub(crate) fn born(&self, number: Number) -> Option<&Set> {
        let set = self.set(number)?;
        if number.bits != 0 && !set.is_born() {
            let first = number.home - number.home % TOGETHER;
            for home in first..first + TOGETHER {
                self.bear(Number { home, ..number });
            }
        }
        Some(set)
    }

    /// Moves the names of a set to it, unless it is born.
    #[cold]
    fn bear(&self, number: Number) {
        let parent = number.parent();
        let (Some(set), Some(from)) = (self.set(number), self.set(parent)) else {
            return;
        };
        if number.bits == 0 || set.is_born() {
            return;
        }
        self.bear(parent);
        // Parents come first, so no two threads wait for each other.
        let mut from = from.change();
        let mut to = set.change();
        let mask = number.own_bit() * 2 - 1;
        // Nothing, if another thread has done it meanwhile.
        from.move_to(&mut to, |name| u32::from(name.low) & mask == number.bits);
    }

    /// Returns a set of a level that has its sets.
    #[inline]
    fn set(&self, number: Number) -> Option<&Set> {
        let sets = self.levels[number.level() as usize].get()?;
        let at = (number.bits - number.own_bit()) * self.homes + number.home;
        sets.get(at as usize)
    }

    /// Makes the sets of a level, unless it has them. Returns whether it has.
    #[cold]
    pub(crate) fn make(&self, level: u32) -> bool {
        let slot = &self.levels[level as usize];
        if slot.get().is_none() {
            let sets = match level {
                0 => self.homes,
                _ => self.homes << (level - 1),
            };
            // Another thread may be first.
            let _ = (self.make)(sets).map(|sets| slot.set(sets));
        }
        slot.get().is_some()
    }
}
