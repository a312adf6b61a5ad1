//! Attributes.

use super::Server;
use super::privileges::Caller;
use crate::nodes::{Resizing, ino_of};
use ext4::{Attr, Result, SetAttr, SetTime, Timestamp};
use fusedev::{Entry, NodeId, Time};
use std::time::Duration;

/// How long the kernel may cache names and attributes. They are always valid, since only this
/// server changes the volume; a day bounds the effect of a bug.
pub(crate) const TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// Converts attributes to FUSE's form.
fn file_attr(attr: &Attr, block_size: u32) -> fusedev::Attr {
    fusedev::Attr {
        ino: u64::from(attr.ino),
        size: attr.size,
        blocks: attr.blocks,
        atime: time(attr.atime),
        mtime: time(attr.mtime),
        ctime: time(attr.ctime),
        mode: u32::from(attr.mode),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: block_size,
    }
}

/// The entry for "there is no such name", which the kernel caches.
pub(crate) fn no_entry() -> Entry {
    Entry {
        node: NodeId(0),
        generation: 0,
        attr: fusedev::Attr::default(),
        ttl: TTL,
    }
}

fn time(time: Timestamp) -> Time {
    Time {
        secs: time.secs,
        nanos: time.nanos,
    }
}

fn set_time(time: fusedev::SetTime) -> SetTime {
    match time {
        fusedev::SetTime::Now => SetTime::Now,
        fusedev::SetTime::At(Time { secs, nanos }) => SetTime::At(Timestamp { secs, nanos }),
    }
}

impl Server {
    /// Converts attributes to FUSE's form.
    pub(super) fn fuse_attr(&self, attr: &Attr) -> fusedev::Attr {
        file_attr(attr, self.block_size)
    }

    pub(super) fn getattr(&self, node: NodeId) -> Result<fusedev::Attr> {
        let inode = self.inode(node)?;
        Ok(self.fuse_attr(&self.attributes(&inode)))
    }

    /// Attributes and the time of birth, which inodes of 128 bytes do not have.
    pub(super) fn statx(&self, node: NodeId) -> Result<(fusedev::Attr, Option<Time>)> {
        let attr = self.attributes(&self.inode(node)?);
        let birth = (attr.crtime != Timestamp::default()).then(|| time(attr.crtime));
        Ok((self.fuse_attr(&attr), birth))
    }

    /// Begins a change of size; `None` if `request` does not change it. The caller drops it after
    /// the reply.
    pub(super) fn resizing(
        &self,
        node: NodeId,
        request: &fusedev::SetAttr,
    ) -> Option<Resizing<'_>> {
        request.size?;
        Some(self.nodes.resize(ino_of(node).ok()?))
    }

    pub(super) fn setattr(
        &self,
        node: NodeId,
        caller: Caller,
        request: &fusedev::SetAttr,
    ) -> Result<fusedev::Attr> {
        let inode = self.inode(node)?;
        let cleared = || match request.clear_privileges {
            true => self.cleared_mode(&inode, caller),
            false => None,
        };
        let set = SetAttr {
            mode: request
                .mode
                .map(|mode| (mode & 0o7777) as u16)
                .or_else(cleared),
            uid: request.uid,
            gid: request.gid,
            size: request.size,
            atime: request.atime.map(set_time),
            mtime: request.mtime.map(set_time),
            ..SetAttr::default()
        };
        let attr = self.fs.set_attr(&inode, &set)?;
        Ok(self.fuse_attr(&attr))
    }
}
