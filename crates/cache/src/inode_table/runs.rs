//! A map from inode numbers to objects, for numbers that lie together.
//!
//! Neighbours are made, looked up and evicted one after another, so the map is one of *runs* of 32
//! numbers, each with a slot for every number: what comes next is found in the processor's cache,
//! and an entry costs its pointer only.
//!
//! Nobody waits for a lock here. A look-up finds the run in a concurrent map and takes a reference
//! out of its [`Slot`]. A run counts those who have or are about to put an object in; whoever takes
//! that to nothing marks it dead and removes it, and who meets a dead one makes another.

use crate::slot::Slot;
use papaya::HashMap;
use rustc_hash::FxBuildHasher;
use std::sync::Arc;
use sync::atomic::{AtomicU32, Ordering};

const RUN_BITS: u32 = 5;
/// Numbers in a run.
const RUN: usize = 1 << RUN_BITS;
/// The count of a run that has ended.
const DEAD: u32 = u32::MAX;

struct Run<T> {
    /// Slots that are in use, and who is about to use one; [`DEAD`] at the end.
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
    fn slot(&self, number: u32) -> &Slot<T> {
        &self.slots[number as usize % RUN]
    }
    /// For one more object; `false` where the run has ended.
    fn hold(&self) -> bool {
        let more = |held| (held != DEAD).then(|| held + 1);
        self.held
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
            .is_ok()
    }
    /// For one less; whether the run has ended with it.
    fn release(&self) -> bool {
        let last = self.held.fetch_sub(1, Ordering::AcqRel) == 1;
        last && self
            .held
            .compare_exchange(0, DEAD, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }
}

/// See the module.
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
    /// Objects held, about: a run at a time.
    pub fn len(&self) -> usize {
        let held = |run: &Arc<Run<T>>| match run.held.load(Ordering::Relaxed) {
            DEAD => 0,
            held => held as usize,
        };
        self.runs.pin().values().map(held).sum()
    }
    /// Another reference to the object of this number.
    pub fn get(&self, number: u32) -> Option<Arc<T>> {
        let runs = self.runs.pin();
        runs.get(&(number >> RUN_BITS))?.slot(number).get()
    }
    /// Calls `call` for the objects of these numbers that there are.
    pub fn with_each(&self, numbers: &[u32], mut call: impl FnMut(&T)) {
        let runs = self.runs.pin();
        for near in numbers.chunk_by(|a, b| a >> RUN_BITS == b >> RUN_BITS) {
            let Some(run) = runs.get(&(near[0] >> RUN_BITS)) else {
                continue;
            };
            for &number in near {
                run.slot(number).with(&mut call);
            }
        }
    }
    /// Puts an object in; gives it back where the number has one.
    pub fn insert(&self, number: u32, object: Arc<T>) -> Option<Arc<T>> {
        let runs = self.runs.pin();
        let run = loop {
            let run = runs.get_or_insert_with(number >> RUN_BITS, Arc::default);
            if run.hold() {
                break run;
            }
            // Whoever ended it is about to.
            self.take_out(number, run);
        };
        let refused = run.slot(number).put(object);
        if refused.is_some() {
            run.release();
        }
        refused
    }
    /// Takes the object of this number out.
    pub fn remove(&self, number: u32) -> Option<Arc<T>> {
        let runs = self.runs.pin();
        let run = runs.get(&(number >> RUN_BITS))?;
        let removed = run.slot(number).take()?;
        self.release(number, run);
        Some(removed)
    }
    /// Takes an object out if it is still the one of this number; whether it was.
    pub fn remove_same(&self, number: u32, object: &Arc<T>) -> bool {
        let runs = self.runs.pin();
        let Some(run) = runs.get(&(number >> RUN_BITS)) else {
            return false;
        };
        let was = run.slot(number).take_same(object);
        if was {
            self.release(number, run);
        }
        was
    }
    fn release(&self, number: u32, run: &Arc<Run<T>>) {
        if run.release() {
            self.take_out(number, run);
        }
    }
    /// Takes a run out that has ended.
    fn take_out(&self, number: u32, ended: &Arc<Run<T>>) {
        let is_it = |_: &u32, run: &Arc<Run<T>>| Arc::ptr_eq(run, ended);
        let _ = self.runs.pin().remove_if(&(number >> RUN_BITS), is_it);
    }
    /// What is held now.
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
    fn holds_what_was_put_in_and_nothing_else() {
        let runs = Runs::default();
        let numbers = || (1..10 * RUN as u32).step_by(3).chain([u32::MAX]);
        for number in numbers() {
            assert!(runs.insert(number, Arc::new(number)).is_none());
        }
        assert_eq!(runs.len(), numbers().count());
        assert_eq!(runs.get(4).as_deref(), Some(&4));
        assert!(runs.get(5).is_none());
        let mut objects: Vec<u32> = runs.objects().map(|object| *object).collect();
        objects.sort_unstable();
        assert_eq!(objects, numbers().collect::<Vec<_>>());
        let mut each = Vec::new();
        runs.with_each(&[1, 2, 4, 700, 7, u32::MAX], |number| each.push(*number));
        assert_eq!(each, [1, 4, 7, u32::MAX]);
        let refused = runs.insert(4, Arc::new(44)).unwrap();
        assert_eq!(*refused, 44);
        assert_eq!(runs.get(4).as_deref(), Some(&4));
        assert!(!runs.remove_same(4, &refused), "another has its number");
        for number in numbers() {
            assert!(runs.remove(number).is_some());
            assert!(runs.remove(number).is_none());
        }
        assert_eq!(runs.len(), 0);
        assert!(runs.runs.is_empty());
    }

    #[test]
    fn runs_that_end_while_others_begin_lose_nothing() {
        let runs = Runs::default();
        sync::thread::scope(|scope| {
            // Each has two numbers, all of one run: it ends and begins all the time.
            for thread in 0..4u32 {
                let runs = &runs;
                scope.spawn(move || {
                    for round in 0..20_000u32 {
                        let (a, b) = (thread, thread + 16);
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
                        // Those who only look have no part in it.
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
