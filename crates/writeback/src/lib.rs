//! When dirty data is written, and how much of it at a time. The crate never knows ext4: it calls a
//! [`WritebackFs`].
//!
//! Modules use only those above them:
//!
//! | module | what it owns |
//! |---|---|
//! | `interface`, `dirty_list`, `activity` | what is asked of the file system; which inodes are dirty, oldest first; the flusher's state |
//! | `payer`, `balance`, `bandwidth`, `throttle`, `tunables` | what each writer dirtied, dirty thresholds, slowing of writers, parameters |
//! | `sync`, `control`, `threads`, `foreground_list`, `fsync_queue`, `ticket` | callers and threads that wait for one another |
//! | `backing_dev` | a device under writeback |
//! | `window`, `batches` | the batch engine |
//! | `foreground` | fsync: the caller writes its own files |
//! | `io_queues`, `pass`, `flusher` | when the flusher writes, and which inodes |
//! | `requests` | calls that wake the flusher or wait for it |

mod activity;
mod backing_dev;
mod balance;
mod bandwidth;
mod batches;
mod control;
mod dirty_list;
mod flusher;
mod foreground;
mod foreground_list;
mod fsync_queue;
mod interface;
mod io_queues;
mod pass;
mod payer;
mod requests;
mod sync;
mod threads;
mod throttle;
mod ticket;
mod tunables;
mod window;

pub use activity::FlusherState;
pub use backing_dev::{BackingDev, WritebackStats};
pub use dirty_list::DirtyState;
pub use foreground::Results;
pub use fsync_queue::{FsyncQueue, Load, SyncService};
pub use interface::{OnLocked, Progress, Reason, Slice, WritebackFs};
pub use payer::{Charging, charge_to};
pub use threads::Flushers;
pub use ticket::Ticket;
pub use tunables::Tunables;

#[cfg(test)]
mod tests;
