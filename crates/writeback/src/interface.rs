//! The interface to the file system: what writeback asks of it, and in what units.

use crate::dirty_list::DirtyState;
use block::Plug;
use cache::{ErrSeq, Mapping};
use std::sync::Arc;
use units::PageIndex;

/// Why pages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// More is dirty than the background threshold.
    Background,
    /// Writers are slowed, because more is dirty than their limits allow.
    Throttled,
    /// The data is older than `dirty_expire`.
    Periodic,
    /// A caller of sync or fsync waits.
    Sync,
    /// Memory is wanted.
    Reclaim,
}

impl From<Reason> for block::Reason {
    fn from(reason: Reason) -> block::Reason {
        match reason {
            Reason::Background => block::Reason::Background,
            Reason::Throttled => block::Reason::Throttled,
            Reason::Periodic => block::Reason::Periodic,
            Reason::Sync => block::Reason::Sync,
            Reason::Reclaim => block::Reason::Reclaim,
        }
    }
}

/// Which pages of an inode one call writes.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    /// Pages at most.
    pub pages: usize,
    /// Why they are written.
    pub reason: Reason,
    /// For a sync, the first page to look at. Otherwise the file system continues after its last
    /// slice of the inode.
    pub from: PageIndex,
    /// For a sync, the page behind the last one to look at. A file that grows all the time cannot
    /// keep the sync from ending.
    pub end: PageIndex,
    /// The behaviour while another thread writes the inode.
    pub on_locked: OnLocked,
}

/// The behaviour of a call that finds an inode locked by another writer of its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLocked {
    /// Report it: the caller's plug may hold I/O that the lock's holder waits for.
    Skip,
    /// Wait for the lock: the caller's plug and batch are empty.
    Wait,
}

/// The outcome of writing a slice.
#[derive(Clone, Copy, Debug)]
pub struct Progress<E> {
    /// Pages submitted.
    pub pages: usize,
    /// Dirty pages that can be written now remain.
    pub more: bool,
    /// Nothing could be written for the moment: all dirty pages are under writeback, or the inode
    /// is locked.
    pub blocked: bool,
    /// The inode is locked, and [`OnLocked::Skip`] was asked for.
    pub locked: bool,
    /// For a sync: the page behind the last one submitted, where the sweep continues.
    pub next: PageIndex,
    /// Nothing could be written, and waiting does not help. The pages stay dirty.
    pub failed: Option<E>,
}

/// The file system under writeback, which owns the inodes and writes their pages.
pub trait WritebackFs: Send + Sync + Sized + 'static {
    /// An inode with dirty pages.
    type Inode: Send + Sync + 'static;
    /// I/O in flight of one or many inodes whose metadata is recorded when it has completed.
    type Batch: Send + Sync + 'static;
    /// How a batch goes to the device. Writeback passes it on; the flusher uses the default.
    type Route: Copy + Default;
    /// Why an inode could not be written.
    type Error: Clone;

    /// The inode's place on the dirty lists.
    fn dirty_state(inode: &Self::Inode) -> &DirtyState;
    /// The inode's pages.
    fn mapping(inode: &Self::Inode) -> &Mapping;
    /// The inode's write errors.
    fn errors(inode: &Self::Inode) -> &ErrSeq;
    /// Whether the inode has dirty pages to write back.
    fn is_dirty(inode: &Self::Inode) -> bool;
    /// The page behind the last one that calls which have returned may have dirtied.
    fn end(inode: &Self::Inode) -> PageIndex;
    /// The error number of `error`.
    fn errno(error: &Self::Error) -> i32;
    /// The error of a page write that failed with `errno`.
    fn write_error(errno: i32) -> Self::Error;

    /// Begins a batch of about `expected` pages (`u64::MAX`: unknown).
    fn new_batch(&self, expected: u64, route: Self::Route) -> Arc<Self::Batch>;
    /// Submits dirty pages of the inode into `plug`, on behalf of `batch`. It looks for dirty pages
    /// under a lock that writers hold while they dirty them. It does not wait for I/O that `plug`
    /// may hold back.
    fn write_pages(
        &self,
        inode: &Arc<Self::Inode>,
        slice: Slice,
        plug: &mut Plug<'_>,
        batch: &Arc<Self::Batch>,
    ) -> Progress<Self::Error>;
    /// Nothing is added to the batch from now on, so any thread may finish it. Idempotent.
    fn close_batch(batch: &Self::Batch);
    /// Whether all I/O of a batch has completed. Nothing is added to the batch afterwards.
    fn batch_completed(&self, batch: &Self::Batch) -> bool;
    /// Waits until the batch's I/O has completed, then records its metadata. Idempotent; any thread
    /// may call it. Returns the first error of any inode. The inodes keep their errors, and their
    /// pages are dirty again. With [`Reason::Sync`] a commit follows soon, and the time of the wait
    /// may be used to prepare it.
    fn finish_batch(&self, batch: &Self::Batch, reason: Reason) -> Result<(), Self::Error>;
    /// The error of an inode in a finished batch.
    fn batch_error(batch: &Self::Batch, inode: &Self::Inode) -> Option<Self::Error>;
    /// Finishes every batch that has pages of the inode, whichever thread began it.
    fn wait_writeback(&self, inode: &Self::Inode);
    /// Makes durable what a large sync has written and recorded so far, so that a concurrent small
    /// fsync does not wait for it ([`crate::BackingDev::begin_fsync`]). No batch is open and no bio
    /// is held back. Errors are reported to the callers of the whole sync.
    fn make_step_durable(&self);
    /// The file system has panicked in a call of writeback. Some pages may be neither dirty nor in
    /// a batch, so no later sync may succeed.
    fn panicked(&self);
    /// Housekeeping, on the flusher's idle tick (at least every `dirty_writeback`). No plug is held
    /// and no batch is open. It must not call [`crate::BackingDev::sync`].
    fn tick(&self);
}
