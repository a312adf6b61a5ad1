//! Locking several inodes.
//!
//! The rule that makes dead-locks impossible: whoever waits for a *directory's* lock holds no other
//! inode's lock. The second lock is only tried; where that fails, everything is let go, and the
//! next attempt waits for the one that was taken. No order among directories is needed, so that
//! renames of files across directories need no volume-wide lock and no walk to the root, and
//! directories that a damaged volume links in circles do no harm.
//!
//! The lock of something that is not a directory may be waited for while directories are locked:
//! whoever holds one waits for no directory.

use crate::Inode;
use sync::{RwLock, RwLockWriteGuard};

/// An inode's lock, held exclusively.
pub(super) type Guard<'a> = RwLockWriteGuard<'a, ()>;

/// Locks two directories; one guard where they are the same.
pub(super) fn lock_two<'a>(a: &'a Inode, b: &'a Inode) -> (Guard<'a>, Option<Guard<'a>>) {
    if a.ino == b.ino {
        return (a.lock.write(), None);
    }
    lock_pair(&a.lock, &b.lock)
}

fn lock_pair<'a>(a: &'a RwLock<()>, b: &'a RwLock<()>) -> (Guard<'a>, Option<Guard<'a>>) {
    loop {
        let first = a.lock_waiting();
        if let Some(second) = b.try_write() {
            return (first, Some(second));
        }
        drop(first);
        let second = b.lock_waiting();
        if let Some(first) = a.try_write() {
            return (first, Some(second));
        }
    }
}

/// Only to make visible where a lock is waited for.
trait Waiting {
    fn lock_waiting(&self) -> Guard<'_>;
}
impl Waiting for RwLock<()> {
    fn lock_waiting(&self) -> Guard<'_> {
        self.write()
    }
}

/// Locks what is about to lose a name, while its directory is locked. `None`: let everything go,
/// call [`wait_for`] and begin anew.
pub(super) fn lock_victim<'a>(victim: &'a Inode) -> Option<Guard<'a>> {
    if victim.is_dir() {
        victim.lock.try_write()
    } else {
        Some(victim.lock.write())
    }
}

/// Waits until a lock is free. Nothing else is locked.
pub(super) fn wait_for(inode: &Inode) {
    drop(inode.lock.write());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_in_any_order_do_not_dead_lock() {
        let locks: [RwLock<()>; 3] = Default::default();
        sync::thread::scope(|scope| {
            for (a, b) in [(0, 1), (1, 0), (1, 2), (2, 0)] {
                let locks = &locks;
                scope.spawn(move || {
                    for _ in 0..2000 {
                        let (_first, second) = lock_pair(&locks[a], &locks[b]);
                        assert!(second.is_some());
                        std::hint::spin_loop();
                    }
                });
            }
        });
    }
}
