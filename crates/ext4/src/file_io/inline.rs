//! Files whose contents are in the inode (`inline_data`).
//!
//! As in the kernel, a file without blocks gets contents in the inode by its first write, if they
//! fit there. Later writes and truncations change them there. A file that becomes too large for
//! that gets a map of blocks; what it had is then in its first block, which the same transaction
//! allocates and logs. An empty file gets an empty map, and its pages are written as those of any
//! other. Contents do not return from blocks unless the file is emptied.

use crate::alloc::BlockRun;
use crate::inline_data::{self, is_inline};
use crate::state::AfterWrite;
use crate::{Fs, Inode, Result, extents};
use block::BufMut;
use ext4_format::inode::InodeFlags;
use jbd2::Handle;
use std::sync::Arc;
use units::FsBlock;

/// Credits to move contents to a block: the block, a bitmap, a group descriptor, the inode, and the
/// bitmap and descriptor of the block if that fails.
const MOVE_CREDITS: u32 = 8;
/// Credits to change contents in the inode.
const STORE_CREDITS: u32 = 2;

impl Fs {
    /// Writes into the inode. `None`: the contents do not fit there, and are not there now. `size`
    /// is the file's. The caller holds the inode's lock exclusively.
    pub(super) fn write_in_inode(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        data: &[u8],
        size: u64,
    ) -> Result<Option<AfterWrite>> {
        if !inline_data::is_used(self) {
            return Ok(None);
        }
        let end = size.max(offset.saturating_add(data.len() as u64));
        let was_inline = is_inline(inode);
        if !was_inline && (size > 0 || !self.may_fit(end) || !may_become_inline(inode)) {
            return Ok(None);
        }
        if !self.fits_in_inode(inode, end)? {
            if was_inline {
                self.move_file_out(inode)?;
            }
            return Ok(None);
        }
        let mut contents = match was_inline {
            true => inline_data::contents(self, inode)?,
            false => Vec::new(),
        };
        contents.resize(end as usize, 0);
        contents[offset as usize..][..data.len()].copy_from_slice(data);
        let handle = self.journal.start(STORE_CREDITS)?;
        self.store_contents(inode, &contents, contents.len() as u64)?;
        let after = inode.end_write(end, self.now());
        inode.mark_dirty(self, &handle);
        Ok(Some(after))
    }

    /// Sets the size of a file with its contents in the inode. Returns whether it is done: the
    /// contents are not in the inode, or not any more. The caller holds the inode's lock
    /// exclusively.
    pub(super) fn truncate_in_inode(&self, inode: &Arc<Inode>, size: u64) -> Result<bool> {
        if !inline_data::is_in_inode(self, inode) {
            return Ok(false);
        }
        if !self.fits_in_inode(inode, size)? {
            self.move_file_out(inode)?;
            return Ok(false);
        }
        let mut contents = inline_data::contents(self, inode)?;
        contents.resize(size as usize, 0);
        let handle = self.journal.start(STORE_CREDITS)?;
        self.store_contents(inode, &contents, contents.len() as u64)?;
        inode.cut(size, self.now());
        inode.mark_dirty(self, &handle);
        if size == 0 {
            self.note_truncated(inode);
        }
        Ok(true)
    }

    /// Zeroes a range of a file with its contents in the inode, whose size stays. Returns whether
    /// they are there. The caller holds the inode's lock exclusively.
    pub(super) fn zero_in_inode(&self, inode: &Arc<Inode>, offset: u64, end: u64) -> Result<bool> {
        if !inline_data::is_in_inode(self, inode) {
            return Ok(false);
        }
        let mut contents = inline_data::contents(self, inode)?;
        let len = contents.len() as u64;
        contents[offset.min(len) as usize..end.min(len) as usize].fill(0);
        let handle = self.journal.start(STORE_CREDITS)?;
        self.store_contents(inode, &contents, inode.size())?;
        inode.set_mtime(self.now());
        inode.mark_dirty(self, &handle);
        Ok(true)
    }

    /// Makes sure that the contents of a file are not in the inode. The caller holds the inode's
    /// lock exclusively.
    ///
    /// # Errors
    /// `NoSpace`, and nothing has changed.
    pub(crate) fn move_file_out(&self, inode: &Arc<Inode>) -> Result<()> {
        if !inline_data::is_in_inode(self, inode) {
            return Ok(());
        }
        let contents = inline_data::contents(self, inode)?;
        let handle = self.journal.start(MOVE_CREDITS)?;
        if contents.is_empty() {
            return inline_data::move_out(self, &handle, inode, None);
        }
        let goal = self.groups.goal_for(inode.ino);
        let start = self.groups.alloc_data_block(&handle, goal)?;
        if let Err(error) = inline_data::move_out(self, &handle, inode, Some(start)) {
            self.groups.free(&handle, BlockRun { start, len: 1 })?;
            return Err(error);
        }
        // A page without its data would lose what was durable if it were written later than the
        // map.
        self.log_contents(&handle, start, &contents);
        Ok(())
    }

    /// Makes `contents` and zeroes the content of block `start`, as part of the transaction.
    fn log_contents(&self, handle: &Handle<'_>, start: FsBlock, contents: &[u8]) {
        let mut page = BufMut::zeroed(self.page_size.as_usize());
        for (to, from) in page.iter_mut().zip(contents) {
            *to = *from;
        }
        handle.log_data(start, page.freeze());
    }

    fn store_contents(&self, inode: &Inode, contents: &[u8], size: u64) -> Result<()> {
        let places = ext4_format::inline_data::split(contents);
        inline_data::store(self, inode, places, size)
    }

    /// Whether contents of `size` bytes fit into an inode that has nothing else.
    fn may_fit(&self, size: u64) -> bool {
        size < u64::from(self.geo.inode_size)
    }

    fn fits_in_inode(&self, inode: &Inode, size: u64) -> Result<bool> {
        let fits = |capacity: usize| size <= capacity as u64;
        Ok(self.may_fit(size) && inline_data::capacity(self, inode)?.is_some_and(fits))
    }
}

/// Whether an empty file may get contents in the inode: it has no block, and none is on the way.
fn may_become_inline(inode: &Inode) -> bool {
    let elsewhere = InodeFlags::JOURNAL_DATA | InodeFlags::ENCRYPT | InodeFlags::VERITY;
    !inode.flags().intersects(elsewhere)
        && inode.mapping.pages() == 0
        && !inode.has_unlanded()
        && extents::entries_of_root(inode) == Some(0)
}
