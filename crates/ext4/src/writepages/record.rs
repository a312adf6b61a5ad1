//! From completed I/O to metadata.

use crate::extents::{self, ExtentState};
use crate::state::{Batch, LOGGED_PAGES, Outcome, Range, Record};
use crate::{Error, Fs, Inode, Result, SyncKind};
use jbd2::Handle;
use sync::atomic::Ordering;
use units::page;

/// Credits of one handle that records ranges, at most. Most ranges use none, because another range
/// has changed the same blocks. More credits would cause early commits where the journal is small.
const FINISH_CREDITS: u32 = 64;
/// Credits that one range may use: its extents, a bitmap, a group descriptor, an inode table block.
const RANGE_CREDITS: u32 = extents::INSERT_CREDITS + 4;
const _: () = assert!(RANGE_CREDITS + LOGGED_PAGES <= FINISH_CREDITS);

impl Range {
    /// Credits that this range may use.
    fn credits(&self) -> u32 {
        RANGE_CREDITS
            + self
                .logged
                .as_ref()
                .map_or(0, |(_, bufs)| bufs.len() as u32)
    }
}

impl Fs {
    /// Waits until the batch has completed and records its metadata, unless another thread did.
    /// Returns the first error of any range.
    pub(crate) fn finish(&self, batch: &Batch) -> Result<()> {
        batch.close();
        batch.wait_landed();
        let mut finished = batch.finished.lock();
        let outcome = finished.get_or_insert_with(|| self.finish_landed(batch));
        outcome
            .first()
            .map_or(Ok(()), |(_, error)| Err(error.clone()))
    }

    /// [`Fs::finish`] for a caller that commits next. While the batch is in flight it prepares that
    /// commit, if other data has been recorded for it.
    pub(crate) fn finish_for_sync(&self, batch: &Batch) -> Result<()> {
        batch.close();
        if !batch.has_landed() && self.recorded.swap(false, Ordering::Relaxed) {
            self.journal.prepare_commit();
        }
        self.finish(batch)
    }

    /// [`Fs::finish`] of a completed batch, by the first caller.
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
            let wanted = rest
                .iter()
                .take(FINISH_CREDITS as usize)
                .map(Range::credits);
            let credits = wanted.sum::<u32>().min(FINISH_CREDITS);
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
            range.inode.leave(batch);
        }
        self.recorded.store(true, Ordering::Relaxed);
        outcome
    }

    /// Records as many ranges as the handle has credits for. Returns how many. The next one may be
    /// recorded in part, and has only its other pages then.
    fn record_ranges(
        &self,
        handle: &Handle<'_>,
        ranges: &mut [Range],
        outcome: &mut Outcome,
    ) -> usize {
        let mut landed = 0;
        let mut done = 0;
        for range in ranges {
            if done > 0 && handle.credits() < range.credits() {
                break;
            }
            let result = match range.error {
                Some(error) => Err(Error::Io(error)),
                None => self.record_range(handle, range),
            };
            match result {
                Ok(pages) => {
                    self.settle_nodes(&range.inode);
                    self.unlanded_files.settle(&range.inode);
                    note_landed(&range.inode);
                    landed += u64::from(pages);
                    if pages < range.pages {
                        // Another handle continues with the rest.
                        range.first += pages;
                        range.pages -= pages;
                        break;
                    }
                }
                Err(error) => {
                    self.fail_range(range, &error);
                    outcome.push((range.inode.ino, error));
                }
            }
            done += 1;
        }
        self.bdi.sub_dirty(landed);
        done
    }

    /// Records the first pages of a range: all of them, unless its unwritten extents are too many
    /// for one handle. Returns their number.
    fn record_range(&self, handle: &Handle<'_>, range: &mut Range) -> Result<u32> {
        let inode = &range.inode;
        let mut pages = range.pages();
        let mut least = SyncKind::Fdatasync;
        match range.record {
            Record::Overwrite => least = SyncKind::Fsync,
            Record::Convert => {
                let state = ExtentState::Written;
                let logged = range.logged.as_ref().map_or(0, |(_, bufs)| bufs.len());
                let all = page::blocks(pages.clone());
                let stop = extents::convert(self, handle, inode, all, state, logged as u32)?;
                pages.end = stop.page();
            }
            Record::Insert(run) => {
                let block = range.first.block();
                extents::insert_picked(self, handle, inode, block, run, ExtentState::Written)?;
            }
        }
        let count = pages.end - pages.start;
        if let Some((start, bufs)) = &mut range.logged {
            let part = bufs.drain(..bufs.len().min(count as usize));
            for (nth, buf) in (0..).zip(part) {
                handle.log_data(*start + nth, buf);
            }
            *start += u64::from(count);
            least = SyncKind::Fdatasync;
        } else {
            // Completed, but a volatile cache may still lose it.
            let written = self.queue.written();
            handle.depends_on(written);
            inode.data.durability.written_up_to(written);
        }
        // Recording picked blocks has kept their promises; a page that had a block by then needs
        // none. A cluster's promise is not its pages'.
        let kept = match range.record {
            Record::Insert(run) if self.geo.cluster().is_block() => run.len,
            _ => 0,
        };
        debug_assert!(
            kept <= range.reserved,
            "blocks were picked without a promise"
        );
        let rest = range.pages - count;
        let left = range.reserved.saturating_sub(kept + rest);
        range.reserved -= left;
        self.groups.unreserve(u64::from(left));
        inode.recorded(self, handle, pages, least);
        Ok(count)
    }

    /// Makes the pages of a failed range dirty again and frees its blocks. The inode keeps the
    /// error for every later fsync.
    fn fail_range(&self, range: &Range, error: &Error) {
        let inode = &range.inode;
        if let Record::Insert(run) = range.record {
            self.unpick_blocks(run);
        }
        inode.data.errors.set(error.errno());
        if range.error.is_some() {
            inode.data.write_failed.store(true, Ordering::Release);
        }
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

    /// Finishes every batch that has pages of `inode` now. Other threads may gather more meanwhile,
    /// unless the caller holds the inode's `writeback_lock`.
    pub(crate) fn wait_writeback(&self, inode: &Inode) {
        for batch in inode.batches() {
            batch.wait_landed();
            // The inodes keep their errors.
            let _ = self.finish(&batch);
            // The batch has no range of this inode where no block was found for its pages.
            inode.leave(&batch);
        }
    }
}

/// Pages of the inode are recorded. If no others are left, a failed write is forgotten.
fn note_landed(inode: &Inode) {
    if inode.data.write_failed.load(Ordering::Acquire) && !inode.mapping.has_unlanded() {
        inode.data.write_failed.store(false, Ordering::Release);
    }
}
