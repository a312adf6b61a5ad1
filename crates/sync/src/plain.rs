//! The locks of a release build: parking_lot's and crossbeam's, without ranks.

use crate::rank::Rank;

pub use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard, ShardedLockWriteGuard};
pub use parking_lot::{
    Condvar, MappedMutexGuard, Mutex, MutexGuard, RwLock, RwLockReadGuard,
    RwLockUpgradableReadGuard, RwLockWriteGuard, WaitTimeoutResult,
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
