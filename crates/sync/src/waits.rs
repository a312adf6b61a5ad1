//! Threads that are told about their own waits.
//!
//! A pool of threads that serve requests starts another one while some of them wait: for a device,
//! for another thread, or because they are slowed. Such a pool observes its threads. Condition
//! variables, mutexes, reader-writer locks (also sharded ones) and [`crate::clock::SystemClock`]
//! tell the observer when a wait begins and ends (in an explored schedule only the clock does). For
//! a system call that waits its caller does ([`waiting`]).
//!
//! A wait for a lock is told only after a millisecond, because most owners release a lock sooner;
//! that of a writer of a sharded lock is told at once. It is told at all because the owner may be
//! no thread of the pool: nobody tells the pool that such an owner waits for the device.
//!
//! Within long work a thread tells its observer, too ([`give_way`]): a pool lets other threads run.

use std::cell::RefCell;
use std::sync::Arc;
#[cfg(not(explore))]
use std::time::Duration;

/// The part of a wait for a lock that is not told.
#[cfg(not(explore))]
const PATIENCE: Duration = Duration::from_millis(1);

/// Is told about the waits of a thread, on that thread. It may be told while the thread holds locks
/// of any rank up to that of the page pool.
pub trait WaitObserver: Send + Sync {
    /// The thread begins to wait.
    fn begin_wait(&self);
    /// The thread goes on.
    fn end_wait(&self);
    /// The thread is within long work, and may let others run.
    fn give_way(&self) {}
}

thread_local! {
    static OBSERVER: RefCell<Option<Arc<dyn WaitObserver>>> = const { RefCell::new(None) };
}

/// From now on `observer` is told about the waits of the calling thread; `None` ends that.
pub fn observe(observer: Option<Arc<dyn WaitObserver>>) {
    OBSERVER.set(observer);
}

/// Is called within long work, and passed on to the observer of the calling thread.
pub fn give_way() {
    // The observer may wait, and so it must not be borrowed.
    if let Ok(Some(observer)) = OBSERVER.try_with(|observer| observer.borrow().clone()) {
        observer.give_way();
    }
}

/// Calls `wait`, between the two calls of the thread's observer.
#[inline]
pub fn waiting<T>(wait: impl FnOnce() -> T) -> T {
    // A thread whose locals are being destroyed has no observer.
    let observer = OBSERVER.try_with(RefCell::take).ok().flatten();
    let _end = observer.map(|observer| {
        observer.begin_wait();
        End(observer)
    });
    wait()
}

/// Takes a lock that another thread holds. `take_within` tries it for some time.
#[cfg(not(explore))]
#[cold]
pub(crate) fn contended<T>(
    take_within: impl FnOnce(Duration) -> Option<T>,
    take: impl FnOnce() -> T,
) -> T {
    let is_observed = OBSERVER.try_with(|observer| observer.borrow().is_some());
    match is_observed {
        Ok(true) => take_within(PATIENCE).unwrap_or_else(|| waiting(take)),
        _ => take(),
    }
}

/// Ends a wait on drop, also after a panic. Meanwhile the thread has no observer, so that the
/// observer's own waits are not told.
struct End(Arc<dyn WaitObserver>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.end_wait();
        let _ = OBSERVER.try_with(|observer| *observer.borrow_mut() = Some(self.0.clone()));
    }
}

#[cfg(all(test, not(explore)))]
mod tests {
    use super::*;
    use crate::clock::{Clock, SystemClock};
    use crate::{Condvar, Rank, RwLockUpgradableReadGuard};
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::time::{Duration, Instant};

    #[derive(Default)]
    struct Waits {
        begun: AtomicUsize,
        ended: AtomicUsize,
    }

    impl WaitObserver for Waits {
        fn begin_wait(&self) {
            self.begun.fetch_add(1, Relaxed);
            // A wait of the observer itself.
            SystemClock.sleep(Duration::ZERO);
        }
        fn end_wait(&self) {
            self.ended.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn a_long_wait_for_a_lock_is_told() {
        let mutex = &Rank::Group.mutex(());
        let lock = &Rank::Mapping.rw_lock(());
        let sharded = &Rank::Handle.sharded_lock(());
        let pause = || SystemClock.sleep(Duration::from_millis(100));
        type Take<'a> = (&'a str, &'a (dyn Fn() + Sync));
        let held: [Take<'_>; 5] = [
            ("mutex", &|| (mutex.lock(), pause()).1),
            ("lock: writer", &|| (lock.write(), pause()).1),
            ("lock: reader", &|| (lock.read(), pause()).1),
            ("sharded: writer", &|| (sharded.write(), pause()).1),
            ("sharded: reader", &|| (sharded.read(), pause()).1),
        ];
        let taken: [Take<'_>; 6] = [
            ("mutex", &|| drop(mutex.lock())),
            ("lock: writer", &|| drop(lock.write())),
            ("lock: reader", &|| drop(lock.read())),
            ("lock: upgraded", &|| {
                drop(RwLockUpgradableReadGuard::upgrade(lock.upgradable_read()));
            }),
            ("sharded: writer", &|| drop(sharded.write())),
            ("sharded: reader", &|| drop(sharded.read())),
        ];
        for (holder, hold) in held {
            for (taker, take) in taken {
                let kind = |name: &str| name.split(':').next().map(str::to_owned);
                let both_read = holder.ends_with("reader") && taker.ends_with("reader");
                let conflicts = kind(holder) == kind(taker) && !both_read;
                let waits = Arc::new(Waits::default());
                std::thread::scope(|scope| {
                    scope.spawn(hold);
                    SystemClock.sleep(Duration::from_millis(30));
                    scope.spawn(|| {
                        observe(Some(waits.clone()));
                        take();
                    });
                });
                let told = (waits.begun.load(Relaxed), waits.ended.load(Relaxed));
                let expected = usize::from(conflicts);
                assert_eq!(told, (expected, expected), "{holder} and {taker}");
            }
        }
    }

    #[test]
    fn each_wait_is_told_once() {
        let waits = Arc::new(Waits::default());
        let told = || (waits.begun.load(Relaxed), waits.ended.load(Relaxed));
        let (mutex, condvar) = (Rank::Completion.mutex(0), Condvar::new());
        let short = Duration::from_millis(1);
        let wait = || {
            let mut guard = mutex.lock();
            condvar.wait_for(&mut guard, short);
            condvar.wait_until(&mut guard, Instant::now() + short);
            condvar.wait_while_for(&mut guard, |_| true, short);
            condvar.wait_while(&mut guard, |_| false);
            drop(guard);
            SystemClock.sleep(short);
        };
        wait();
        observe(Some(waits.clone()));
        wait();
        assert_eq!(told(), (4, 4));
        observe(None);
        wait();
        assert_eq!(told(), (4, 4));
    }
}
