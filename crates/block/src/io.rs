//! The words of a request: what it does, to which bytes, why, and how it failed.

use std::fmt;

/// The operation of a bio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    /// Device to memory.
    Read,
    /// Memory to device.
    Write,
    /// Makes every completed write durable.
    Flush,
}

/// The kind of bytes. Bios of different classes are not merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// File contents.
    Data,
    /// Metadata at its home.
    Metadata,
    /// Journal blocks.
    Journal,
}

/// When a write is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// After a flush that starts when the write has completed.
    Cached,
    /// When the write has completed (forced unit access).
    Fua,
}

/// Why a bio was sent, from the most urgent to the least.
///
/// A request has the most urgent reason of its bios. The queue counts requests by reason
/// ([`crate::StatsSnapshot::by_reason`]); nothing else depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// A thread waits for file contents.
    Read,
    /// A thread waits for metadata.
    MetadataRead,
    /// Blocks of the log, reads of blocks that a commit changes, and its flushes.
    Journal,
    /// Data that an fsync or sync waits for, and flushes after it.
    Sync,
    /// Dirty data, written because memory is short.
    Reclaim,
    /// Blocks of the log written to their homes, and the flush after it.
    Checkpoint,
    /// Data or metadata that no thread waits for yet.
    Readahead,
    /// Dirty data, written while writers are slowed because too much of it exists.
    Throttled,
    /// Dirty data, written because more of it exists than the background threshold.
    Background,
    /// Dirty data, written because it is older than the expiry time.
    Periodic,
    /// Reads of a log that needs recovery, and its replay.
    Recovery,
    /// A new file system.
    Format,
    /// Super blocks written past the journal, and programs that use the device directly.
    Other,
}

impl Reason {
    /// The number of reasons.
    pub(crate) const COUNT: usize = Reason::ALL.len();

    /// All reasons, from the most urgent to the least.
    pub const ALL: [Reason; 13] = [
        Reason::Read,
        Reason::MetadataRead,
        Reason::Journal,
        Reason::Sync,
        Reason::Reclaim,
        Reason::Checkpoint,
        Reason::Readahead,
        Reason::Throttled,
        Reason::Background,
        Reason::Periodic,
        Reason::Recovery,
        Reason::Format,
        Reason::Other,
    ];

    /// The name in statistics.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Read => "read",
            Reason::MetadataRead => "metadata_read",
            Reason::Journal => "journal",
            Reason::Sync => "sync",
            Reason::Reclaim => "reclaim",
            Reason::Checkpoint => "checkpoint",
            Reason::Readahead => "readahead",
            Reason::Throttled => "throttled",
            Reason::Background => "background",
            Reason::Periodic => "periodic",
            Reason::Recovery => "recovery",
            Reason::Format => "format",
            Reason::Other => "other",
        }
    }

    /// The more urgent of two reasons.
    pub(crate) fn most_urgent(self, other: Reason) -> Reason {
        self.min(other)
    }
}

/// A failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoError {
    /// The requested operation.
    pub op: Op,
    /// Byte offset on the device.
    pub offset: u64,
    /// Bytes requested.
    pub len: u64,
    /// `errno`; 0 if the device ended early (a short read past the end).
    pub errno: i32,
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let op = match self.op {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "flush",
        };
        write!(f, "{op} of {} bytes at byte {}: ", self.len, self.offset)?;
        match self.errno {
            0 => f.write_str("the device ended early"),
            errno => std::io::Error::from_raw_os_error(errno).fmt(f),
        }
    }
}

impl std::error::Error for IoError {}

impl From<IoError> for std::io::Error {
    fn from(e: IoError) -> Self {
        match e.errno {
            0 => std::io::Error::new(std::io::ErrorKind::UnexpectedEof, e),
            errno => std::io::Error::from_raw_os_error(errno),
        }
    }
}
