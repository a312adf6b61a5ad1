//! A concurrent map from inode numbers to objects, for adjacent numbers.
//!
//! Adjacent numbers are created, looked up and evicted in sequence. So the map has *runs* of 32
//! numbers with a slot for each: the next slot is in the processor's cache, and an entry costs a
//! pointer only.
//!
//! A lookup takes no lock: it finds the run in a [`Tree`] and takes a reference from its [`Slot`].
//! A run counts its objects and the threads that insert one ([`Occupancy`]). Only the first
//! insertion into a run, and its end, take a lock, that of a clock of the [`Lru`].
//!
//! ```text
//!              insert                 count is 0                another run became idle
//!   no run ──────────────▶ in use ───────────────────▶ idle ────────────────────────────▶ dead, removed
//!                            ▲          insert           │
//!                            └───────────────────────────┘
//! ```
//!
//! One empty run stays in the map: programs make and delete one temporary file after another, and
//! most of these have numbers of one run. `idle` is the number of the run that became empty last.
//! The thread that replaces it marks the earlier run as dead, if that is still empty, and removes
//! it. A thread that finds a dead run creates another.

use crate::heap::heap_bytes;
use crate::inode_table::tree::{self, Tree};
use crate::lru::{Lru, Stops};
use crate::occupancy::Occupancy;
use crate::slot::Slot;
use std::sync::Arc;
use sync::atomic::{AtomicU32, Ordering};
use units::Ino;

const RUN_BITS: u32 = 5;
/// Numbers in a run.
const RUN: usize = 1 << RUN_BITS;
const _: () = assert!(RUN_BITS + tree::KEY_BITS == u32::BITS);

struct Run<T> {
    /// Slots in use, and threads that are inserting.
    occupancy: Occupancy,
    slots: [Slot<T>; RUN],
}

/// Bytes of a run in memory: itself, its entry in the tree, and its place on a clock, which is at
/// least half full.
const RUN_BYTES: usize = heap_bytes(size_of::<Run<u8>>()) + tree::ENTRY_BYTES + 2 * 4;
/// Bytes of an object's part of a full run, rounded up.
pub(super) const ENTRY_BYTES: usize = RUN_BYTES.div_ceil(RUN);

impl<T> Default for Run<T> {
    fn default() -> Run<T> {
        Run {
            occupancy: Occupancy::default(),
            slots: std::array::from_fn(|_| Slot::default()),
        }
    }
}

impl<T> Run<T> {
    fn slot(&self, number: Ino) -> &Slot<T> {
        &self.slots[number.0 as usize % RUN]
    }
}

/// The map.
pub(super) struct Runs<T> {
    runs: Tree<Run<T>>,
    /// The order in which objects are reclaimed. A run enters it before its first object and leaves
    /// it at its end.
    lru: Lru<{ RUN as u32 }>,
    /// The run that became empty last, by its key; it may have ended, or be in use again.
    idle: AtomicU32,
}

impl<T> Default for Runs<T> {
    fn default() -> Runs<T> {
        Runs {
            runs: Tree::default(),
            lru: Lru::default(),
            // Any run: one that is in use does not end.
            idle: AtomicU32::new(0),
        }
    }
}

impl<T: Send + Sync> Runs<T> {
    /// The number of objects. Runs are counted one after another, so it is approximate.
    pub fn len(&self) -> usize {
        let counts = |run: &Run<T>, counts: &mut Vec<usize>| counts.push(run.occupancy.count());
        self.runs.gather(counts).sum()
    }
    /// Returns a reference to the object of this number.
    pub fn get(&self, number: Ino) -> Option<Arc<T>> {
        let runs = self.runs.visit();
        runs.get(number.0 >> RUN_BITS)?.slot(number).get()
    }
    /// Calls `call` with the object of this number. It must be quick: a remover waits for it.
    #[inline]
    pub fn with<R>(&self, number: Ino, call: impl FnOnce(&T) -> R) -> Option<R> {
        let runs = self.runs.visit();
        runs.get(number.0 >> RUN_BITS)?.slot(number).with(call)
    }
    /// The order in which objects are reclaimed.
    pub fn lru(&self) -> &Lru<{ RUN as u32 }> {
        &self.lru
    }
    /// Calls `call` for the objects at which the hand has stopped, with their numbers.
    pub fn with_each(&self, at: &[Stops], mut call: impl FnMut(Ino, &T)) {
        let runs = self.runs.visit();
        for Stops { key, stops } in at {
            let Some(run) = runs.get(*key) else {
                continue;
            };
            for stop in stops.clone() {
                let number = Ino(key << RUN_BITS | stop);
                run.slot(number).with(|object| call(number, object));
            }
        }
    }
    /// Inserts an object. Returns it if the number has one.
    pub fn insert(&self, number: Ino, object: Arc<T>) -> Option<Arc<T>> {
        let runs = self.runs.visit();
        let run = loop {
            let key = number.0 >> RUN_BITS;
            let run = runs.get_or_insert(key);
            if run.occupancy.hold(|| self.lru.insert(key)) {
                break run;
            }
            // Its last holder is about to remove it.
            runs.remove(key, run);
        };
        let refused = run.slot(number).put(object);
        if refused.is_some() {
            self.release(number, run);
        }
        refused
    }
    /// Removes the object of this number.
    pub fn remove(&self, number: Ino) -> Option<Arc<T>> {
        let runs = self.runs.visit();
        let run = runs.get(number.0 >> RUN_BITS)?;
        let removed = run.slot(number).take()?;
        self.release(number, run);
        Some(removed)
    }
    /// Removes an object if it is the one of this number. Returns whether it was.
    pub fn remove_same(&self, number: Ino, object: &Arc<T>) -> bool {
        let runs = self.runs.visit();
        let Some(run) = runs.get(number.0 >> RUN_BITS) else {
            return false;
        };
        let was = run.slot(number).take_same(object);
        if was {
            self.release(number, run);
        }
        was
    }
    fn release(&self, number: Ino, run: &Run<T>) {
        let key = number.0 >> RUN_BITS;
        if !run.occupancy.release() {
            return;
        }
        let before = self.idle.swap(key, Ordering::AcqRel);
        if before == key {
            return;
        }
        let runs = self.runs.visit();
        if let Some(run) = runs.get(before)
            && run.occupancy.end(|place| self.lru.remove(before, place))
        {
            runs.remove(before, run);
        }
    }
    /// The objects.
    pub fn objects(&self) -> impl Iterator<Item = Arc<T>> {
        let objects = |run: &Run<T>, objects: &mut Vec<Arc<T>>| {
            objects.extend(run.slots.iter().filter_map(Slot::get));
        };
        self.runs.gather(objects)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count<T: Send + Sync>(runs: &Runs<T>) -> usize {
        runs.runs.gather(|_, runs| runs.push(())).count()
    }

    #[test]
    fn inserted_objects_are_found_and_others_are_not() {
        let runs = Runs::default();
        let numbers = || (1..10 * RUN as u32).step_by(3).chain([u32::MAX]).map(Ino);
        for number in numbers() {
            assert!(runs.insert(number, Arc::new(number)).is_none());
        }
        assert_eq!(runs.len(), numbers().count());
        assert_eq!(runs.get(Ino(4)).as_deref(), Some(&Ino(4)));
        assert!(runs.get(Ino(5)).is_none());
        let mut objects: Vec<Ino> = runs.objects().map(|object| *object).collect();
        objects.sort_unstable();
        assert_eq!(objects, numbers().collect::<Vec<_>>());
        let mut each = Vec::new();
        let at = |number: u32| Stops {
            key: number >> RUN_BITS,
            stops: number % RUN as u32..number % RUN as u32 + 1,
        };
        let wanted = [1, 2, 4, 700, 7, u32::MAX].map(at);
        runs.with_each(&wanted, |at, number| {
            assert_eq!(at, *number);
            each.push(number.0);
        });
        assert_eq!(each, [1, 4, 7, u32::MAX]);
        let refused = runs.insert(Ino(4), Arc::new(Ino(44))).unwrap();
        assert_eq!(*refused, Ino(44));
        assert_eq!(runs.get(Ino(4)).as_deref(), Some(&Ino(4)));
        assert!(
            !runs.remove_same(Ino(4), &refused),
            "another has its number"
        );
        for number in numbers() {
            assert!(runs.remove(number).is_some());
            assert!(runs.remove(number).is_none());
        }
        assert_eq!(runs.len(), 0);
        assert_eq!(count(&runs), 1, "the run that became empty last");
    }

    #[test]
    fn one_empty_run_stays() {
        let runs = Runs::default();
        let visit = runs.runs.visit();
        let made = |number: u32| {
            runs.insert(Ino(number), Arc::new(number));
            visit.get(number >> RUN_BITS).unwrap()
        };
        let (first, far) = (RUN as u32 + 5, 9 * RUN as u32);
        let run = made(first);
        assert!(runs.remove(Ino(first)).is_some());
        // Its neighbour uses the same run, also while it is idle.
        assert!(std::ptr::eq(run, made(first + 1)));
        // It is in use, so it does not end when another becomes empty.
        made(far);
        assert!(runs.remove(Ino(far)).is_some());
        assert_eq!(count(&runs), 2);
        assert!(runs.remove(Ino(first + 1)).is_some());
        assert_eq!(count(&runs), 1);
        made(far);
        assert!(runs.remove(Ino(far)).is_some());
        assert_eq!((count(&runs), runs.len()), (1, 0));
        let listed = || unreachable!("it is listed");
        assert!(!run.occupancy.hold(listed), "the first run has ended");
    }

    #[test]
    fn runs_that_die_during_insertions_lose_no_object() {
        let runs = Runs::default();
        sync::thread::scope(|scope| {
            // Each thread has two numbers of one run, and one of another. The run that is not the
            // last to become empty dies, so both die and are created repeatedly.
            for thread in 0..4u32 {
                let runs = &runs;
                scope.spawn(move || {
                    for round in 0..20_000u32 {
                        let (a, b) = (Ino(thread), Ino(thread + 16));
                        assert!(runs.insert(a, Arc::new(round)).is_none());
                        if round % 3 == 0 {
                            let object = Arc::new(round + 1);
                            assert!(runs.insert(b, object.clone()).is_none());
                            assert!(runs.remove_same(b, &object));
                            assert!(!runs.remove_same(b, &object));
                        }
                        assert_eq!(runs.get(a).as_deref(), Some(&round));
                        let mut removed = runs.remove(a).unwrap();
                        assert_eq!(*removed, round);
                        // Lookups keep no reference.
                        assert!(Arc::get_mut(&mut removed).is_some());
                        assert!(runs.get(a).is_none());
                        let elsewhere = Ino(thread + RUN as u32);
                        assert!(runs.insert(elsewhere, Arc::new(round)).is_none());
                        assert!(runs.remove(elsewhere).is_some());
                    }
                });
            }
        });
        assert_eq!(runs.len(), 0);
        assert_eq!(count(&runs), 1, "the run that became empty last");
    }
}
