//! The threads that read `/dev/fuse`: how many run, and who replaces one that waits.
//!
//! ```text
//!              a request                  waits (sync::waits)
//!   reading ──────────────▶ serving ─────────────────────────────▶ waiting
//!      ▲                    │  │  ▲                                   │
//!      └────────────────────┘  │  └───────────────────────────────────┘
//!      ▲                       │ too many run, for a while
//!      │ a thread waits        ▼
//!      └──────────────────── parked
//! ```
//!
//! A thread *runs* if it reads or serves. A request may wait long: for the device, for the log, or
//! because its writer is slowed. Meanwhile others must be served. So when a thread begins to wait
//! and fewer than `wanted` threads run, a parked one goes on, or a new one starts. No more than
//! [`MOST`] exist.
//!
//! A thread whose wait is over completes its request, so more than `wanted` threads may run. A
//! thread parks if more ran after each of its last [`PATIENCE`] requests and none was replaced
//! meanwhile. Otherwise threads would park and go on again for each request that waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use sync::waits::{WaitObserver, observe};
use sync::{Condvar, Mutex, Rank};

/// Maximum number of threads, unless more are wanted to run.
const MOST: usize = 64;
/// Requests after which a thread parks.
const PATIENCE: u32 = 64;

/// See the module.
pub(crate) struct Pool {
    /// Threads that should run.
    wanted: usize,
    running: AtomicUsize,
    /// How often a thread was replaced.
    replaced: AtomicUsize,
    state: Mutex<State>,
    /// `state.starts` or `state.ended` has changed.
    start: Condvar,
    /// `state.permits` or `state.ended` has changed.
    unpark: Condvar,
}

struct State {
    /// Threads that exist or will start.
    threads: usize,
    /// The most that may exist.
    most: usize,
    /// Threads that will start. They are running already.
    starts: usize,
    parked: usize,
    /// Parked threads that may go on. They are running already.
    permits: usize,
    ended: bool,
}

/// Whether a thread reads the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Read,
    /// The connection has ended.
    End,
}

impl Pool {
    /// A pool in which `wanted` threads run, 1 at least.
    pub fn new(wanted: usize) -> Arc<Pool> {
        let wanted = wanted.max(1);
        Arc::new(Pool {
            wanted,
            running: AtomicUsize::new(wanted),
            replaced: AtomicUsize::new(0),
            state: Rank::ServingThreads.mutex(State {
                threads: wanted,
                most: Pool::most(wanted),
                starts: wanted,
                parked: 0,
                permits: 0,
                ended: false,
            }),
            start: Condvar::new(),
            unpark: Condvar::new(),
        })
    }

    /// The most threads of a pool in which `wanted` run.
    pub fn most(wanted: usize) -> usize {
        wanted.max(MOST)
    }

    /// Waits until a thread has to start, for the thread that starts them. `None`: the connection
    /// has ended.
    pub fn next_start(&self) -> Option<()> {
        let mut state = self.state.lock();
        while state.starts == 0 && !state.ended {
            self.start.wait(&mut state);
        }
        (!state.ended).then(|| state.starts -= 1)
    }

    /// A thread could not be started. No other will be.
    pub fn cannot_start(&self) {
        let mut state = self.state.lock();
        let missing = 1 + std::mem::take(&mut state.starts);
        state.threads -= missing;
        state.most = state.threads;
        self.running.fetch_sub(missing, SeqCst);
    }

    /// Joins the calling thread, one of those that [`Pool::next_start`] has announced.
    pub fn join(self: &Arc<Pool>) -> Member<'_> {
        observe(Some(self.clone()));
        Member {
            pool: self,
            surplus: 0,
            replaced: 0,
        }
    }

    /// No thread starts any more, and those that park end.
    fn end(&self) {
        self.state.lock().ended = true;
        self.start.notify_all();
        self.unpark.notify_all();
    }

    fn has_surplus(&self) -> bool {
        self.running.load(SeqCst) > self.wanted
    }

    /// A thread waits, and too few run.
    #[cold]
    fn replace(&self) {
        let mut state = self.state.lock();
        if self.running.load(SeqCst) >= self.wanted || state.ended {
            return;
        }
        if state.parked > state.permits {
            state.permits += 1;
            self.unpark.notify_one();
        } else if state.threads < state.most {
            state.threads += 1;
            state.starts += 1;
            self.start.notify_one();
        } else {
            return;
        }
        self.running.fetch_add(1, SeqCst);
        self.replaced.fetch_add(1, SeqCst);
    }
}

impl WaitObserver for Pool {
    fn begin_wait(&self) {
        if self.running.fetch_sub(1, SeqCst) <= self.wanted {
            self.replace();
        }
    }

    fn end_wait(&self) {
        self.running.fetch_add(1, SeqCst);
    }

    /// Another thread may wait for this processor, with a shorter request. Without this it would
    /// wait for a slice of the scheduler, 0.7 to 3 ms.
    fn give_way(&self) {
        std::thread::yield_now();
    }
}

/// A thread of a pool. It leaves only when the connection has ended, or has failed.
pub(crate) struct Member<'a> {
    pool: &'a Arc<Pool>,
    /// Requests in a row after which more threads ran than wanted.
    surplus: u32,
    /// `pool.replaced` before them.
    replaced: usize,
}

impl Member<'_> {
    /// A request has been served. Calls `release` if the thread parks, and then waits until the
    /// thread is needed.
    pub fn served(&mut self, release: impl FnOnce()) -> Step {
        let replaced = self.pool.replaced.load(SeqCst);
        if !self.pool.has_surplus() || replaced != self.replaced {
            self.surplus = 0;
            self.replaced = replaced;
            return Step::Read;
        }
        self.surplus += 1;
        if self.surplus < PATIENCE {
            return Step::Read;
        }
        self.surplus = 0;
        release();
        self.park()
    }

    fn park(&self) -> Step {
        // This wait is no wait of a request.
        observe(None);
        let mut state = self.pool.state.lock();
        if self.pool.has_surplus() {
            self.pool.running.fetch_sub(1, SeqCst);
            state.parked += 1;
            while state.permits == 0 && !state.ended {
                self.pool.unpark.wait(&mut state);
            }
            state.parked -= 1;
            if state.ended {
                self.pool.running.fetch_add(1, SeqCst);
                return Step::End;
            }
            state.permits -= 1;
        }
        drop(state);
        observe(Some(self.pool.clone()));
        Step::Read
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        observe(None);
        self.pool.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{self, Receiver, Sender};
    use std::thread;
    use std::time::Duration;

    /// A request: wait until the sender is dropped, or nothing.
    type Work = Option<Receiver<()>>;

    /// Runs `test` with a pool whose threads take work from a channel.
    fn with_pool(wanted: usize, test: impl FnOnce(&Pool, &Sender<Work>)) {
        let pool = Pool::new(wanted);
        let (send, receive) = mpsc::channel::<Work>();
        let receive = std::sync::Mutex::new(receive);
        thread::scope(|scope| {
            let (pool, receive) = (&pool, &receive);
            scope.spawn(move || {
                while pool.next_start().is_some() {
                    scope.spawn(move || {
                        let mut member = pool.join();
                        // The lock stands for /dev/fuse: one of the waiting readers gets it. Waits
                        // for it are not told to the pool.
                        while let Ok(work) = { receive.lock().unwrap().recv() } {
                            if let Some(over) = work {
                                pool.begin_wait();
                                let _ = over.recv();
                                pool.end_wait();
                            }
                            if member.served(|| ()) == Step::End {
                                return;
                            }
                        }
                    });
                }
            });
            test(pool, &send);
            drop(send);
        });
    }

    fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
        for _ in 0..5000 {
            if is_so() {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
        panic!("never: {what}");
    }

    #[test]
    fn waiting_threads_are_replaced_and_park_later() {
        for wanted in [1, 2, 5] {
            with_pool(wanted, |pool, work| {
                let waiting: Vec<Sender<()>> = (0..20)
                    .map(|_| {
                        let (end, over) = mpsc::channel();
                        work.send(Some(over)).unwrap();
                        end
                    })
                    .collect();
                // A thread that waits long for the pool's own lock is replaced, too.
                eventually("20 wait and others run", || {
                    pool.state.lock().threads >= 20 + wanted && pool.running.load(SeqCst) >= wanted
                });
                drop(waiting);
                eventually("the others park", || {
                    for _ in 0..100 {
                        work.send(None).unwrap();
                    }
                    let state = pool.state.lock();
                    state.parked >= 20 && state.threads == state.parked + wanted
                });
                assert_eq!(pool.running.load(SeqCst), wanted);
            });
        }
    }

    #[test]
    fn no_more_than_the_most_start() {
        with_pool(2, |pool, work| {
            let ends: Vec<Sender<()>> = (0..2 * MOST)
                .map(|_| {
                    let (end, over) = mpsc::channel();
                    work.send(Some(over)).unwrap();
                    end
                })
                .collect();
            eventually("all wait", || pool.running.load(SeqCst) == 0);
            assert_eq!(pool.state.lock().threads, MOST);
            drop(ends);
        });
    }

    #[test]
    fn threads_that_cannot_start_are_not_missed() {
        let pool = Pool::new(3);
        assert_eq!(pool.next_start(), Some(()));
        let member = pool.join();
        pool.next_start();
        pool.cannot_start();
        assert_eq!(pool.running.load(SeqCst), 1);
        pool.begin_wait();
        assert_eq!(pool.running.load(SeqCst), 0, "none may start");
        pool.end_wait();
        drop(member);
        assert_eq!(pool.next_start(), None, "a thread has left");
    }
}
