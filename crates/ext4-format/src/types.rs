//! Types for numbers that must not be mixed up.

use std::fmt;

/// The size of `i_block` in bytes: a block map, an extent root, a short symlink or a device number.
pub const I_BLOCK_SIZE: usize = 60;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
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

        impl $name {
            /// Returns this number plus `count`, or `None` past the type's end.
            #[must_use]
            pub const fn checked_add(self, count: $inner) -> Option<$name> {
                match self.0.checked_add(count) {
                    Some(sum) => Some($name(sum)),
                    None => None,
                }
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
    /// An inode number; the first inode of a volume has number 1.
    Ino(u32)
}
number! {
    /// The number of a block group, from 0.
    GroupNo(u32)
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
