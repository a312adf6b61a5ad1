//! Positions in the journal.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use units::FileBlock;

/// A block of the journal, from 0, which has the journal's super block. The log wraps around
/// between its first block and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogBlock(pub u32);

impl LogBlock {
    /// The block of the journal's super block.
    pub const SUPERBLOCK: LogBlock = LogBlock(0);

    /// Returns the block `count` after this one, or `None` past the last number.
    #[must_use]
    pub const fn checked_add(self, count: u32) -> Option<LogBlock> {
        match self.0.checked_add(count) {
            Some(sum) => Some(LogBlock(sum)),
            None => None,
        }
    }

    /// Returns the distance from `earlier` to this block, or `None` if `earlier` is later.
    #[must_use]
    pub const fn checked_sub(self, earlier: LogBlock) -> Option<u32> {
        self.0.checked_sub(earlier.0)
    }
}

/// The journal is one file, whose blocks have these numbers.
impl From<FileBlock> for LogBlock {
    fn from(block: FileBlock) -> LogBlock {
        LogBlock(block.0)
    }
}

impl fmt::Display for LogBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Overflow is that of the integer. There is no wrap-around at the end of the log.
impl Add<u32> for LogBlock {
    type Output = LogBlock;
    fn add(self, count: u32) -> LogBlock {
        LogBlock(self.0 + count)
    }
}

/// As `+`.
impl AddAssign<u32> for LogBlock {
    fn add_assign(&mut self, count: u32) {
        self.0 += count;
    }
}

/// The distance between two blocks. Overflow is that of the integer.
impl Sub for LogBlock {
    type Output = u32;
    fn sub(self, earlier: LogBlock) -> u32 {
        self.0 - earlier.0
    }
}
