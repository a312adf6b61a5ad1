//! Concurrent callers of the same work share runs of it.
//!
//! Algorithm: callers that arrive before a run begins for them form a *round*. When no other round
//! runs, one of its callers, the leader, closes the round to later callers and does the work. The
//! others wait, and all get its result. A caller that arrives during the work joins the next round:
//! the work may have passed what that caller has changed. At the end of a round the leader wakes
//! one caller of the next round, which leads that.
//!
//! ```text
//!   callers    a │ b c d │ e f │
//!   rounds     [ a leads ][ b leads, for c and d ][ e leads, for f ]
//! ```
//!
//! So callers that arrive during one run cost one more run, however many they are. The leader needs
//! the work itself: no thread is started or woken for it.

use std::sync::{Arc, OnceLock};
use sync::{Condvar, Mutex, Rank};

/// See the module. `R` is the result of the work.
pub struct Ticket<R> {
    state: Mutex<State<R>>,
}

struct State<R> {
    /// A leader works.
    running: bool,
    /// The round that callers join.
    open: Option<Arc<Round<R>>>,
}

/// Callers that are served together.
struct Round<R> {
    /// Set when the round has ended; `None` if its leader panicked.
    outcome: OnceLock<Option<R>>,
    /// The round has ended, or may begin. Belongs to the lock of the state.
    changed: Condvar,
}

/// The end of a caller's wait.
enum Admission<'a, R> {
    Lead(Leading<'a, R>),
    Served(R),
}

impl<R> Default for Ticket<R> {
    fn default() -> Ticket<R> {
        Ticket {
            state: Rank::SyncTicket.mutex(State {
                running: false,
                open: None,
            }),
        }
    }
}

impl<R> Default for Round<R> {
    fn default() -> Round<R> {
        Round {
            outcome: OnceLock::new(),
            changed: Condvar::new(),
        }
    }
}

impl<R: Clone> Ticket<R> {
    /// Returns the result of a run of `work` that began after this call: of this caller's own, or
    /// of another caller's. If another caller's run panics, this call joins the next round. The
    /// caller holds no lock that a run needs.
    pub fn share(&self, work: impl FnOnce() -> R) -> R {
        match self.admit() {
            Admission::Served(result) => result,
            Admission::Lead(leading) => leading.run(work),
        }
    }

    fn admit(&self) -> Admission<'_, R> {
        let mut state = self.state.lock();
        loop {
            let round = state.open.get_or_insert_default().clone();
            loop {
                match round.outcome.get() {
                    Some(Some(result)) => return Admission::Served(result.clone()),
                    // Its leader panicked.
                    Some(None) => break,
                    None => {}
                }
                let is_open = |open: &Arc<Round<R>>| Arc::ptr_eq(open, &round);
                if !state.running && state.open.as_ref().is_some_and(is_open) {
                    state.running = true;
                    state.open = None;
                    return Admission::Lead(Leading {
                        ticket: self,
                        round,
                        result: None,
                    });
                }
                round.changed.wait(&mut state);
            }
        }
    }
}

/// The leader's part of a round; the round ends on drop.
struct Leading<'a, R> {
    ticket: &'a Ticket<R>,
    round: Arc<Round<R>>,
    result: Option<R>,
}

impl<R: Clone> Leading<'_, R> {
    fn run(mut self, work: impl FnOnce() -> R) -> R {
        let result = work();
        self.result = Some(result.clone());
        result
    }
}

impl<R> Drop for Leading<'_, R> {
    fn drop(&mut self) {
        let mut state = self.ticket.state.lock();
        let _ = self.round.outcome.set(self.result.take());
        state.running = false;
        if let Some(next) = &state.open {
            next.changed.notify_one();
        }
        drop(state);
        self.round.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use sync::thread;

    impl<R> Ticket<R> {
        /// Callers of the open round.
        fn waiting(&self) -> usize {
            let state = self.state.lock();
            state
                .open
                .as_ref()
                .map_or(0, |open| Arc::strong_count(open) - 1)
        }
    }

    /// Runs whose number is the result. Each reports its beginning and ends on permission.
    struct Runs {
        ticket: Ticket<usize>,
        begun: Mutex<(usize, Sender<usize>)>,
        go: Mutex<Receiver<()>>,
    }

    impl Runs {
        fn new() -> (Arc<Runs>, Receiver<usize>, Sender<()>) {
            let (begun, has_begun) = channel();
            let (go, wait) = channel();
            let runs = Runs {
                ticket: Ticket::default(),
                begun: Mutex::new((0, begun)),
                go: Mutex::new(wait),
            };
            (Arc::new(runs), has_begun, go)
        }
        fn run(&self) -> usize {
            let number = {
                let mut begun = self.begun.lock();
                begun.0 += 1;
                begun.1.send(begun.0).unwrap();
                begun.0
            };
            self.go.lock().recv().unwrap();
            assert_ne!(number, 666, "expected in this test");
            number
        }
        fn call(self: &Arc<Self>, count: usize) -> Vec<thread::JoinHandle<usize>> {
            let call = || {
                let runs = self.clone();
                thread::spawn(move || runs.ticket.share(|| runs.run()))
            };
            (0..count).map(|_| call()).collect()
        }
        fn wait_for_callers(&self, count: usize) {
            while self.ticket.waiting() < count {
                thread::yield_now();
            }
        }
    }

    fn results(callers: Vec<thread::JoinHandle<usize>>) -> Vec<usize> {
        callers.into_iter().map(|c| c.join().unwrap()).collect()
    }

    #[test]
    fn callers_during_a_run_share_the_next() {
        let (runs, begun, go) = Runs::new();
        let first = runs.call(1);
        assert_eq!(begun.recv().unwrap(), 1);
        let second = runs.call(50);
        runs.wait_for_callers(50);
        go.send(()).unwrap();
        assert_eq!(begun.recv().unwrap(), 2);
        // The second run has begun, so it serves none of these.
        let third = runs.call(50);
        runs.wait_for_callers(50);
        (0..2).for_each(|_| go.send(()).unwrap());
        assert_eq!(results(first), [1]);
        assert_eq!(results(second), [2; 50]);
        assert_eq!(results(third), [3; 50]);
        assert_eq!(begun.recv().unwrap(), 3);
        assert!(begun.try_recv().is_err());
    }

    #[test]
    fn a_panic_ends_no_other_caller() {
        let (runs, begun, go) = Runs::new();
        runs.begun.lock().0 = 665;
        let panics = {
            let runs = runs.clone();
            let call = move || runs.ticket.share(|| runs.run());
            thread::spawn(|| catch_unwind(AssertUnwindSafe(call)).is_err())
        };
        assert_eq!(begun.recv().unwrap(), 666);
        let others = runs.call(2);
        runs.wait_for_callers(2);
        (0..2).for_each(|_| go.send(()).unwrap());
        assert!(panics.join().unwrap());
        assert_eq!(results(others), [667; 2]);
    }
}
