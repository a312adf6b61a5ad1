//! FUSE server of an ext4 volume: requests of the kernel become calls of [`ext4`].
//!
//! A module uses only modules below it:
//!
//! ```text
//!  session     a mounted volume              disk   a device as a file
//!     │                                        │
//!  server      one method per request          │    options   mount options
//!     │                                        │       │
//!     ├─ coherence   page cache, direct writes │    sandbox   restricts the serving process
//!     ├─ durability  fsync(2), syncs           │
//!     └───────┬────────────────────────────────┘
//!             │
//!         connection   mounting, starting the serving threads
//!             │
//!         teardown     the end of a mount
//!             │
//!         nodes (lookup counts) · reaper (deletion) · reclaim (block devices) · signals
//!             │
//!         panics       stop the volume
//! ```
//!
//! `fusedev` implements the protocol of `/dev/fuse`.
//!
//! A node's id is its inode number, except that FUSE calls the root 1 and ext4 calls it 2. The
//! kernel may cache names, missing names, attributes and contents without limit, because only this
//! server changes the volume while it is mounted.
//!
//! # Requests for a small file
//!
//! `open(O_CREAT)`, `write`, `close` send six requests: GETATTR of the directory (the kernel has
//! dropped its attributes after the last change of its names), LOOKUP, CREATE, GETXATTR (the kernel
//! reads `security.capability` before a write), WRITE, and RELEASE, which no program waits for.
//! OPEN, CREATE and RELEASE are needed because the kernel does not know which files are immutable
//! or append-only. With `no_check_open`, MKNOD replaces CREATE, and OPEN and RELEASE are not sent.
//! FLUSH is answered ENOSYS once.
//!
//! `open`, `read`, `fstat`, `close` of an existing small file send OPEN and RELEASE: its contents
//! are stored in the kernel's page cache before the reply to OPEN (`nodes::contents`).
//! docs/REQUESTS.md lists what common programs need.
//!
//! A profile of fs_mark with 4 KiB files on two processors gives these parts of the serving
//! threads' time: a third wakes the waiting program after a reply, a quarter switches threads, a
//! sixth clears pages that the cache takes from the system for the first time, and a seventh is
//! this server and the engine. The rate is about a tenth below that of a server that does no work
//! (the example `empty` of `fusedev`). So only fewer requests would raise it further.

mod coherence;
mod connection;
mod disk;
mod durability;
mod nodes;
mod options;
mod panics;
mod reaper;
mod reclaim;
mod removals;
mod resize;
mod sandbox;
pub mod scan;
mod server;
mod session;
mod signals;
mod teardown;
#[cfg(test)]
mod test_volume;
mod trim;

pub use disk::{Disk, serve_disk};
pub use durability::{SyncScope, sync};
pub use fusedev::{Claim, OperationCounts, UnmountMode, serve_as_helper, unmount};
pub use options::MountOptions;
pub use resize::resize;
pub use sandbox::{Sandbox, enter_sandbox};
pub use session::{Session, claim, mount, mount_by};
pub use signals::catch_signals;
pub use trim::trim;
