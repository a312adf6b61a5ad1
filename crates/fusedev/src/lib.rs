//! A file system's side of `/dev/fuse`: what the kernel asks, what it is told, and how it is
//! mounted. Linux 5.4 or later.
//!
//! | module | what it owns |
//! |---|---|
//! | `abi` | the protocol's structures and numbers |
//! | `request` | bytes to an [`Operation`] |
//! | `reply` | the answer to one request, and lists of directory entries |
//! | `features` | what may be agreed on when a connection begins |
//! | `session` | the threads that take requests, from the first one to DESTROY |
//! | `guard` | a panic in a request becomes EIO |
//! | `helper` | a process that mounts for one in a sandbox |
//! | `mount` | mounting, as root or through fusermount3; the kernel's claim on a block device |
//!
//! It knows nothing of files. Whoever serves implements [`Server`]; a [`Reply`] can be taken to any
//! thread, and be used at any time.
//!
//! The crate `fuser` does most of this, and was used until block devices were to be mounted as such
//! (`fuseblk`), which is what brings sync(2) and syncfs(2) to a server: its 0.18 answers SYNCFS by
//! itself, with ENOSYS, answers DESTROY before the file system has been told, so that umount(2)
//! returns too early, and keeps the threads that read to itself.
//!
//! Source: `include/uapi/linux/fuse.h` of Linux (it may be used under the BSD licence, too) and
//! fuse(4).

mod abi;
mod features;
mod guard;
mod helper;
mod mount;
mod reply;
mod request;
mod session;

pub use features::Features;
pub use guard::guarded;
pub use helper::{serve_as_helper, use_helper};
pub use mount::{Claim, MountSpec, mount, unmount};
pub use reply::{Attr, DirEntries, Entry, Reply, StatFs, Time};
pub use request::{NodeId, Operation, Request, SetAttr, SetTime};
pub use rustix::io::Errno;
pub use session::{MAX_WRITE, Notifier, Server, Session};

/// For the fuzzer alone.
#[doc(hidden)]
pub mod fuzzing {
    use crate::abi::opcode;
    use crate::request::{each_forget, parse as parse_request, split};

    /// Parses a message as a session would; whether it is well formed.
    pub fn parse(message: &[u8]) -> bool {
        let Ok((header, args)) = split(message) else {
            return false;
        };
        if matches!(header.opcode, opcode::FORGET | opcode::BATCH_FORGET) {
            return each_forget(&header, args, |_, _| {}).is_ok();
        }
        parse_request(&header, args).is_ok_and(|request| !format!("{request:?}").is_empty())
    }
}
