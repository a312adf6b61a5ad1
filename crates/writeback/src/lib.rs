//! When dirty data is written, and how much of it: dirty inode lists, a flusher per backing device,
//! the dirty thresholds that slow a writer, and sync. It never knows ext4: it calls a
//! [`WritebackFs`].

pub mod backing_dev;
pub mod balance;
mod bandwidth;
pub mod clock;
mod control;
pub mod courtesy;
pub mod dirty_inodes;
mod flusher;
pub mod fsync_queue;
mod pass;
pub mod sync;
mod threads;
mod throttle;
pub mod tunables;
pub mod window;

pub use self::sync::Foreground;
pub use backing_dev::{BackingDev, PassLimits, Progress, Reason, WritebackFs};
pub use balance::DirtyLimits;
pub use clock::{Clock, ManualClock, SystemClock};
pub use courtesy::Pace;
pub use dirty_inodes::DirtyState;
pub use fsync_queue::{FsyncQueue, SyncService};
pub use threads::Flushers;
pub use tunables::Tunables;

#[cfg(test)]
mod tests;
