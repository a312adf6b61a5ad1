//! The usage types of mke2fs.conf. The use of a volume decides the size of its blocks and how many
//! inodes it has.

/// A usage type, with the figures of mke2fs 1.47.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// A volume of less than 3 MiB.
    Floppy,
    /// A volume of less than 512 MiB.
    Small,
    /// Any other volume of less than 4 TiB.
    Default,
    /// A volume of 4 TiB and more.
    Big,
    /// A volume of 16 TiB and more.
    Huge,
    /// Many small files.
    News,
    /// Files of about a megabyte.
    LargeFile,
    /// Files of about four megabytes.
    LargeFile4,
}

impl Usage {
    /// All types, with their names in mke2fs.conf.
    pub const NAMES: [(&'static str, Usage); 8] = [
        ("floppy", Usage::Floppy),
        ("small", Usage::Small),
        ("default", Usage::Default),
        ("big", Usage::Big),
        ("huge", Usage::Huge),
        ("news", Usage::News),
        ("largefile", Usage::LargeFile),
        ("largefile4", Usage::LargeFile4),
    ];

    /// Returns the type that mke2fs chooses for a volume of so many bytes.
    pub fn of_size(bytes: u64) -> Usage {
        match bytes >> 20 {
            0..3 => Usage::Floppy,
            3..512 => Usage::Small,
            512..0x40_0000 => Usage::Default,
            0x40_0000..0x100_0000 => Usage::Big,
            _ => Usage::Huge,
        }
    }

    /// Returns the bytes of a block.
    pub fn block_size(self) -> u32 {
        match self {
            Usage::Floppy | Usage::Small => 1024,
            _ => 4096,
        }
    }

    /// Returns the bytes of the volume for each inode.
    pub fn inode_ratio(self) -> u64 {
        match self {
            Usage::Floppy => 8192,
            Usage::Small | Usage::News => 4096,
            Usage::Default => 16_384,
            Usage::Big => 32_768,
            Usage::Huge => 65_536,
            Usage::LargeFile => 1 << 20,
            Usage::LargeFile4 => 4 << 20,
        }
    }
}
