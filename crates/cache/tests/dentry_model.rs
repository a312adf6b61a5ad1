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
use set::{Fingerprint, Found, Kind, Set, Value};

const A: Fingerprint = Fingerprint { high: 7, low: 1 };
const B: Fingerprint = Fingerprint { high: 9, low: 2 };
const C: Fingerprint = Fingerprint { high: 8, low: 3 };
const D: Fingerprint = Fingerprint { high: 8, low: 4 };
/// A name that nobody stores: half of [`B`] over half of [`A`].
const NONE: Fingerprint = Fingerprint { high: 9, low: 1 };

/// A file with this number.
fn file(ino: u32) -> Value {
    Value {
        ino,
        kind: Kind::Other,
    }
}

fn ino(found: Found) -> u32 {
    found.value().ino
}

#[test]
fn a_reader_never_sees_half_of_a_change() {
    loom::model(|| {
        let set = Arc::new(Set::default());
        set.put(A, file(1));
        set.put(C, file(3));
        set.put(D, file(4));
        let writer = {
            let set = set.clone();
            // It replaces A.
            spawn(move || set.put(B, file(2)))
        };
        assert_eq!(set.get(NONE), None);
        for (name, number) in [(A, 1), (B, 2)] {
            assert_eq!(set.get(name).map_or(number, ino), number);
        }
        writer.join().unwrap();
        assert_eq!(set.get(B).map(ino), Some(2));
        assert_eq!(set.get(A), None);
    });
}

/// An inode number that is freed and used again once its name is removed.
#[test]
fn a_name_that_is_current_after_the_pin_has_that_inode() {
    loom::model(|| {
        let set = Arc::new(Set::default());
        set.put(A, file(1));
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
                set.put(A, file(1));
                done.store(true, Ordering::Release);
            })
        };
        set.put(B, file(2));
        assert_eq!(set.get(B).map_or(2, ino), 2);
        if done.load(Ordering::Acquire) {
            assert_eq!(set.get(A).map(ino), Some(1));
        }
        other.join().unwrap();
        let found = |name| set.get(name).map(ino);
        assert_eq!((found(A), found(B)), (Some(1), Some(2)));
    });
}

/// A reader stores the place of an inode while a writer replaces its name.
#[test]
fn a_place_changes_no_name() {
    loom::model(|| {
        let set = Arc::new(Set::default());
        set.put(A, file(1));
        set.put(C, file(3));
        set.put(D, file(4));
        let found = set.get(A).expect("no writer");
        let writer = {
            let set = set.clone();
            // It replaces A.
            spawn(move || set.put(B, file(2)))
        };
        set.note_place(found, 0x1000);
        writer.join().unwrap();
        assert_eq!(set.get(B).map(ino), Some(2));
        assert_eq!((set.get(A), set.get(NONE)), (None, None));
        let other = set.get(C).expect("nobody replaces it");
        set.note_place(other, 0x2000);
        assert!(set.is_current(other));
        let placed = set.get(C).expect("nobody replaces it");
        assert_eq!((placed.value(), placed.place()), (file(3), 0x2000));
    });
}

/// A directory is moved away, and then gets another file under the same name: the path never led
/// there.
#[test]
fn the_names_of_a_path_are_of_one_moment() {
    loom::model(|| {
        // The names of two directories.
        let sets = Arc::new((Set::default(), Set::default()));
        sets.0.put(A, file(1));
        sets.1.put(B, file(2));
        let mover = {
            let sets = sets.clone();
            spawn(move || {
                sets.0.forget(A);
                sets.1.put(B, file(5));
            })
        };
        if let Some(directory) = sets.0.get(A)
            && let Some(found) = sets.1.get(B)
            && sets.0.is_current(directory)
            && sets.1.is_current(found)
        {
            assert_eq!(ino(found), 2);
        }
        mover.join().unwrap();
    });
}
