//! From dirty pages to bios.

use super::Submitted;
use crate::extents::{self, ExtentState, Map};
use crate::state::{Batch, FileIo, LOGGED_PAGES, Range, Record, Route};
use crate::{Fs, Inode, Result};
use block::{Bio, Buf, Class, Plug};
use cache::DirtyPage;
use smallvec::SmallVec;
use std::sync::Arc;
use sync::MutexGuard;
use sync::atomic::Ordering;
use units::{FileBlock, FsBlock, PageIndex};
use writeback::{Reason, Slice};

/// Files with dirty pages of at most so many bytes are placed in the small-file stream.
const SMALL_FILE: u64 = 64 << 10;
/// Bytes in one bio at most.
const MAX_BIO: u64 = 1 << 20;

/// The blocks of a run of pages.
struct Placed {
    start: FsBlock,
    pages: u32,
    record: Record,
    path: WritePath,
}

/// The place that data is written to first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WritePath {
    /// Its blocks.
    InPlace,
    /// The log. A checkpoint writes the blocks.
    Log,
}

/// The place of new blocks.
#[derive(Clone, Copy)]
enum Placement {
    /// In the stream of small files.
    Stream,
    /// Near other blocks of the file, or in the inode's group.
    NearFile,
}

impl Fs {
    /// Submits a slice of `inode` for the flusher, from the end of its last slice on, and then from
    /// the first page on (the kernel's `range_cyclic`): pages that are dirtied again and again do
    /// not hold back those behind them, which become dense meanwhile, and a disk writes dense pages
    /// faster.
    pub(super) fn submit_slice(
        &self,
        inode: &Arc<Inode>,
        io: &FileIo,
        mut lock: MutexGuard<'_, PageIndex>,
        mut slice: Slice,
        plug: &mut Plug<'_>,
        batch: &Arc<Batch>,
    ) -> Result<Submitted> {
        slice.from = *lock;
        let mut submitted = self.submit_pages(inode, io, &lock, slice, plug, batch)?;
        let pages = submitted.pages;
        if slice.from > PageIndex::FIRST && pages < slice.pages {
            slice.from = PageIndex::FIRST;
            slice.pages -= pages;
            submitted = self.submit_pages(inode, io, &lock, slice, plug, batch)?;
            submitted.pages += pages;
        }
        *lock = submitted.next;
        Ok(submitted)
    }

    /// Submits dirty pages of `inode`. The caller holds the `writeback_lock` of `io`, the inode's
    /// (proved by `lock`).
    pub(super) fn submit_pages(
        &self,
        inode: &Arc<Inode>,
        io: &FileIo,
        lock: &MutexGuard<'_, PageIndex>,
        slice: Slice,
        plug: &mut Plug<'_>,
        batch: &Arc<Batch>,
    ) -> Result<Submitted> {
        let mut pages: Vec<DirtyPage> = Vec::with_capacity(slice.pages.min(64));
        let range = slice.from..slice.end;
        if inode.gather(io, lock, batch, range, slice.pages, &mut pages) == 0 {
            return Ok(Submitted {
                pages: 0,
                next: slice.from,
            });
        }
        // After a failed write in place the log is not used: see `FileData::write_failed`.
        let route = match inode.data.write_failed.load(Ordering::Acquire) {
            true => Route::Home,
            false => batch.route,
        };
        let few = self.page_size.count_in(SMALL_FILE) as usize;
        let is_small = pages.len() <= few && inode.mapping.dirty_pages() == 0;
        let placement = match is_small {
            true => Placement::Stream,
            false => Placement::NearFile,
        };
        let submitted = Submitted {
            pages: pages.len(),
            next: pages.last().map_or(slice.from, |page| page.index + 1),
        };
        let mut pages = pages.into_iter().peekable();
        while let Some(page) = pages.next() {
            let mut run = SmallVec::<[DirtyPage; 4]>::new();
            let mut next = page.index + 1;
            run.push(page);
            while let Some(page) = pages.next_if(|p| p.index == next) {
                next += 1;
                run.push(page);
            }
            let mut run = run.into_iter().peekable();
            while let Some(page) = run.peek() {
                let left = next - page.index;
                match self.place(inode, page.index, left, placement, route, batch) {
                    Ok(placed) => {
                        let pages = (&mut run).take(placed.pages as usize);
                        self.submit_range(inode, pages, placed, slice.reason, plug, batch);
                    }
                    Err(error) => {
                        // Pages that were taken and not submitted are dirty again.
                        let from = page.index;
                        let mut failed = inode.mapping.fail_writeback(from..next);
                        let mut count = next - from;
                        for page in pages.by_ref() {
                            failed += inode.mapping.fail_writeback(page.index..page.index + 1);
                            count += 1;
                        }
                        self.bdi.sub_dirty(u64::from(count) - failed);
                        inode.data.errors.set(error.errno());
                        return Err(error);
                    }
                }
            }
        }
        Ok(submitted)
    }

    /// Finds or picks blocks for up to `left` pages from page `index` on.
    fn place(
        &self,
        inode: &Arc<Inode>,
        index: PageIndex,
        left: u32,
        placement: Placement,
        route: Route,
        batch: &Batch,
    ) -> Result<Placed> {
        let file_block = index.block();
        match extents::lookup(self, inode, file_block)? {
            Map::Mapped { start, len, state } => {
                let (record, wants_log) = match state {
                    ExtentState::Unwritten => (Record::Convert, route != Route::Home),
                    ExtentState::Written => (Record::Overwrite, route == Route::Log),
                };
                let len = len.min(left);
                let (path, pages) = match wants_log {
                    true => (WritePath::Log, len.min(LOGGED_PAGES)),
                    false => self.path_of_held(start, len),
                };
                Ok(Placed {
                    start,
                    pages,
                    record,
                    path,
                })
            }
            Map::Hole { len } => {
                let (path, most) = match route {
                    Route::Home => (WritePath::InPlace, extents::MAX_LEN),
                    Route::Log | Route::LogNew => (WritePath::Log, LOGGED_PAGES),
                };
                let most = most.min(extents::most_at(self, inode, file_block));
                let want = len.min(left).min(most);
                let io = inode.data.make_io();
                let run = self.pick_blocks(inode, file_block, want, |want| {
                    match self.goal(inode, &io, file_block, placement) {
                        Some(goal) => self.groups.pick(goal, want),
                        None => {
                            let first = || self.groups.goal_for(inode.ino);
                            batch.piece.lock().pick(&self.groups, want, first)
                        }
                    }
                })?;
                let end = run.start + u64::from(run.len);
                *io.goal.lock() = Some((file_block + run.len, end));
                Ok(Placed {
                    start: run.start,
                    pages: run.len,
                    record: Record::Insert(run),
                    path,
                })
            }
        }
    }

    /// Returns the path of mapped blocks that need not go through the log, and how many from the
    /// first on take it. Blocks that the log holds go through it again.
    fn path_of_held(&self, start: FsBlock, len: u32) -> (WritePath, u32) {
        match self.journal.held_data(start..start + u64::from(len)) {
            None => (WritePath::InPlace, len),
            Some((held, _)) if held == start => (WritePath::Log, 1),
            Some((held, _)) => (WritePath::InPlace, (held - start) as u32),
        }
    }

    /// The goal for a block of a file; `None`: the small-file stream.
    fn goal(
        &self,
        inode: &Inode,
        io: &FileIo,
        file_block: FileBlock,
        placement: Placement,
    ) -> Option<FsBlock> {
        if let Some((block, goal)) = *io.goal.lock()
            && block == file_block
        {
            return Some(goal);
        }
        if let Placement::Stream = placement {
            return None;
        }
        // Directly behind the extent before it.
        if let Some(before) = file_block.0.checked_sub(1).map(FileBlock)
            && let Ok(Map::Mapped { start, .. }) = extents::lookup(self, inode, before)
        {
            return Some(start + 1);
        }
        Some(self.groups.goal_for(inode.ino))
    }

    /// Adds a run of pages to the batch, and its bios to the plug.
    fn submit_range(
        &self,
        inode: &Arc<Inode>,
        pages: impl Iterator<Item = DirtyPage>,
        placed: Placed,
        reason: Reason,
        plug: &mut Plug<'_>,
        batch: &Arc<Batch>,
    ) {
        let (mut first, mut reserved) = (None, 0);
        let mut bufs = SmallVec::<[Buf; 1]>::new();
        for page in pages {
            first.get_or_insert(page.index);
            reserved += u32::from(page.delalloc);
            bufs.push(page.buf);
        }
        let Some(first) = first else { return };
        let count = bufs.len();
        let (logged, bufs) = match placed.path {
            WritePath::Log => (Some((placed.start, bufs)), SmallVec::new()),
            WritePath::InPlace => (None, bufs),
        };
        let tag = {
            let mut ranges = batch.ranges.lock();
            ranges.push(Range {
                inode: inode.clone(),
                first,
                pages: count as u32,
                reserved,
                record: placed.record,
                logged,
                error: None,
            });
            ranges.len() as u64 - 1
        };
        let most = self.page_size.count_in(MAX_BIO) as usize;
        batch
            .pending
            .fetch_add(bufs.len().div_ceil(most), Ordering::AcqRel);
        let mut offset = placed.start.offset(self.geo.block_size);
        let mut bufs = bufs.into_iter();
        while bufs.len() > 0 {
            let part: SmallVec<[Buf; 1]> = bufs.by_ref().take(most).collect();
            let len = part.len() as u64 * self.page_size.bytes();
            plug.add(Bio::write(
                offset,
                part,
                Class::Data,
                reason.into(),
                batch.clone(),
                tag,
            ));
            offset += len;
        }
    }
}
