//! Errors of the journal.
use block::IoError;
/// Why a journal operation failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum JournalError {
    /// The device failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// An earlier failure stopped the journal; nothing can be changed any more.
    #[error("the journal was stopped by an earlier error ({0}); run e2fsck")]
    Aborted(String),
    /// The volume was opened read-only: nothing can be changed.
    #[error("the journal is read-only")]
    ReadOnly,
    /// The journal was closed: nothing can be changed any more.
    #[error("the journal is closed")]
    Closed,
    /// The journal's own structures are damaged.
    #[error("journal block {block}: {what}")]
    Corrupt {
        /// Block number within the journal.
        block: u32,
        /// What is wrong.
        what: &'static str,
    },
    /// The journal has features that are not known.
    #[error("unsupported journal feature: {0}")]
    Unsupported(String),
    /// A log maps more blocks than recovery can keep track of in its part of the memory budget.
    #[error(
        "the log names more blocks than {} KiB of memory can list; use a larger memory budget",
        most >> 10
    )]
    LogNeedsMemory {
        /// Bytes that recovery may use.
        most: u64,
    },
    /// A handle asks for more than a transaction can hold.
    #[error("a change of {asked} blocks does not fit the journal (at most {most})")]
    TooLarge {
        /// Credits asked for.
        asked: u32,
        /// The limit.
        most: u32,
    },
}
