//! The state of an extent, which its length on disk encodes.

use super::{MAX_UNWRITTEN_LEN, MAX_WRITTEN_LEN};
use crate::bytes::lo16;

/// Whether the blocks of an extent hold data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExtentState {
    /// The blocks hold data.
    Written,
    /// The blocks are allocated and were never written. They read as zeroes.
    Unwritten,
}

impl ExtentState {
    /// Returns the most blocks that an extent in this state can have.
    #[must_use]
    pub const fn max_len(self) -> u32 {
        match self {
            ExtentState::Written => MAX_WRITTEN_LEN,
            ExtentState::Unwritten => MAX_UNWRITTEN_LEN,
        }
    }

    /// Reads the length of an entry on disk. Lengths above [`MAX_WRITTEN_LEN`] are of unwritten
    /// extents.
    #[must_use]
    pub const fn of_raw_len(raw: u16) -> (ExtentState, u32) {
        let raw = raw as u32;
        match raw.checked_sub(MAX_WRITTEN_LEN) {
            None | Some(0) => (ExtentState::Written, raw),
            Some(len) => (ExtentState::Unwritten, len),
        }
    }

    /// Returns the length of an entry on disk: the inverse of [`ExtentState::of_raw_len`].
    #[must_use]
    pub fn raw_len(self, len: u32) -> u16 {
        match self {
            ExtentState::Written => lo16(len),
            ExtentState::Unwritten => lo16(len.saturating_add(MAX_WRITTEN_LEN)),
        }
    }
}
