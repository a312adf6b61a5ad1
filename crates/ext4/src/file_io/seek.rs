//! SEEK_DATA and SEEK_HOLE.

use crate::extents::{self, Map};
use crate::{Error, Fs, Inode, InodeRef, Result};
use block::PAGE_SIZE;

const PAGE: u64 = PAGE_SIZE as u64;

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
        let pages = size.div_ceil(PAGE);
        let mut at = offset / PAGE;
        while at < pages {
            let (data, end) = self.data_run(inode, at)?;
            match whence {
                SeekWhence::Data if data => return Ok(offset.max(at * PAGE)),
                SeekWhence::Hole if !data => return Ok(offset.max(at * PAGE).min(size)),
                _ => at = end,
            }
        }
        match whence {
            SeekWhence::Data => Err(Error::NoData),
            SeekWhence::Hole => Ok(size),
        }
    }

    /// Whether page `at` is data, and the first page for which the answer may differ.
    fn data_run(&self, inode: &Inode, at: u64) -> Result<(bool, u64)> {
        // The pages before the tree: a page that is recorded in between is in the tree before it
        // loses its tags. The caller excludes writers, so that no page becomes dirty.
        let unlanded = inode.data.mapping.next_unlanded(at);
        let block = extents::block_of_page(at)?;
        let (mapped, end) = match extents::lookup(self, inode, block)? {
            Map::Mapped { len, unwritten, .. } => (!unwritten, at + u64::from(len.max(1))),
            Map::Hole { len } => (false, at + u64::from(len.max(1))),
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
