//! A file system's side of `/dev/fuse`: what the kernel asks, what it is told, and how it is mounted. Linux 5.4 or later.
//!
//! | module | what it owns |
//! |---|---|
//! | `abi` | the protocol's structures and numbers |
//! | `request` | bytes to an [`Operation`] |
//! | `reply` | the answer to one request, and lists of directory entries |
//! | `features` | what may be agreed on when a connection begins |
//! | `session` | the threads that take requests, from the first one to DESTROY |
//! | `guard` | a panic in a request becomes EIO |
//! | `mount` | mounting, as root or through fusermount3; the kernel's claim on a block device |
//!
//! It knows nothing of files. Whoever serves implements [`Server`]; a [`Reply`] can be taken to any thread, and be used at
//! any time.
//!
//! The crate `fuser` does most of this, and was used until block devices were to be mounted as such (`fuseblk`), which is
//! what brings sync(2) and syncfs(2) to a server: its 0.18 answers SYNCFS by itself, with ENOSYS, answers DESTROY before the
//! file system has been told, so that umount(2) returns too early, and keeps the threads that read to itself.
//!
//! Source: `include/uapi/linux/fuse.h` of Linux (it may be used under the BSD licence, too) and fuse(4).

mod abi;
mod features;
mod guard;
mod mount;
mod reply;
mod request;
mod session;

pub use features::Features;
pub use guard::guarded;
pub use mount::{Claim, MountSpec, mount, unmount};
pub use reply::{Attr, DirEntries, Entry, Reply, StatFs, Time};
pub use request::{NodeId, Operation, Request, SetAttr, SetTime};
pub use rustix::io::Errno;
pub use session::{MAX_WRITE, Notifier, Server, Session};
