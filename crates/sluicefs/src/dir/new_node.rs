//! Attributes and types of new inodes.

use crate::metadata::DeviceNumber;
use crate::shared::Defaults;
use ext4::{FileType, NewInode};

/// Mode and owner of a new inode. The default is that of the volume.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewNode {
    mode: Option<u16>,
    owner: Option<(u32, u32)>,
}

impl NewNode {
    /// The defaults of the volume.
    pub fn new() -> NewNode {
        NewNode::default()
    }
    /// Sets the permission bits. The umask does not apply to them.
    #[must_use]
    pub fn mode(mut self, mode: u32) -> NewNode {
        self.mode = Some((mode & 0o7777) as u16);
        self
    }
    /// Sets user and group.
    #[must_use]
    pub fn owner(mut self, uid: u32, gid: u32) -> NewNode {
        self.owner = Some((uid, gid));
        self
    }

    pub(super) fn inode(self, defaults: Defaults, kind: FileType, usual_mode: u16) -> NewInode {
        let (uid, gid) = self.owner.unwrap_or((defaults.uid, defaults.gid));
        NewInode {
            mode: kind.mode_bits() | self.mode.unwrap_or(usual_mode),
            umask: match (self.mode, kind) {
                (Some(_), _) | (_, FileType::Symlink) => 0,
                _ => defaults.umask,
            },
            uid,
            gid,
            rdev: 0,
        }
    }
}

/// The type of a file that is not regular, a directory or a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialFile {
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice(DeviceNumber),
    /// A block device.
    BlockDevice(DeviceNumber),
}

impl SpecialFile {
    pub(super) fn kind(self) -> FileType {
        match self {
            SpecialFile::Fifo => FileType::Fifo,
            SpecialFile::Socket => FileType::Socket,
            SpecialFile::CharDevice(_) => FileType::CharDevice,
            SpecialFile::BlockDevice(_) => FileType::BlockDevice,
        }
    }

    /// Linux's 32-bit `dev_t`; `None` if the device number does not fit.
    pub(super) fn rdev(self) -> Option<u32> {
        match self {
            SpecialFile::Fifo | SpecialFile::Socket => Some(0),
            SpecialFile::CharDevice(number) | SpecialFile::BlockDevice(number) => number.pack(),
        }
    }
}
