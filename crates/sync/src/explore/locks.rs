//! Raw locks and condition variables. In a run, the lock inside is only tried; the scheduler waits.

use super::scheduler::{current, point};
use super::time;
use super::wait::{Access, Key, Place};
use lock_api::{GuardNoSend, RawMutex as _};
use std::mem::{ManuallyDrop, forget};
use std::panic::Location;
use std::sync::LockResult;
use std::time::Instant;

/// Takes a lock: tries, and lets the scheduler wait for `address` in between. Outside of a run,
/// `wait` takes the lock.
fn take(
    address: usize,
    access: Access,
    place: Place,
    wait: impl FnOnce(),
    mut attempt: impl FnMut() -> bool,
) {
    let Some((scheduler, me)) = current() else {
        return wait();
    };
    while !attempt() {
        scheduler.block(me, Key::Lock { address, access }, None, place);
    }
}

/// Wakes the threads that wait for the lock at `address`.
fn wake(address: usize) {
    if let Some((scheduler, _)) = current() {
        let access = Access::Shared;
        scheduler.wake_all(Key::Lock { address, access });
    }
}

/// A mutex without contents, in the form that parking_lot's condition variable takes.
pub struct RawMutex(parking_lot::Mutex<()>);

impl RawMutex {
    fn address(&self) -> usize {
        &raw const self.0 as usize
    }
}

// SAFETY: exclusion is that of the mutex inside; every method passes on to it.
unsafe impl lock_api::RawMutex for RawMutex {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: RawMutex = RawMutex(parking_lot::Mutex::new(()));
    type GuardMarker = GuardNoSend;

    #[track_caller]
    fn lock(&self) {
        point();
        let wait = || forget(self.0.lock());
        let attempt = || self.0.try_lock().map(forget).is_some();
        let place = Location::caller();
        take(self.address(), Access::Exclusive, place, wait, attempt);
    }
    #[track_caller]
    fn try_lock(&self) -> bool {
        point();
        self.0.try_lock().map(forget).is_some()
    }
    unsafe fn unlock(&self) {
        // SAFETY: the caller holds the lock.
        unsafe { self.0.force_unlock() };
        wake(self.address());
    }
    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

/// A reader-writer lock without contents. A waiting writer blocks new readers.
pub struct RawRwLock(parking_lot::RawRwLock);

impl RawRwLock {
    fn address(&self) -> usize {
        &raw const self.0 as usize
    }
    /// Whether no waiting writer blocks this access.
    fn admits(&self, access: Access) -> bool {
        access == Access::Exclusive
            || current().is_none_or(|(scheduler, _)| !scheduler.writer_waits(self.address()))
    }
}

/// Three methods of [`RawRwLock`], for one kind of access: lock, try, unlock.
macro_rules! access {
    ($access:expr, $lock:ident, $try_lock:ident, $unlock:ident) => {
        #[track_caller]
        fn $lock(&self) {
            point();
            let attempt = || self.admits($access) && self.0.$try_lock();
            let wait = || self.0.$lock();
            take(self.address(), $access, Location::caller(), wait, attempt);
        }
        #[track_caller]
        fn $try_lock(&self) -> bool {
            point();
            self.admits($access) && self.0.$try_lock()
        }
        unsafe fn $unlock(&self) {
            // SAFETY: the caller holds the lock for this access.
            unsafe { self.0.$unlock() };
            wake(self.address());
        }
    };
}

// SAFETY: exclusion is that of the lock inside; every method passes on to it.
unsafe impl lock_api::RawRwLock for RawRwLock {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: RawRwLock = RawRwLock(parking_lot::RawRwLock::INIT);
    type GuardMarker = GuardNoSend;

    access!(Access::Shared, lock_shared, try_lock_shared, unlock_shared);
    access!(
        Access::Exclusive,
        lock_exclusive,
        try_lock_exclusive,
        unlock_exclusive
    );
    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

// SAFETY: as above.
unsafe impl lock_api::RawRwLockUpgrade for RawRwLock {
    access!(
        Access::Shared,
        lock_upgradable,
        try_lock_upgradable,
        unlock_upgradable
    );
    #[track_caller]
    unsafe fn upgrade(&self) {
        point();
        // SAFETY: the caller holds the lock upgradably, and each attempt that fails leaves it so.
        let attempt = || unsafe { self.0.try_upgrade() };
        // SAFETY: the caller holds the lock upgradably.
        let wait = || unsafe { self.0.upgrade() };
        let place = Location::caller();
        take(self.address(), Access::Exclusive, place, wait, attempt);
    }
    #[track_caller]
    unsafe fn try_upgrade(&self) -> bool {
        point();
        // SAFETY: the caller holds the lock upgradably.
        unsafe { self.0.try_upgrade() }
    }
}

/// crossbeam's with one shard: a schedule cannot tell the difference.
pub struct ShardedLock<T>(lock_api::RwLock<RawRwLock, T>);
pub type ShardedLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;
pub type ShardedLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;

impl<T> ShardedLock<T> {
    pub const fn new(value: T) -> ShardedLock<T> {
        ShardedLock(lock_api::RwLock::new(value))
    }
    /// Never fails.
    #[track_caller]
    pub fn read(&self) -> LockResult<ShardedLockReadGuard<'_, T>> {
        Ok(self.0.read())
    }
    /// Never fails.
    #[track_caller]
    pub fn write(&self) -> LockResult<ShardedLockWriteGuard<'_, T>> {
        Ok(self.0.write())
    }
}

/// A condition variable. Threads outside of runs wait for `real`.
#[derive(Debug, Default)]
pub struct Condvar {
    real: parking_lot::Condvar,
}

impl Condvar {
    pub const fn new() -> Condvar {
        Condvar {
            real: parking_lot::Condvar::new(),
        }
    }

    fn key(&self) -> Key {
        Key::Condvar(&raw const self.real as usize)
    }

    /// Waits until notified, or until `deadline`. Returns whether the time was up.
    ///
    /// # Safety
    /// The calling thread holds `mutex`.
    pub unsafe fn wait(&self, mutex: &RawMutex, deadline: Option<Instant>, place: Place) -> bool {
        let Some((scheduler, me)) = current() else {
            // SAFETY: the caller holds the lock. The guard never unlocks it.
            let mut guard = ManuallyDrop::new(unsafe { mutex.0.make_guard_unchecked() });
            return match deadline {
                Some(at) => self.real.wait_until(&mut guard, at).timed_out(),
                None => {
                    self.real.wait(&mut guard);
                    false
                }
            };
        };
        scheduler.point(me, place);
        // SAFETY: the caller holds the lock. No point lies between this and the wait, so no
        // wake-up is lost.
        unsafe { mutex.unlock() };
        let timed_out = scheduler.block(me, self.key(), deadline.map(time::nanos), place);
        mutex.lock();
        timed_out
    }
    #[track_caller]
    pub fn notify_one(&self) -> bool {
        point();
        match current() {
            Some((scheduler, _)) => {
                scheduler.wake_one(self.key());
                true
            }
            None => self.real.notify_one(),
        }
    }
    #[track_caller]
    pub fn notify_all(&self) -> usize {
        point();
        match current() {
            Some((scheduler, _)) => {
                scheduler.wake_all(self.key());
                0
            }
            None => self.real.notify_all(),
        }
    }
}
