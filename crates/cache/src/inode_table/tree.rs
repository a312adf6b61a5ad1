//! A concurrent map from keys of 27 bits to values, for dense keys.
//!
//! A tree of three arrays, which the bits of a key index. So a look-up reads three pointers, of
//! which those of the upper two levels are in the processor's cache: an array of the second level
//! serves eight million inodes. A hash table reads its metadata, a pointer and the key.
//!
//! ```text
//!   root ──9 bits──▶ branch ──12 bits──▶ leaf ──6 bits──▶ value
//! ```
//!
//! A look-up takes no lock and writes nothing. A leaf counts its values ([`Occupancy`]). The thread
//! that takes the last one out removes the leaf; a thread that finds a dead leaf creates another.
//! Branches stay: all of them take 8 bytes for 2,048 inodes of the volume at most. Memory of
//! values and leaves is freed when no thread can have a reference to it (the crate seize: Hyaline,
//! Nikolaev and Ravindran 2021).

use crate::heap::heap_bytes;
use crate::occupancy::Occupancy;
use seize::{Collector, Guard, LocalGuard, reclaim};
use std::marker::PhantomData;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

const LEAF_BITS: u32 = 6;
const BRANCH_BITS: u32 = 12;
const ROOT_BITS: u32 = 9;
/// Bits of a key.
pub(super) const KEY_BITS: u32 = LEAF_BITS + BRANCH_BITS + ROOT_BITS;

const LEAF: usize = 1 << LEAF_BITS;
const BRANCH: usize = 1 << BRANCH_BITS;
const ROOT: usize = 1 << ROOT_BITS;

/// Bytes of an entry of a full leaf.
pub(super) const ENTRY_BYTES: usize = heap_bytes(size_of::<Leaf<u8>>()).div_ceil(LEAF);

struct Leaf<V> {
    /// Values, and threads that insert one.
    values: Occupancy,
    /// From `Box::into_raw`; null where there is no value.
    entries: [AtomicPtr<V>; LEAF],
}

impl<V> Leaf<V> {
    fn entry(&self, key: u32) -> &AtomicPtr<V> {
        &self.entries[key as usize % LEAF]
    }
}

impl<V> Default for Leaf<V> {
    fn default() -> Leaf<V> {
        Leaf {
            values: Occupancy::default(),
            entries: std::array::from_fn(|_| AtomicPtr::default()),
        }
    }
}

/// Leaves, from `Box::into_raw`.
type Branch<V> = Box<[AtomicPtr<Leaf<V>>]>;

/// The map.
pub(super) struct Tree<V> {
    root: Box<[OnceLock<Branch<V>>]>,
    collector: Collector,
    owns: PhantomData<Box<V>>,
}

/// A visit of the tree. References to values are valid until its end.
pub(super) struct Visit<'t, V> {
    tree: &'t Tree<V>,
    guard: LocalGuard<'t>,
}

impl<V> Default for Tree<V> {
    fn default() -> Tree<V> {
        Tree {
            root: (0..ROOT).map(|_| OnceLock::new()).collect(),
            collector: Collector::new(),
            owns: PhantomData,
        }
    }
}

impl<V: Default + Send + Sync> Tree<V> {
    /// Begins a visit. It must be short: removed values are freed after it.
    #[inline]
    pub fn visit(&self) -> Visit<'_, V> {
        Visit {
            tree: self,
            guard: self.collector.enter(),
        }
    }

    /// Calls `gather` with all values, and returns what it has put into its list. A visit has the
    /// values of one leaf.
    pub fn gather<'t, R: 't>(
        &'t self,
        mut gather: impl FnMut(&V, &mut Vec<R>) + 't,
    ) -> impl Iterator<Item = R> + 't {
        self.leaf_places().flat_map(move |place| {
            let visit = self.visit();
            let mut gathered = Vec::new();
            let leaf = visit.load(place);
            for entry in leaf.iter().flat_map(|leaf| &leaf.entries) {
                if let Some(value) = visit.load(entry) {
                    gather(value, &mut gathered);
                }
            }
            gathered
        })
    }

    fn leaf_places(&self) -> impl Iterator<Item = &AtomicPtr<Leaf<V>>> {
        let branches = self.root.iter().filter_map(OnceLock::get);
        branches.flat_map(|branch| branch.iter())
    }

    fn leaf_place(&self, key: u32) -> Option<&AtomicPtr<Leaf<V>>> {
        let branch = self.root[root_index(key)].get()?;
        Some(&branch[branch_index(key)])
    }
}

impl<V: Default + Send + Sync> Visit<'_, V> {
    /// The value of a key.
    #[inline]
    pub fn get(&self, key: u32) -> Option<&V> {
        let leaf = self.load(self.tree.leaf_place(key)?)?;
        self.load(leaf.entry(key))
    }

    /// The value of a key; a default one is inserted if there is none.
    pub fn get_or_insert(&self, key: u32) -> &V {
        let new_branch = || (0..BRANCH).map(|_| AtomicPtr::default()).collect();
        let branch = self.tree.root[root_index(key)].get_or_init(new_branch);
        let place = &branch[branch_index(key)];
        loop {
            let leaf = self.load_or_insert(place);
            if let Some(value) = self.load(leaf.entry(key)) {
                return value;
            }
            // The value's own count, from before it is inserted until after it is taken out.
            if !leaf.values.hold(|| 0) {
                self.take(place, leaf);
                continue;
            }
            let (value, inserted) = self.insert(leaf.entry(key));
            if !inserted {
                self.release(place, leaf);
            }
            return value;
        }
    }

    /// Takes a value out, unless another thread has done it.
    pub fn remove(&self, key: u32, value: &V) {
        let Some(place) = self.tree.leaf_place(key) else {
            return;
        };
        // The leaf of a value that is still in the tree is in its place.
        if let Some(leaf) = self.load(place)
            && self.take(leaf.entry(key), value)
        {
            self.release(place, leaf);
        }
    }

    /// Counts one value of a leaf less. Removes the leaf after the last one.
    fn release(&self, place: &AtomicPtr<Leaf<V>>, leaf: &Leaf<V>) {
        if leaf.values.release() && leaf.values.end(|_| ()) {
            self.take(place, leaf);
        }
    }

    #[inline]
    fn load<N>(&self, place: &AtomicPtr<N>) -> Option<&N> {
        // SAFETY: a pointer in the tree is null or from `Box::into_raw`. It was loaded under the
        // guard, so its memory is not freed before the guard is dropped. The reference ends with
        // the borrow of the visit, which has the guard.
        unsafe { self.guard.protect(place, Acquire).as_ref() }
    }

    fn load_or_insert<N: Default>(&self, place: &AtomicPtr<N>) -> &N {
        match self.load(place) {
            Some(found) => found,
            None => self.insert(place).0,
        }
    }

    /// Inserts a new object where there is none. Returns the one that is there, and whether it is
    /// new.
    fn insert<N: Default>(&self, place: &AtomicPtr<N>) -> (&N, bool) {
        let new = Box::into_raw(Box::<N>::default());
        loop {
            let put = place.compare_exchange(ptr::null_mut(), new, AcqRel, Acquire);
            if put.is_ok() {
                // SAFETY: as in `load`: it is freed only after it was taken out and the guards of
                // that moment, with this one, were dropped.
                return (unsafe { &*new }, true);
            }
            // `load` protects what it finds; it may be gone again.
            if let Some(found) = self.load(place) {
                // SAFETY: no other thread has seen the pointer.
                drop(unsafe { Box::from_raw(new) });
                return (found, false);
            }
        }
    }

    /// Takes an object out of its place. Returns whether this thread has done it.
    fn take<N>(&self, place: &AtomicPtr<N>, object: &N) -> bool {
        let raw = ptr::from_ref(object).cast_mut();
        let taken = place.compare_exchange(raw, ptr::null_mut(), AcqRel, Acquire);
        if let Ok(raw) = taken {
            // SAFETY: the pointer is from `Box::into_raw` and no longer in the tree, and the one
            // thread that took it out retires it.
            unsafe { self.guard.defer_retire(raw, reclaim::boxed) };
        }
        taken.is_ok()
    }
}

impl<V> Drop for Tree<V> {
    fn drop(&mut self) {
        let branches = self.root.iter_mut().filter_map(OnceLock::take);
        for leaf in branches.flatten() {
            // SAFETY: nobody else has the tree, and each pointer in it is from `Box::into_raw` and
            // in one place.
            let Some(leaf) = (unsafe { owned(leaf) }) else {
                continue;
            };
            for value in leaf.entries {
                // SAFETY: as above.
                drop(unsafe { owned(value) });
            }
        }
    }
}

/// Returns the box of a pointer from `Box::into_raw`, or `None` for null.
///
/// # Safety
/// The pointer is null or owned by the caller.
unsafe fn owned<N>(mut place: AtomicPtr<N>) -> Option<Box<N>> {
    let raw = *place.get_mut();
    // SAFETY: by the contract.
    (!raw.is_null()).then(|| unsafe { Box::from_raw(raw) })
}

fn root_index(key: u32) -> usize {
    (key >> (LEAF_BITS + BRANCH_BITS)) as usize
}

fn branch_index(key: u32) -> usize {
    (key >> LEAF_BITS) as usize % BRANCH
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    /// The largest key.
    const LAST: u32 = (1 << KEY_BITS) - 1;

    fn leaves<V: Default + Send + Sync>(tree: &Tree<V>) -> usize {
        let visit = tree.visit();
        let leaves = tree.leaf_places().filter_map(|place| visit.load(place));
        leaves.count()
    }

    #[test]
    fn values_are_found_until_they_are_removed() {
        let tree = Tree::<AtomicU32>::default();
        let keys = [0, 1, 63, 64, 5_000, 300_000, LAST - 64, LAST];
        let visit = tree.visit();
        for key in keys {
            assert!(visit.get(key).is_none());
            let value = visit.get_or_insert(key);
            value.store(key, Relaxed);
            assert!(ptr::eq(visit.get_or_insert(key), value));
        }
        let found = keys.map(|key| visit.get(key).unwrap().load(Relaxed));
        assert_eq!(found, keys);
        let each = tree.gather(|value, each| each.push(value.load(Relaxed)));
        assert_eq!(each.collect::<Vec<_>>(), keys);
        assert_eq!(leaves(&tree), 6);
        for key in keys {
            let value = visit.get(key).unwrap();
            visit.remove(key, value);
            visit.remove(key, value);
            assert!(visit.get(key).is_none());
        }
        assert_eq!(leaves(&tree), 0, "an empty leaf stays");
    }

    /// Counts how many were made and not dropped.
    struct Counted;
    static LIVE: AtomicU32 = AtomicU32::new(0);
    impl Default for Counted {
        fn default() -> Counted {
            LIVE.fetch_add(1, Relaxed);
            Counted
        }
    }
    impl Drop for Counted {
        fn drop(&mut self) {
            LIVE.fetch_sub(1, Relaxed);
        }
    }

    #[test]
    fn threads_that_empty_leaves_lose_no_value_and_no_memory() {
        const KEYS: u32 = 2 * LEAF as u32;
        let tree = Tree::<Counted>::default();
        sync::thread::scope(|scope| {
            for thread in 0..4 {
                let tree = &tree;
                scope.spawn(move || {
                    for round in 0..20_000 {
                        // Nobody else has this key; its leaf may be ended by the others.
                        let own = (round % KEYS) & !3 | thread;
                        let visit = tree.visit();
                        let value = visit.get_or_insert(own);
                        assert!(ptr::eq(visit.get(own).unwrap(), value));
                        // All of them insert and remove this one.
                        let shared = visit.get_or_insert(KEYS);
                        visit.remove(KEYS, shared);
                        visit.remove(own, value);
                        assert!(visit.get(own).is_none());
                    }
                });
            }
        });
        assert_eq!(leaves(&tree), 0);
        tree.visit().get_or_insert(7);
        drop(tree);
        assert_eq!(LIVE.load(Relaxed), 0, "a value was not dropped");
    }
}
