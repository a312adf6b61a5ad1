//! A few names of the cache, in one cache line, with reads that write nothing.
//!
//! A sequence count: it is odd while a writer changes the set, and each change makes it larger. A
//! reader reads the count, the names, and the count again. If the count is odd or differs, what the
//! reader saw may be half of a change, and it does not count. (Source: the kernel's `seqcount`.)
//!
//! Memory order: a writer makes the count odd before it stores with release order. A reader that
//! sees one of these stores, which it loads with acquire order, also sees the odd count or a later
//! one in its second look.
//!
//! The *place* of a name's inode in memory is only a hint, and the one thing that a reader may
//! change. It shares a word with a part of the fingerprint, so a reader exchanges the word that it
//! has read. A writer replaces the words of a name without a look at its place, and a reader's
//! exchange does not change the count: the name and its inode number are the same.

use super::sync::{AtomicU32, AtomicU64, Ordering, relax};

/// Names in a set.
pub(crate) const WAYS: usize = 3;

/// Bits of a way's third word for the place and [`DIRECTORY`]; the others are the fingerprint's.
const PLACE_BITS: u32 = 48;
const PLACE: u64 = ((1 << PLACE_BITS) - 1) & !DIRECTORY;
/// The name refers to a directory.
const DIRECTORY: u64 = 1;

/// A fingerprint of a directory and a name, of 80 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    /// Not 0.
    pub(crate) high: u64,
    pub(crate) low: u16,
}

/// The file that a name refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    /// The inode number; 0: no file has the name.
    pub(crate) ino: u32,
    pub(crate) kind: Kind,
}

/// The type of a file, as far as the cache has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It is a directory.
    Directory,
    /// It is not known to be a directory.
    Other,
}

#[derive(Default)]
#[repr(C, align(64))]
pub(crate) struct Set {
    count: AtomicU32,
    inos: [AtomicU32; WAYS],
    /// Upper bits of the fingerprints; 0 where there is no name.
    high: [AtomicU64; WAYS],
    /// Their lower bits, and the place of the inode with [`DIRECTORY`].
    rest: [AtomicU64; WAYS],
}

/// A name that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    ino: u32,
    rest: u64,
    way: u8,
    count: u32,
}

impl Found {
    pub(crate) fn value(&self) -> Value {
        Value {
            ino: self.ino,
            kind: match self.rest & DIRECTORY {
                0 => Kind::Other,
                _ => Kind::Directory,
            },
        }
    }
    /// The address at which the inode was seen; 0 if it is unknown.
    pub(crate) fn place(&self) -> u64 {
        self.rest & PLACE
    }
}

impl Set {
    /// Looks for a name. `None` as well while the set is being changed.
    #[inline]
    pub(crate) fn get(&self, name: Fingerprint) -> Option<Found> {
        let count = self.count.load(Ordering::Acquire);
        let way = (0..WAYS).find(|&way| self.has(way, name))?;
        let found = Found {
            ino: self.inos[way].load(Ordering::Acquire),
            rest: self.rest[way].load(Ordering::Acquire),
            way: way as u8,
            count,
        };
        (count.is_multiple_of(2) && self.is_current(found)).then_some(found)
    }

    /// Whether the set has not changed since the name was found.
    #[inline]
    pub(crate) fn is_current(&self, found: Found) -> bool {
        self.count.load(Ordering::Relaxed) == found.count
    }

    /// Stores the place of the inode of a name that was found, unless the name has changed. Any
    /// thread may call it at any time.
    pub(crate) fn note_place(&self, found: Found, place: u64) {
        // The same word may belong to another name by now: then that one has a wrong hint.
        let word = (found.rest & !PLACE) | (place & PLACE);
        let _ = self.rest[usize::from(found.way)].compare_exchange(
            found.rest,
            word,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }

    /// Begins a change. Other changes wait for its end.
    pub(crate) fn change(&self) -> Change<'_> {
        Change::begin(self)
    }

    /// Whether the set was ever changed. After 2³¹ changes it may seem not to be.
    #[inline]
    pub(crate) fn is_born(&self) -> bool {
        self.count.load(Ordering::Acquire) != 0
    }

    fn has(&self, way: usize, name: Fingerprint) -> bool {
        let rest = self.rest[way].load(Ordering::Acquire);
        (rest >> PLACE_BITS) as u16 == name.low
            && self.high[way].load(Ordering::Acquire) == name.high
    }
    fn is_empty(&self, way: usize) -> bool {
        self.high[way].load(Ordering::Relaxed) == 0
    }
    fn store(&self, way: usize, high: u64, rest: u64, ino: u32) {
        self.high[way].store(high, Ordering::Release);
        // A store would do. But loom does not order it after a reader's exchange of the old word.
        self.rest[way].swap(rest, Ordering::Release);
        self.inos[way].store(ino, Ordering::Release);
    }
}

/// A change of a set by this thread alone.
pub(crate) struct Change<'a> {
    set: &'a Set,
    count: u32,
}

impl Change<'_> {
    fn begin(set: &Set) -> Change<'_> {
        loop {
            let count = set.count.load(Ordering::Relaxed) & !1;
            let odd =
                set.count
                    .compare_exchange(count, count + 1, Ordering::Acquire, Ordering::Relaxed);
            if odd.is_ok() {
                return Change { set, count };
            }
            relax();
        }
    }

    /// Stores what a name refers to, in place of an older value or of another name. Returns whether
    /// it has replaced another name.
    pub(crate) fn put(&mut self, name: Fingerprint, value: Value) -> bool {
        let set = self.set;
        let same = (0..WAYS).find(|&way| set.has(way, name));
        let at = same.or_else(|| self.empty_way());
        let directory = match value.kind {
            Kind::Directory => DIRECTORY,
            Kind::Other => 0,
        };
        let rest = u64::from(name.low) << PLACE_BITS | directory;
        // Successive changes replace one name after another.
        let way = at.unwrap_or(self.count as usize / 2 % WAYS);
        set.store(way, name.high, rest, value.ino);
        at.is_none()
    }

    /// Removes a name. No other thread puts it in meanwhile.
    pub(crate) fn forget(&mut self, name: Fingerprint) {
        for way in (0..WAYS).filter(|&way| self.set.has(way, name)) {
            self.set.store(way, 0, 0, 0);
        }
    }

    /// Moves those of the names that are `wanted` to a set, as many as it has room for.
    pub(crate) fn move_to(&mut self, to: &mut Change<'_>, wanted: impl Fn(Fingerprint) -> bool) {
        for way in 0..WAYS {
            let high = self.set.high[way].load(Ordering::Relaxed);
            let rest = self.set.rest[way].load(Ordering::Relaxed);
            let low = (rest >> PLACE_BITS) as u16;
            if high == 0 || !wanted(Fingerprint { high, low }) {
                continue;
            }
            if let Some(empty) = to.empty_way() {
                let ino = self.set.inos[way].load(Ordering::Relaxed);
                to.set.store(empty, high, rest, ino);
            }
            self.set.store(way, 0, 0, 0);
        }
    }

    fn empty_way(&self) -> Option<usize> {
        (0..WAYS).find(|&way| self.set.is_empty(way))
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let next = self.count.wrapping_add(2);
        self.set.count.store(next, Ordering::Release);
    }
}
