//! The flags of an inode, as chattr(1) shows them.

use bitflags::bitflags;

use crate::mode::FileType;

bitflags! {
    /// `i_flags`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct InodeFlags: u32 {
        /// Secure deletion (not implemented anywhere).
        const SECRM = 0x0000_0001;
        /// Undelete (not implemented anywhere).
        const UNRM = 0x0000_0002;
        /// Compressed (not implemented).
        const COMPR = 0x0000_0004;
        /// Writes are synchronous.
        const SYNC = 0x0000_0008;
        /// Nothing about the file may change.
        const IMMUTABLE = 0x0000_0010;
        /// Data may only be appended.
        const APPEND = 0x0000_0020;
        /// dump(8) skips the file.
        const NODUMP = 0x0000_0040;
        /// The access time is not updated.
        const NOATIME = 0x0000_0080;
        /// Encrypted.
        const ENCRYPT = 0x0000_0800;
        /// The directory is a hash tree.
        const INDEX = 0x0000_1000;
        /// AFS magic directory.
        const IMAGIC = 0x0000_2000;
        /// Data goes through the journal.
        const JOURNAL_DATA = 0x0000_4000;
        /// No tail merging (unused).
        const NOTAIL = 0x0000_8000;
        /// Changes of the directory are synchronous.
        const DIRSYNC = 0x0001_0000;
        /// Top of a hierarchy: spread the subdirectories.
        const TOPDIR = 0x0002_0000;
        /// `i_blocks` counts file system blocks.
        const HUGE_FILE = 0x0004_0000;
        /// `i_block` is the root of an extent tree.
        const EXTENTS = 0x0008_0000;
        /// The file is protected by a Merkle tree.
        const VERITY = 0x0010_0000;
        /// The inode holds a large extended attribute.
        const EA_INODE = 0x0020_0000;
        /// Blocks past the end of file (deprecated).
        const EOFBLOCKS = 0x0040_0000;
        /// Direct access.
        const DAX = 0x0200_0000;
        /// Data lives in the inode.
        const INLINE_DATA = 0x1000_0000;
        /// Children inherit the project.
        const PROJINHERIT = 0x2000_0000;
        /// Names in the directory ignore case.
        const CASEFOLD = 0x4000_0000;
        /// Reserved for the library.
        const RESERVED = 0x8000_0000;
    }
}

impl InodeFlags {
    /// The flags that a user may read.
    pub const USER_VISIBLE: InodeFlags = InodeFlags::from_bits_retain(0x725b_dfff);
    /// The flags that a user may change.
    pub const USER_MODIFIABLE: InodeFlags = InodeFlags::from_bits_retain(0x624b_c0ff);
    /// The flags that protect a file's names and attributes. To change one needs the capability
    /// CAP_LINUX_IMMUTABLE.
    pub const PROTECTING: InodeFlags = InodeFlags::IMMUTABLE.union(InodeFlags::APPEND);
    /// The flags that a new inode takes from its directory.
    pub const INHERITED: InodeFlags = InodeFlags::SECRM
        .union(InodeFlags::UNRM)
        .union(InodeFlags::COMPR)
        .union(InodeFlags::SYNC)
        .union(InodeFlags::NODUMP)
        .union(InodeFlags::NOATIME)
        .union(InodeFlags::JOURNAL_DATA)
        .union(InodeFlags::NOTAIL)
        .union(InodeFlags::DIRSYNC)
        .union(InodeFlags::PROJINHERIT)
        .union(InodeFlags::CASEFOLD)
        .union(InodeFlags::DAX);

    /// Returns the flags that a new child of type `child` inherits from a directory with these
    /// flags.
    #[must_use]
    pub fn inherit(self, child: FileType) -> InodeFlags {
        let flags = self & Self::INHERITED;
        match child {
            FileType::Directory => flags,
            FileType::Regular => {
                flags
                    - (InodeFlags::DIRSYNC
                        | InodeFlags::TOPDIR
                        | InodeFlags::CASEFOLD
                        | InodeFlags::PROJINHERIT)
            }
            _ => flags & (InodeFlags::NODUMP | InodeFlags::NOATIME),
        }
    }
}
