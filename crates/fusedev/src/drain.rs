//! Waiting for requests in progress before DESTROY.
//!
//! The kernel sends forgets at any time. So another thread may have read one before DESTROY and not
//! carried it out yet, and some may follow DESTROY. Each thread sets its own flag *before* it reads
//! `ended`, and the thread with DESTROY reads the other flags *after* it has set `ended`. So at
//! least one of the two sees the other.

use crossbeam_utils::CachePadded;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Interval at which the thread with DESTROY looks at the other threads.
const POLL: Duration = Duration::from_millis(1);

/// The serving threads of a session: which of them are busy, and whether DESTROY has come.
pub(crate) struct Threads {
    ended: AtomicBool,
    busy: Vec<CachePadded<AtomicBool>>,
}

impl Threads {
    pub fn new(count: usize) -> Threads {
        Threads {
            ended: AtomicBool::new(false),
            busy: (0..count).map(|_| CachePadded::default()).collect(),
        }
    }

    /// Marks thread `n` as busy; `None` after DESTROY.
    pub fn enter(&self, n: usize) -> Option<Busy<'_>> {
        let busy = &self.busy[n];
        busy.store(true, Ordering::SeqCst);
        let entered = Busy(busy);
        (!self.ended.load(Ordering::SeqCst)).then_some(entered)
    }

    /// Refuses later calls of [`Threads::enter`], and waits until no thread but `n` is busy.
    pub fn end(&self, n: usize) {
        self.ended.store(true, Ordering::SeqCst);
        let others = self
            .busy
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != n);
        for (_, busy) in others {
            while busy.load(Ordering::SeqCst) {
                thread::sleep(POLL);
            }
        }
    }
}

/// A thread is busy until this is dropped.
pub(crate) struct Busy<'a>(&'a AtomicBool);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_waits_for_busy_threads_and_refuses_new_work() {
        let all = Threads::new(3);
        let busy = all.enter(0).unwrap();
        let me = all.enter(2).unwrap();
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                all.end(2);
                ended.store(true, Ordering::SeqCst);
            });
            while all.enter(1).is_some() {
                thread::yield_now();
            }
            thread::sleep(Duration::from_millis(50));
            assert!(!ended.load(Ordering::SeqCst), "thread 0 is busy");
            drop(busy);
        });
        assert!(ended.load(Ordering::SeqCst));
        assert!(all.enter(0).is_none());
        drop(me);
    }
}
