//! Every interleaving of pins, unpins, evictions and removals, by loom.

#![allow(dead_code)]

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    pub(crate) fn relax() {
        loom::thread::yield_now();
    }
}
#[path = "../src/pins.rs"]
mod pins;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use pins::{Pins, Unpinned};

/// An inode of the table, and a flag that is set when its memory is freed.
struct Inode {
    pins: Pins,
    dirty: AtomicBool,
    gone: AtomicBool,
    idle: AtomicU32,
}
fn inode() -> Arc<Inode> {
    Arc::new(Inode {
        pins: Pins::default(),
        dirty: AtomicBool::new(false),
        gone: AtomicBool::new(false),
        idle: AtomicU32::new(0),
    })
}
/// Pins, writes, unpins; whether it was alive.
fn write(inode: &Inode) -> bool {
    if !inode.pins.try_pin() {
        return false;
    }
    assert!(!inode.gone.load(Ordering::SeqCst), "pinned after its death");
    inode.dirty.store(true, Ordering::SeqCst);
    if inode.pins.unpin() == Unpinned::Idle {
        inode.idle.fetch_add(1, Ordering::SeqCst);
    }
    true
}
fn evict(inode: &Inode) {
    if !inode.pins.kill() {
        return;
    }
    if inode.dirty.load(Ordering::SeqCst) {
        inode.pins.revive();
    } else {
        inode.pins.bury();
        inode.gone.store(true, Ordering::SeqCst);
    }
}

#[test]
fn an_evicted_inode_has_no_user_and_is_clean() {
    loom::model(|| {
        let inode = inode();
        // One writer waits for an answer at a time: two that spin have endlessly many
        // interleavings.
        let evictor = {
            let inode = inode.clone();
            loom::thread::spawn(move || evict(&inode))
        };
        let writer = {
            let inode = inode.clone();
            loom::thread::spawn(move || write(&inode))
        };
        evict(&inode);
        evictor.join().unwrap();
        let written = writer.join().unwrap();
        if written {
            assert!(!inode.gone.load(Ordering::SeqCst), "dirty data was lost");
            assert!(!inode.pins.is_dead());
            assert!(inode.idle.load(Ordering::SeqCst) >= 1);
        } else {
            assert!(inode.pins.is_dead());
        }
    });
}

#[test]
fn an_evictor_does_not_keep_an_inode_from_its_deletion() {
    loom::model(|| {
        let inode = inode();
        // An inode that is to be deleted is not clean.
        inode.dirty.store(true, Ordering::SeqCst);
        let evictor = {
            let inode = inode.clone();
            loom::thread::spawn(move || evict(&inode))
        };
        assert!(inode.pins.retire());
        evictor.join().unwrap();
        assert!(inode.pins.is_dead());
        assert!(!inode.gone.load(Ordering::SeqCst));
    });
}

#[test]
fn an_inode_is_deleted_by_its_user_or_by_one_other_thread() {
    loom::model(|| {
        let inode = inode();
        inode.dirty.store(true, Ordering::SeqCst);
        let user = {
            let inode = inode.clone();
            loom::thread::spawn(move || write(&inode) && inode.pins.retire())
        };
        let retired = inode.pins.retire();
        let by_user = user.join().unwrap();
        assert!(retired != by_user);
        assert!(inode.pins.is_dead());
    });
}

#[test]
fn a_doomed_inode_gets_no_other_user() {
    loom::model(|| {
        let inode = inode();
        assert!(inode.pins.try_pin());
        let other = {
            let inode = inode.clone();
            loom::thread::spawn(move || {
                let written = write(&inode);
                evict(&inode);
                written
            })
        };
        evict(&inode);
        let doomed = inode.pins.doom();
        if doomed {
            assert!(!inode.pins.try_pin());
            assert!(inode.pins.is_dead());
            inode.gone.store(true, Ordering::SeqCst);
        }
        let last = inode.pins.unpin();
        let written = other.join().unwrap();
        assert_eq!(last == Unpinned::Dead, doomed);
        // A written one is not evicted.
        assert!(inode.pins.is_dead() || !doomed && written);
        assert_eq!(inode.pins.count(), 0);
    });
}

#[test]
fn a_removed_inode_is_freed_with_its_last_user() {
    loom::model(|| {
        let inode = inode();
        assert!(inode.pins.try_pin());
        let remover = {
            let inode = inode.clone();
            loom::thread::spawn(move || inode.pins.remove())
        };
        let evictor = {
            let inode = inode.clone();
            loom::thread::spawn(move || evict(&inode))
        };
        inode.pins.pin_again();
        assert_eq!(inode.pins.unpin(), Unpinned::InUse);
        let last = inode.pins.unpin();
        remover.join().unwrap();
        evictor.join().unwrap();
        assert!(matches!(last, Unpinned::Idle | Unpinned::Dead));
        assert!(inode.pins.is_dead());
        assert!(!inode.pins.try_pin());
    });
}
