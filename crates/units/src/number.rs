//! The types.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<$name> for u64 {
            fn from(number: $name) -> u64 {
                u64::from(number.0)
            }
        }

        /// Overflow is that of the integer.
        impl Add<$inner> for $name {
            type Output = $name;
            #[inline]
            fn add(self, count: $inner) -> $name {
                $name(self.0 + count)
            }
        }

        /// Overflow is that of the integer.
        impl AddAssign<$inner> for $name {
            #[inline]
            fn add_assign(&mut self, count: $inner) {
                self.0 += count;
            }
        }

        /// The distance between two numbers. Overflow is that of the integer.
        impl Sub for $name {
            type Output = $inner;
            #[inline]
            fn sub(self, earlier: $name) -> $inner {
                self.0 - earlier.0
            }
        }

        impl $name {
            /// Returns this number plus `count`, or `None` past the type's end.
            #[must_use]
            pub const fn checked_add(self, count: $inner) -> Option<$name> {
                match self.0.checked_add(count) {
                    Some(sum) => Some($name(sum)),
                    None => None,
                }
            }

            /// Returns this number plus `count`, or the type's last number.
            #[must_use]
            pub const fn saturating_add(self, count: $inner) -> $name {
                $name(self.0.saturating_add(count))
            }

            /// Returns the distance from `earlier` to this number, or `None` if `earlier` is later.
            #[must_use]
            pub const fn checked_sub(self, earlier: $name) -> Option<$inner> {
                self.0.checked_sub(earlier.0)
            }
        }
    };
}

number! {
    /// The address of a block on the volume, in blocks of the file system's size.
    FsBlock(u64)
}
number! {
    /// The position of a block within a file, in blocks of the file system's size.
    FileBlock(u32)
}
number! {
    /// The position of a cluster within a file, in clusters of the volume's
    /// [`crate::ClusterSize`].
    FileCluster(u32)
}
number! {
    /// The position of a page within a file, in pages of the volume's [`crate::PageSize`].
    PageIndex(u32)
}
number! {
    /// An inode number; the first inode of a volume has number 1.
    Ino(u32)
}
number! {
    /// The number of a block group, from 0.
    GroupNo(u32)
}

impl FsBlock {
    /// Returns the offset of the block's first byte on the volume. Overflow is that of the integer.
    #[inline]
    #[must_use]
    pub const fn offset(self, block_size: u32) -> u64 {
        self.0 * block_size as u64
    }

    /// [`FsBlock::offset`], or `None` past the last byte that has an offset.
    #[must_use]
    pub const fn checked_offset(self, block_size: u32) -> Option<u64> {
        self.0.checked_mul(block_size as u64)
    }
}

impl FileBlock {
    /// The first block of a file.
    pub const FIRST: FileBlock = FileBlock(0);
    /// The end of the largest file. ext4 reserves this number, so no file has a block of it.
    pub const END: FileBlock = FileBlock(u32::MAX);
}

impl PageIndex {
    /// The first page of a file.
    pub const FIRST: PageIndex = PageIndex(0);
    /// The end of the largest file: no file has a page of this number.
    pub const END: PageIndex = PageIndex(u32::MAX);
}

impl Ino {
    /// The list of bad blocks.
    pub const BAD_BLOCKS: Ino = Ino(1);
    /// The root directory.
    pub const ROOT: Ino = Ino(2);
    /// The user quota file, by convention.
    pub const USER_QUOTA: Ino = Ino(3);
    /// The group quota file, by convention.
    pub const GROUP_QUOTA: Ino = Ino(4);
    /// The boot loader's file.
    pub const BOOT_LOADER: Ino = Ino(5);
    /// The undelete directory (never used).
    pub const UNDELETE: Ino = Ino(6);
    /// The reserved group descriptor blocks.
    pub const RESIZE: Ino = Ino(7);
    /// The journal.
    pub const JOURNAL: Ino = Ino(8);
    /// The exclude bitmap of a snapshot (never used upstream).
    pub const EXCLUDE: Ino = Ino(9);
    /// The replica inode (never used upstream).
    pub const REPLICA: Ino = Ino(10);
    /// Where mke2fs puts `lost+found`: the first inode that is not reserved.
    pub const LOST_FOUND: Ino = Ino(11);
}
