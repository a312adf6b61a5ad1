//! The locks of a release build: parking_lot's and crossbeam's, without ranks.

use crate::rank::Rank;
use crate::waits::waiting;
use std::time::{Duration, Instant};

pub use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard, ShardedLockWriteGuard};
pub use parking_lot::{
    MappedMutexGuard, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockUpgradableReadGuard,
    RwLockWriteGuard, WaitTimeoutResult,
};

/// A mutex that is never a point of a schedule.
pub type UnscheduledMutex<T> = Mutex<T>;

impl Rank {
    /// A mutex; this build does not check its rank.
    #[inline]
    pub const fn mutex<T>(self, value: T) -> Mutex<T> {
        Mutex::new(value)
    }
    /// The same in this build.
    #[inline]
    pub const fn unscheduled_mutex<T>(self, value: T) -> UnscheduledMutex<T> {
        Mutex::new(value)
    }
    /// A reader-writer lock; this build does not check its rank.
    #[inline]
    pub const fn rw_lock<T>(self, value: T) -> RwLock<T> {
        RwLock::new(value)
    }
    /// A sharded reader-writer lock; this build does not check its rank.
    #[inline]
    pub fn sharded_lock<T>(self, value: T) -> ShardedLock<T> {
        ShardedLock::new(value)
    }
}

/// parking_lot's; a thread's waits are told to its observer ([`crate::waits`]).
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// A condition variable that no thread waits for.
    pub const fn new() -> Condvar {
        Condvar(parking_lot::Condvar::new())
    }
    /// Releases the mutex, waits to be notified, and takes the mutex again.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        waiting(|| self.0.wait(guard));
    }
    /// The same, until `deadline` at most.
    pub fn wait_until<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        deadline: Instant,
    ) -> WaitTimeoutResult {
        waiting(|| self.0.wait_until(guard, deadline))
    }
    /// The same, for `timeout` at most.
    pub fn wait_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        waiting(|| self.0.wait_for(guard, timeout))
    }
    /// Waits while `condition` holds.
    pub fn wait_while<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) {
        while condition(&mut **guard) {
            self.wait(guard);
        }
    }
    /// The same, for `timeout` at most.
    pub fn wait_while_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        condition: impl FnMut(&mut T) -> bool,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        waiting(|| self.0.wait_while_for(guard, condition, timeout))
    }
    /// Wakes one waiter. Returns whether a thread was woken.
    pub fn notify_one(&self) -> bool {
        self.0.notify_one()
    }
    /// Wakes all waiters.
    pub fn notify_all(&self) -> usize {
        self.0.notify_all()
    }
}
