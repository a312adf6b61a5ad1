//! How a journal is opened.

use std::time::Duration;

/// When the commit block of a small transaction is written together with the blocks before it (the
/// kernel's `journal_async_commit`). See `log_format.rs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AsyncCommit {
    /// Never.
    Never,
    /// While small commits that a thread waits for follow one another.
    #[default]
    Adaptive,
    /// Always.
    Always,
}

/// Which checksums the log has while it is in the default format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Those that the super block names already.
    Kept,
    /// A CRC-32C of each block (csum v3).
    ChecksumV3,
}

/// Parameters of [`Journal::open`](crate::Journal::open).
#[derive(Clone, Debug)]
pub struct JournalOptions {
    /// The time from one background commit to the next.
    pub commit_interval: Duration,
    /// Bytes in a block of the volume.
    pub block_size: u32,
    /// Checksums of the log.
    pub format: LogFormat,
    /// Whether commit blocks may be written together with the blocks before them.
    pub async_commit: AsyncCommit,
    /// The volume's UUID. A journal without a UUID gets it.
    pub uuid: [u8; 16],
}
