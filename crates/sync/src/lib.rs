//! Locks, condition variables, atomics, threads and time for all crates of the engine.
//!
//! The engine takes them from here and from nowhere else, so that one build option can put a
//! deterministic scheduler behind them. A normal build re-exports the system's: this crate then
//! costs nothing. A build with `RUSTFLAGS="--cfg explore"` has the same names with module `explore`
//! behind them (docs/SCHEDULES.md).

#[cfg(explore)]
pub mod explore;
#[cfg(explore)]
pub use explore::locks::{
    Condvar, MappedMutexGuard, Mutex, MutexGuard, RwLock, RwLockReadGuard,
    RwLockUpgradableReadGuard, RwLockWriteGuard, ShardedLock, ShardedLockReadGuard,
    ShardedLockWriteGuard, WaitTimeoutResult,
};
#[cfg(explore)]
pub use explore::{atomic, thread, time};

#[cfg(not(explore))]
mod system;
#[cfg(not(explore))]
pub use system::*;
