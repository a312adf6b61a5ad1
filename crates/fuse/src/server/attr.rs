//! Attributes.

use super::Server;
use crate::nodes::{Resizing, ino_of};
use ext4::{Attr, FileType, InodeRef, Result, SetAttr, SetTime, Timestamp};
use fusedev::{Entry, NodeId, Time};
use std::time::Duration;

/// How long the kernel may cache names and attributes. They are always valid, since only this
/// server changes the volume; a day bounds the effect of a bug.
pub(crate) const TTL: Duration = Duration::from_secs(24 * 60 * 60);

const SET_UID: u16 = 0o4000;
const SET_GID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o010;

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

/// The mode after a change of owner, or after a change of contents by an unprivileged user. The
/// set-group-ID bit stays if there is no permission for the group to execute (it then means
/// mandatory locking).
pub(crate) fn without_privileges(mode: u16) -> u16 {
    if mode & GROUP_EXECUTE != 0 {
        mode & !(SET_UID | SET_GID)
    } else {
        mode & !SET_UID
    }
}

/// Whether [`without_privileges`] changes a mode.
pub(crate) fn has_privileges(mode: u16) -> bool {
    without_privileges(mode) != mode
}

impl Server {
    /// Converts attributes to FUSE's form.
    pub(super) fn fuse_attr(&self, attr: &Attr) -> fusedev::Attr {
        file_attr(attr, self.block_size)
    }

    pub(super) fn getattr(&self, node: NodeId) -> Result<fusedev::Attr> {
        let inode = self.inode(node)?;
        Ok(self.fuse_attr(&inode.attr()))
    }

    /// Attributes and the time of birth, which inodes of 128 bytes do not have.
    pub(super) fn statx(&self, node: NodeId) -> Result<(fusedev::Attr, Option<Time>)> {
        let attr = self.inode(node)?.attr();
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
        by_uid: u32,
        request: &fusedev::SetAttr,
    ) -> Result<fusedev::Attr> {
        let inode = self.inode(node)?;
        let set = SetAttr {
            mode: request
                .mode
                .map(|mode| (mode & 0o7777) as u16)
                .or_else(|| self.mode_without_privileges(&inode, by_uid, request)),
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

    /// The mode after a change of owner or size, if it differs from the mode before. CAP_FSETID
    /// lets a user change the size and keep the bits, but a FUSE server does not see capabilities.
    /// With `killpriv` no user keeps them; without it only root does.
    fn mode_without_privileges(
        &self,
        inode: &InodeRef,
        by_uid: u32,
        request: &fusedev::SetAttr,
    ) -> Option<u16> {
        let changes_owner = request.uid.is_some() || request.gid.is_some();
        let changes_size = request.size.is_some() && (by_uid != 0 || self.killpriv);
        if !changes_owner && !changes_size {
            return None;
        }
        let attr = inode.attr();
        let mode = attr.mode & 0o7777;
        (attr.kind == FileType::Regular && has_privileges(mode)).then(|| without_privileges(mode))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_that_a_write_clears() {
        assert_eq!(without_privileges(0o6755), 0o755);
        assert_eq!(without_privileges(0o6745), 0o2745);
        assert!(!has_privileges(0o2644) && has_privileges(0o2654));
    }
}
