//! Delayed allocation at writeback, and what happens when data has landed.
//!
//! A slice of an inode's dirty pages goes through these steps; only the last one touches the journal, so that metadata
//! never points at blocks whose data has not landed, and a crash before it leaves free blocks with unreferenced bytes.
//!
//! ```text
//!  dirty ──(write_pages: tag, look up or pick blocks, bio into the plug)──> under writeback
//!    ^                                                                          │ device
//!    │ failed: pages dirty again, picked blocks given back, error recorded       v
//!    └──────────────────────────────────────────────────────────────────── landed (end_io)
//!                                                                               │ finish_batch, one handle for many inodes:
//!                                                                               v bitmap bits, extents, size on disk
//!                                                                             clean
//! ```
//!
//! A [`Batch`] gathers the I/O of many inodes. Whoever needs one of them finished may finish the batch
//! ([`Fs::finish`]); the others find it done. An inode's `writeback_lock` is held while blocks are picked and never
//! while anything is waited for; a thread that holds bios in a plug only tries it.

use crate::alloc::BlockRun;
use crate::extents::{self, Map};
use crate::{Error, Fs, Inode, Result};
use block::{Bio, BioFlags, Buf, Class, EndIo, IoError, PAGE_SIZE, Payload, Plug};
use cache::DirtyPage;
use ext4_format::types::{FileBlock, FsBlock, Ino};
use jbd2::{Handle, JournalError};
use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use writeback::{DirtyState, PassLimits, Progress, Reason, WritebackFs};

/// Files with at most this many dirty pages are placed in the batch's stream, one after another.
const SMALL_FILE_PAGES: usize = 16;
/// Credits of one handle that records landed data, at most. Most ranges use none, because another has changed the same
/// blocks; asking for more would let the commit come early where the journal is small.
const FINISH_CREDITS: u32 = 64;
/// Credits that one landed range may use: its extents, a bitmap, a group descriptor, an inode table block.
const RANGE_CREDITS: u32 = extents::INSERT_CREDITS + 4;
/// Bytes in one bio at most.
const MAX_BIO_PAGES: u32 = 256;

/// What is to be recorded when a range has landed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Record {
    /// It was mapped and written before.
    Overwrite,
    /// It was mapped but unwritten.
    Convert,
    /// Blocks were picked for it.
    Insert(BlockRun),
}

/// A range of one inode that is being written.
struct Range {
    inode: Arc<Inode>,
    first: u64,
    pages: u32,
    /// Pages among them that hold a reservation.
    reserved: u32,
    record: Record,
    error: Option<IoError>,
}

impl Range {
    fn pages(&self) -> std::ops::Range<u64> {
        self.first..self.first + u64::from(self.pages)
    }
}

/// I/O in flight of one or many inodes.
pub struct Batch {
    /// Bios in flight, and one while the batch is open.
    pending: AtomicUsize,
    open: AtomicBool,
    ranges: Mutex<Vec<Range>>,
    errors: Mutex<Vec<(u64, IoError)>>,
    /// Where the next small file goes: behind the last one.
    stream: Mutex<Option<FsBlock>>,
    landed: Mutex<()>,
    landed_cv: Condvar,
    /// Held while finishing; set when finished.
    finished: Mutex<Option<Outcome>>,
}

/// What became of a finished batch: the inodes of which something did not land, with the reason of each.
type Outcome = SmallVec<[(Ino, Error); 1]>;

/// What one call of [`Fs::submit_pages`] took.
pub(crate) struct Submitted {
    /// Pages.
    pub pages: usize,
    /// The page behind the last of them: where a sweep over the file goes on.
    pub next: u64,
}

impl Batch {
    pub(crate) fn new() -> Arc<Batch> {
        Arc::new(Batch {
            pending: AtomicUsize::new(1),
            open: AtomicBool::new(true),
            ranges: Mutex::default(),
            errors: Mutex::default(),
            stream: Mutex::default(),
            landed: Mutex::default(),
            landed_cv: Condvar::new(),
            finished: Mutex::default(),
        })
    }

    fn put(&self) {
        if self.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
            drop(self.landed.lock());
            self.landed_cv.notify_all();
        }
    }

    /// No more I/O will be added.
    pub(crate) fn close(&self) {
        if self.open.swap(false, Ordering::AcqRel) {
            self.put();
        }
    }

    pub(crate) fn has_landed(&self) -> bool {
        self.pending.load(Ordering::Acquire) == 0
    }

    fn wait_landed(&self) {
        if self.has_landed() {
            return;
        }
        let mut guard = self.landed.lock();
        while !self.has_landed() {
            self.landed_cv.wait(&mut guard);
        }
    }

    /// After [`Fs::finish`]: the inodes of which something did not land.
    pub(crate) fn failures(&self) -> Outcome {
        self.finished.lock().clone().unwrap_or_default()
    }
}

impl EndIo for Batch {
    fn end_io(&self, tag: u64, _payload: Payload, result: Result<(), IoError>) {
        if let Err(error) = result {
            self.errors.lock().push((tag, error));
        }
        self.put();
    }
}

impl Fs {
    /// Submits up to `max` dirty pages of `inode`, from page `from` on. The caller holds its `writeback_lock` (proved by
    /// `_lock`).
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one submission; a struct would live for one call"
    )]
    pub(crate) fn submit_pages(
        &self,
        inode: &Arc<Inode>,
        _lock: &parking_lot::MutexGuard<'_, ()>,
        from: u64,
        max: usize,
        sync: bool,
        plug: &mut Plug<'_>,
        batch: &Arc<Batch>,
    ) -> Result<Submitted> {
        let mut pages: Vec<DirtyPage> = Vec::with_capacity(max.min(64));
        if inode.mapping.take_dirty(from..u64::MAX, max, &mut pages) == 0 {
            return Ok(Submitted {
                pages: 0,
                next: from,
            });
        }
        {
            let mut batches = inode.batches.lock();
            if !batches.iter().any(|b| Arc::ptr_eq(b, batch)) {
                batches.push(batch.clone());
            }
        }
        let small = pages.len() <= SMALL_FILE_PAGES && inode.mapping.dirty_pages() == 0;
        let submitted = Submitted {
            pages: pages.len(),
            next: pages.last().map_or(from, |page| page.index + 1),
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
                let left = (next - page.index) as u32;
                match self.place(inode, page.index, left, small, batch) {
                    Ok((start, len, record)) => {
                        self.submit_range(
                            inode,
                            (&mut run).take(len as usize),
                            start,
                            record,
                            sync,
                            plug,
                            batch,
                        );
                    }
                    Err(error) => {
                        // Everything that was taken and not submitted is dirty again.
                        let from = page.index;
                        let mut failed = inode.mapping.fail_writeback(from..next);
                        let mut count = next - from;
                        for page in pages.by_ref() {
                            failed += inode.mapping.fail_writeback(page.index..page.index + 1);
                            count += 1;
                        }
                        self.bdi.sub_dirty(count - failed);
                        inode.errors.set(error.errno());
                        return Err(error);
                    }
                }
            }
        }
        Ok(submitted)
    }

    /// Where up to `left` pages from page `index` go: volume block, pages, and what to record.
    fn place(
        &self,
        inode: &Arc<Inode>,
        index: u64,
        left: u32,
        small: bool,
        batch: &Batch,
    ) -> Result<(FsBlock, u32, Record)> {
        let file_block = FileBlock(u32::try_from(index).map_err(|_| Error::FileTooLarge)?);
        match extents::lookup(self, inode, file_block)? {
            Map::Mapped {
                start,
                len,
                unwritten,
            } => {
                let record = if unwritten {
                    Record::Convert
                } else {
                    Record::Overwrite
                };
                Ok((start, len.min(left), record))
            }
            Map::Hole { len } => {
                let want = len.min(left).min(extents::MAX_LEN);
                let goal = self.goal(inode, file_block.0, small, batch);
                let run = self.groups.pick(goal, want)?;
                let end = FsBlock(run.start.0 + u64::from(run.len));
                if small {
                    *batch.stream.lock() = Some(end);
                }
                *inode.goal.lock() = Some((file_block.0 + run.len, end.0));
                Ok((run.start, run.len, Record::Insert(run)))
            }
        }
    }

    fn goal(&self, inode: &Inode, file_block: u32, small: bool, batch: &Batch) -> FsBlock {
        if let Some((block, goal)) = *inode.goal.lock()
            && block == file_block
        {
            return FsBlock(goal);
        }
        if small {
            let mut stream = batch.stream.lock();
            return *stream.get_or_insert_with(|| {
                let last = self.stream_goal.load(Ordering::Relaxed);
                if last == 0 {
                    self.groups.goal_for(inode.ino)
                } else {
                    FsBlock(last)
                }
            });
        }
        // Behind the extent before it, as far away as the two are in the file.
        if file_block > 0
            && let Ok(Map::Mapped { start, .. }) =
                extents::lookup(self, inode, FileBlock(file_block - 1))
        {
            return FsBlock(start.0 + 1);
        }
        self.groups.goal_for(inode.ino)
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one submission; a struct would live for one call"
    )]
    fn submit_range(
        &self,
        inode: &Arc<Inode>,
        pages: impl Iterator<Item = DirtyPage>,
        start: FsBlock,
        record: Record,
        sync: bool,
        plug: &mut Plug<'_>,
        batch: &Arc<Batch>,
    ) {
        let mut bufs = SmallVec::<[Buf; 1]>::new();
        let (mut first, mut reserved, mut count) = (None, 0, 0u32);
        let tag = batch.ranges.lock().len() as u64;
        let mut bios = SmallVec::<[Bio; 1]>::new();
        let mut offset = start.0 * u64::from(self.geo.block_size);
        let flags = BioFlags {
            sync,
            ..BioFlags::default()
        };
        let flush =
            |bufs: &mut SmallVec<[Buf; 1]>, bios: &mut SmallVec<[Bio; 1]>, offset: &mut u64| {
                let len = bufs.len() as u64 * PAGE_SIZE as u64;
                let mut bio = Bio::write(
                    *offset,
                    std::mem::take(bufs),
                    Class::Data,
                    batch.clone(),
                    tag,
                );
                bio.flags = flags;
                bios.push(bio);
                *offset += len;
            };
        for page in pages {
            first.get_or_insert(page.index);
            reserved += u32::from(page.delalloc);
            count += 1;
            bufs.push(page.buf);
            if bufs.len() as u32 == MAX_BIO_PAGES {
                flush(&mut bufs, &mut bios, &mut offset);
            }
        }
        if !bufs.is_empty() {
            flush(&mut bufs, &mut bios, &mut offset);
        }
        let Some(first) = first else { return };
        batch.ranges.lock().push(Range {
            inode: inode.clone(),
            first,
            pages: count,
            reserved,
            record,
            error: None,
        });
        batch.pending.fetch_add(bios.len(), Ordering::AcqRel);
        for bio in bios {
            plug.add(bio);
        }
    }

    /// Waits until the batch has landed and records its metadata, unless somebody did. The first error of any range, for
    /// whoever asks; [`Batch::failures`] has all of them.
    pub(crate) fn finish(&self, batch: &Batch) -> Result<()> {
        batch.close();
        batch.wait_landed();
        let mut finished = batch.finished.lock();
        let outcome = finished.get_or_insert_with(|| self.finish_landed(batch));
        outcome
            .first()
            .map_or(Ok(()), |(_, error)| Err(error.clone()))
    }

    /// [`Fs::finish`] of a batch that has landed, for the first who asks.
    fn finish_landed(&self, batch: &Batch) -> Outcome {
        let mut ranges = std::mem::take(&mut *batch.ranges.lock());
        for (tag, error) in batch.errors.lock().drain(..) {
            if let Some(range) = ranges.get_mut(tag as usize) {
                range.error = Some(error);
            }
        }
        let mut outcome = Outcome::new();
        let mut rest = &mut ranges[..];
        while !rest.is_empty() {
            let credits = FINISH_CREDITS.min(rest.len() as u32 * RANGE_CREDITS);
            let done = match self.journal.start(credits.min(self.journal.max_credits())) {
                Ok(handle) => self.record_ranges(&handle, rest, &mut outcome),
                Err(error) => {
                    let error = Error::from(error);
                    for range in &mut *rest {
                        self.fail_range(range, &error);
                        outcome.push((range.inode.ino, error.clone()));
                    }
                    rest.len()
                }
            };
            rest = &mut rest[done..];
        }
        for range in &ranges {
            range
                .inode
                .batches
                .lock()
                .retain(|b| !std::ptr::eq(&**b, batch));
        }
        if let Some(goal) = *batch.stream.lock() {
            self.stream_goal.store(goal.0, Ordering::Relaxed);
        }
        outcome
    }

    /// Records ranges as far as the handle's credits go; how many.
    fn record_ranges(
        &self,
        handle: &Handle<'_>,
        ranges: &mut [Range],
        outcome: &mut Outcome,
    ) -> usize {
        let mut landed = 0;
        let mut done = 0;
        for range in ranges {
            if done > 0 && handle.credits() < RANGE_CREDITS {
                break;
            }
            done += 1;
            let result = match range.error {
                Some(error) => Err(Error::Io(error)),
                None => self.record_range(handle, range),
            };
            match result {
                Ok(()) => {
                    self.groups.unreserve(u64::from(range.reserved));
                    range.inode.mapping.end_writeback(range.pages());
                    self.dirty_files.settle(&range.inode);
                    landed += u64::from(range.pages);
                }
                Err(error) => {
                    self.fail_range(range, &error);
                    outcome.push((range.inode.ino, error));
                }
            }
        }
        self.bdi.sub_dirty(landed);
        done
    }

    fn record_range(&self, handle: &Handle<'_>, range: &Range) -> Result<()> {
        let inode = &range.inode;
        // It has landed, but a volatile cache may still lose it.
        let written = self.queue.written();
        handle.depends_on(written);
        inode.written.advance(written);
        let mut changed = true;
        match range.record {
            Record::Overwrite => changed = false,
            Record::Convert => extents::convert(self, handle, inode, range.pages(), false)?,
            Record::Insert(run) => {
                let block = FileBlock(range.first as u32);
                self.map_picked(handle, inode, block, run, false)?;
            }
        }
        {
            let mut meta = inode.meta.lock();
            // Where nothing else is dirty the size is the user's: what lies between may have been punched out or grown.
            let rest = inode.mapping.dirty_pages() > 0
                || inode.mapping.writeback_pages() > u64::from(range.pages);
            let end = match rest {
                true => (range.pages().end * PAGE_SIZE as u64).min(meta.size),
                false => meta.size,
            };
            if meta.fields.size < end {
                meta.fields.size = end;
                changed = true;
            }
        }
        if changed {
            inode.mark_dirty(self, handle);
        } else {
            inode.mark_dirty_attributes(self, handle);
        }
        Ok(())
    }

    /// Maps a hole to picked blocks and records these. Where it fails nothing has changed and the blocks are still picked.
    pub(crate) fn map_picked(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        block: FileBlock,
        run: BlockRun,
        unwritten: bool,
    ) -> Result<()> {
        extents::insert(self, handle, inode, block, run.start, run.len, unwritten)?;
        // Only a damaged bitmap makes this fail, and then the tree must not be committed.
        self.groups.record(handle, run).inspect_err(|error| {
            self.journal
                .abort(&JournalError::Aborted(error.to_string()));
        })
    }

    /// The range's pages are dirty again, its blocks free; the error is kept for every fsync to come.
    fn fail_range(&self, range: &Range, error: &Error) {
        let inode = &range.inode;
        if let Record::Insert(run) = range.record {
            self.groups.unpick(run);
        }
        inode.errors.set(error.errno());
        let redirtied = inode.mapping.fail_writeback(range.pages());
        self.bdi
            .sub_dirty(u64::from(range.pages).saturating_sub(redirtied));
        self.bdi.mark_dirty(inode);
        tracing::warn!(
            "inode {}: pages {:?} could not be written: {error}",
            inode.ino,
            range.pages()
        );
    }

    /// Finishes every batch that has I/O of `inode` in flight.
    pub(crate) fn wait_writeback(&self, inode: &Inode) {
        loop {
            let Some(batch) = inode.batches.lock().first().cloned() else {
                return;
            };
            batch.wait_landed();
            // Errors belong to the inodes, which keep them.
            let _ = self.finish(&batch);
            // A batch that this inode entered without a range (no place was found for its pages) does not know it.
            inode.batches.lock().retain(|b| !Arc::ptr_eq(b, &batch));
        }
    }
}

impl WritebackFs for Fs {
    type Inode = Inode;
    type Batch = Batch;

    fn dirty_state(inode: &Inode) -> &DirtyState {
        &inode.dirty_state
    }

    fn new_batch(&self) -> Arc<Batch> {
        Batch::new()
    }

    fn write_pages(
        &self,
        inode: &Arc<Inode>,
        limits: PassLimits,
        plug: &mut Plug<'_>,
        batch: &Arc<Batch>,
    ) -> Progress {
        // The plug holds bios that others may wait for, so this thread must not wait for the lock's holder.
        let Some(lock) = inode.writeback_lock.try_lock() else {
            return Progress {
                pages: 0,
                more: true,
                blocked: true,
            };
        };
        let sync = limits.reason == Reason::Sync;
        let pages = match self.submit_pages(inode, &lock, 0, limits.pages, sync, plug, batch) {
            Ok(submitted) => submitted.pages,
            Err(error) => {
                tracing::warn!("inode {}: writeback: {error}", inode.ino);
                return Progress {
                    pages: 0,
                    more: true,
                    blocked: true,
                };
            }
        };
        let more = inode.mapping.dirty_pages() > 0;
        Progress {
            pages,
            more,
            blocked: pages == 0 && more,
        }
    }

    fn batch_landed(&self, batch: &Batch) -> bool {
        batch.close();
        batch.has_landed()
    }

    fn finish_batch(&self, batch: &Batch) -> io::Result<()> {
        self.finish(batch).map_err(io::Error::from)
    }

    fn is_dirty(inode: &Inode) -> bool {
        inode.mapping.dirty_pages() > 0
    }

    fn tick(&self) {
        self.reap_doomed();
    }
}
