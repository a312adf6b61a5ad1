//! When dirty data is written, and how much of it: dirty inode lists, a flusher per backing device, the dirty
//! thresholds that slow a writer, and sync. It never knows ext4: it calls a [`WritebackFs`].

pub mod backing_dev;
pub mod clock;
pub mod tunables;

pub use backing_dev::{BackingDev, DirtyState, PassLimits, Progress, Reason, WritebackFs};
pub use clock::{Clock, SystemClock};
pub use tunables::Tunables;
