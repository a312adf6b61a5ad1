//! The locks: lock_api's, over a raw lock of the build (`crate::raw`) and its rank. A release build
//! has no ranks.

use crate::rank::Rank;
use crate::raw;
use lock_api::{RawMutex as _, RawRwLock as _};
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::{LockResult, PoisonError};
use std::time::{Duration, Instant};

/// parking_lot's, with a rank.
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
/// parking_lot's, with a rank.
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;
/// parking_lot's, with a rank.
pub type MappedMutexGuard<'a, T> = lock_api::MappedMutexGuard<'a, RawMutex, T>;
/// parking_lot's, with a rank.
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;
/// parking_lot's, with a rank.
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;
/// parking_lot's, with a rank.
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;
/// parking_lot's, with a rank.
pub type RwLockUpgradableReadGuard<'a, T> = lock_api::RwLockUpgradableReadGuard<'a, RawRwLock, T>;

/// A mutex that is never a point of a schedule. It is for state of the process that outlives a run
/// of the scheduler, so that a repeated run takes the same steps. No thread waits for another one
/// while it holds the mutex.
pub type UnscheduledMutex<T> = lock_api::Mutex<Ranked<parking_lot::RawMutex>, T>;

/// A raw mutex and its rank.
pub type RawMutex = Ranked<raw::RawMutex>;
/// A raw reader-writer lock and its rank.
pub type RawRwLock = Ranked<raw::RawRwLock>;

/// A raw lock and its rank. A lock without a rank is not checked.
pub struct Ranked<L> {
    lock: L,
    #[cfg(debug_assertions)]
    rank: Option<Rank>,
}

impl<L> Ranked<L> {
    const fn unranked(lock: L) -> Ranked<L> {
        Ranked {
            lock,
            #[cfg(debug_assertions)]
            rank: None,
        }
    }
    #[cfg_attr(not(debug_assertions), allow(unused_variables))]
    const fn of(lock: L, rank: Rank) -> Ranked<L> {
        Ranked {
            lock,
            #[cfg(debug_assertions)]
            rank: Some(rank),
        }
    }
    #[cfg(debug_assertions)]
    fn address(&self) -> usize {
        &raw const self.lock as usize
    }
    /// Checks that the thread may wait for the lock.
    #[track_caller]
    fn check(&self) {
        #[cfg(debug_assertions)]
        if let Some(rank) = self.rank {
            crate::rank::check(rank, None);
        }
    }
    #[track_caller]
    fn acquired(&self) {
        #[cfg(debug_assertions)]
        if let Some(rank) = self.rank {
            crate::rank::acquired(rank, self.address());
        }
    }
    fn released(&self) {
        #[cfg(debug_assertions)]
        if self.rank.is_some() {
            crate::rank::released(self.address());
        }
    }
}

impl Rank {
    /// A mutex of this rank.
    pub const fn mutex<T>(self, value: T) -> Mutex<T> {
        Mutex::from_raw(Ranked::of(raw::RawMutex::INIT, self), value)
    }
    /// A mutex of this rank that is never a point of a schedule.
    pub const fn unscheduled_mutex<T>(self, value: T) -> UnscheduledMutex<T> {
        let lock = <parking_lot::RawMutex as lock_api::RawMutex>::INIT;
        lock_api::Mutex::from_raw(Ranked::of(lock, self), value)
    }
    /// A reader-writer lock of this rank.
    pub const fn rw_lock<T>(self, value: T) -> RwLock<T> {
        RwLock::from_raw(Ranked::of(raw::RawRwLock::INIT, self), value)
    }
    /// A sharded reader-writer lock of this rank.
    pub fn sharded_lock<T>(self, value: T) -> ShardedLock<T> {
        ShardedLock {
            lock: raw::ShardedLock::new(value),
            rank: Ranked::of((), self),
        }
    }
}

/// A method that waits for the lock.
macro_rules! waits {
    ($method:ident) => {
        #[track_caller]
        fn $method(&self) {
            self.check();
            self.lock.$method();
            self.acquired();
        }
    };
}

/// A method that tries the lock.
macro_rules! tries {
    ($method:ident) => {
        #[track_caller]
        fn $method(&self) -> bool {
            let taken = self.lock.$method();
            if taken {
                self.acquired();
            }
            taken
        }
    };
}

/// A method that releases the lock.
macro_rules! releases {
    ($method:ident) => {
        unsafe fn $method(&self) {
            self.released();
            // SAFETY: the caller holds the lock in the mode that the method releases.
            unsafe { self.lock.$method() };
        }
    };
}

// SAFETY: exclusion is that of the lock inside; every method passes on to it.
unsafe impl<L: lock_api::RawMutex> lock_api::RawMutex for Ranked<L> {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Ranked::unranked(L::INIT);
    type GuardMarker = L::GuardMarker;

    waits!(lock);
    tries!(try_lock);
    releases!(unlock);
    fn is_locked(&self) -> bool {
        self.lock.is_locked()
    }
}

// SAFETY: as above.
unsafe impl<L: lock_api::RawRwLock> lock_api::RawRwLock for Ranked<L> {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Ranked::unranked(L::INIT);
    type GuardMarker = L::GuardMarker;

    waits!(lock_shared);
    tries!(try_lock_shared);
    releases!(unlock_shared);
    waits!(lock_exclusive);
    tries!(try_lock_exclusive);
    releases!(unlock_exclusive);
    fn is_locked(&self) -> bool {
        self.lock.is_locked()
    }
}

// SAFETY: as above.
unsafe impl<L: lock_api::RawRwLockUpgrade> lock_api::RawRwLockUpgrade for Ranked<L> {
    waits!(lock_upgradable);
    tries!(try_lock_upgradable);
    releases!(unlock_upgradable);
    #[track_caller]
    unsafe fn upgrade(&self) {
        #[cfg(debug_assertions)]
        if let Some(rank) = self.rank {
            crate::rank::check(rank, Some(self.address()));
        }
        // SAFETY: the caller holds the lock upgradably.
        unsafe { self.lock.upgrade() };
    }
    #[track_caller]
    unsafe fn try_upgrade(&self) -> bool {
        // SAFETY: the caller holds the lock upgradably.
        unsafe { self.lock.try_upgrade() }
    }
}

/// crossbeam's, with a rank. Under the scheduler it has one shard and is never poisoned.
pub struct ShardedLock<T> {
    lock: raw::ShardedLock<T>,
    rank: Ranked<()>,
}

/// A guard of a [`ShardedLock`].
pub struct ShardedGuard<'a, G> {
    guard: G,
    _held: HeldRank<'a>,
}
/// crossbeam's, with a rank.
pub type ShardedLockReadGuard<'a, T> = ShardedGuard<'a, raw::ShardedLockReadGuard<'a, T>>;
/// crossbeam's, with a rank.
pub type ShardedLockWriteGuard<'a, T> = ShardedGuard<'a, raw::ShardedLockWriteGuard<'a, T>>;

/// Removes a rank from those held when it is dropped.
struct HeldRank<'a>(&'a Ranked<()>);

impl Drop for HeldRank<'_> {
    fn drop(&mut self) {
        self.0.released();
    }
}

impl<G: Deref> Deref for ShardedGuard<'_, G> {
    type Target = G::Target;
    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for ShardedGuard<'_, G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

impl<T> ShardedLock<T> {
    /// A lock without a rank.
    pub fn new(value: T) -> ShardedLock<T> {
        ShardedLock {
            lock: raw::ShardedLock::new(value),
            rank: Ranked::unranked(()),
        }
    }
    /// Locks it shared.
    ///
    /// # Errors
    /// A thread panicked while it held the lock exclusively.
    #[track_caller]
    pub fn read(&self) -> LockResult<ShardedLockReadGuard<'_, T>> {
        self.rank.check();
        let result = self.lock.read();
        self.rank.acquired();
        self.guard(result)
    }
    /// Locks it exclusively.
    ///
    /// # Errors
    /// A thread panicked while it held the lock exclusively.
    #[track_caller]
    pub fn write(&self) -> LockResult<ShardedLockWriteGuard<'_, T>> {
        self.rank.check();
        let result = self.lock.write();
        self.rank.acquired();
        self.guard(result)
    }
    fn guard<G>(&self, result: LockResult<G>) -> LockResult<ShardedGuard<'_, G>> {
        let guard = |guard| ShardedGuard {
            guard,
            _held: HeldRank(&self.rank),
        };
        match result {
            Ok(inner) => Ok(guard(inner)),
            Err(poisoned) => Err(PoisonError::new(guard(poisoned.into_inner()))),
        }
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

/// parking_lot's. Under the scheduler, `notify_one` wakes any waiter, not the first.
#[derive(Debug, Default)]
pub struct Condvar(raw::Condvar);

impl Condvar {
    /// A condition variable that no thread waits for.
    pub const fn new() -> Condvar {
        Condvar(raw::Condvar::new())
    }

    #[track_caller]
    fn wait_at<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        deadline: Option<Instant>,
    ) -> WaitTimeoutResult {
        // SAFETY: the guard is borrowed mutably, so its contents are not used until the mutex is
        // locked again.
        let mutex = unsafe { MutexGuard::mutex(guard).raw() };
        let place = Location::caller();
        mutex.released();
        mutex.check();
        // SAFETY: the guard proves that this thread holds the mutex.
        let timed_out = unsafe { self.0.wait(&mutex.lock, deadline, place) };
        mutex.acquired();
        WaitTimeoutResult(timed_out)
    }

    /// Releases the mutex, waits to be notified, and takes the mutex again.
    #[track_caller]
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        self.wait_at(guard, None);
    }
    /// The same, until `deadline` at most.
    #[track_caller]
    pub fn wait_until<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        deadline: Instant,
    ) -> WaitTimeoutResult {
        self.wait_at(guard, Some(deadline))
    }
    /// The same, for `timeout` at most.
    #[track_caller]
    pub fn wait_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        self.wait_at(guard, crate::time::now().checked_add(timeout))
    }
    /// Waits while `condition` holds.
    #[track_caller]
    pub fn wait_while<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) {
        while condition(&mut **guard) {
            self.wait_at(guard, None);
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
        let deadline = crate::time::now().checked_add(timeout);
        while condition(&mut **guard) {
            if self.wait_at(guard, deadline).timed_out() {
                return WaitTimeoutResult(condition(&mut **guard));
            }
        }
        WaitTimeoutResult(false)
    }
    /// Wakes one waiter. Returns whether a thread may have been woken.
    #[inline]
    #[track_caller]
    pub fn notify_one(&self) -> bool {
        self.0.notify_one()
    }
    /// Wakes all waiters.
    #[inline]
    #[track_caller]
    pub fn notify_all(&self) -> usize {
        self.0.notify_all()
    }
}
