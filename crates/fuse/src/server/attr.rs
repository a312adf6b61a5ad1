//! Attributes: to FUSE's form, and setting them.

use super::Server;
use ext4::{Attr, FileType, InodeRef, Result, SetAttr, SetTime, Timestamp};
use fuser::{FileAttr, INodeNo};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long the kernel may keep names and attributes without asking again. Nobody else changes the volume, so it could be
/// for ever; a day bounds what a bug can do.
pub(crate) const TTL: Duration = Duration::from_secs(24 * 60 * 60);

const SET_UID: u16 = 0o4000;
const SET_GID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o010;

/// Attributes as FUSE wants them.
pub(crate) fn file_attr(attr: &Attr, block_size: u32) -> FileAttr {
    FileAttr {
        ino: INodeNo(u64::from(attr.ino)),
        size: attr.size,
        blocks: attr.blocks,
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        crtime: system_time(attr.crtime),
        kind: fuse_type(attr.kind),
        perm: attr.mode & 0o7777,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: block_size,
        flags: 0,
    }
}

/// What stands for "there is no such name, and you may remember that".
pub(crate) fn no_entry() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: fuser::FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

/// The type as FUSE has it.
pub(crate) fn fuse_type(kind: FileType) -> fuser::FileType {
    match kind {
        FileType::Regular => fuser::FileType::RegularFile,
        FileType::Directory => fuser::FileType::Directory,
        FileType::CharDevice => fuser::FileType::CharDevice,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::Socket => fuser::FileType::Socket,
        FileType::Symlink => fuser::FileType::Symlink,
    }
}

fn system_time(time: Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(time.secs.unsigned_abs());
    let whole = if time.secs < 0 {
        UNIX_EPOCH - seconds
    } else {
        UNIX_EPOCH + seconds
    };
    whole + Duration::from_nanos(u64::from(time.nanos))
}

/// Reads a time that fuser made of the kernel's seconds and nanoseconds. Before 1970 it subtracts the nanoseconds where
/// they are to be added (fuser 0.18, `system_time_from_time`); undoing just that gives back what the kernel sent.
pub(crate) fn timestamp(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timestamp {
            secs: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            nanos: after.subsec_nanos(),
        },
        Err(before) => Timestamp {
            secs: i64::try_from(before.duration().as_secs()).map_or(i64::MIN, |secs| -secs),
            nanos: before.duration().subsec_nanos(),
        },
    }
}

/// What giving a file away, or a change of its contents by somebody without privileges, leaves of its mode. A
/// set-group-ID bit without group execution means mandatory locking, and stays.
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

/// What a setattr request asks for.
#[derive(Default)]
pub(crate) struct SetAttrRequest {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<fuser::TimeOrNow>,
    pub mtime: Option<fuser::TimeOrNow>,
}

impl Server {
    /// Attributes in FUSE's form.
    pub(super) fn fuse_attr(&self, attr: &Attr) -> FileAttr {
        file_attr(attr, self.block_size)
    }

    pub(super) fn getattr(&self, node: INodeNo) -> Result<FileAttr> {
        let inode = self.inode(node)?;
        Ok(self.fuse_attr(&inode.attr()))
    }

    pub(super) fn setattr(
        &self,
        node: INodeNo,
        by_uid: u32,
        request: &SetAttrRequest,
    ) -> Result<FileAttr> {
        let inode = self.inode(node)?;
        let time = |t: fuser::TimeOrNow| match t {
            fuser::TimeOrNow::Now => SetTime::Now,
            fuser::TimeOrNow::SpecificTime(t) => SetTime::At(timestamp(t)),
        };
        let set = SetAttr {
            mode: request
                .mode
                .map(|mode| (mode & 0o7777) as u16)
                .or_else(|| self.mode_without_privileges(&inode, by_uid, request)),
            uid: request.uid,
            gid: request.gid,
            size: request.size,
            atime: request.atime.map(time),
            mtime: request.mtime.map(time),
            ..SetAttr::default()
        };
        let attr = self.with_space(|| self.fs.set_attr(&inode, &set))?;
        Ok(self.fuse_attr(&attr))
    }

    /// The mode that a change of owner or size leaves, if it is another one than before. Whoever may change the size and
    /// keep the bits is CAP_FSETID's business, which a FUSE server does not see; with `killpriv` nobody may, and else the
    /// kernel has left it to us for root only, who has it.
    fn mode_without_privileges(
        &self,
        inode: &InodeRef,
        by_uid: u32,
        request: &SetAttrRequest,
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
    fn times_before_1970() {
        let t = Timestamp {
            secs: -2,
            nanos: 800_000_000,
        };
        assert_eq!(system_time(t), UNIX_EPOCH - Duration::from_millis(1200));
        // What fuser 0.18 makes of -2 s and 800,000,000 ns.
        let wrong = UNIX_EPOCH - Duration::new(2, 800_000_000);
        assert_eq!(timestamp(wrong), t);
        let now = Timestamp { secs: 5, nanos: 7 };
        assert_eq!(timestamp(system_time(now)), now);
    }

    #[test]
    fn bits_that_a_write_clears() {
        assert_eq!(without_privileges(0o6755), 0o755);
        assert_eq!(without_privileges(0o6745), 0o2745);
        assert!(!has_privileges(0o2644) && has_privileges(0o2654));
    }
}
