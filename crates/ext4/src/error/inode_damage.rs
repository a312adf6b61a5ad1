//! Kinds of damage that show only beside other structures.

use super::Error;
use ext4_format::inode::FileType;
use units::{FileBlock, FsBlock, Ino};

/// Damage of an inode or of what belongs to it, with its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InodeDamage {
    /// A cached inode's bit in the inode bitmap is clear.
    #[error("it is in use, but it is free in the inode bitmap")]
    FreeInBitmap,
    /// Fast commits give a second name to a directory.
    #[error("a fast commit gives a second name to a directory")]
    ReplayedDirectory,
    /// Fast commits create a file with the number of one that has a name.
    #[error("a fast commit creates a file in the place of one that is in use")]
    ReplayedOverFile,
    /// Fast commits change the names of a file.
    #[error("a fast commit changes names in it, and it is no directory")]
    ReplayedParent,
    /// Fast commits remove a directory that has entries.
    #[error("a fast commit removes the directory, and it has entries")]
    ReplayedRemoval,
    /// The size of a file exceeds what its kind of mapping can hold.
    #[error("has an impossible size: {size} bytes, at most {most} are possible")]
    Size {
        /// The size on disk, in bytes.
        size: u64,
        /// The largest size, in bytes.
        most: u64,
    },
    /// A directory entry refers to a number that only the file system uses.
    #[error("a reserved inode is used as a file")]
    Reserved,
    /// A directory entry refers to a deleted inode.
    #[error("is named by a directory but deleted")]
    NamedButDeleted,
    /// A directory entry refers to an inode that holds the value of an attribute.
    #[error("is named by a directory but holds the value of an attribute")]
    NamedValue,
    /// A directory entry and its inode differ in whether they are a directory.
    #[error("the directory entry has another type ({entry}) than the inode ({inode})")]
    EntryType {
        /// The type in the entry.
        entry: FileType,
        /// The type in the inode.
        inode: FileType,
    },
    /// The block of extended attributes cannot be one.
    #[error("its attribute block {block} is outside of the volume or is the file system's own")]
    XattrBlock {
        /// The block in the inode.
        block: FsBlock,
    },

    /// An inode that should hold an attribute's value cannot be that.
    #[error("an attribute refers to inode {value}, which does not hold its value")]
    XattrValue {
        /// The inode.
        value: Ino,
    },
    /// The contents in an inode are shorter than its size.
    #[error("its size is {size} bytes, but the contents in the inode have {have}")]
    InlineSize {
        /// The size in bytes.
        size: u64,
        /// The bytes that are there.
        have: u64,
    },
    /// The records of a directory in its inode are damaged.
    #[error("the directory's records in the inode are damaged at byte {offset}")]
    InlineRecord {
        /// The byte in the records, from the first one in `i_block` on.
        offset: u32,
    },

    /// Blocks were to be mapped that the extent tree maps already.
    #[error("file blocks {first} to {last} are mapped twice")]
    MappedTwice {
        /// The first of the blocks to be mapped.
        first: FileBlock,
        /// The last of them.
        last: FileBlock,
    },
    /// The inode has an extent tree, and its flags say that it has a block map.
    #[error("it has an extent tree, but its extents flag is not set")]
    NoExtentsFlag,
    /// An extent maps file blocks to impossible volume blocks.
    #[error(
        "the extent of file block {file_block} is outside of the volume or impossible: \
         {len} blocks from {start}"
    )]
    Extent {
        /// The extent's first file block.
        file_block: FileBlock,
        /// Its first volume block.
        start: FsBlock,
        /// Its length in blocks.
        len: u32,
    },
    /// The blocks of a file's cluster are not at their places in one cluster of the volume.
    #[error("file block {file_block} is mapped to block {block}, outside of its cluster's place")]
    ClusterPlace {
        /// The file block.
        file_block: FileBlock,
        /// The block that it is mapped to.
        block: FsBlock,
    },
    /// A volume whose clusters have several blocks has a file with a block map.
    #[error("it has a block map, which a volume with bigalloc cannot have")]
    BlockMapWithClusters,
    /// An extent node's block cannot hold one.
    #[error("an extent node is outside of the volume, in block {block}")]
    NodeBlock {
        /// The node's block.
        block: FsBlock,
    },
    /// An extent node other than the root has no entries.
    #[error("an extent node of depth {depth} is empty")]
    NodeEmpty {
        /// The node's depth; leaves have depth 0.
        depth: u16,
    },
    /// An extent node starts or ends elsewhere than its entry in the parent says.
    #[error(
        "the extent node of depth {depth} at file block {file_block} does not cover the range in \
         its parent"
    )]
    NodeRange {
        /// The start of the range, by the parent.
        file_block: FileBlock,
        /// The node's depth.
        depth: u16,
    },
    /// An extent node changed while an operation had exclusive use of the tree: it has another
    /// owner.
    #[error(
        "an extent node of depth {depth} changed while it was used: {found} entries, not {expected}"
    )]
    NodeChanged {
        /// The node's depth.
        depth: u16,
        /// The number of entries before.
        expected: u32,
        /// The number of entries now.
        found: u32,
    },
    /// The header of an extent node leaves too little room for a split.
    #[error("an extent node of depth {depth} has no room: {most} entries at most")]
    NodeCapacity {
        /// The node's depth.
        depth: u16,
        /// The most entries by the node's header.
        most: u32,
    },
    /// An extent tree has more nodes than a tree without a cycle can have.
    #[error("its extent tree has too many nodes: more than {most}")]
    TooManyNodes {
        /// The limit.
        most: u32,
    },
    /// An extent tree has more extents than such a file can have.
    #[error("it has too many extents: more than {most}")]
    TooManyExtents {
        /// The limit.
        most: u32,
    },

    /// A block map maps a file block to a block that cannot hold data.
    #[error(
        "file block {file_block} is mapped to block {block}, which is outside of the volume or the \
         file system's own"
    )]
    MappedBlock {
        /// The file block.
        file_block: FileBlock,
        /// The block that it is mapped to.
        block: FsBlock,
    },
    /// A block map leads to an indirect block that cannot be one.
    #[error(
        "the indirect block for file block {file_block} is block {block}, which is outside of the \
         volume or the file system's own"
    )]
    IndirectBlock {
        /// The file block that was looked for.
        file_block: FileBlock,
        /// The indirect block.
        block: FsBlock,
    },
    /// A block map has more blocks than the volume.
    #[error("its block map has a loop: more than {most} blocks")]
    BlockMapLoop {
        /// The volume's blocks.
        most: u64,
    },

    /// A directory's size is zero or no multiple of the block size.
    #[error("the directory's size, {size} bytes, is not a positive multiple of the block size")]
    DirectorySize {
        /// The size in bytes.
        size: u64,
    },
    /// A directory has more blocks than the volume.
    #[error("the directory is larger than the volume: {blocks} of {most} blocks")]
    DirectoryTooLarge {
        /// The directory's blocks.
        blocks: u32,
        /// The volume's blocks.
        most: u64,
    },
    /// A directory has a block that is not mapped or was never written.
    #[error("the directory has a hole at file block {file_block}")]
    DirectoryHole {
        /// The missing block.
        file_block: FileBlock,
    },
    /// No block of a directory is a block of entries.
    #[error("the directory has no block of entries among its {blocks} blocks")]
    NoLeaf {
        /// The directory's blocks.
        blocks: u32,
    },
    /// The index of a directory refers to a block that the directory does not have.
    #[error(
        "the directory's index refers to file block {file_block}, beyond the directory's end \
         ({blocks} blocks)"
    )]
    IndexBeyondEnd {
        /// The block by the index.
        file_block: FileBlock,
        /// The directory's blocks.
        blocks: u32,
    },
    /// The index of a directory leads to more leaves than exist.
    #[error("the directory's index has a cycle")]
    IndexCycle,
    /// More leaves have one hash than an ordinary directory ever has.
    #[error("the directory has too many names with equal hashes: more than {leaves} blocks")]
    Collisions {
        /// The limit, in leaves.
        leaves: u32,
    },
    /// A directory's second entry is not "..".
    #[error("the directory has no \"..\"")]
    NoParent,
    /// ".." of a directory is not the directory that has its entry.
    #[error("\"..\" is not the directory's parent: it is inode {found}, not {expected}")]
    WrongParent {
        /// The inode number of "..".
        found: Ino,
        /// The directory with the entry.
        expected: Ino,
    },
    /// A walk over ".." does not reach the root.
    #[error("the parents of the directory form a cycle through inode {through}")]
    ParentCycle {
        /// A directory of the cycle.
        through: Ino,
    },
    /// A directory has an entry for itself, other than ".".
    #[error("the directory contains itself")]
    ContainsItself,

    /// A symbolic link's target is not in the inode, and no block is mapped.
    #[error("the symbolic link's target has no block")]
    TargetUnmapped,
    /// A symbolic link is longer than the place of its target.
    #[error("the symbolic link's size, {size} bytes, is larger than its target's space")]
    TargetSize {
        /// The size in bytes.
        size: u64,
    },
    /// A symbolic link has no target.
    #[error("the symbolic link's target is empty")]
    TargetEmpty,

    /// An inode is twice on the list of orphans.
    #[error("the inode is on the orphan list twice")]
    OrphanListedTwice,
    /// An inode is on the list of orphans and in the orphan file, or twice in the file.
    #[error(
        "the inode is recorded as an orphan twice: once in slot {slot} of block {block} of the \
         orphan file"
    )]
    OrphanRecordedTwice {
        /// The block within the orphan file.
        block: FileBlock,
        /// The slot within the block.
        slot: u32,
    },
    /// An inode is an orphan, and the inode bitmap says that it is free.
    #[error("the inode is recorded as an orphan, but it is free")]
    OrphanFree,
    /// The inode of the orphan file has no links.
    #[error("the orphan file's inode is deleted")]
    OrphanFileDeleted,
    /// The orphan file is something other than a regular file.
    #[error("the orphan file is not a regular file")]
    OrphanFileType,
    /// The size of the orphan file is impossible.
    #[error("the size of the orphan file is invalid: {size} bytes")]
    OrphanFileSize {
        /// The size in bytes.
        size: u64,
    },
    /// The orphan file has a block that is not mapped or was never written.
    #[error("the orphan file has a hole at file block {file_block}")]
    OrphanFileHole {
        /// The missing block.
        file_block: FileBlock,
    },

    /// The journal's extents are not contiguous.
    #[error("the journal has holes: file block {file_block} is not mapped")]
    JournalHole {
        /// The first missing block.
        file_block: FileBlock,
    },
    /// The journal's extents have fewer blocks than its size, or more than a journal can have.
    #[error("the journal has {blocks} blocks, which contradicts its size of {size} bytes")]
    JournalSize {
        /// The blocks of its extents.
        blocks: u64,
        /// The size in bytes.
        size: u64,
    },
}

impl InodeDamage {
    /// Returns the error for an inode.
    pub(crate) fn of(self, ino: Ino) -> Error {
        self.at(ino, self.block())
    }

    /// Returns the error for an inode, with the block on the volume that is damaged.
    pub(crate) fn at(self, ino: Ino, block: Option<FsBlock>) -> Error {
        Error::CorruptInode {
            ino,
            block,
            damage: self,
        }
    }

    /// The block on the volume that this kind of damage names.
    fn block(self) -> Option<FsBlock> {
        match self {
            InodeDamage::XattrBlock { block }
            | InodeDamage::NodeBlock { block }
            | InodeDamage::MappedBlock { block, .. }
            | InodeDamage::IndirectBlock { block, .. }
            | InodeDamage::Extent { start: block, .. } => Some(block),
            _ => None,
        }
    }
}
