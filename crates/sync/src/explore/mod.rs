//! A deterministic scheduler behind this crate's locks, condition variables, atomics, threads and
//! clock.
//!
//! [`run`] runs a body, and every thread that it starts through [`thread`], one at a time. Each
//! operation of this crate is a *point*, where the scheduler may switch to another thread. One
//! number, the seed, decides every choice, so the same seed gives the same run. A thread that no
//! run has started uses the system's primitives.
//!
//! Threads are the system's. They pass a *baton*: the thread that has it runs, all others are
//! parked. A point compares a counter; only a switch costs system calls.
//!
//! Memory is sequentially consistent in a run. Defects that need a weaker order are not found.
//! docs/decisions/own-scheduler.md explains why no existing crate is used.

pub mod atomic;
pub(crate) mod locks;
mod outcome;
mod rng;
mod run;
mod scheduler;
mod strategy;
#[cfg(test)]
mod tests;
pub mod thread;
pub mod time;
mod wait;

pub use outcome::{Failure, Options, Outcome};
pub use run::run;
pub use strategy::Strategy;

/// Runs `body` without preemption, and without advancing time while a thread can run. For the parts
/// of a run that prepare and check.
pub fn calmly<R>(body: impl FnOnce() -> R) -> R {
    let scheduler = scheduler::current();
    if let Some((scheduler, _)) = scheduler {
        scheduler.enter_calm();
    }
    let result = body();
    if let Some((scheduler, _)) = scheduler {
        scheduler.leave_calm();
    }
    result
}

/// A number decided by the run's seed; 0 outside of a run.
pub fn random() -> u64 {
    scheduler::current().map_or(0, |(scheduler, _)| scheduler.random())
}

/// Points of the run so far, without calm ones; 0 outside of a run.
pub fn steps() -> u64 {
    scheduler::current().map_or(0, |(scheduler, _)| scheduler.steps())
}
