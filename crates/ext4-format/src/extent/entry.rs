//! An extent as an entry on disk.

use super::{Extent, ExtentState};
use crate::bytes::{get_u16, get_u32, join32};
use units::{FileBlock, FsBlock};

impl Extent {
    /// Reads an entry of 12 bytes, which may be impossible ([`Extent::is_valid`]).
    pub(crate) fn decode(entry: &[u8]) -> Option<Extent> {
        let (state, len) = ExtentState::of_raw_len(get_u16(entry, 4)?);
        Some(Extent {
            file_block: FileBlock(get_u32(entry, 0)?),
            len,
            state,
            start: FsBlock(join32(u32::from(get_u16(entry, 6)?), get_u32(entry, 8)?)),
        })
    }
}
