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
#[path = "../src/dentry/table.rs"]
mod table;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::thread::spawn;
use set::{Fingerprint, Found, Kind, Set, Value};
use table::{Number, Place, Table};

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

fn put(set: &Set, name: Fingerprint, value: Value) {
    set.change().put(name, value);
}

fn forget(set: &Set, name: Fingerprint) {
    set.change().forget(name);
}

fn ino(found: Found) -> u32 {
    found.value().ino
}

#[test]
fn a_reader_never_sees_half_of_a_change() {
    loom::model(|| {
        let set = Arc::new(Set::default());
        put(&set, A, file(1));
        put(&set, C, file(3));
        put(&set, D, file(4));
        let writer = {
            let set = set.clone();
            // It replaces A.
            spawn(move || put(&set, B, file(2)))
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
        put(&set, A, file(1));
        // The object in the table for number 1: the first one, or one that came later.
        let table = Arc::new(AtomicU32::new(100));
        let remover = {
            let (set, table) = (set.clone(), table.clone());
            spawn(move || {
                forget(&set, A);
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
                put(&set, A, file(1));
                done.store(true, Ordering::Release);
            })
        };
        put(&set, B, file(2));
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
        put(&set, A, file(1));
        put(&set, C, file(3));
        put(&set, D, file(4));
        let found = set.get(A).expect("no writer");
        let writer = {
            let set = set.clone();
            // It replaces A.
            spawn(move || put(&set, B, file(2)))
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
        put(&sets.0, A, file(1));
        put(&sets.1, B, file(2));
        let mover = {
            let sets = sets.clone();
            spawn(move || {
                forget(&sets.0, A);
                put(&sets.1, B, file(5));
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

/// Explores the interleavings with at most two preemptions: all of them are too many.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

type Model = Table<Box<[Set]>, 1>;

fn sets(count: u32) -> Box<[Set]> {
    (0..count).map(|_| Set::default()).collect()
}

/// A table of one set that can grow to two.
fn table() -> Arc<Model> {
    let table = Table::new(2, 1, |count| Some(sets(count)));
    // loom does not see that `OnceLock` orders an allocation before its use.
    table.make(0);
    Arc::new(table)
}

const fn at(name: Fingerprint) -> Place {
    Place { name, home: 0 }
}

/// Grows the table, and moves A and C to the new set.
fn split(table: &Arc<Model>) -> loom::thread::JoinHandle<()> {
    let table = table.clone();
    spawn(move || {
        table.grow(0);
        table.born(Number { home: 0, bits: 1 });
    })
}

/// The memory ends after the first level, or there is none at all.
#[test]
fn a_table_without_memory_does_not_grow() {
    loom::model(|| {
        for levels in [0, 1] {
            let left = std::sync::atomic::AtomicU32::new(levels);
            let table: Model = Table::new(2, 1, move |count| {
                let left = left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
                (left == 1).then(|| sets(count))
            });
            for name in [A, B, C, D, A] {
                table.put(at(name), file(1));
            }
            let found = table.get(at(A)).map(|(_, found)| ino(found));
            assert_eq!(found, (levels == 1).then_some(1));
            table.forget(at(A));
            assert!(table.get(at(A)).is_none());
        }
    });
}

#[test]
fn a_change_beside_a_split_is_not_lost() {
    explore(|| {
        let table = table();
        table.put(at(A), file(1));
        let splitter = split(&table);
        let changer = {
            let table = table.clone();
            spawn(move || table.put(at(A), file(2)))
        };
        if let Some((_, found)) = table.get(at(A)) {
            assert!([1, 2].contains(&ino(found)));
        }
        changer.join().unwrap();
        splitter.join().unwrap();
        let found = table.get(at(A)).map(|(_, found)| ino(found));
        assert_eq!(found, Some(2));
    });
}

#[test]
fn a_name_that_is_forgotten_beside_a_split_stays_so() {
    explore(|| {
        let table = table();
        table.put(at(A), file(1));
        table.put(at(B), file(2));
        let splitter = split(&table);
        table.forget(at(A));
        assert!(table.get(at(A)).is_none());
        splitter.join().unwrap();
        assert!(table.get(at(A)).is_none());
        let found = table.get(at(B)).map(|(_, found)| ino(found));
        assert_eq!(found, Some(2), "a name that stays");
    });
}

/// As `a_name_that_is_current_after_the_pin_has_that_inode`, with a reader that may look at the
/// parent.
#[test]
fn a_name_that_is_current_beside_a_split_has_its_inode() {
    explore(|| {
        let table = table();
        table.put(at(A), file(1));
        let object = Arc::new(AtomicU32::new(100));
        let splitter = split(&table);
        let remover = {
            let (table, object) = (table.clone(), object.clone());
            spawn(move || {
                table.forget(at(A));
                object.store(200, Ordering::Release);
            })
        };
        if let Some((set, found)) = table.get(at(A)) {
            let object = object.load(Ordering::Acquire);
            if set.is_current(found) {
                assert_eq!(object, 100, "another file has the number now");
            }
        }
        remover.join().unwrap();
        splitter.join().unwrap();
    });
}
