//! Ends all threads of a run.

use crate::clock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A flag that is set once.
#[derive(Default)]
pub(super) struct Stop {
    flag: AtomicBool,
    /// Held while the flag is set, so that no wake-up is lost.
    waiting: Mutex<()>,
    changed: Condvar,
}

impl Stop {
    pub(super) fn set(&self) {
        let _waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        self.flag.store(true, Relaxed);
        self.changed.notify_all();
    }

    pub(super) fn is_set(&self) -> bool {
        self.flag.load(Relaxed)
    }

    /// Returns at the deadline, or earlier if the flag is set.
    pub(super) fn wait_until(&self, deadline: Instant) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.is_set() {
            let left = deadline.saturating_duration_since(clock::now());
            if left == Duration::ZERO {
                return;
            }
            let woken = self.changed.wait_timeout(waiting, left);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Sets the flag when the guard is dropped, also by a panic.
    pub(super) fn when_dropped(&self) -> Guard<'_> {
        Guard(self)
    }
}

pub(super) struct Guard<'a>(&'a Stop);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.set();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_at_its_deadline_or_when_the_flag_is_set() {
        let stop = Stop::default();
        let start = clock::now();
        stop.wait_until(start + Duration::from_millis(20));
        assert!(clock::since(start) >= Duration::from_millis(20));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| stop.wait_until(start + Duration::from_secs(3600)));
            drop(stop.when_dropped());
            waiter.join().unwrap();
        });
        assert!(stop.is_set() && clock::since(start) < Duration::from_secs(600));
    }
}
