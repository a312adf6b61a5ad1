//! SEEK_DATA and SEEK_HOLE.

use crate::extents::{self, ExtentState, Map};
use crate::inline_data::is_inline;
use crate::{Error, Fs, Inode, InodeRef, Result};
use units::PageIndex;

/// The target of a seek.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekWhence {
    /// Data at or after the offset.
    Data,
    /// A hole at or after the offset (the end of the file is one).
    Hole,
}

impl Fs {
    /// Finds the first byte at or after `offset` that is data (or in a hole).
    ///
    /// # Errors
    /// `NoData` behind the end of the file, or where no data follows.
    pub fn seek(&self, inode: &InodeRef, offset: u64, whence: SeekWhence) -> Result<u64> {
        let _shared = inode.lock.read();
        let size = inode.size();
        if offset >= size {
            return Err(Error::NoData);
        }
        let end = self.page_size.index_after(size);
        let mut at = self.page_size.index_of(offset);
        while at < end {
            let (data, next) = self.data_run(inode, at)?;
            let found = offset.max(self.page_size.offset_of(at));
            match whence {
                SeekWhence::Data if data => return Ok(found),
                SeekWhence::Hole if !data => return Ok(found.min(size)),
                _ => at = next,
            }
        }
        match whence {
            SeekWhence::Data => Err(Error::NoData),
            SeekWhence::Hole => Ok(size),
        }
    }

    /// Whether page `at` is data, and the first page for which the answer may differ.
    fn data_run(&self, inode: &Inode, at: PageIndex) -> Result<(bool, PageIndex)> {
        if is_inline(inode) {
            return Ok((true, PageIndex::END));
        }
        // The pages before the tree: a page that is recorded in between is in the tree before it
        // loses its tags. The caller excludes writers, so that no page becomes dirty.
        let unlanded = inode.mapping.next_unlanded(at);
        let block = at.block();
        let (mapped, end) = match extents::lookup(self, inode, block)? {
            Map::Mapped { len, state, .. } => (
                state == ExtentState::Written,
                block.saturating_add(len).page(),
            ),
            Map::Hole { len } => (false, block.saturating_add(len).page()),
        };
        if mapped {
            return Ok((true, end));
        }
        // Unrecorded pages are data where the tree still shows a hole.
        match unlanded {
            Some(page) if page == at => Ok((true, at + 1)),
            Some(page) => Ok((false, end.min(page))),
            None => Ok((false, end)),
        }
    }
}
