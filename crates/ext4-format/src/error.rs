//! Errors of the codecs: one variant for each detectable corruption, with its place.
//!
//! `place` identifies the structure: a group number for group
//! descriptors and bitmaps, an inode number for inodes, a block number for everything that fills a
//! block. `offset` is in bytes from the start of the structure that was parsed.

use thiserror::Error;
use units::FileBlock;
use units::{FsBlock, GroupNo, Ino};

/// The result of every fallible codec in this crate.
pub type Result<T> = std::result::Result<T, FormatError>;

/// A way in which bytes fail to be the ext4 structure they should be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The slice is too short to hold the structure.
    #[error("{structure}: {have} bytes where {need} are needed")]
    Truncated {
        /// Which structure was being read or written.
        structure: &'static str,
        /// Bytes needed.
        need: u64,
        /// Bytes available.
        have: u64,
    },
    /// The magic number is not the structure's.
    #[error("{structure}: bad magic {found:#x}, expected {expected:#x}")]
    BadMagic {
        /// Which structure was being read.
        structure: &'static str,
        /// The right number.
        expected: u32,
        /// The number on disk.
        found: u32,
    },
    /// The stored checksum does not match the contents.
    #[error("{structure} {place}: stored checksum {stored:#010x}, computed {computed:#010x}")]
    Checksum {
        /// Which structure was verified.
        structure: &'static str,
        /// Group, inode or block number.
        place: u64,
        /// The checksum found on disk.
        stored: u32,
        /// The checksum of the bytes found on disk.
        computed: u32,
    },
    /// The block should end in a checksum record but does not.
    #[error("{structure} {place}: no checksum tail")]
    MissingTail {
        /// Which structure was verified.
        structure: &'static str,
        /// Block number.
        place: u64,
    },
    /// The volume has features without which it can neither be read nor written.
    #[error("{}", not_supported(names, ""))]
    UnsupportedFeatures {
        /// The features' e2fsprogs names.
        names: Vec<String>,
    },
    /// The volume has features without which it can be read but not written.
    #[error("{}", not_supported(names, " for writing"))]
    ReadOnlyFeatures {
        /// The features' e2fsprogs names.
        names: Vec<String>,
    },
    /// A field has a value outside of what the format allows.
    #[error("{structure}: {field} = {value} is out of range")]
    OutOfRange {
        /// Which structure holds the field.
        structure: &'static str,
        /// The field's name.
        field: &'static str,
        /// The value on disk.
        value: u64,
    },
    /// A bitmap contradicts the rest of the volume.
    #[error("{bitmap} bitmap of group {group}: {damage}")]
    Bitmap {
        /// Which bitmap.
        bitmap: BitmapKind,
        /// The group.
        group: u32,
        /// The contradiction.
        damage: BitmapDamage,
    },
    /// A directory record's length is unaligned, too small for its name or crosses the block's end.
    #[error("directory entry at {offset}: bad record length {rec_len}")]
    DirRecLen {
        /// Offset of the record in its block, in bytes.
        offset: u32,
        /// The record length found.
        rec_len: u32,
    },
    /// A directory entry points to an inode that the volume does not have.
    #[error("directory entry at {offset}: inode {ino} does not exist")]
    DirInode {
        /// Offset of the record in its block, in bytes.
        offset: u32,
        /// The inode number found.
        ino: u32,
    },
    /// A directory entry's name is empty or has a byte that no name may have.
    #[error("directory entry at {offset}: bad name")]
    DirName {
        /// Offset of the record in its block, in bytes.
        offset: u32,
    },
    /// The depth of an extent node contradicts its parent, or exceeds the limit of ext4.
    #[error("extent node: depth {found}, expected {expected}")]
    ExtentDepth {
        /// The depth that the parent implies.
        expected: u16,
        /// The depth found.
        found: u16,
    },
    /// An extent node claims more entries than it can hold.
    #[error("extent node: {entries} entries, maximum {max}, room for {capacity}")]
    ExtentCount {
        /// `eh_entries`.
        entries: u16,
        /// `eh_max`.
        max: u16,
        /// Entries that fit in the bytes of the node.
        capacity: u16,
    },
    /// An extent's length is zero, or the extent leaves the file's or the disk's address space.
    #[error("extent {index}: bad length {len} at file block {file_block}")]
    ExtentLength {
        /// Position of the entry in its node.
        index: u16,
        /// First file block of the extent.
        file_block: FileBlock,
        /// Its length in blocks.
        len: u32,
    },
    /// Extents are not in ascending order, or overlap.
    #[error("extent {index}: file block {file_block} is not after its predecessor")]
    ExtentOrder {
        /// Position of the entry in its node.
        index: u16,
        /// First file block of the entry.
        file_block: FileBlock,
    },
    /// The entries of a hash tree node are out of order or their number is impossible.
    #[error("htree node: {count} entries, limit {limit}")]
    HtreeCount {
        /// Entries in use, the header's own included.
        count: u16,
        /// Entries that fit, the header's own included.
        limit: u16,
    },
    /// An extended attribute entry or its value leaves its area, or overlaps the entry table.
    #[error("extended attribute entry at {offset}: {field} = {value} leaves its area")]
    XattrBounds {
        /// Offset of the entry in its area, in bytes.
        offset: u32,
        /// The field at fault.
        field: &'static str,
        /// The value on disk.
        value: u64,
    },
    /// An extended attribute's hash does not match its name and value.
    #[error(
        "extended attribute entry at {offset}: stored hash {stored:#x}, computed {computed:#x}"
    )]
    XattrHash {
        /// Offset of the entry in its area, in bytes.
        offset: u32,
        /// The hash found on disk.
        stored: u32,
        /// The hash of the name and value found on disk.
        computed: u32,
    },
    /// An access control list that POSIX.1e does not allow.
    #[error("invalid ACL: {0}")]
    InvalidAcl(AclDefect),
    /// There is not enough room for a new entry. The structure is unchanged.
    #[error("{structure}: needs {need} bytes, has room for {have}")]
    NoRoom {
        /// Which structure was being written.
        structure: &'static str,
        /// Bytes needed.
        need: u64,
        /// Bytes available.
        have: u64,
    },
}

/// The bitmaps of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BitmapKind {
    /// The bitmap of blocks in use.
    #[error("block")]
    Block,
    /// The bitmap of inodes in use.
    #[error("inode")]
    Inode,
}

/// Not `#[from]`: the message contains the cause, so the cause is not its source as well.
impl From<AclDefect> for FormatError {
    fn from(defect: AclDefect) -> FormatError {
        FormatError::InvalidAcl(defect)
    }
}

/// A contradiction between a bitmap and the rest of the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BitmapDamage {
    /// Damage was found and reported before. The group is not used.
    #[error("was found damaged before")]
    KnownDamaged,
    /// The numbers of clear bits and of free objects by the group descriptor differ.
    #[error("has {found} clear bits, but the group descriptor counts {counted} as free")]
    FreeCount {
        /// Clear bits.
        found: u32,
        /// Free objects by the group descriptor.
        counted: u32,
    },
    /// The bitmap was never written, and the group descriptor counts inodes in use.
    #[error(
        "was never written, but the group descriptor counts inodes in use: {counted} of \
         {expected} are free"
    )]
    NeverWritten {
        /// Free inodes of a group without inodes in use.
        expected: u32,
        /// Free inodes by the group descriptor.
        counted: u32,
    },
    /// A block of the file system itself is free.
    #[error("block {block} of the file system itself is marked free")]
    SystemBlockFree {
        /// The first such block.
        block: FsBlock,
    },
    /// The bitmap has no clear bit, and the group descriptor counts free inodes.
    #[error("has no free inode, but the group descriptor counts {counted} free inodes")]
    NoFreeInode {
        /// Free inodes by the group descriptor.
        counted: u32,
    },
    /// An inode that only the file system uses is free.
    #[error("a reserved inode is marked free")]
    ReservedInodeFree,
    /// Blocks to be allocated are in use.
    #[error("a block that is allocated is in use already: one of {len} from {start}")]
    BlockInUse {
        /// The first block to be allocated.
        start: FsBlock,
        /// The number of blocks.
        len: u32,
    },
    /// Blocks to be freed are free.
    #[error("a block that is to be freed is free already: one of {len} from {start}")]
    BlockFree {
        /// The first block to be freed.
        start: FsBlock,
        /// The number of blocks.
        len: u32,
    },
    /// Blocks to be freed belong to the file system itself.
    #[error("a block of the file system itself is to be freed: one of {len} from {start}")]
    SystemBlockFreed {
        /// The first block to be freed.
        start: FsBlock,
        /// The number of blocks.
        len: u32,
    },
    /// An inode to be freed is free.
    #[error("inode {ino}, which is to be freed, is free already")]
    InodeFree {
        /// The inode.
        ino: Ino,
    },
    /// An inode that only the file system uses is to be freed.
    #[error("inode {ino}, which is reserved, is to be freed")]
    ReservedInodeFreed {
        /// The inode.
        ino: Ino,
    },
}

impl BitmapDamage {
    /// Returns the error for a group.
    #[must_use]
    pub const fn of(self, bitmap: BitmapKind, group: GroupNo) -> FormatError {
        FormatError::Bitmap {
            bitmap,
            group: group.0,
            damage: self,
        }
    }
}

/// The rule of POSIX.1e that an access control list breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AclDefect {
    /// The list is shorter than its header.
    #[error("no header")]
    NoHeader,
    /// The header has another version.
    #[error("unknown version {0}")]
    Version(u32),
    /// The bytes end within an entry.
    #[error("entry {0} is cut off")]
    CutOff(usize),
    /// An entry's tag is none of the known ones.
    #[error("unknown tag {tag:#x} in entry {entry}")]
    Tag {
        /// Position of the entry, from 0.
        entry: usize,
        /// The tag.
        tag: u16,
    },
    /// A permission has bits other than read, write and execute.
    #[error("permission {0:#o} has unknown bits")]
    Permission(u16),
    /// An entry for a named user or group names none.
    #[error("a named entry has no id")]
    NoId,
    /// The entries are not sorted by tag.
    #[error("the entries are out of order")]
    Order,
    /// The entry of the owner, the group or others is missing or there twice.
    #[error("owner, group and others need one entry each")]
    ClassEntries,
    /// A list with named entries has no mask, or a list has several.
    #[error("named entries need one mask: there are {0}")]
    Masks(usize),
}

impl FormatError {
    /// Returns whether the volume is sound but has a feature that is not supported.
    #[must_use]
    pub const fn is_unsupported_feature(&self) -> bool {
        matches!(
            self,
            FormatError::UnsupportedFeatures { .. } | FormatError::ReadOnlyFeatures { .. }
        )
    }
}

fn not_supported(names: &[String], purpose: &str) -> String {
    let (verb, noun) = match names.len() {
        1 => ("is", "feature"),
        _ => ("are", "features"),
    };
    let names = names.join(", ");
    format!("{names} {verb} not supported{purpose} yet ({noun} of this volume)")
}
