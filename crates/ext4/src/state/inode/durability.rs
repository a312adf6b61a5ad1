//! Which data and metadata of a file are not durable yet. Only this module combines its counters.
//!
//! A page goes through these states. The name on an arrow is the function that makes the
//! transition.
//!
//! ```text
//!            store_dirty            gather           submit_range           end_io             recorded
//!  clean ───────────────▶ dirty ───────────▶ gathered ──────────▶ in flight ───────▶ landed ────────────▶ recorded in T
//!                          ▲                    │ no place             │ write failed    │ handle failed        │
//!                          └────────────────────┴──────────────────────┴─────────────────┘                     │
//!  durable ◀──────────── commit(T), and a flush of the device unless the commit's covers the data ◀────────────┘
//! ```
//!
//! A page that is written to while it is gathered, in flight or landed is also dirty. The mapping
//! tags pages *dirty*, and *writeback* from `gather` to `recorded`; every question about a page's
//! state is answered by these tags:
//!
//! | question | answer |
//! |---|---|
//! | Does the file have data that no transaction covers? | [`Inode::has_unlanded`]: any page with a tag |
//! | Which batches must be waited for? | [`Inode::batches`] |
//! | What is left to do for a file without unlanded pages? | [`Inode::needed`]: a commit, a flush |
//! | Which size may be on disk? | [`InodeMeta::follow_size`] |
//! | May the inode be evicted? | [`Inode::is_durable`] |
//!
//! Invariants:
//! - A batch is listed in [`Inode::batches`] before it gathers pages of the file, and until their
//!   outcome is known. So a thread that finds no dirty page finds the batch.
//! - A page is gathered only if it begins before the end that users see. A write stores its pages
//!   and then raises the size, so without this rule a crash would find blocks behind the end.
//! - `tid`, `datasync_tid` and `written` name a transaction and a write before the writeback tag
//!   goes. So a thread that finds no unlanded page finds what is left to commit and flush.
//! - The writeback tag goes, and the size on disk changes, under the lock of `meta`.
//!
//! # The size on disk
//!
//! It follows the size that users see, as data lands. Four events raise it: a page is recorded; a
//! write returns; the size is set; pages are dropped. The last of them finds no unlanded page, or a
//! page is left whose record is another such event. An fsync or sync raises it to what it was when
//! that began, even if pages were dirtied since. Bytes behind the end in its block are zero on the
//! device, so that the size may be raised over them at any time: a truncation logs the zeroes with
//! the size (`file_io::truncate`).

use super::batch::Batch;
use super::io::{Batches, FileIo};
use super::{Inode, InodeMeta};
use crate::{Fs, Result};
use block::{AtomicWriteMark, WriteMark};
use cache::{DirtyPage, Mapping};
use jbd2::{Handle, Journal, Tid};
use std::ops::Range;
use std::sync::Arc;
use sync::MutexGuard;
use sync::atomic::{AtomicU64, Ordering};
use units::PageIndex;

/// Data and metadata of an inode that were written or recorded and are not durable.
#[derive(Default)]
pub(crate) struct Durability {
    /// The last transaction that changed the inode.
    tid: TidCell,
    /// The last transaction that changed what fdatasync waits for (size, extents).
    datasync_tid: TidCell,
    /// The last write of its data that a volatile cache may lose.
    written: AtomicWriteMark,
}

/// The commit and the flush that make a file durable once its pages are recorded.
#[derive(Clone, Copy, Default)]
pub(crate) struct Needed {
    /// The transaction to be committed.
    pub commit: Option<Tid>,
    /// The last write that has to be flushed from the device's cache.
    pub written: WriteMark,
}

/// The size of a file when an fsync of it began.
#[derive(Clone, Copy)]
pub(crate) struct SizeToSync {
    size: u64,
    /// [`InodeMeta::cuts`] then: after another cut the size says nothing.
    cuts: u32,
}

impl Needed {
    /// Makes both durable.
    pub fn and(self, other: Needed) -> Needed {
        let commit = match (self.commit, other.commit) {
            (Some(a), Some(b)) => Some(if a.reached(b) { a } else { b }),
            (a, b) => a.or(b),
        };
        Needed {
            commit,
            written: self.written.max(other.written),
        }
    }
}

/// A transaction number or none, read without a lock.
#[derive(Default)]
struct TidCell(AtomicU64);

impl TidCell {
    fn set(&self, tid: Tid) {
        self.0.store(u64::from(tid.0) + 1, Ordering::Release);
    }
    fn get(&self) -> Option<Tid> {
        match self.0.load(Ordering::Acquire) {
            0 => None,
            n => Some(Tid((n - 1) as u32)),
        }
    }
    /// The transaction, unless it is durable.
    fn uncommitted(&self, journal: &Journal) -> Option<Tid> {
        self.get().filter(|&tid| !journal.is_committed(tid))
    }
}

/// The system calls that make a file durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncKind {
    /// Contents and all metadata.
    Fsync,
    /// Contents, and the metadata that is needed to read them: not times, owner and mode.
    Fdatasync,
}

impl Durability {
    /// A change of anything but data is part of transaction `tid`. Fsync waits for it, and
    /// fdatasync only if `least` is `Fdatasync`.
    pub fn changed_in(&self, tid: Tid, least: SyncKind) {
        self.tid.set(tid);
        if least == SyncKind::Fdatasync {
            self.datasync_tid.set(tid);
        }
    }
    /// Data was written in place, up to `mark`, and has landed.
    pub fn written_up_to(&self, mark: WriteMark) {
        self.written.advance(mark);
    }
}

impl Inode {
    /// The page behind the last one that calls which have returned may have dirtied.
    pub(crate) fn end_page(&self) -> PageIndex {
        let page_size = self.mapping.page_size();
        page_size.index_after(self.meta.lock().size)
    }

    /// Whether any page is dirty, gathered, in flight or landed but not recorded (one atomic).
    pub(crate) fn has_unlanded(&self) -> bool {
        self.mapping.unlanded_pages() > 0
    }

    /// Whether no page is unlanded, and nothing is read ahead. If the caller is the only user, or
    /// holds the inode's lock exclusively, no page becomes dirty meanwhile.
    pub(crate) fn is_at_rest(&self) -> bool {
        !self.has_unlanded() && !self.data.has_io()
    }

    /// Dirty → gathered: takes up to `max` dirty pages of `range` on behalf of `batch`. Returns how
    /// many. Leaves pages behind the end: a running write stores them, and then raises the size and
    /// marks the inode dirty. `_lock` proves that the `writeback_lock` of `io`, the inode's, is
    /// held.
    pub(crate) fn gather(
        &self,
        io: &FileIo,
        _lock: &MutexGuard<'_, PageIndex>,
        batch: &Arc<Batch>,
        range: Range<PageIndex>,
        max: usize,
        pages: &mut Vec<DirtyPage>,
    ) -> usize {
        if self.mapping.dirty_pages() == 0 {
            return 0;
        }
        let entered = {
            let mut batches = io.batches.lock();
            let enters = !batches.iter().any(|listed| Arc::ptr_eq(listed, batch));
            if enters {
                batches.push(batch.clone());
            }
            enters
        };
        let end = range.end.min(self.end_page());
        let taken = self
            .mapping
            .take_dirty(range.start..end.max(range.start), max, pages);
        if taken == 0 && entered {
            self.leave(batch);
        }
        taken
    }

    /// The batches that may have pages of the file now.
    pub(crate) fn batches(&self) -> Batches {
        let io = self.data.io();
        io.map_or_else(Batches::new, |io| io.batches.lock().clone())
    }

    /// The outcome of the file's pages in `batch` is known.
    pub(crate) fn leave(&self, batch: &Batch) {
        let Some(io) = self.data.io() else {
            return;
        };
        let is_last = {
            let mut batches = io.batches.lock();
            batches.retain(|listed| !std::ptr::eq(&**listed, batch));
            batches.is_empty()
        };
        drop(io);
        if is_last {
            self.drop_idle_io();
        }
    }

    /// Landed → recorded: `pages` have landed, and their blocks are recorded under `handle`.
    /// Fdatasync waits for that if `least` is `Fdatasync`.
    pub(crate) fn recorded(
        self: &Arc<Self>,
        fs: &Fs,
        handle: &Handle<'_>,
        pages: Range<PageIndex>,
        least: SyncKind,
    ) {
        let mut meta = self.meta.lock();
        debug_assert!(
            pages.end <= self.mapping.page_size().index_after(meta.size),
            "blocks behind the end"
        );
        // Named first: a thread that finds no unlanded page reads the number without the lock.
        match least == SyncKind::Fdatasync || meta.size_waits() {
            true => self.mark_dirty(fs, handle),
            false => self.mark_dirty_attributes(fs, handle),
        }
        self.mapping.end_writeback(pages.clone());
        meta.note_recorded(&self.mapping, pages);
    }

    /// Raises the size to `end` at least, and the size on disk unless pages are unrecorded. Marks
    /// the inode dirty.
    pub(crate) fn grow(self: &Arc<Self>, fs: &Fs, handle: &Handle<'_>, end: u64) {
        let mut meta = self.meta.lock();
        meta.size = meta.size.max(end);
        meta.follow_size(&self.mapping);
        if meta.size_waits() {
            fs.waiting_sizes.note_set();
        }
        self.mark_dirty(fs, handle);
    }

    /// Raises the size on disk after an event that had no handle. Cheap where there is nothing to
    /// do.
    pub(crate) fn follow_size(self: &Arc<Self>, fs: &Fs) -> Result<()> {
        if self.meta.lock().is_behind(&self.mapping) {
            let handle = fs.journal.start(2)?;
            self.grow(fs, &handle, 0);
        }
        Ok(())
    }

    /// A write has set size and times after all of its pages were recorded: they join a transaction
    /// now. Otherwise the record of a page has them.
    pub(crate) fn write_landed(self: &Arc<Self>, fs: &Fs) -> Result<()> {
        let handle = fs.journal.start(2)?;
        match self.size_waits() {
            true => self.grow(fs, &handle, 0),
            false => self.mark_dirty_attributes(fs, &handle),
        }
        Ok(())
    }

    /// Whether the size on disk waits for pages that are unrecorded.
    pub(crate) fn size_waits(&self) -> bool {
        self.meta.lock().size_waits()
    }

    /// The size that an fsync has to make durable that begins now.
    pub(crate) fn size_to_sync(&self) -> SizeToSync {
        let meta = self.meta.lock();
        SizeToSync {
            size: meta.size,
            cuts: meta.cuts,
        }
    }

    /// [`Inode::size_to_sync`], unless the page with the end is unlanded: its record raises the
    /// size on disk to the end.
    pub(crate) fn size_beyond_pages(&self) -> Option<SizeToSync> {
        let meta = self.meta.lock();
        let page_size = self.mapping.page_size();
        let last = page_size.index_of(meta.size.checked_sub(1)?);
        let state = self.mapping.state(last).unwrap_or_default();
        let waits = meta.size_waits() && !state.dirty && !state.writeback;
        waits.then_some(SizeToSync {
            size: meta.size,
            cuts: meta.cuts,
        })
    }

    /// All pages that were unrecorded at `begin` are recorded. Later dirty pages may hold back the
    /// size on disk, but not below the size at `begin`.
    pub(crate) fn follow_to(self: &Arc<Self>, fs: &Fs, begin: SizeToSync) -> Result<()> {
        let is_behind = |meta: &InodeMeta| {
            meta.fields.size < begin.size.min(meta.size) && meta.cuts == begin.cuts
        };
        if is_behind(&self.meta.lock()) {
            let handle = fs.journal.start(2)?;
            let mut meta = self.meta.lock();
            if is_behind(&meta) {
                meta.fields.size = begin.size.min(meta.size);
                self.mark_dirty(fs, &handle);
            }
        }
        Ok(())
    }

    /// Recorded → durable: the remaining steps, once all pages that were unrecorded at `begin` are
    /// recorded.
    pub(crate) fn needed(
        self: &Arc<Self>,
        fs: &Fs,
        kind: SyncKind,
        begin: SizeToSync,
    ) -> Result<Needed> {
        self.follow_size(fs)?;
        self.follow_to(fs, begin)?;
        Ok(self.needed_of_recorded(fs, kind))
    }

    /// Recorded → durable: the remaining steps for what is in a transaction.
    pub(crate) fn needed_of_recorded(&self, fs: &Fs, kind: SyncKind) -> Needed {
        let tid = match kind {
            SyncKind::Fdatasync => &self.data.durability.datasync_tid,
            SyncKind::Fsync => &self.data.durability.tid,
        };
        Needed {
            commit: tid.uncommitted(&fs.journal),
            written: self.data.durability.written.get(),
        }
    }

    /// Whether fdatasync has to commit a transaction even if no page is dirty.
    pub(crate) fn datasync_needs_commit(&self, journal: &Journal) -> bool {
        self.data
            .durability
            .datasync_tid
            .uncommitted(journal)
            .is_some()
    }

    /// Whether at most a flush is left to do, so that the inode can be evicted and loaded again.
    pub(crate) fn is_durable(&self, journal: Option<&Journal>) -> bool {
        if self.has_unlanded() {
            return false;
        }
        // Reclaim may run while the thread holds locks of higher ranks (a commit creates blocks
        // under a group's lock), so it does not wait. An inode in use is not evicted.
        let Some(meta) = self.meta.try_lock() else {
            return false;
        };
        if meta.orphan.is_some() || meta.size != meta.fields.size {
            return false;
        }
        // A later fsync must still find the transaction to commit.
        journal.is_none_or(|journal| self.data.durability.tid.uncommitted(journal).is_none())
    }
}

impl InodeMeta {
    /// Whether the size on disk waits for pages.
    fn size_waits(&self) -> bool {
        self.fields.size < self.size
    }

    /// Whether the size on disk may be raised now.
    pub(crate) fn is_behind(&self, mapping: &Mapping) -> bool {
        self.size_waits() && mapping.unlanded_pages() == 0
    }

    /// The size on disk becomes the size that users see, unless pages are unrecorded.
    pub(crate) fn follow_size(&mut self, mapping: &Mapping) {
        if self.is_behind(mapping) {
            self.fields.size = self.size;
        }
    }

    /// Pages were recorded, and have lost their writeback tag. The size on disk covers them, also
    /// if a writer dirties another page meanwhile.
    fn note_recorded(&mut self, mapping: &Mapping, pages: Range<PageIndex>) {
        let end = mapping.page_size().offset_of(pages.end).min(self.size);
        self.fields.size = self.fields.size.max(end);
        self.follow_size(mapping);
    }

    /// Cuts the file off at `size`, on disk too. A smaller size on disk is not raised while pages
    /// are unrecorded.
    pub(crate) fn cut_size(&mut self, size: u64, mapping: &Mapping) {
        self.size = size;
        self.cuts = self.cuts.wrapping_add(1);
        self.fields.size = self.fields.size.min(size);
        self.follow_size(mapping);
    }
}

#[cfg(test)]
mod tests;
