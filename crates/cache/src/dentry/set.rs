//! A few names of the cache, in one cache line, with reads that write nothing.
//!
//! A sequence count: it is odd while a writer changes the set, and each change makes it larger. A
//! reader reads the count, the names, and the count again. If the count is odd or differs, what the
//! reader saw may be half of a change, and it does not count. (Source: the kernel's `seqcount`.)
//!
//! Memory order: a writer makes the count odd before it stores with release order. A reader that
//! sees one of these stores, which it loads with acquire order, also sees the odd count or a later
//! one in its second look.

use super::sync::{AtomicU32, AtomicU64, Ordering, relax};

/// Names in a set.
pub(crate) const WAYS: usize = 3;

/// A fingerprint of a directory and a name, of 96 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    pub(crate) high: u64,
    pub(crate) low: u32,
}

#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Set {
    count: AtomicU32,
    /// The way that is replaced next.
    hand: AtomicU32,
    ways: [Way; WAYS],
}

#[derive(Default)]
struct Way {
    /// Upper bits of the fingerprint.
    high: AtomicU64,
    /// Its lower bits, then the inode number. No name has 0 in `high` and here.
    rest: AtomicU64,
}

impl Way {
    fn has(&self, name: Fingerprint) -> bool {
        let rest = self.rest.load(Ordering::Acquire);
        (rest >> 32) as u32 == name.low && self.high.load(Ordering::Acquire) == name.high
    }
    fn is_empty(&self) -> bool {
        self.rest.load(Ordering::Relaxed) == 0 && self.high.load(Ordering::Relaxed) == 0
    }
    fn store(&self, high: u64, rest: u64) {
        self.high.store(high, Ordering::Release);
        self.rest.store(rest, Ordering::Release);
    }
}

/// A name that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The inode number; 0: no file has the name.
    pub(crate) ino: u32,
    count: u32,
}

impl Set {
    /// Looks for a name. `None` as well while the set is being changed.
    #[inline]
    pub(crate) fn get(&self, name: Fingerprint) -> Option<Found> {
        let count = self.count.load(Ordering::Acquire);
        let way = self.ways.iter().find(|way| way.has(name))?;
        let ino = way.rest.load(Ordering::Acquire) as u32;
        let found = Found { ino, count };
        (count.is_multiple_of(2) && self.is_current(found)).then_some(found)
    }

    /// Whether the set has not changed since the name was found.
    #[inline]
    pub(crate) fn is_current(&self, found: Found) -> bool {
        self.count.load(Ordering::Relaxed) == found.count
    }

    /// Stores the inode number of a name, in place of an older one or of another name.
    pub(crate) fn put(&self, name: Fingerprint, ino: u32) {
        let change = Change::begin(self);
        let same = self.ways.iter().position(|way| way.has(name));
        let at = same.or_else(|| self.ways.iter().position(Way::is_empty));
        let at = at.unwrap_or_else(|| {
            let hand = self.hand.load(Ordering::Relaxed);
            self.hand.store(hand.wrapping_add(1), Ordering::Relaxed);
            hand as usize % WAYS
        });
        let rest = u64::from(name.low) << 32 | u64::from(ino);
        self.ways[at].store(name.high, rest);
        drop(change);
    }

    /// Removes a name. No other thread puts it in meanwhile.
    pub(crate) fn forget(&self, name: Fingerprint) {
        let change = Change::begin(self);
        for way in self.ways.iter().filter(|way| way.has(name)) {
            way.store(0, 0);
        }
        drop(change);
    }
}

/// A change of a set by this thread alone.
struct Change<'a> {
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
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let next = self.count.wrapping_add(2);
        self.set.count.store(next, Ordering::Release);
    }
}
