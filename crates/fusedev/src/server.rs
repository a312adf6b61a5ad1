//! The interface of a file system.

use crate::features::Features;
use crate::reply::Reply;
use crate::request::Request;
use crate::types::NodeId;

/// A file system. Several threads call its methods at the same time.
pub trait Server: Send + Sync + 'static {
    /// Begins the connection: returns the features of `offered` that the server wants. `version` is
    /// the kernel's version of the protocol.
    fn init(&self, offered: Features, version: (u32, u32)) -> Features;

    /// Carries out a request. The reply may be sent before this returns, or later.
    fn request(&self, request: Request<'_>, reply: Reply);

    /// Subtracts `lookups` from the kernel's lookup count of `node`.
    fn forget(&self, node: NodeId, lookups: u64) {
        let _ = (node, lookups);
    }

    /// A request with the number `opcode` has panicked and has been answered with EIO. Its changes
    /// may be incomplete.
    fn panicked(&self, opcode: u32) {
        let _ = opcode;
    }

    /// Ends the file system; umount(2) waits until this returns. No other method is running, and
    /// none is called later. The kernel sends DESTROY for `fuseblk` mounts only.
    fn destroy(&self) {}
}
