//! A concurrent map from inode numbers to objects, for adjacent numbers.
//!
//! Adjacent numbers are created, looked up and evicted in sequence. So the map has *runs* of 32
//! numbers with a slot for each: the next slot is in the processor's cache, and an entry costs a
//! pointer only.
//!
//! No thread waits for a lock. A lookup finds the run in a concurrent map and takes a reference
//! from its [`Slot`]. A run counts its objects and the threads that insert one. The thread that
//! lowers the count to zero marks the run as dead and removes it. A thread that finds a dead run
//! creates another.

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
    /// Counts one less. Returns whether the run died.
    fn release(&self) -> bool {
        let last = self.held.fetch_sub(1, Ordering::AcqRel) == 1;
        last && self
            .held
            .compare_exchange(0, DEAD, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }
}

/// The map.
pub(super) struct Runs<T> {
    runs: HashMap<u32, Arc<Run<T>>, FxBuildHasher>,
}

impl<T> Default for Runs<T> {
    fn default() -> Runs<T> {
        Runs {
            runs: HashMap::default(),
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
            self.take_out(number, run);
        };
        let refused = run.slot(number).put(object);
        if refused.is_some() {
            run.release();
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
    fn release(&self, number: Ino, run: &Arc<Run<T>>) {
        if run.release() {
            self.take_out(number, run);
        }
    }
    /// Removes a dead run.
    fn take_out(&self, number: Ino, ended: &Arc<Run<T>>) {
        let is_it = |_: &u32, run: &Arc<Run<T>>| Arc::ptr_eq(run, ended);
        let _ = self.runs.pin().remove_if(&(number.0 >> RUN_BITS), is_it);
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
        assert!(runs.runs.is_empty());
    }

    #[test]
    fn runs_that_die_during_insertions_lose_no_object() {
        let runs = Runs::default();
        sync::thread::scope(|scope| {
            // Each thread has two numbers of one run, which dies and is created repeatedly.
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
                    }
                });
            }
        });
        assert_eq!(runs.len(), 0);
        assert!(runs.runs.is_empty());
    }
}
