//! A backing device: its dirty inodes, its flusher thread, its share of the dirty limit.

use crate::{Clock, Tunables};
use block::{Plug, Queue};
use cache::Budget;
use std::io;
use std::sync::Arc;

/// Why a pass runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Too much is dirty.
    Background,
    /// Data is older than the expiry.
    Periodic,
    /// Somebody called sync and waits.
    Sync,
    /// Memory is wanted.
    Reclaim,
}

/// How much of one inode to write before the next one has its turn.
#[derive(Clone, Copy, Debug)]
pub struct PassLimits {
    /// Pages at most.
    pub pages: usize,
    /// Why.
    pub reason: Reason,
}

/// What a slice did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Pages submitted.
    pub pages: usize,
    /// Dirty pages that can be written now remain.
    pub more: bool,
    /// Nothing could be written at the moment (all dirty pages are under writeback, no space…): come back later.
    pub blocked: bool,
}

/// An inode's place on the dirty lists, embedded in the inode.
#[derive(Default)]
pub struct DirtyState {}

/// The file system under writeback: whoever owns inodes that can write their pages.
pub trait WritebackFs: Send + Sync + 'static {
    /// An inode.
    type Inode: Send + Sync + 'static;
    /// I/O in flight of one or many inodes whose metadata is to be recorded when it has landed.
    type Batch: Send + Sync + 'static;
    /// The embedded list membership.
    fn dirty_state(inode: &Self::Inode) -> &DirtyState;
    /// Starts a batch.
    fn new_batch(&self) -> Arc<Self::Batch>;
    /// Submits a slice of the inode's dirty pages into `plug`, on behalf of `batch`.
    fn write_pages(
        &self,
        inode: &Arc<Self::Inode>,
        limits: PassLimits,
        plug: &mut Plug<'_>,
        batch: &Arc<Self::Batch>,
    ) -> Progress;
    /// Whether all I/O of a (closed) batch has completed.
    fn batch_landed(&self, batch: &Self::Batch) -> bool;
    /// Waits until the batch's I/O has completed, then records its metadata. Idempotent; anybody may call it. Errors
    /// belong to the inodes (they are dirty again); the flusher only backs off.
    fn finish_batch(&self, batch: &Self::Batch) -> io::Result<()>;
    /// Whether the inode still has dirty pages.
    fn is_dirty(inode: &Self::Inode) -> bool;
    /// Called on the flusher's idle tick (at least every `dirty_writeback`): deferred housekeeping of the file system.
    fn tick(&self);
}

/// One device's writeback.
pub struct BackingDev<F: WritebackFs> {
    #[allow(dead_code)]
    marker: std::marker::PhantomData<F>,
}

impl<F: WritebackFs> BackingDev<F> {
    /// Makes a backing device; its flusher thread starts when something is dirty. Holds `fs` weakly.
    pub fn new(
        fs: std::sync::Weak<F>,
        queue: Arc<Queue>,
        budget: Arc<Budget>,
        clock: Arc<dyn Clock>,
        tunables: Tunables,
    ) -> Arc<BackingDev<F>> {
        let _ = (fs, queue, budget, clock, tunables);
        todo!()
    }
    /// Puts the inode on the dirty list if it is not on a list. Cheap when it is (one atomic load).
    pub fn mark_dirty(&self, inode: &Arc<F::Inode>) {
        let _ = inode;
        todo!()
    }
    /// Takes the inode off (it was deleted).
    pub fn forget(&self, inode: &Arc<F::Inode>) {
        let _ = inode;
        todo!()
    }
    /// Counts pages that became dirty, then slows the caller according to the thresholds. Call with no locks held.
    pub fn account_dirtied(&self, pages: u64) {
        let _ = pages;
        todo!()
    }
    /// See [`BackingDev::account_dirtied`]: the counting half (may be called under locks).
    pub fn add_dirty(&self, pages: u64) {
        let _ = pages;
        todo!()
    }
    /// Pages left the dirty or writeback state (landed, or were truncated away).
    pub fn sub_dirty(&self, pages: u64) {
        let _ = pages;
        todo!()
    }
    /// Slows the caller if too much is dirty; wakes the flusher above the background threshold. No locks may be held.
    pub fn balance_dirty_pages(&self) {
        todo!()
    }
    /// Dirty and under-writeback pages of this device.
    pub fn dirty_pages(&self) -> u64 {
        todo!()
    }
    /// Writes what is dirty now and waits for it to land and its metadata to be in the running transaction. What is
    /// dirtied later is not waited for. (The caller then commits the journal.)
    pub fn sync(&self) -> io::Result<()> {
        todo!()
    }
    /// Wakes the flusher because memory is wanted.
    pub fn kick_reclaim(&self) {
        todo!()
    }
    /// The parameters.
    pub fn tunables(&self) -> Tunables {
        todo!()
    }
    /// Changes them.
    pub fn set_tunables(&self, tunables: Tunables) {
        let _ = tunables;
        todo!()
    }
    /// Stops the flusher thread (after a final sync by the caller) and joins it.
    pub fn shutdown(&self) {
        todo!()
    }
}
