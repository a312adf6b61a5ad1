//! A deterministic scheduler behind this crate's locks, condition variables, atomics, threads and
//! clock.
//!
//! [`run`] runs a body, and every thread that it starts through [`thread`], one at a time. Each
//! operation of this crate is a *point*, where the scheduler may let another thread go on. One
//! number, the seed, decides every choice, so the same seed gives the same run. A thread that no
//! run has started uses the system's primitives.
//!
//! Threads are the system's. They hand a baton over: all but one are parked. A thread-local counter
//! is compared at a point, and only a switch costs system calls.
//!
//! The shuttle crate does the same on stacks of its own inside one thread. It is not used here for
//! three reasons. Its `Condvar::wait_timeout` never times out, and the flusher and the journal's
//! thread live by their timeouts. It has no virtual clock. Its primitives work inside an execution
//! only, and the tests' own code around a run needs them too. With threads of the system,
//! thread-locals of every crate work unchanged.
//!
//! Memory is sequentially consistent in a run. Bugs that need a weaker order are not found here.

pub mod atomic;
pub(crate) mod locks;
mod rng;
mod scheduler;
mod strategy;
#[cfg(test)]
mod tests;
pub mod thread;
pub mod time;

pub use scheduler::{Failure, Options, Outcome, run};
pub use strategy::Strategy;

/// Runs `body` without a switch that it does not have to make: no thread is preempted, and time
/// does not leap while a thread can run. For the parts of a run that prepare and check.
pub fn calmly<R>(body: impl FnOnce() -> R) -> R {
    let scheduler = scheduler::current();
    if let Some((scheduler, _)) = scheduler {
        scheduler.set_calm(true);
    }
    let result = body();
    if let Some((scheduler, _)) = scheduler {
        scheduler.set_calm(false);
    }
    result
}

/// A number that the run's seed decides; 0 outside of a run.
pub fn random() -> u64 {
    scheduler::current().map_or(0, |(scheduler, _)| scheduler.random())
}

/// Points of the run so far that were not in its calm parts; 0 outside of a run.
pub fn steps() -> u64 {
    scheduler::current().map_or(0, |(scheduler, _)| scheduler.steps())
}
