//! Errors of the journal.

use crate::LogBlock;
use block::IoError;
use units::{FileBlock, FsBlock};

/// Why a journal operation failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum JournalError {
    /// The device failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// An earlier error stopped the journal. Nothing can be changed any more.
    #[error("the journal was stopped by an earlier error ({0}); run e2fsck")]
    Aborted(String),
    /// The volume is open for reading only.
    #[error("the journal is read-only")]
    ReadOnly,
    /// The journal was closed. Nothing can be changed any more.
    #[error("the journal is closed")]
    Closed,
    /// A structure of the journal is damaged.
    #[error("journal block {block}: {damage}")]
    Corrupt {
        /// The block of the journal.
        block: LogBlock,
        /// The damage.
        damage: JournalDamage,
    },
    /// A feature or property of the journal is not supported.
    #[error("unsupported journal: {0}")]
    Unsupported(String),
    /// The list of the log's blocks exceeds recovery's part of the memory budget.
    #[error(
        "recovery needs more than {} KiB of memory to list the blocks of the log; use a larger memory budget",
        most >> 10
    )]
    LogNeedsMemory {
        /// Bytes that recovery may use.
        most: u64,
    },
    /// A handle needs more credits than a transaction can have.
    #[error("a change of {asked} blocks does not fit the journal (at most {most})")]
    TooLarge {
        /// Requested credits.
        asked: u32,
        /// The limit.
        most: u32,
    },
}

/// Damage of a block of the journal, or of the file that contains the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JournalDamage {
    /// The super block is shorter than its structure.
    #[error("the super block is cut short: {bytes} bytes")]
    SuperblockCut {
        /// Bytes that exist.
        bytes: usize,
    },
    /// Block 0 does not begin with the journal's magic number.
    #[error("the super block has no magic")]
    SuperblockMagic,
    /// Block 0 is another kind of block.
    #[error("block 0 is not a super block: its type is {found}")]
    SuperblockType {
        /// The type of the block.
        found: u32,
    },
    /// The checksum of the super block does not match its contents.
    #[error(
        "the super block's checksum is wrong: stored {stored:#010x}, computed {computed:#010x}"
    )]
    SuperblockChecksum {
        /// The checksum on disk.
        stored: u32,
        /// The checksum of the bytes on disk.
        computed: u32,
    },
    /// The features say that checksums have two versions at once.
    #[error("checksums v2 and v3 are both set")]
    ChecksumsV2AndV3,
    /// The features say that checksums have version 1 and a later version at once.
    #[error("checksums v1 and a later version are both set")]
    ChecksumsV1AndLater,
    /// The block size is not that of the volume.
    #[error("the journal's block size, {found}, is not the volume's, {expected}")]
    BlockSize {
        /// The journal's, in bytes.
        found: u32,
        /// The volume's, in bytes.
        expected: u32,
    },
    /// The journal is longer than the file that contains it.
    #[error("the journal claims {claimed} blocks, more than the {blocks} of its file")]
    Length {
        /// The length by the super block, in blocks.
        claimed: u32,
        /// The blocks of the file.
        blocks: u32,
    },
    /// The log begins at block 0.
    #[error("the log starts in the super block")]
    LogInSuperblock,
    /// The log is too short for a transaction.
    #[error("the log has too few blocks: from {first} to {end}")]
    LogTooShort {
        /// The first block of the log.
        first: LogBlock,
        /// The end of the log.
        end: LogBlock,
    },
    /// The log's first transaction lies outside of the log.
    #[error("the log's start, {start}, lies outside of it: {first} to {end}")]
    LogStart {
        /// The block of the first transaction.
        start: LogBlock,
        /// The first block of the log.
        first: LogBlock,
        /// The end of the log.
        end: LogBlock,
    },
    /// The log contains transactions where an empty log is needed.
    #[error("the log has not been recovered")]
    NotRecovered,

    /// The journal has no extents.
    #[error("the journal has no blocks")]
    NoBlocks,
    /// The journal's extents do not follow each other.
    #[error("the journal's extents leave a gap or overlap: the next one is for block {found}")]
    ExtentOrder {
        /// The block that the next extent begins with.
        found: FileBlock,
    },
    /// An extent of the journal lies beyond the volume.
    #[error("an extent of the journal lies beyond the volume: {len} blocks from {start}")]
    ExtentBeyondVolume {
        /// The extent's first block on the volume.
        start: FsBlock,
        /// Its length in blocks.
        len: u32,
    },
    /// The journal's extents have more blocks than a journal can number.
    #[error("the journal's extents are too long")]
    ExtentsTooLong,
    /// Two extents of the journal have volume blocks in common.
    #[error("two extents of the journal share block {shared} of the volume")]
    ExtentsShareBlocks {
        /// The first block that both have.
        shared: FsBlock,
    },

    /// The checksum of a descriptor block is wrong, and a later transaction is complete.
    #[error("a descriptor block's checksum is wrong")]
    DescriptorChecksum,
    /// The checksum of a revoke block is wrong, and a later transaction is complete.
    #[error("a revoke block's checksum is wrong")]
    RevokeChecksum,
    /// The checksum of a commit block is wrong, and a later transaction is complete.
    #[error("a commit block's checksum is wrong")]
    CommitChecksum,
    /// The checksum of a logged block is wrong, and the transaction's commit block is intact.
    #[error("a logged block's checksum is wrong")]
    CopyChecksum,
    /// A tag of a descriptor block names a home that the volume does not have.
    #[error("a tag names block {home}, beyond the volume")]
    TagBeyondVolume {
        /// The block in the tag.
        home: FsBlock,
    },
    /// A tag of a descriptor block names a block of the journal.
    #[error("a tag names block {home}, which is the journal's own")]
    TagInJournal {
        /// The block in the tag.
        home: FsBlock,
    },
    /// A revoke block is shorter than its header.
    #[error("a revoke block is cut short: {bytes} bytes")]
    RevokeCut {
        /// Bytes that exist.
        bytes: usize,
    },
    /// The number of bytes in use of a revoke block is impossible.
    #[error("a revoke block claims to use {used} bytes, but it has {usable}")]
    RevokeCount {
        /// Bytes in use by the block's header.
        used: u32,
        /// Bytes that can be used.
        usable: u32,
    },
}

impl JournalDamage {
    /// Returns the error for a block of the journal.
    pub(crate) fn at(self, block: LogBlock) -> JournalError {
        JournalError::Corrupt {
            block,
            damage: self,
        }
    }
}
