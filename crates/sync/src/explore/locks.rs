//! Locks and condition variables. The lock itself is the system's and is only ever tried; waiting
//! is the scheduler's.

use super::scheduler::{Key, Place, current, point};
use super::time;
use lock_api::{GuardNoSend, RawMutex as _};
use std::panic::Location;
use std::sync::LockResult;
use std::time::{Duration, Instant};

/// As parking_lot's.
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
/// As parking_lot's.
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;
/// As parking_lot's.
pub type MappedMutexGuard<'a, T> = lock_api::MappedMutexGuard<'a, RawMutex, T>;
/// As parking_lot's.
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;
/// As parking_lot's.
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;
/// As parking_lot's.
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;
/// As parking_lot's.
pub type RwLockUpgradableReadGuard<'a, T> = lock_api::RwLockUpgradableReadGuard<'a, RawRwLock, T>;

/// Takes a lock by trying; waits for `address` in between. Outside of a run, `wait` takes it.
fn take(
    address: usize,
    writer: bool,
    place: Place,
    wait: impl FnOnce(),
    mut attempt: impl FnMut() -> bool,
) {
    let Some((scheduler, me)) = current() else {
        return wait();
    };
    while !attempt() {
        scheduler.block(me, Key::Lock { address, writer }, None, place);
    }
}

/// Wakes who waits for the lock at `address`.
fn wake(address: usize) {
    if let Some((scheduler, _)) = current() {
        let writer = false;
        scheduler.wake_all(Key::Lock { address, writer });
    }
}

/// A mutex without contents.
pub struct RawMutex(parking_lot::RawMutex);

// SAFETY: exclusion is that of the mutex inside; every method passes on to it.
unsafe impl lock_api::RawMutex for RawMutex {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: RawMutex = RawMutex(parking_lot::RawMutex::INIT);
    type GuardMarker = GuardNoSend;

    #[track_caller]
    fn lock(&self) {
        point();
        let (address, place) = (&raw const self.0 as usize, Location::caller());
        take(address, true, place, || self.0.lock(), || self.0.try_lock());
    }
    #[track_caller]
    fn try_lock(&self) -> bool {
        point();
        self.0.try_lock()
    }
    unsafe fn unlock(&self) {
        // SAFETY: the caller holds the lock.
        unsafe { self.0.unlock() };
        wake(&raw const self.0 as usize);
    }
    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

/// A lock for many readers or one writer, without contents. A writer that waits keeps new readers
/// out.
pub struct RawRwLock(parking_lot::RawRwLock);

impl RawRwLock {
    fn address(&self) -> usize {
        &raw const self.0 as usize
    }
    fn is_open(&self) -> bool {
        current().is_none_or(|(scheduler, _)| !scheduler.writer_waits(self.address()))
    }
}

// SAFETY: exclusion is that of the lock inside; every method passes on to it.
unsafe impl lock_api::RawRwLock for RawRwLock {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: RawRwLock = RawRwLock(parking_lot::RawRwLock::INIT);
    type GuardMarker = GuardNoSend;

    #[track_caller]
    fn lock_shared(&self) {
        point();
        let attempt = || self.is_open() && self.0.try_lock_shared();
        let wait = || self.0.lock_shared();
        take(self.address(), false, Location::caller(), wait, attempt);
    }
    #[track_caller]
    fn try_lock_shared(&self) -> bool {
        point();
        self.is_open() && self.0.try_lock_shared()
    }
    unsafe fn unlock_shared(&self) {
        // SAFETY: the caller holds the lock.
        unsafe { self.0.unlock_shared() };
        wake(self.address());
    }
    #[track_caller]
    fn lock_exclusive(&self) {
        point();
        let attempt = || self.0.try_lock_exclusive();
        let wait = || self.0.lock_exclusive();
        take(self.address(), true, Location::caller(), wait, attempt);
    }
    #[track_caller]
    fn try_lock_exclusive(&self) -> bool {
        point();
        self.0.try_lock_exclusive()
    }
    unsafe fn unlock_exclusive(&self) {
        // SAFETY: the caller holds the lock.
        unsafe { self.0.unlock_exclusive() };
        wake(self.address());
    }
    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

// SAFETY: as above.
unsafe impl lock_api::RawRwLockUpgrade for RawRwLock {
    #[track_caller]
    fn lock_upgradable(&self) {
        point();
        let attempt = || self.is_open() && self.0.try_lock_upgradable();
        let wait = || self.0.lock_upgradable();
        take(self.address(), false, Location::caller(), wait, attempt);
    }
    #[track_caller]
    fn try_lock_upgradable(&self) -> bool {
        point();
        self.is_open() && self.0.try_lock_upgradable()
    }
    unsafe fn unlock_upgradable(&self) {
        // SAFETY: the caller holds the lock.
        unsafe { self.0.unlock_upgradable() };
        wake(self.address());
    }
    #[track_caller]
    unsafe fn upgrade(&self) {
        point();
        // SAFETY: the caller holds the lock upgradably, and each attempt that fails leaves it so.
        let attempt = || unsafe { self.0.try_upgrade() };
        // SAFETY: the caller holds the lock upgradably.
        let wait = || unsafe { self.0.upgrade() };
        take(self.address(), true, Location::caller(), wait, attempt);
    }
    #[track_caller]
    unsafe fn try_upgrade(&self) -> bool {
        point();
        // SAFETY: the caller holds the lock upgradably.
        unsafe { self.0.try_upgrade() }
    }
}

/// As crossbeam's, with one shard: to a schedule they are the same. Never poisoned.
#[derive(Debug, Default)]
pub struct ShardedLock<T>(RwLock<T>);
/// As crossbeam's.
pub type ShardedLockReadGuard<'a, T> = RwLockReadGuard<'a, T>;
/// As crossbeam's.
pub type ShardedLockWriteGuard<'a, T> = RwLockWriteGuard<'a, T>;

impl<T> ShardedLock<T> {
    /// One that guards `value`.
    pub const fn new(value: T) -> ShardedLock<T> {
        ShardedLock(RwLock::new(value))
    }
    /// Shares it.
    ///
    /// # Errors
    /// Never.
    #[track_caller]
    pub fn read(&self) -> LockResult<ShardedLockReadGuard<'_, T>> {
        Ok(self.0.read())
    }
    /// Takes it.
    ///
    /// # Errors
    /// Never.
    #[track_caller]
    pub fn write(&self) -> LockResult<ShardedLockWriteGuard<'_, T>> {
        Ok(self.0.write())
    }
}

/// Whether a wait ended because its time was up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether its time was up.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

/// As parking_lot's, but that `notify_one` wakes any of those who wait.
#[derive(Debug, Default)]
pub struct Condvar {
    /// For threads outside of runs: `gate` is held from before the caller's mutex is released until
    /// the wait has begun.
    gate: parking_lot::Mutex<()>,
    real: parking_lot::Condvar,
}

impl Condvar {
    /// One that nobody waits for.
    pub const fn new() -> Condvar {
        Condvar {
            gate: parking_lot::Mutex::new(()),
            real: parking_lot::Condvar::new(),
        }
    }

    fn key(&self) -> Key {
        Key::Condvar(&raw const self.gate as usize)
    }

    fn wait_at<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        deadline: Option<Instant>,
        place: Place,
    ) -> WaitTimeoutResult {
        // SAFETY: the guard is the caller's alone, so nothing of the contents is used until the
        // lock is taken again.
        let raw = unsafe { MutexGuard::mutex(guard).raw() };
        let Some((scheduler, me)) = current() else {
            let mut gate = self.gate.lock();
            // SAFETY: the guard says that the mutex is held.
            unsafe { raw.unlock() };
            let timed_out = match deadline {
                Some(at) => self.real.wait_until(&mut gate, at).timed_out(),
                None => {
                    self.real.wait(&mut gate);
                    false
                }
            };
            drop(gate);
            raw.lock();
            return WaitTimeoutResult(timed_out);
        };
        point();
        // SAFETY: as above. No point lies between this and the wait, so no wake-up is lost.
        unsafe { raw.unlock() };
        let timed_out = scheduler.block(me, self.key(), deadline.map(time::nanos), place);
        raw.lock();
        WaitTimeoutResult(timed_out)
    }

    /// Releases the mutex, waits to be notified, and takes the mutex again.
    #[track_caller]
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        self.wait_at(guard, None, Location::caller());
    }
    /// The same, until `deadline` at most.
    #[track_caller]
    pub fn wait_until<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        deadline: Instant,
    ) -> WaitTimeoutResult {
        self.wait_at(guard, Some(deadline), Location::caller())
    }
    /// The same, for `timeout` at most.
    #[track_caller]
    pub fn wait_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        let deadline = time::now().checked_add(timeout);
        self.wait_at(guard, deadline, Location::caller())
    }
    /// Waits while `condition` holds.
    #[track_caller]
    pub fn wait_while<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) {
        let place = Location::caller();
        while condition(&mut **guard) {
            self.wait_at(guard, None, place);
        }
    }
    /// The same, for `timeout` at most.
    #[track_caller]
    pub fn wait_while_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        let (place, deadline) = (Location::caller(), time::now().checked_add(timeout));
        while condition(&mut **guard) {
            if self.wait_at(guard, deadline, place).timed_out() {
                return WaitTimeoutResult(condition(&mut **guard));
            }
        }
        WaitTimeoutResult(false)
    }
    /// Wakes one who waits; whether this may have woken somebody.
    #[track_caller]
    pub fn notify_one(&self) -> bool {
        point();
        match current() {
            Some((scheduler, _)) => {
                scheduler.wake_one(self.key());
                true
            }
            None => {
                drop(self.gate.lock());
                self.real.notify_one()
            }
        }
    }
    /// Wakes all who wait.
    #[track_caller]
    pub fn notify_all(&self) -> usize {
        point();
        match current() {
            Some((scheduler, _)) => {
                scheduler.wake_all(self.key());
                0
            }
            None => {
                drop(self.gate.lock());
                self.real.notify_all()
            }
        }
    }
}
