//! File types and permissions, as stored in inodes and directory entries.

use std::fmt;

/// The file type of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileType {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A symbolic link.
    Symlink,
}

impl fmt::Display for FileType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FileType::Regular => "regular file",
            FileType::Directory => "directory",
            FileType::CharDevice => "character device",
            FileType::BlockDevice => "block device",
            FileType::Fifo => "FIFO",
            FileType::Socket => "socket",
            FileType::Symlink => "symbolic link",
        })
    }
}

impl FileType {
    /// Returns the code that directory entries use.
    #[must_use]
    pub const fn dirent_code(self) -> u8 {
        match self {
            FileType::Regular => 1,
            FileType::Directory => 2,
            FileType::CharDevice => 3,
            FileType::BlockDevice => 4,
            FileType::Fifo => 5,
            FileType::Socket => 6,
            FileType::Symlink => 7,
        }
    }

    /// Returns the type for a directory entry's code; `None` if it is unknown (0) or not a type.
    #[must_use]
    pub const fn from_dirent_code(code: u8) -> Option<FileType> {
        Some(match code {
            1 => FileType::Regular,
            2 => FileType::Directory,
            3 => FileType::CharDevice,
            4 => FileType::BlockDevice,
            5 => FileType::Fifo,
            6 => FileType::Socket,
            7 => FileType::Symlink,
            _ => return None,
        })
    }

    /// Returns the type's bits in `st_mode`.
    #[must_use]
    pub const fn mode_bits(self) -> u16 {
        match self {
            FileType::Fifo => 0x1000,
            FileType::CharDevice => 0x2000,
            FileType::Directory => 0x4000,
            FileType::BlockDevice => 0x6000,
            FileType::Regular => 0x8000,
            FileType::Symlink => 0xa000,
            FileType::Socket => 0xc000,
        }
    }
}

/// File type and permissions, as in `st_mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct InodeMode(pub u16);

impl InodeMode {
    /// The bits that are permissions: rwx three times, sticky, setgid, setuid.
    pub const PERMISSIONS: u16 = 0o7777;
    /// Set-user-id.
    pub const SET_UID: u16 = 0o4000;
    /// Set-group-id.
    pub const SET_GID: u16 = 0o2000;
    /// The sticky bit.
    pub const STICKY: u16 = 0o1000;

    /// Joins a type and permissions.
    #[must_use]
    pub const fn new(file_type: FileType, permissions: u16) -> InodeMode {
        InodeMode(file_type.mode_bits() | (permissions & Self::PERMISSIONS))
    }

    /// Returns the file type, or `None` if the bits are not a type.
    #[must_use]
    pub const fn file_type(self) -> Option<FileType> {
        Some(match self.0 & 0xf000 {
            0x1000 => FileType::Fifo,
            0x2000 => FileType::CharDevice,
            0x4000 => FileType::Directory,
            0x6000 => FileType::BlockDevice,
            0x8000 => FileType::Regular,
            0xa000 => FileType::Symlink,
            0xc000 => FileType::Socket,
            _ => return None,
        })
    }

    /// Returns the permission bits.
    #[must_use]
    pub const fn permissions(self) -> u16 {
        self.0 & Self::PERMISSIONS
    }

    /// Returns the same type with other permissions.
    #[must_use]
    pub const fn with_permissions(self, permissions: u16) -> InodeMode {
        InodeMode((self.0 & !Self::PERMISSIONS) | (permissions & Self::PERMISSIONS))
    }

    /// Returns whether this is a directory.
    #[must_use]
    pub const fn is_dir(self) -> bool {
        self.0 & 0xf000 == FileType::Directory.mode_bits()
    }

    /// Returns whether this is a regular file.
    #[must_use]
    pub const fn is_regular(self) -> bool {
        self.0 & 0xf000 == FileType::Regular.mode_bits()
    }

    /// Returns whether this is a symbolic link.
    #[must_use]
    pub const fn is_symlink(self) -> bool {
        self.0 & 0xf000 == FileType::Symlink.mode_bits()
    }
}
