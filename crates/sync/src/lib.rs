//! Locks, condition variables, atomics, threads and time for all crates of the engine.
//!
//! The engine takes them from this crate only, so that one build option can replace them:
//!
//! | build | locks | atomics, threads, time |
//! |---|---|---|
//! | release | parking_lot's and crossbeam's; long waits are told ([`waits`]) | the system's |
//! | debug | the same, with checked ranks ([`Rank`]) | the system's |
//! | `RUSTFLAGS="--cfg explore"` | ranked, run by a deterministic scheduler (docs/SCHEDULES.md) | the scheduler's |

pub mod clock;
#[cfg(explore)]
pub mod explore;
mod rank;
mod ranked;
#[cfg(not(explore))]
mod raw;
#[cfg(not(explore))]
mod system;
#[cfg(test)]
mod tests;
pub mod waits;

pub use rank::Rank;

#[cfg(explore)]
use explore::locks as raw;
#[cfg(explore)]
pub use explore::{atomic, thread, time};
#[cfg(not(explore))]
pub use system::{atomic, thread, time};

pub use ranked::{
    Condvar, MappedMutexGuard, Mutex, MutexGuard, RwLock, RwLockReadGuard,
    RwLockUpgradableReadGuard, RwLockWriteGuard, ShardedLock, ShardedLockReadGuard,
    ShardedLockWriteGuard, UnscheduledMutex, WaitTimeoutResult,
};
