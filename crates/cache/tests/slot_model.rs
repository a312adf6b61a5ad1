//! Every interleaving of look-ups in a slot with the thread that fills and empties it, by loom.

#![allow(dead_code)]

mod sync {
    pub(crate) use loom::sync::Arc;
    pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
    pub(crate) fn relax() {
        loom::thread::yield_now();
    }
}
#[path = "../src/slot.rs"]
mod slot;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use slot::Slot;

/// An object that no thread may touch after its last reference is dropped. loom reports an access
/// concurrent with the drop.
struct Object {
    value: UnsafeCell<u32>,
}
impl Object {
    fn new(value: u32) -> Arc<Object> {
        Arc::new(Object {
            value: UnsafeCell::new(value),
        })
    }
    fn value(&self) -> u32 {
        // SAFETY: the thread that changes the value has the only reference; loom checks that.
        self.value.with(|value| unsafe { *value })
    }
    /// Of its only owner.
    fn end(mut object: Arc<Object>) {
        if let Some(object) = Arc::get_mut(&mut object) {
            // SAFETY: as above.
            object.value.with_mut(|value| unsafe { *value = 0 });
        }
    }
}

#[test]
fn a_reader_gets_a_live_object() {
    loom::model(|| {
        let slot = Arc::new(Slot::default());
        assert!(slot.put(Object::new(1)).is_none());
        let reader = {
            let slot = slot.clone();
            loom::thread::spawn(move || {
                if let Some(object) = slot.get() {
                    assert_eq!(object.value(), 1);
                    Object::end(object);
                }
                slot.with(|object| assert_eq!(object.value(), 1));
            })
        };
        Object::end(slot.take().expect("the only thread that takes it"));
        assert!(slot.get().is_none());
        reader.join().unwrap();
    });
}

#[test]
fn one_of_two_threads_takes_an_object_and_frees_its_slot() {
    loom::model(|| {
        let slot = Arc::new(Slot::default());
        let first = Object::new(1);
        assert!(slot.put(first.clone()).is_none());
        let other = {
            let (slot, first) = (slot.clone(), first.clone());
            loom::thread::spawn(move || {
                let won = slot.take_same(&first);
                if won {
                    assert!(slot.put(Object::new(2)).is_none());
                }
                won
            })
        };
        let seen = slot.get().map(|object| object.value());
        assert!(matches!(seen, None | Some(1 | 2)));
        let won = slot.take_same(&first);
        assert_ne!(won, other.join().unwrap());
        assert_eq!(slot.get().is_some(), !won);
    });
}
