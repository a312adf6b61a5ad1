//! Errors of the journal.

use block::IoError;

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
    #[error("journal block {block}: {what}")]
    Corrupt {
        /// Block number within the journal.
        block: u32,
        /// The damage.
        what: &'static str,
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
