//! Raw locks of builds without a scheduler: parking_lot's. A thread tells its observer when it
//! waits long ([`crate::waits`]).

use crate::waits::{contended, waiting};
pub use crossbeam::{ShardedLockReadGuard, ShardedLockWriteGuard};
use crossbeam_utils::sync as crossbeam;
use lock_api::{RawRwLockTimed as _, RawRwLockUpgradeTimed as _};
use std::mem::ManuallyDrop;
use std::panic::Location;
use std::sync::{LockResult, TryLockError};
use std::time::{Duration, Instant};

/// A mutex without contents, in the form that parking_lot's condition variable takes.
pub struct RawMutex(parking_lot::Mutex<()>);

// SAFETY: exclusion is that of the mutex inside; every method passes on to it.
unsafe impl lock_api::RawMutex for RawMutex {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: RawMutex = RawMutex(parking_lot::Mutex::new(()));
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock(&self) {
        if !self.try_lock() {
            contended(
                |limit| self.0.try_lock_for(limit).map(std::mem::forget),
                || std::mem::forget(self.0.lock()),
            );
        }
    }
    #[inline]
    fn try_lock(&self) -> bool {
        self.0.try_lock().map(std::mem::forget).is_some()
    }
    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: the caller holds the lock.
        unsafe { self.0.force_unlock() };
    }
    #[inline]
    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

/// parking_lot's reader-writer lock.
pub struct RawRwLock(parking_lot::RawRwLock);

/// Three methods of [`RawRwLock`], for one kind of access: lock, try, unlock.
macro_rules! access {
    ($lock:ident, $try_lock:ident, $try_lock_for:ident, $unlock:ident) => {
        #[inline]
        fn $lock(&self) {
            if !self.0.$try_lock() {
                contended(
                    |limit| self.0.$try_lock_for(limit).then_some(()),
                    || self.0.$lock(),
                );
            }
        }
        #[inline]
        fn $try_lock(&self) -> bool {
            self.0.$try_lock()
        }
        #[inline]
        unsafe fn $unlock(&self) {
            // SAFETY: the caller holds the lock for this access.
            unsafe { self.0.$unlock() };
        }
    };
}

// SAFETY: exclusion is that of the lock inside; every method passes on to it.
unsafe impl lock_api::RawRwLock for RawRwLock {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: RawRwLock = RawRwLock(parking_lot::RawRwLock::INIT);
    type GuardMarker = lock_api::GuardNoSend;

    access!(
        lock_shared,
        try_lock_shared,
        try_lock_shared_for,
        unlock_shared
    );
    access!(
        lock_exclusive,
        try_lock_exclusive,
        try_lock_exclusive_for,
        unlock_exclusive
    );
    #[inline]
    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

// SAFETY: as above.
unsafe impl lock_api::RawRwLockUpgrade for RawRwLock {
    access!(
        lock_upgradable,
        try_lock_upgradable,
        try_lock_upgradable_for,
        unlock_upgradable
    );
    #[inline]
    unsafe fn upgrade(&self) {
        // SAFETY: the caller holds the lock upgradably, as in both closures.
        if !unsafe { self.0.try_upgrade() } {
            contended(
                // SAFETY: see above.
                |limit| unsafe { self.0.try_upgrade_for(limit).then_some(()) },
                // SAFETY: see above.
                || unsafe { self.0.upgrade() },
            );
        }
    }
    #[inline]
    unsafe fn try_upgrade(&self) -> bool {
        // SAFETY: the caller holds the lock upgradably.
        unsafe { self.0.try_upgrade() }
    }
}

/// crossbeam's. It has no wait with a limit.
pub struct ShardedLock<T>(crossbeam::ShardedLock<T>);

impl<T> ShardedLock<T> {
    pub fn new(value: T) -> ShardedLock<T> {
        ShardedLock(crossbeam::ShardedLock::new(value))
    }
    #[inline]
    pub fn read(&self) -> LockResult<ShardedLockReadGuard<'_, T>> {
        let try_read = || taken(self.0.try_read());
        try_read().unwrap_or_else(|| contended(|limit| try_for(limit, try_read), || self.0.read()))
    }
    /// The wait is told at once: attempts would let readers in without end, and there are few
    /// writers.
    #[inline]
    pub fn write(&self) -> LockResult<ShardedLockWriteGuard<'_, T>> {
        taken(self.0.try_write()).unwrap_or_else(|| waiting(|| self.0.write()))
    }
}

/// The lock, or `None` if another thread holds it.
fn taken<G>(result: std::sync::TryLockResult<G>) -> Option<LockResult<G>> {
    match result {
        Ok(guard) => Some(Ok(guard)),
        Err(TryLockError::Poisoned(poisoned)) => Some(Err(poisoned)),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Tries for some time.
fn try_for<T>(limit: Duration, attempt: impl Fn() -> Option<T>) -> Option<T> {
    let end = Instant::now() + limit;
    while Instant::now() < end {
        std::thread::yield_now();
        if let Some(taken) = attempt() {
            return Some(taken);
        }
    }
    None
}

/// parking_lot's.
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    pub const fn new() -> Condvar {
        Condvar(parking_lot::Condvar::new())
    }
    /// Waits until notified, or until `deadline`. Returns whether the time was up.
    ///
    /// # Safety
    /// The calling thread holds `mutex`.
    pub unsafe fn wait(
        &self,
        mutex: &RawMutex,
        deadline: Option<Instant>,
        _place: &'static Location<'static>,
    ) -> bool {
        // SAFETY: the caller holds the lock. The guard never unlocks it.
        let mut guard = ManuallyDrop::new(unsafe { mutex.0.make_guard_unchecked() });
        waiting(|| match deadline {
            Some(at) => self.0.wait_until(&mut guard, at).timed_out(),
            None => {
                self.0.wait(&mut guard);
                false
            }
        })
    }
    #[inline]
    pub fn notify_one(&self) -> bool {
        self.0.notify_one()
    }
    #[inline]
    pub fn notify_all(&self) -> usize {
        self.0.notify_all()
    }
}
