//! A place for one `Arc`, with wait-free reads.
//!
//! The slot is empty, then full, then empty again. An object is never replaced in one step. A
//! reader increments `readers`, takes its own reference, and decrements `readers`. A remover first
//! empties the slot and then waits until `readers` is 0, a few instructions for each reader. Only
//! then may it drop the slot's reference. So no reclamation is deferred: a remover that holds the
//! last reference may reuse the memory at once.
//!
//! A reader's object is alive for this reason: `readers` is changed by read-modify-write operations
//! only, also by removers, so these have one order. If the reader's increment comes first, the
//! remover waits for it. If it comes second, it synchronises with the remover's operation, and the
//! reader finds the slot empty.

use super::sync::{Arc, AtomicPtr, AtomicU32, Ordering, relax};
use std::marker::PhantomData;
use std::ptr::null_mut;

pub(crate) struct Slot<T> {
    /// From `Arc::into_raw`; owns a reference.
    object: AtomicPtr<T>,
    /// Readers that may use the object that they found.
    readers: AtomicU32,
    owns: PhantomData<Arc<T>>,
}

impl<T> Default for Slot<T> {
    fn default() -> Slot<T> {
        Slot {
            object: AtomicPtr::new(null_mut()),
            readers: AtomicU32::new(0),
            owns: PhantomData,
        }
    }
}

impl<T> Slot<T> {
    /// Another reference to the object.
    #[inline]
    pub(crate) fn get(&self) -> Option<Arc<T>> {
        self.read(|object| {
            // SAFETY: `read` passes a pointer from `Arc::into_raw`, and the slot's reference is not
            // dropped meanwhile.
            unsafe {
                Arc::increment_strong_count(object);
                Arc::from_raw(object)
            }
        })
    }
    /// Calls `call` with the object. It must be quick: a remover waits for it.
    #[inline]
    pub(crate) fn with<R>(&self, call: impl FnOnce(&T) -> R) -> Option<R> {
        // SAFETY: as in `get`; the reference lives no longer than the call.
        self.read(|object| call(unsafe { &*object }))
    }
    /// Puts an object in. Returns it if the slot is full.
    pub(crate) fn put(&self, object: Arc<T>) -> Option<Arc<T>> {
        let raw = Arc::into_raw(object).cast_mut();
        let put =
            self.object
                .compare_exchange(null_mut(), raw, Ordering::AcqRel, Ordering::Relaxed);
        // SAFETY: the exchange failed, so this thread still owns the reference of `into_raw`.
        put.is_err().then(|| unsafe { Arc::from_raw(raw) })
    }
    /// Takes the object out.
    pub(crate) fn take(&self) -> Option<Arc<T>> {
        let object = self.object.swap(null_mut(), Ordering::AcqRel);
        self.taken(object)
    }
    /// Takes the object out if it is this one. Returns whether it was.
    pub(crate) fn take_same(&self, object: &Arc<T>) -> bool {
        let raw = Arc::as_ptr(object).cast_mut();
        let emptied =
            self.object
                .compare_exchange(raw, null_mut(), Ordering::AcqRel, Ordering::Relaxed);
        emptied.is_ok_and(|object| self.taken(object).is_some())
    }

    /// Calls `call` with the object, which lives at least until the call returns.
    #[inline]
    fn read<R>(&self, call: impl FnOnce(*const T) -> R) -> Option<R> {
        // A thread that reads an empty slot repeatedly must not delay removers.
        if self.object.load(Ordering::Relaxed).is_null() {
            return None;
        }
        let _leave = Reader::announce(&self.readers);
        let object = self.object.load(Ordering::Acquire);
        (!object.is_null()).then(|| call(object))
    }
    /// Returns the reference to an object that this thread has taken out.
    fn taken(&self, object: *const T) -> Option<Arc<T>> {
        if object.is_null() {
            return None;
        }
        while self.readers.fetch_add(0, Ordering::AcqRel) != 0 {
            relax();
        }
        // SAFETY: the pointer is from `Arc::into_raw`, and this thread emptied the slot, so it owns
        // the slot's reference. Readers that found the object have their own references, and their
        // decrements happened before this.
        Some(unsafe { Arc::from_raw(object) })
    }
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// Decrements the number of readers on drop.
struct Reader<'a>(&'a AtomicU32);
impl<'a> Reader<'a> {
    fn announce(readers: &'a AtomicU32) -> Reader<'a> {
        readers.fetch_add(1, Ordering::Acquire);
        Reader(readers)
    }
}
impl Drop for Reader<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}
