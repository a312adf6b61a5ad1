//! Locking several inodes.
//!
//! One rule excludes deadlocks: a thread that waits for a *directory's* lock holds no other inode's
//! lock. The second lock is only tried. If that fails, the thread releases all locks, and the next
//! attempt waits for the lock that was busy. Directories need no order. So a rename of a file
//! across directories needs no volume-wide lock and no walk to the root, and directories of a
//! damaged volume that form a cycle are harmless.
//!
//! A thread may wait for the lock of an inode that is not a directory while it holds directories'
//! locks: a thread that holds such an inode's lock never waits for a directory.

use crate::Inode;
use sync::{RwLock, RwLockWriteGuard};

/// The guard of an inode's lock, held exclusively.
pub(super) type InodeGuard<'a> = RwLockWriteGuard<'a, ()>;

/// Locks two directories. There is only one guard if they are the same.
pub(super) fn lock_two<'a>(a: &'a Inode, b: &'a Inode) -> (InodeGuard<'a>, Option<InodeGuard<'a>>) {
    if a.ino == b.ino {
        return (a.lock.write(), None);
    }
    let (a, b) = lock_pair(&a.lock, &b.lock);
    (a, Some(b))
}

fn lock_pair<'a>(a: &'a RwLock<()>, b: &'a RwLock<()>) -> (InodeGuard<'a>, InodeGuard<'a>) {
    loop {
        let first = a.write();
        if let Some(second) = b.try_write() {
            return (first, second);
        }
        drop(first);
        let second = b.write();
        if let Some(first) = a.try_write() {
            return (first, second);
        }
    }
}

/// Locks an inode that loses a name or moves, while its directory is locked. On `None` the caller
/// releases all locks, calls [`wait_until_unlocked`] and tries again.
pub(super) fn lock_victim<'a>(victim: &'a Inode) -> Option<InodeGuard<'a>> {
    if victim.is_dir() {
        victim.lock.try_write()
    } else {
        Some(victim.lock.write())
    }
}

/// Waits until an inode's lock is free. The caller holds no lock.
pub(super) fn wait_until_unlocked(inode: &Inode) {
    drop(inode.lock.write());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_in_any_order_do_not_deadlock() {
        let locks: [RwLock<()>; 3] = Default::default();
        sync::thread::scope(|scope| {
            for (a, b) in [(0, 1), (1, 0), (1, 2), (2, 0)] {
                let locks = &locks;
                scope.spawn(move || {
                    for _ in 0..2000 {
                        let _both = lock_pair(&locks[a], &locks[b]);
                        std::hint::spin_loop();
                    }
                });
            }
        });
    }
}
