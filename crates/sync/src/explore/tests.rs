//! The scheduler finds races, deadlocks and livelocks, and repeats them by their seeds.

use super::{Options, Outcome, Strategy, run};
use crate::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use crate::{Condvar, Mutex, RwLock, thread, time};
use std::sync::Arc;
use std::time::Duration;

const BOTH: [Strategy; 2] = [Strategy::Random, Strategy::Pct(2)];

fn explore(seed: u64, strategy: Strategy, body: impl FnOnce() + Send + 'static) -> Outcome {
    let options = Options {
        seed,
        strategy,
        step_limit: 100_000,
        trace: false,
    };
    run(options, body)
}

/// Two threads add without atomicity.
fn lost_update() {
    let sum = Arc::new(AtomicUsize::new(0));
    let add = |sum: Arc<AtomicUsize>| move || sum.store(sum.load(SeqCst) + 1, SeqCst);
    let threads = [(); 2].map(|()| thread::spawn(add(sum.clone())));
    let _ = threads.map(|t| t.join().expect("it ends"));
    assert_eq!(sum.load(SeqCst), 2);
}

fn opposite_orders() {
    let locks = Arc::new((Mutex::new(()), Mutex::new(())));
    let theirs = locks.clone();
    let other = thread::spawn(move || {
        let _b = theirs.1.lock();
        let _a = theirs.0.lock();
    });
    {
        let _a = locks.0.lock();
        let _b = locks.1.lock();
    }
    other.join().expect("it ends");
}

fn first_failure(strategy: Strategy, body: fn()) -> Option<(u64, Outcome)> {
    let failed = |seed| Some((seed, explore(seed, strategy, body)));
    (0..200)
        .filter_map(failed)
        .find(|(_, o)| o.failure.is_some())
}

#[test]
fn races_and_deadlocks_are_found_and_replayed() {
    for strategy in BOTH {
        for (body, says) in [
            (lost_update as fn(), "assertion"),
            (opposite_orders, "deadlock"),
        ] {
            let (seed, outcome) = first_failure(strategy, body).expect("a failing schedule");
            let message = outcome.failure.expect("a failure").message;
            assert!(message.contains(says), "{message}");
            let again = explore(seed, strategy, body);
            assert_eq!(again.fingerprint, outcome.fingerprint);
            assert_eq!(again.failure.map(|f| f.message), Some(message));
        }
    }
}

#[test]
fn correct_code_passes_and_seeds_differ() {
    let body = || {
        let state = Arc::new((Mutex::new(0), Condvar::new(), RwLock::new(0)));
        let threads = [(); 3].map(|()| {
            let state = state.clone();
            thread::spawn(move || {
                *state.0.lock() += 1;
                *state.2.write() += 1;
                state.1.notify_all();
            })
        });
        let mut count = state.0.lock();
        while *count < 3 {
            state.1.wait(&mut count);
        }
        drop(count);
        let _ = threads.map(|t| t.join().expect("it ends"));
        assert_eq!(*state.2.read(), 3);
    };
    for strategy in BOTH {
        let mut seen = std::collections::HashSet::new();
        for seed in 0..100 {
            let outcome = explore(seed, strategy, body);
            assert!(outcome.failure.is_none(), "{:?}", outcome.failure);
            seen.insert(outcome.fingerprint);
        }
        assert!(seen.len() > 10, "{strategy}: {} schedules", seen.len());
    }
}

#[test]
fn time_advances_when_no_thread_can_run() {
    let outcome = explore(1, Strategy::Random, || {
        let begin = time::now();
        thread::sleep(Duration::from_secs(3600));
        let (mutex, condvar) = (Mutex::new(()), Condvar::new());
        let mut guard = mutex.lock();
        let result = condvar.wait_for(&mut guard, Duration::from_secs(60));
        assert!(result.timed_out());
        assert!(time::now() - begin >= Duration::from_secs(3660));
    });
    assert!(outcome.failure.is_none(), "{:?}", outcome.failure);
    assert!(outcome.time >= Duration::from_secs(3660));
}

#[test]
fn a_spinning_thread_lets_others_run() {
    for strategy in BOTH {
        for seed in 0..50 {
            let outcome = explore(seed, strategy, || {
                let flag = Arc::new(AtomicBool::new(false));
                let theirs = flag.clone();
                let setter = thread::spawn(move || theirs.store(true, SeqCst));
                while !flag.load(SeqCst) {
                    thread::yield_now();
                }
                setter.join().expect("it ends");
            });
            assert!(outcome.failure.is_none(), "{:?}", outcome.failure);
        }
    }
}

#[test]
fn livelocks_and_threads_left_behind_fail() {
    let spins = || {
        while !thread::panicking() {
            thread::yield_now();
        }
    };
    let leaves = || {
        thread::spawn(thread::park);
    };
    for (body, says) in [
        (Box::new(spins) as Box<dyn FnOnce() + Send>, "livelock"),
        (Box::new(leaves), "deadlock"),
    ] {
        let failure = explore(7, Strategy::Random, body)
            .failure
            .expect("a failure");
        assert!(failure.message.contains(says), "{}", failure.message);
        assert!(failure.message.contains("tests.rs"), "{}", failure.message);
    }
}

#[test]
fn a_waiting_writer_blocks_readers() {
    let body = || {
        let lock = Arc::new(RwLock::new(()));
        let theirs = lock.clone();
        let first = lock.read();
        let writer = thread::spawn(move || drop(theirs.write()));
        // A second read lock of the same thread deadlocks if the writer waits already.
        drop(lock.read());
        drop(first);
        writer.join().expect("it ends");
    };
    assert!((0..100).any(|seed| explore(seed, Strategy::Random, body).failure.is_some()));
}
