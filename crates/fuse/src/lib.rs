//! A volume as a directory of the system: FUSE requests to calls of the ext4 layer, and nothing
//! else.
//!
//! | module | what it owns |
//! |---|---|
//! | [`options`] | what may stand behind `-o` |
//! | `connection` | mounting, waiting, unmounting, signals, whatever is served; the protocol is [`fusedev`]'s |
//! | [`session`] | a mounted volume |
//! | `disk` | a device as a file |
//! | `sandbox` | what a serving process may still do |
//! | `server` | one method per request |
//! | `nodes` | what the kernel remembers of our inodes (lookup counts) |
//! | `coherence` | the kernel's page cache beside direct writes |
//! | `durability` | fsyncs: on the spot, or queued and served together |
//! | `reclaim` | the claim on a block device, where the kernel's went too early |
//! | `reaper` | deleting files, which takes long |
//!
//! A node's id is its inode's number, only that FUSE calls the root 1 and ext4 calls it 2 (ext4's
//! inode 1, the list of bad blocks, has no name and never appears). The kernel is told to cache
//! names, missing names, attributes and contents for as long as it likes: nobody else changes the
//! volume while it is mounted.
//!
//! # What a small file costs
//!
//! `open(O_CREAT)`, `write`, `close` are five requests: LOOKUP, CREATE, GETXATTR (the kernel looks
//! for `security.capability` before a write), WRITE, and RELEASE, which nobody waits for. OPEN,
//! CREATE and RELEASE are there because the kernel does not know which files are immutable or
//! append-only; with `no_check_open` MKNOD stands for CREATE, and the others are left out. FLUSH is
//! answered ENOSYS once. A profile of fs_mark with 4 KiB files on two processors shows where the
//! serving threads' time goes: a third wakes the waiting program when a request is answered, a
//! quarter switches threads, a sixth clears pages that the cache takes from the system for the
//! first time, and a seventh is everything above the kernel, ours and the engine's. So the rate is
//! that of a server that does nothing at all (the example `empty` of `fusedev`) less about a tenth,
//! and the way to more is fewer requests.

pub mod options;
pub mod session;

mod coherence;
mod connection;
mod disk;
mod durability;
mod nodes;
mod reaper;
mod reclaim;
mod sandbox;
mod server;
mod signals;

pub use disk::{Disk, serve_disk};
pub use durability::{SyncScope, sync};
pub use fusedev::{Claim, serve_as_helper, unmount};
pub use options::MountOptions;
pub use sandbox::{Sandbox, enter_sandbox};
pub use session::{Session, claim, mount, mount_by};
pub use signals::catch as catch_signals;
