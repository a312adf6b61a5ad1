//! Attributes: to FUSE's form, and setting them.

use super::Server;
use ext4::{Attr, FileType, InodeRef, Result, SetAttr, SetTime, Timestamp};
use fusedev::{Entry, NodeId, Time};
use std::time::Duration;

/// How long the kernel may keep names and attributes without asking again. Nobody else changes the
/// volume, so it could be for ever; a day bounds what a bug can do.
pub(crate) const TTL: Duration = Duration::from_secs(24 * 60 * 60);

const SET_UID: u16 = 0o4000;
const SET_GID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o010;

/// Attributes as FUSE wants them.
pub(crate) fn file_attr(attr: &Attr, block_size: u32) -> fusedev::Attr {
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

/// What stands for "there is no such name, and you may remember that".
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

/// What giving a file away, or a change of its contents by somebody without privileges, leaves of
/// its mode. A set-group-ID bit without group execution means mandatory locking, and stays.
pub(crate) fn without_privileges(mode: u16) -> u16 {
    if mode & GROUP_EXECUTE != 0 {
        mode & !(SET_UID | SET_GID)
    } else {
        mode & !SET_UID
    }
}

/// Whether a change of contents would clear bits of the mode.
pub(crate) fn has_privileges(mode: u16) -> bool {
    without_privileges(mode) != mode
}

impl Server {
    /// Attributes in FUSE's form.
    pub(super) fn fuse_attr(&self, attr: &Attr) -> fusedev::Attr {
        file_attr(attr, self.block_size)
    }

    pub(super) fn getattr(&self, node: NodeId) -> Result<fusedev::Attr> {
        let inode = self.inode(node)?;
        Ok(self.fuse_attr(&inode.attr()))
    }

    /// Attributes, and when the file was made; inodes of 128 bytes do not know that.
    pub(super) fn statx(&self, node: NodeId) -> Result<(fusedev::Attr, Option<Time>)> {
        let attr = self.inode(node)?.attr();
        let birth = (attr.crtime != Timestamp::default()).then(|| time(attr.crtime));
        Ok((self.fuse_attr(&attr), birth))
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
        let attr = self.with_space(|| self.fs.set_attr(&inode, &set))?;
        Ok(self.fuse_attr(&attr))
    }

    /// The mode that a change of owner or size leaves, if it is another one than before. Whoever
    /// may change the size and keep the bits is CAP_FSETID's business, which a FUSE server does not
    /// see; with `killpriv` nobody may, and else the kernel has left it to us for root only, who
    /// has it.
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
