//! When dirty data is written, and how much of it at a time. The crate never knows ext4: it calls a
//! [`WritebackFs`].
//!
//! | module | what it owns |
//! |---|---|
//! | `backing_dev` | a device under writeback; the interface to the file system |
//! | `dirty_list` | which inodes are dirty, oldest first |
//! | `control`, `threads` | requests to the flusher, and the thread it runs on |
//! | `flusher`, `pass`, `io_queues` | when the flusher writes, and which inodes |
//! | `foreground` | fsync: the caller writes its own files |
//! | `batches`, `window`, `sync_pacing` | the batch engine of both |
//! | `balance`, `bandwidth`, `throttle` | dirty thresholds, measured bandwidth, slowing of writers |
//! | `sync`, `fsync_queue` | callers that wait together |
//! | `tunables` | the kernel's parameters |

mod backing_dev;
mod balance;
mod bandwidth;
mod batches;
pub mod clock;
mod control;
mod dirty_list;
mod flusher;
mod foreground;
mod fsync_queue;
mod io_queues;
mod pass;
mod sync;
mod sync_pacing;
mod threads;
mod throttle;
mod tunables;
mod window;

pub use backing_dev::{BackingDev, OnLocked, Progress, Reason, Slice, WritebackFs};
pub use clock::{Clock, ManualClock, SystemClock};
pub use dirty_list::DirtyState;
pub use foreground::Results;
pub use fsync_queue::{FsyncQueue, SyncService};
pub use threads::Flushers;
pub use tunables::Tunables;

#[cfg(test)]
mod tests;
