//! Values that requests and replies share.

use crate::abi;
use std::time::Duration;

/// The server's identifier of an inode. The kernel learns it from an entry; the root has a fixed
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The root directory.
    pub const ROOT: NodeId = NodeId(1);
}

/// A time stamp of a file: seconds since 1970, and nanoseconds after that second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// Negative before 1970.
    pub secs: i64,
    /// Less than 1,000,000,000.
    pub nanos: u32,
}

/// Attributes of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    /// Inode number.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Space used, in units of 512 bytes.
    pub blocks: u64,
    /// Time of the last access.
    pub atime: Time,
    /// Time of the last change of the contents.
    pub mtime: Time,
    /// Time of the last change of the inode.
    pub ctime: Time,
    /// Type and permissions.
    pub mode: u32,
    /// Number of hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device file.
    pub rdev: u32,
    /// `st_blksize` of stat(2), the preferred size of I/O; 0 leaves the choice to the kernel.
    pub blksize: u32,
}

impl Attr {
    pub(crate) fn encode(&self) -> abi::FuseAttr {
        abi::FuseAttr {
            ino: self.ino,
            size: self.size,
            blocks: self.blocks,
            atime: self.atime.secs as u64,
            mtime: self.mtime.secs as u64,
            ctime: self.ctime.secs as u64,
            atimensec: self.atime.nanos,
            mtimensec: self.mtime.nanos,
            ctimensec: self.ctime.nanos,
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            blksize: self.blksize,
            flags: 0,
        }
    }
}

/// The inode that a name refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The kernel's lookup count of this node grows by one. 0: there is no such name.
    pub node: NodeId,
    /// Distinguishes inodes that have had the same number.
    pub generation: u64,
    /// Attributes of the inode.
    pub attr: Attr,
    /// How long the kernel may cache the name and the attributes.
    pub ttl: Duration,
}

impl Entry {
    pub(crate) fn encode(&self) -> abi::EntryOut {
        abi::EntryOut {
            nodeid: self.node.0,
            generation: self.generation,
            entry_valid: self.ttl.as_secs(),
            attr_valid: self.ttl.as_secs(),
            entry_valid_nsec: self.ttl.subsec_nanos(),
            attr_valid_nsec: self.ttl.subsec_nanos(),
            attr: self.attr.encode(),
        }
    }
}

/// The result of statfs(2). Space is in units of `block_size`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// Size of the file system.
    pub blocks: u64,
    /// Free space, with the part that is reserved for root.
    pub free: u64,
    /// Free space for users other than root.
    pub available: u64,
    /// Total number of inodes.
    pub inodes: u64,
    /// Number of free inodes.
    pub free_inodes: u64,
    /// Bytes of a block.
    pub block_size: u32,
    /// Bytes in the longest name.
    pub max_name: u32,
}
