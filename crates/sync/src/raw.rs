//! Raw locks of a debug build: parking_lot's.

use crate::waits::waiting;
pub use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard, ShardedLockWriteGuard};
pub use parking_lot::RawRwLock;
use std::mem::ManuallyDrop;
use std::panic::Location;
use std::time::Instant;

/// A mutex without contents, in the form that parking_lot's condition variable takes.
pub struct RawMutex(parking_lot::Mutex<()>);

// SAFETY: exclusion is that of the mutex inside; every method passes on to it.
unsafe impl lock_api::RawMutex for RawMutex {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: RawMutex = RawMutex(parking_lot::Mutex::new(()));
    type GuardMarker = lock_api::GuardNoSend;

    fn lock(&self) {
        std::mem::forget(self.0.lock());
    }
    fn try_lock(&self) -> bool {
        self.0.try_lock().map(std::mem::forget).is_some()
    }
    unsafe fn unlock(&self) {
        // SAFETY: the caller holds the lock.
        unsafe { self.0.force_unlock() };
    }
    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
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
    pub fn notify_one(&self) -> bool {
        self.0.notify_one()
    }
    pub fn notify_all(&self) -> usize {
        self.0.notify_all()
    }
}
