//! A volume as a directory of the system: FUSE requests to calls of the ext4 layer, and nothing else.
//!
//! | module | what it owns |
//! |---|---|
//! | [`options`] | what may stand behind `-o` |
//! | [`session`] | mounting, waiting, unmounting, signals |
//! | `server` | one method per request |
//! | `nodes` | what the kernel remembers of our inodes (lookup counts) |
//! | `background` | threads for what takes long: fsync, deleting files |
//! | `guard` | a panic in a request becomes EIO |
//!
//! A node's id is its inode's number, only that FUSE calls the root 1 and ext4 calls it 2 (ext4's inode 1, the list of bad
//! blocks, has no name and never appears). The kernel is told to cache names, missing names, attributes and contents for
//! as long as it likes: nobody else changes the volume while it is mounted.

pub mod options;
pub mod session;

mod background;
mod guard;
mod nodes;
mod server;
mod signals;

pub use options::MountOptions;
pub use session::{Session, mount, unmount};
pub use signals::catch as catch_signals;
