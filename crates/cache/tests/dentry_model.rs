//! Every interleaving of look-ups in a set of names with threads that change it, by loom.

#![allow(dead_code)]

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    pub(crate) fn relax() {
        loom::thread::yield_now();
    }
}
#[path = "../src/dentry/set.rs"]
mod set;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::thread::spawn;
use set::{Fingerprint, Set};

const A: Fingerprint = Fingerprint { high: 7, low: 1 };
const B: Fingerprint = Fingerprint { high: 9, low: 2 };
const C: Fingerprint = Fingerprint { high: 8, low: 3 };
const D: Fingerprint = Fingerprint { high: 8, low: 4 };
/// A name that nobody stores: half of [`B`] over half of [`A`].
const NONE: Fingerprint = Fingerprint { high: 9, low: 1 };

#[test]
fn a_reader_never_sees_half_of_a_change() {
    loom::model(|| {
        let set = Arc::new(Set::default());
        set.put(A, 1);
        set.put(C, 3);
        set.put(D, 4);
        let writer = {
            let set = set.clone();
            // It replaces A.
            spawn(move || set.put(B, 2))
        };
        assert_eq!(set.get(NONE), None);
        for (name, ino) in [(A, 1), (B, 2)] {
            assert_eq!(set.get(name).map_or(ino, |found| found.ino), ino);
        }
        writer.join().unwrap();
        assert_eq!(set.get(B).map(|found| found.ino), Some(2));
        assert_eq!(set.get(A), None);
    });
}

/// An inode number that is freed and used again once its name is removed.
#[test]
fn a_name_that_is_current_after_the_pin_has_that_inode() {
    loom::model(|| {
        let set = Arc::new(Set::default());
        set.put(A, 1);
        // The object in the table for number 1: the first one, or one that came later.
        let table = Arc::new(AtomicU32::new(100));
        let remover = {
            let (set, table) = (set.clone(), table.clone());
            spawn(move || {
                set.forget(A);
                table.store(200, Ordering::Release);
            })
        };
        if let Some(found) = set.get(A) {
            let object = table.load(Ordering::Acquire);
            if set.is_current(found) {
                assert_eq!(object, 100, "another file has the number now");
            }
        }
        remover.join().unwrap();
    });
}

#[test]
fn writers_of_one_set_do_not_lose_names() {
    loom::model(|| {
        let set = Arc::new(Set::default());
        let done = Arc::new(AtomicBool::new(false));
        let other = {
            let (set, done) = (set.clone(), done.clone());
            spawn(move || {
                set.put(A, 1);
                done.store(true, Ordering::Release);
            })
        };
        set.put(B, 2);
        assert_eq!(set.get(B).map_or(2, |found| found.ino), 2);
        if done.load(Ordering::Acquire) {
            assert_eq!(set.get(A).map(|found| found.ino), Some(1));
        }
        other.join().unwrap();
        let ino = |name| set.get(name).map(|found| found.ino);
        assert_eq!((ino(A), ino(B)), (Some(1), Some(2)));
    });
}
