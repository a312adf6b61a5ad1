//! A place for one `Arc`, read without waiting for anybody.
//!
//! It is empty, then full, then empty again; what is in it is never exchanged for something else in
//! one step. A reader announces itself, takes a reference of its own, and leaves. Whoever takes the
//! object out empties the place first, and then waits for those who are reading, a few instructions
//! each: only then is the place's own reference anybody's to drop. So nothing is deferred: who
//! takes an object out and finds that nobody else has it may use its memory again at once.
//!
//! Why a reader's object is alive: `readers` is changed by read-modify-write operations only, by
//! those who take out, too, and these are in one order. Where the reader's announcement comes
//! first, it is waited for. Where it comes second, it has synchronised with the other, and finds
//! the place empty.

use super::sync::{Arc, AtomicPtr, AtomicU32, Ordering, relax};
use std::marker::PhantomData;
use std::ptr::null_mut;

pub(crate) struct Slot<T> {
    /// Of `Arc::into_raw`; owns a reference.
    object: AtomicPtr<T>,
    /// Those who may be about to use what they have found in `object`.
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
            // SAFETY: `read` has it that this is of `Arc::into_raw`, and that the slot's reference
            // is not dropped meanwhile.
            unsafe {
                Arc::increment_strong_count(object);
                Arc::from_raw(object)
            }
        })
    }
    /// Calls `call` for the object, quickly: whoever takes it out waits.
    pub(crate) fn with(&self, call: impl FnOnce(&T)) {
        // SAFETY: as in `get`; the reference lives no longer than the call.
        self.read(|object| call(unsafe { &*object }));
    }
    /// Puts an object in; gives it back where there is one.
    pub(crate) fn put(&self, object: Arc<T>) -> Option<Arc<T>> {
        let raw = Arc::into_raw(object).cast_mut();
        let put =
            self.object
                .compare_exchange(null_mut(), raw, Ordering::AcqRel, Ordering::Relaxed);
        // SAFETY: it has not gone in, so this is the reference that `into_raw` was given.
        put.is_err().then(|| unsafe { Arc::from_raw(raw) })
    }
    /// Takes the object out.
    pub(crate) fn take(&self) -> Option<Arc<T>> {
        let object = self.object.swap(null_mut(), Ordering::AcqRel);
        self.taken(object)
    }
    /// Takes an object out if it is still this one; whether it was.
    pub(crate) fn take_same(&self, object: &Arc<T>) -> bool {
        let raw = Arc::as_ptr(object).cast_mut();
        let emptied =
            self.object
                .compare_exchange(raw, null_mut(), Ordering::AcqRel, Ordering::Relaxed);
        emptied.is_ok_and(|object| self.taken(object).is_some())
    }

    /// Calls `call` with the object, which lives for as long as the call.
    #[inline]
    fn read<R>(&self, call: impl FnOnce(*const T) -> R) -> Option<R> {
        // Whoever reads an empty place all the time must not keep others waiting.
        if self.object.load(Ordering::Relaxed).is_null() {
            return None;
        }
        let _leave = Reader::announce(&self.readers);
        let object = self.object.load(Ordering::Acquire);
        (!object.is_null()).then(|| call(object))
    }
    /// The reference to an object that this thread has taken out.
    fn taken(&self, object: *const T) -> Option<Arc<T>> {
        if object.is_null() {
            return None;
        }
        while self.readers.fetch_add(0, Ordering::AcqRel) != 0 {
            relax();
        }
        // SAFETY: it is of `Arc::into_raw`, and whoever empties the place has the slot's reference.
        // Readers who have found it have left with references of their own, and their leaving
        // happened before this.
        Some(unsafe { Arc::from_raw(object) })
    }
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// Leaves on drop.
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
