//! fallocate: preallocation, punching holes, zeroing ranges.

use crate::alloc::Claim;
use crate::extents::{self, Changes, ExtentState, Map};
use crate::removal::ANY_BLOCKS;
use crate::{Error, Fs, Inode, InodeRef, Result, WriteMode};
use ext4_format::inode::FileType;
use std::ops::Range;
use std::sync::Arc;
use units::{FileBlock, PageIndex, page};

/// The operations of fallocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FallocateMode {
    /// Allocate blocks.
    Allocate {
        /// Do not grow the file.
        keep_size: bool,
    },
    /// Free the blocks of the range. The size stays.
    PunchHole,
    /// Make the range read as zeroes.
    ZeroRange {
        /// Do not grow the file.
        keep_size: bool,
    },
}

impl Fs {
    /// Changes how `len` bytes at `offset` are stored, without writing data.
    pub fn fallocate(
        &self,
        inode: &InodeRef,
        mode: FallocateMode,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        self.check_writable()?;
        if inode.kind() != FileType::Regular {
            return Err(Error::NotSupported);
        }
        if len == 0 {
            return Err(Error::Invalid("the length is 0"));
        }
        let end = offset.checked_add(len).ok_or(Error::FileTooLarge)?;
        if end > self.geo.max_file_size() {
            return Err(Error::FileTooLarge);
        }
        // A block map has no unwritten blocks. As in the kernel, holes can be made.
        if mode != FallocateMode::PunchHole && extents::has_block_map(self, inode) {
            return Err(Error::NotSupported);
        }
        if end > self.max_size_of(inode) {
            return Err(Error::FileTooLarge);
        }
        self.with_space(ANY_BLOCKS, || self.fallocate_once(inode, mode, offset, end))
    }

    fn fallocate_once(
        &self,
        inode: &InodeRef,
        mode: FallocateMode,
        offset: u64,
        end: u64,
    ) -> Result<()> {
        let _exclusive = inode.lock.write();
        inode.wait_readahead();
        let write = match mode {
            FallocateMode::Allocate { .. } => WriteMode::Append,
            FallocateMode::PunchHole | FallocateMode::ZeroRange { .. } => WriteMode::Anywhere,
        };
        self.begin_write(inode, write)?;
        if mode == FallocateMode::PunchHole && self.zero_in_inode(inode, offset, end)? {
            return Ok(());
        }
        self.move_file_out(inode)?;
        let drops_pages = !matches!(mode, FallocateMode::Allocate { .. });
        if drops_pages && inode.size_waits() {
            // A sync that has begun counts on these pages: their record raises the size on disk.
            self.write_back(inode)?;
        }
        let done = self.change_blocks(inode, mode, offset, end);
        if done.is_err() {
            // The size on disk may have waited for pages that were dropped before the error.
            let _ = inode.follow_size(self);
        }
        done
    }

    fn change_blocks(
        &self,
        inode: &Arc<Inode>,
        mode: FallocateMode,
        offset: u64,
        end: u64,
    ) -> Result<()> {
        match mode {
            FallocateMode::Allocate { keep_size } => {
                let result = self.allocate(inode, self.page_size.touching(offset..end));
                // Blocks that were allocated before the volume was full stay, behind the end of the
                // file.
                result?;
                if !keep_size {
                    self.zero_tail(inode, end)?;
                }
                self.grow_to(inode, (!keep_size).then_some(end))
            }
            FallocateMode::PunchHole => {
                self.land_shared_clusters(inode, self.page_size.inside(offset..end))?;
                let inner = self.zero_edges(inode, offset, end)?;
                if !inner.is_empty() {
                    // It may cut one extent in two. Pages are dropped only when nothing can fail
                    // with NoSpace: the data below them must not reappear.
                    let changes = Changes::begin(self, inode);
                    changes.promise(1, Claim::Margin)?;
                    self.free_with_pages(inode, inner)?;
                }
                self.grow_to(inode, None)
            }
            FallocateMode::ZeroRange { keep_size } => {
                if !keep_size {
                    self.zero_tail(inode, end)?;
                }
                let inner = self.zero_edges(inode, offset, end)?;
                if !inner.is_empty() {
                    let changes = Changes::begin(self, inode);
                    let extents = extents::count_in(self, inode, page::blocks(inner.clone()))?;
                    // Pages in flight may become extents before they are dropped.
                    let waiting = inode.mapping.unlanded_pages();
                    changes.promise(extents + waiting + 2, Claim::Margin)?;
                    self.unwrite(inode, inner)?;
                }
                self.allocate(inode, self.page_size.touching(offset..end))?;
                self.grow_to(inode, (!keep_size).then_some(end))
            }
        }
    }

    /// Zeroes the parts of the range that do not fill a page. Returns the whole pages in between.
    fn zero_edges(&self, inode: &Arc<Inode>, offset: u64, end: u64) -> Result<Range<PageIndex>> {
        let size = self.page_size;
        let (first, last) = (size.index_of(offset), size.index_of(end));
        let (from, to) = (size.within(offset), size.within(end));
        if first == last {
            self.zero_in_page(inode, first, from..to)?;
            return Ok(PageIndex::FIRST..PageIndex::FIRST);
        }
        if from > 0 {
            self.zero_in_page(inode, first, from..size.as_usize())?;
        }
        self.zero_in_page(inode, last, 0..to)?;
        Ok(size.inside(offset..end))
    }

    /// Maps the holes of `pages` to unwritten blocks.
    fn allocate(&self, inode: &Arc<Inode>, pages: Range<PageIndex>) -> Result<()> {
        // Blocks that were picked for pages in flight must be recorded before holes are searched.
        let io = inode.data.make_io();
        let _lock = io.writeback_lock.lock();
        self.wait_writeback(inode);
        let changes = Changes::begin(self, inode);
        let blocks = page::blocks(pages);
        let mut at = blocks.start;
        let mut goal = self.groups.goal_for(inode.ino);
        while at < blocks.end {
            match extents::lookup(self, inode, at)? {
                Map::Mapped { start, len, .. } => {
                    at += len;
                    goal = start + u64::from(len);
                }
                Map::Hole { len } => {
                    let want = len.min(blocks.end - at).min(extents::MAX_UNWRITTEN_LEN);
                    changes.promise(1, Claim::Ordinary)?;
                    let reserved = self.promise_blocks(&changes, at, want)?;
                    let picked =
                        self.pick_blocks(inode, at, want, |want| self.groups.pick(goal, want));
                    let result = picked.and_then(|run| {
                        let mapped = self
                            .journal
                            .start(extents::INSERT_CREDITS + 8)
                            .map_err(Error::from)
                            .and_then(|handle| {
                                let state = ExtentState::Unwritten;
                                extents::insert_picked(self, &handle, inode, at, run, state)
                            });
                        if mapped.is_err() {
                            self.unpick_blocks(run);
                        }
                        mapped.map(|waiting| (run, waiting))
                    });
                    let kept = result.as_ref().map_or(0, |(run, _)| run.len);
                    self.groups.unreserve(reserved.saturating_sub(kept.into()));
                    let (run, waiting) = result?;
                    // These pages have blocks now and need no promises.
                    self.groups.unreserve(waiting);
                    at += run.len;
                    goal = run.start + u64::from(run.len);
                }
            }
        }
        Ok(())
    }

    /// Promises the blocks of a hole. Returns how many the caller has reserved: with clusters none,
    /// as the promises of clusters belong to the file.
    fn promise_blocks(&self, changes: &Changes<'_>, at: FileBlock, want: u32) -> Result<u64> {
        if !self.geo.cluster().is_block() {
            changes.promise_clusters(at..at + want, Claim::Ordinary)?;
            return Ok(0);
        }
        // Pages in the range may have promises of their own; this one is in addition.
        self.groups.reserve(want.into())?;
        Ok(want.into())
    }

    /// Removes `pages` and makes the mapped parts of them unwritten. The caller has promised the
    /// nodes.
    fn unwrite(&self, inode: &Arc<Inode>, pages: Range<PageIndex>) -> Result<()> {
        let io = inode.data.make_io();
        let lock = io.writeback_lock.lock();
        self.wait_writeback(inode);
        let blocks = page::blocks(pages);
        let mut at = blocks.start;
        while at < blocks.end {
            match extents::lookup(self, inode, at)? {
                Map::Hole { len }
                | Map::Mapped {
                    len,
                    state: ExtentState::Unwritten,
                    ..
                } => {
                    let end = blocks.end.min(at.saturating_add(len));
                    let handle = self.journal.start(2)?;
                    self.forget_pages(inode, page::of_blocks(at..end), &lock);
                    inode.grow(self, &handle, 0);
                    at = end;
                }
                Map::Mapped {
                    len,
                    state: ExtentState::Written,
                    ..
                } => {
                    let most = len.min(extents::MAX_UNWRITTEN_LEN);
                    let end = blocks.end.min(at.saturating_add(most));
                    let handle = self.journal.start(extents::INSERT_CREDITS + 4)?;
                    let state = ExtentState::Unwritten;
                    let end = extents::convert(self, &handle, inode, at..end, state, 0)?;
                    inode.mark_dirty(self, &handle);
                    self.forget_pages(inode, page::of_blocks(at..end), &lock);
                    inode.grow(self, &handle, 0);
                    at = end;
                }
            }
        }
        Ok(())
    }
}
