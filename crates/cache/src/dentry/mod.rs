//! The dentry cache: names of directories, also of files that do not exist, with look-ups that take
//! no lock.
//!
//! The file system calls [`Dentries::put`] with what it read from a directory or changed in it,
//! while it holds the directory's lock: shared after a look-up, exclusive after a change. So the
//! cache always agrees with the directory, and a look-up needs no lock:
//!
//! ```text
//!   get(name) ──▶ number ──▶ pin the inode of this number ──▶ still current? ──▶ the inode
//!       └─ not cached ────────────── not cached ─────────────────── no ──▶ look-up under the lock
//! ```
//!
//! The check at the end is needed: between `get` and the pin the name may be removed, its inode
//! freed and its number used again. All of that comes after the change of the name. So if the name
//! is unchanged after the pin, the pinned inode is the one with this name. For the same reason the
//! directories of a path need no pin: if all of its names are unchanged after the last inode was
//! reached, then each had its value during the whole time between.
//!
//! A look-up misses the processor's cache for the set of the name, for the slot in the inode table,
//! and for the inode. The last two depend on each other, so the set also has the *place* of the
//! inode in memory: where the last look-up has found it. [`Cached::prefetch`] loads it while the
//! table is searched. A place may be wrong; nothing but that prefetch uses it.
//!
//! Names are kept as fingerprints of 80 bits and their place in the table, by a keyed hash
//! (SipHash) with a random key for each volume. Up to three of the bits also choose the place. So
//! nobody can choose names that are taken for one another, and the chance that one look-up takes a
//! name for another is below 10⁻²².
//!
//! Memory: sets of three names, 64 bytes, in a table that doubles while names replace one another
//! ([`table`]). All of them have at most a 32nd of the budget, and at first a 256th. A full set
//! forgets its names in turn. A look-up writes nothing but the place of an inode that has moved, so
//! the cache does not know which name was used.

mod memory;
mod set;
mod table;

use super::sync;
use crate::Budget;
use crate::prefetch::prefetch;
use memory::Sets;
use set::{Fingerprint, Found, Set, Value};
use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use table::{Place, Table};
use units::Ino;

/// The part of the budget that names may have.
const PART: u64 = 32;
/// Doublings of the table.
const LEVELS: u32 = 3;
/// Sets that are born together, as they are in a page of 4 KiB.
const TOGETHER: u32 = if cfg!(explore) { 1 } else { 64 };

/// Bytes of a name where the sets have two names on the average; there is room for three.
pub const NAME_BYTES: usize = size_of::<Set>() / 2;

/// See the module.
pub struct Dentries {
    keys: (u64, u64),
    table: Table<Sets, TOGETHER>,
}

/// A name in a directory. It is valid for one cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dentry(Place);

/// The file that a name refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// No file has the name.
    Nothing,
    /// A directory.
    Directory(Ino),
    /// A file that is not known to be a directory.
    Other(Ino),
}

impl Named {
    /// The inode number, if a file has the name.
    #[inline]
    pub fn ino(self) -> Option<Ino> {
        match self {
            Named::Nothing => None,
            Named::Directory(ino) | Named::Other(ino) => Some(ino),
        }
    }
    fn value(self) -> Value {
        let (ino, kind) = match self {
            Named::Nothing => (0, set::Kind::Other),
            Named::Directory(ino) => (ino.0, set::Kind::Directory),
            Named::Other(ino) => (ino.0, set::Kind::Other),
        };
        Value { ino, kind }
    }
    fn of(value: Value) -> Named {
        match (value.ino, value.kind) {
            (0, _) => Named::Nothing,
            (ino, set::Kind::Directory) => Named::Directory(Ino(ino)),
            (ino, set::Kind::Other) => Named::Other(Ino(ino)),
        }
    }
}

/// The cache's knowledge of a name.
#[derive(Clone, Copy)]
pub struct Cached<'a> {
    /// The file that the name refers to.
    pub named: Named,
    set: &'a Set,
    found: Found,
}

impl Cached<'_> {
    /// Whether the name was not changed since it was found. False as well after some changes of
    /// other names.
    #[inline]
    pub fn is_current(&self) -> bool {
        self.set.is_current(self.found)
    }
    /// Loads the first `bytes` bytes of the inode into the processor's cache, if its place is
    /// known.
    #[inline]
    pub fn prefetch(&self, bytes: usize) {
        match self.found.place() {
            0 => {}
            place => prefetch(place as usize, bytes),
        }
    }
    /// Stores the address of the inode, for the next look-up.
    #[inline]
    pub fn note_place(&self, place: usize) {
        // Addresses differ from run to run, and an explored schedule must not.
        if cfg!(explore) || self.found.place() != place as u64 {
            self.set.note_place(self.found, place as u64);
        }
    }
}

impl Dentries {
    /// An empty cache.
    pub fn new(budget: &Arc<Budget>) -> Dentries {
        // Each hasher of the standard library has random keys. Explored schedules must repeat.
        let random = || match cfg!(explore) {
            true => 1,
            false => RandomState::new().build_hasher().finish(),
        };
        Dentries::with_keys(budget, (random(), random()))
    }

    fn with_keys(budget: &Arc<Budget>, keys: (u64, u64)) -> Dentries {
        // In an explored schedule a few names fill the table and let it grow.
        let sets = match cfg!(explore) {
            true => 8,
            false => budget.limit() / PART / size_of::<Set>() as u64,
        };
        let sets = u32::try_from(sets).unwrap_or(u32::MAX);
        let charged = budget.clone();
        let make = move |sets| Sets::new(sets as usize, &charged);
        Dentries {
            keys,
            table: Table::new(sets, LEVELS, make),
        }
    }

    /// The place of a name in a directory.
    #[inline]
    pub fn dentry(&self, dir: Ino, name: &[u8]) -> Dentry {
        let mut hasher = SipHasher13::new_with_keys(self.keys.0, self.keys.1);
        hasher.write_u32(dir.0);
        hasher.write(name);
        let hash = hasher.finish128();
        // The upper half of a product is even over the homes, as these bits are random.
        let home = ((hash.h2 >> 32) * u64::from(self.table.homes())) >> 32;
        Dentry(Place {
            name: Fingerprint {
                high: hash.h1.max(1),
                low: hash.h2 as u16,
            },
            home: home as u32,
        })
    }

    /// Looks for a name. Takes no lock and writes nothing.
    #[inline]
    pub fn get(&self, dentry: Dentry) -> Option<Cached<'_>> {
        let (set, found) = self.table.get(dentry.0)?;
        Some(Cached {
            named: Named::of(found.value()),
            set,
            found,
        })
    }

    /// Stores what a name refers to. The caller has read the directory under its shared lock or
    /// changed it under its exclusive one, and still holds it.
    pub fn put(&self, dentry: Dentry, named: Named) {
        // Threads that look for the same name at the same time only read.
        if self.get(dentry).is_none_or(|cached| cached.named != named) {
            self.table.put(dentry.0, named.value());
        }
    }

    /// Forgets a name: its directory may have changed. The caller holds its exclusive lock.
    pub fn forget(&self, dentry: Dentry) {
        self.table.forget(dentry.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: Ino = Ino(2);

    fn dentries(budget: u64) -> (Dentries, Arc<Budget>) {
        let budget = Budget::new(budget);
        (Dentries::with_keys(&budget, (1, 2)), budget)
    }

    fn known(dentries: &Dentries, dir: Ino, name: &[u8]) -> Option<Option<Ino>> {
        let cached = dentries.get(dentries.dentry(dir, name))?;
        assert!(cached.is_current());
        Some(cached.named.ino())
    }

    #[test]
    fn a_name_belongs_to_its_directory() {
        let (dentries, _) = dentries(1 << 20);
        assert_eq!(known(&dentries, DIR, b"a"), None);
        dentries.put(dentries.dentry(DIR, b"a"), Named::Other(Ino(12)));
        dentries.put(dentries.dentry(Ino(3), b"a"), Named::Nothing);
        assert_eq!(known(&dentries, DIR, b"a"), Some(Some(Ino(12))));
        assert_eq!(known(&dentries, Ino(3), b"a"), Some(None));
        assert_eq!(known(&dentries, DIR, b"b"), None);
        dentries.put(dentries.dentry(DIR, b"a"), Named::Other(Ino(13)));
        assert_eq!(known(&dentries, DIR, b"a"), Some(Some(Ino(13))));
        dentries.forget(dentries.dentry(DIR, b"a"));
        assert_eq!(known(&dentries, DIR, b"a"), None);
        assert_eq!(known(&dentries, Ino(3), b"a"), Some(None));
    }

    #[test]
    fn a_change_shows_in_what_was_found_before() {
        let (dentries, _) = dentries(1 << 20);
        let dentry = dentries.dentry(DIR, b"a");
        dentries.put(dentry, Named::Other(Ino(12)));
        let found = dentries.get(dentry).unwrap();
        assert!(found.is_current());
        dentries.put(dentry, Named::Nothing);
        assert!(!found.is_current());
        let found = dentries.get(dentry).unwrap();
        dentries.forget(dentry);
        assert!(!found.is_current());
    }

    #[test]
    fn memory_is_bounded_and_what_fits_is_kept() {
        let limit = 16 << 20;
        let (dentries, budget) = dentries(limit);
        let most = limit / PART;
        let fits = most as usize / size_of::<Set>() * set::WAYS;
        let name = |i: usize| i.to_string().into_bytes();
        let kept = |count: usize| {
            let all = (0..count).filter(|&i| known(&dentries, DIR, &name(i)).is_some());
            all.count()
        };
        for i in 0..10 * fits {
            dentries.put(dentries.dentry(DIR, &name(i)), Named::Other(Ino(12)));
            let count = i + 1;
            if count.is_power_of_two() && count <= fits / 3 {
                // Of names that come together by chance few are in a set that is full.
                assert!(kept(count) * 20 >= count * 19, "{} of {count}", kept(count));
                // Their memory grows with them, from an eighth.
                let sets = budget.used() as usize / size_of::<Set>();
                let at_first = most as usize / size_of::<Set>() / 8;
                assert!(sets <= at_first + 5 * count, "{sets} sets for {count}");
            }
        }
        assert!(budget.used() <= most);
        assert!(kept(10 * fits) >= fits * 9 / 10);
        drop(dentries);
        assert_eq!(budget.used(), 0);
    }

    /// Each thread changes the names of its own directory, as the holder of its lock.
    #[test]
    fn names_that_change_while_the_table_grows_stay_right() {
        const NAMES: u32 = 400;
        for round in 0..50 {
            let (dentries, _) = dentries(1 << 20);
            ::sync::thread::scope(|scope| {
                for thread in 0..4 {
                    let dentries = &dentries;
                    scope.spawn(move || {
                        let mut random = fastrand::Rng::with_seed(round * 4 + u64::from(thread));
                        let mut inos = vec![0; NAMES as usize];
                        for change in 1..4 * NAMES {
                            let name = random.u32(..NAMES);
                            let dentry = dentries.dentry(Ino(100 + thread), &name.to_ne_bytes());
                            let ino = &mut inos[name as usize];
                            if let Some(cached) = dentries.get(dentry) {
                                let found = cached.named.ino().map(|ino| ino.0);
                                assert_eq!(found, Some(*ino), "a name that was changed since");
                            }
                            if change.is_multiple_of(5) {
                                *ino = 0;
                                dentries.forget(dentry);
                                assert!(dentries.get(dentry).is_none(), "a forgotten name");
                            } else {
                                *ino = change;
                                dentries.put(dentry, Named::Other(Ino(change)));
                            }
                        }
                    });
                }
            });
            assert!(dentries.table.level() >= 2, "the table did not grow");
        }
    }
}
