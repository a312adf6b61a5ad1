//! Waiting for requests in progress before DESTROY.
//!
//! The kernel sends forgets at any time. So another thread may have read one before DESTROY and not
//! carried it out yet, and some may follow DESTROY. Each thread counts itself *before* it reads
//! `ended`, and the thread with DESTROY reads the counts *after* it has set `ended`. So at least
//! one of the two sees the other.

use crossbeam_utils::CachePadded;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Interval at which the thread with DESTROY looks at the other threads.
const POLL: Duration = Duration::from_millis(1);

/// How many threads of a session are busy, and whether DESTROY has come. Threads that rarely run at
/// the same time share a lane, which is a cache line.
pub(crate) struct Drain {
    ended: AtomicBool,
    busy: Vec<CachePadded<AtomicUsize>>,
}

impl Drain {
    pub fn new(lanes: usize) -> Drain {
        Drain {
            ended: AtomicBool::new(false),
            busy: (0..lanes).map(|_| CachePadded::default()).collect(),
        }
    }

    /// Counts a thread of a lane as busy; `None` after DESTROY.
    pub fn enter(&self, lane: usize) -> Option<Busy<'_>> {
        let busy = &self.busy[lane];
        busy.fetch_add(1, Ordering::SeqCst);
        let entered = Busy(busy);
        (!self.ended.load(Ordering::SeqCst)).then_some(entered)
    }

    /// Refuses later calls of [`Drain::enter`], and waits until no thread is busy but the caller,
    /// which is one of the lane `own`.
    pub fn end(&self, own: usize) {
        self.ended.store(true, Ordering::SeqCst);
        for (lane, busy) in self.busy.iter().enumerate() {
            while busy.load(Ordering::SeqCst) > usize::from(lane == own) {
                thread::sleep(POLL);
            }
        }
    }
}

/// A thread is busy until this is dropped.
pub(crate) struct Busy<'a>(&'a AtomicUsize);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_waits_for_busy_threads_and_refuses_new_work() {
        for busy_lane in [0, 2] {
            let all = Drain::new(3);
            let busy = all.enter(busy_lane).unwrap();
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
                assert!(!ended.load(Ordering::SeqCst), "lane {busy_lane} is busy");
                drop(busy);
            });
            assert!(ended.load(Ordering::SeqCst));
            assert!(all.enter(0).is_none());
            drop(me);
        }
    }
}
