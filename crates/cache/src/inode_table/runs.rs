//! A concurrent map from inode numbers to objects, for adjacent numbers.
//!
//! Adjacent numbers are created, looked up and evicted in sequence. So the map has *runs* of 32
//! numbers with a slot for each: the next slot is in the processor's cache, and an entry costs a
//! pointer only.
//!
//! No thread waits for a lock. A lookup finds the run in a concurrent map and takes a reference
//! from its [`Slot`]. A run counts its objects and the threads that insert one.
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

use crate::slot::Slot;
use papaya::HashMap;
use rustc_hash::FxBuildHasher;
use std::sync::Arc;
use sync::atomic::{AtomicU32, Ordering};
use units::Ino;

const RUN_BITS: u32 = 5;
/// Numbers in a run.
const RUN: usize = 1 << RUN_BITS;
/// The count of a run that has ended.
const DEAD: u32 = u32::MAX;

struct Run<T> {
    /// Slots in use, and threads that are inserting; [`DEAD`] after the end.
    held: AtomicU32,
    slots: [Slot<T>; RUN],
}

impl<T> Default for Run<T> {
    fn default() -> Run<T> {
        Run {
            held: AtomicU32::new(0),
            slots: std::array::from_fn(|_| Slot::default()),
        }
    }
}

impl<T> Run<T> {
    fn slot(&self, number: Ino) -> &Slot<T> {
        &self.slots[number.0 as usize % RUN]
    }
    /// Counts one more object. Returns `false` if the run is dead.
    fn hold(&self) -> bool {
        let more = |held| (held != DEAD).then(|| held + 1);
        self.held
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
            .is_ok()
    }
    /// Counts one less. Returns whether the run is empty.
    fn release(&self) -> bool {
        self.held.fetch_sub(1, Ordering::AcqRel) == 1
    }
    /// Marks an empty run as dead. Returns `false` if it is in use, or dead already.
    fn end(&self) -> bool {
        self.held
            .compare_exchange(0, DEAD, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }
}

/// The map.
pub(super) struct Runs<T> {
    runs: HashMap<u32, Arc<Run<T>>, FxBuildHasher>,
    /// The run that became empty last, by its key; it may have ended, or be in use again.
    idle: AtomicU32,
}

impl<T> Default for Runs<T> {
    fn default() -> Runs<T> {
        Runs {
            runs: HashMap::default(),
            // Any run: one that is in use does not end.
            idle: AtomicU32::new(0),
        }
    }
}

impl<T> Runs<T> {
    /// The number of objects. Runs are counted one after another, so it is approximate.
    pub fn len(&self) -> usize {
        let held = |run: &Arc<Run<T>>| match run.held.load(Ordering::Relaxed) {
            DEAD => 0,
            held => held as usize,
        };
        self.runs.pin().values().map(held).sum()
    }
    /// Returns a reference to the object of this number.
    pub fn get(&self, number: Ino) -> Option<Arc<T>> {
        let runs = self.runs.pin();
        runs.get(&(number.0 >> RUN_BITS))?.slot(number).get()
    }
    /// Calls `call` for the existing objects of these numbers.
    pub fn with_each(&self, numbers: &[Ino], mut call: impl FnMut(&T)) {
        let runs = self.runs.pin();
        for near in numbers.chunk_by(|a, b| a.0 >> RUN_BITS == b.0 >> RUN_BITS) {
            let Some(run) = runs.get(&(near[0].0 >> RUN_BITS)) else {
                continue;
            };
            for &number in near {
                run.slot(number).with(&mut call);
            }
        }
    }
    /// Inserts an object. Returns it if the number has one.
    pub fn insert(&self, number: Ino, object: Arc<T>) -> Option<Arc<T>> {
        let runs = self.runs.pin();
        let run = loop {
            let run = runs.get_or_insert_with(number.0 >> RUN_BITS, Arc::default);
            if run.hold() {
                break run;
            }
            // Its last holder is about to remove it.
            self.take_out(number.0 >> RUN_BITS, run);
        };
        let refused = run.slot(number).put(object);
        if refused.is_some() {
            self.release(number, run);
        }
        refused
    }
    /// Removes the object of this number.
    pub fn remove(&self, number: Ino) -> Option<Arc<T>> {
        let runs = self.runs.pin();
        let run = runs.get(&(number.0 >> RUN_BITS))?;
        let removed = run.slot(number).take()?;
        self.release(number, run);
        Some(removed)
    }
    /// Removes an object if it is the one of this number. Returns whether it was.
    pub fn remove_same(&self, number: Ino, object: &Arc<T>) -> bool {
        let runs = self.runs.pin();
        let Some(run) = runs.get(&(number.0 >> RUN_BITS)) else {
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
        if !run.release() {
            return;
        }
        let before = self.idle.swap(key, Ordering::AcqRel);
        if before == key {
            return;
        }
        let runs = self.runs.pin();
        if let Some(run) = runs.get(&before)
            && run.end()
        {
            self.take_out(before, run);
        }
    }
    /// Removes a dead run.
    fn take_out(&self, key: u32, ended: &Arc<Run<T>>) {
        let is_it = |_: &u32, run: &Arc<Run<T>>| Arc::ptr_eq(run, ended);
        let _ = self.runs.pin().remove_if(&key, is_it);
    }
    /// The objects.
    pub fn objects(&self) -> impl Iterator<Item = Arc<T>> {
        let runs: Vec<Arc<Run<T>>> = self.runs.pin().values().cloned().collect();
        runs.into_iter()
            .flat_map(|run| (0..RUN).filter_map(move |i| run.slots[i].get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let wanted = [1, 2, 4, 700, 7, u32::MAX].map(Ino);
        runs.with_each(&wanted, |number| each.push(number.0));
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
        assert_eq!(runs.runs.len(), 1, "the run that became empty last");
    }

    #[test]
    fn one_empty_run_stays() {
        let runs = Runs::default();
        let made = |number: u32| {
            runs.insert(Ino(number), Arc::new(number));
            runs.runs.pin().get(&(number >> RUN_BITS)).cloned().unwrap()
        };
        let (first, far) = (RUN as u32 + 5, 9 * RUN as u32);
        let run = made(first);
        assert!(runs.remove(Ino(first)).is_some());
        // Its neighbour uses the same run, also while it is idle.
        assert!(Arc::ptr_eq(&run, &made(first + 1)));
        // It is in use, so it does not end when another becomes empty.
        made(far);
        assert!(runs.remove(Ino(far)).is_some());
        assert_eq!(runs.runs.len(), 2);
        assert!(runs.remove(Ino(first + 1)).is_some());
        assert_eq!(runs.runs.len(), 1);
        made(far);
        assert!(runs.remove(Ino(far)).is_some());
        assert_eq!((runs.runs.len(), runs.len()), (1, 0));
        assert!(!run.hold(), "the first run has ended");
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
        assert_eq!(runs.runs.len(), 1, "the run that became empty last");
    }
}
