//! A backing device: its dirty inodes, its flusher, its share of the dirty limit.
//!
//! Locks, outermost first; none is held over a call into the file system: `control` (requests to
//! the flusher), `b_dirty` (the list that writers add to). The flusher's own lists have no lock:
//! only its thread touches them.

use crate::balance::{DirtyLimits, Share, Thresholds};
use crate::control::Control;
use crate::dirty_list::{DirtyList, DirtyState};
use crate::foreground::ForegroundList;
use crate::sync_pacing::SmallSyncs;
use crate::throttle::note_dirtied;
use crate::{Clock, Flushers, Tunables};
use block::{PAGE_SIZE, Plug, Queue};
use cache::{Budget, ErrSeq, Mapping};
use std::io;
use std::sync::{Arc, Weak};
use sync::atomic::{AtomicUsize, Ordering};
use sync::{Mutex, RwLock};

/// Reclaim writes dirty pages back early if they take more than this part of the budget: one 32nd.
const RECLAIM_PART: u64 = 32;

/// Why pages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// More is dirty than the background threshold.
    Background,
    /// The data is older than `dirty_expire`.
    Periodic,
    /// A caller of sync or fsync waits.
    Sync,
    /// Memory is wanted.
    Reclaim,
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
    pub from: u64,
    /// For a sync, the page behind the last one to look at. A file that grows all the time cannot
    /// keep the sync from ending.
    pub end: u64,
    /// What to do while another thread writes the inode.
    pub on_locked: OnLocked,
}

/// What a call does that finds an inode locked by another writer of its pages.
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
    /// Nothing could be written for the moment: all dirty pages are under writeback, or the inode is
    /// locked.
    pub blocked: bool,
    /// The inode is locked, and [`OnLocked::Skip`] was asked for.
    pub locked: bool,
    /// For a sync: the page behind the last one submitted, where the sweep continues.
    pub next: u64,
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
    fn end(inode: &Self::Inode) -> u64;
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
    /// fsync does not wait for it ([`BackingDev::note_fsync`]). No batch is open and no bio is held
    /// back. Errors are reported to the callers of the whole sync.
    fn make_step_durable(&self);
    /// Housekeeping, on the flusher's idle tick (at least every `dirty_writeback`). No plug is held
    /// and no batch is open. It must not call [`BackingDev::sync`].
    fn tick(&self);
}

/// One device's writeback.
pub struct BackingDev<F: WritebackFs> {
    /// Upgraded for the flusher's thread.
    pub(crate) me: Weak<BackingDev<F>>,
    pub(crate) fs: Weak<F>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) flushers: Flushers,
    tunables: RwLock<Tunables>,
    pub(crate) limits: Arc<DirtyLimits>,
    pub(crate) share: Arc<Share>,
    pub(crate) b_dirty: Mutex<DirtyList<F::Inode>>,
    /// Inodes whose state is not clean.
    pub(crate) listed: AtomicUsize,
    /// Batches of the flusher that are open or in flight.
    pub(crate) flusher_batches: Arc<AtomicUsize>,
    pub(crate) foreground: ForegroundList,
    pub(crate) small_syncs: SmallSyncs,
    pub(crate) control: Control,
}

impl<F: WritebackFs> BackingDev<F> {
    /// Makes a backing device; its flusher starts when something is dirty. Holds `fs` weakly. Every
    /// device on the same `budget` shares its dirty limits.
    pub fn new(
        fs: Weak<F>,
        queue: Arc<Queue>,
        budget: &Arc<Budget>,
        clock: Arc<dyn Clock>,
        tunables: Tunables,
        flushers: Flushers,
    ) -> Arc<BackingDev<F>> {
        let limits = DirtyLimits::of(budget);
        Arc::new_cyclic(|me| BackingDev {
            me: me.clone(),
            fs,
            queue,
            clock,
            flushers,
            tunables: RwLock::new(tunables),
            share: limits.join(),
            limits,
            b_dirty: Mutex::new(DirtyList::new()),
            listed: AtomicUsize::new(0),
            flusher_batches: Arc::default(),
            foreground: ForegroundList::default(),
            small_syncs: SmallSyncs::default(),
            control: Control::new(flushers),
        })
    }

    /// Puts the inode on the dirty list if it is not on a list. Cheap when it is (one atomic load).
    /// Call it after the pages were made dirty.
    #[inline]
    pub fn mark_dirty(&self, inode: &Arc<F::Inode>) {
        if !F::dirty_state(inode).note_dirtied() {
            self.list_dirty(inode);
        }
    }
    fn list_dirty(&self, inode: &Arc<F::Inode>) {
        let state = F::dirty_state(inode);
        let now_ns = self.now_ns();
        loop {
            // Counted first: the flusher may take the inode off the list at once.
            self.listed.fetch_add(1, Ordering::SeqCst);
            if self.b_dirty.lock().add(inode, state, now_ns) {
                break self.ensure_flusher();
            }
            self.listed.fetch_sub(1, Ordering::SeqCst);
            if state.note_dirtied() {
                break;
            }
        }
    }
    /// Takes a deleted inode off its list.
    pub fn forget(&self, inode: &Arc<F::Inode>) {
        let state = F::dirty_state(inode);
        if state.is_clean() {
            return;
        }
        let held = self.b_dirty.lock().forget(inode, state);
        if held.is_some() {
            self.listed.fetch_sub(1, Ordering::SeqCst);
        }
    }
    /// An inode is on no list any more.
    pub(crate) fn note_unlisted(&self) {
        self.listed.fetch_sub(1, Ordering::SeqCst);
    }
    /// Counts pages that became dirty. May be called under locks;
    /// [`BackingDev::balance_dirty_pages`] follows without.
    #[inline]
    pub fn add_dirty(&self, pages: u64) {
        if pages > 0 {
            self.limits.add(&self.share, pages);
            note_dirtied(pages);
        }
    }
    /// Uncounts pages that were written or truncated away.
    pub fn sub_dirty(&self, pages: u64) {
        if pages > 0 {
            self.limits.sub(&self.share, pages);
        }
    }
    /// Slows the caller if too much is dirty, and wakes the flusher above the background threshold.
    /// No locks may be held. A pause is 100 ms at most. Only far above the hard threshold does the
    /// caller wait until pages are written, and that wait is bounded.
    pub fn balance_dirty_pages(&self) {
        self.limits.balance(
            &self.share,
            || self.thresholds(),
            &*self.clock,
            || self.kick_background(),
        );
    }
    /// Dirty and under-writeback pages of this device.
    pub fn dirty_pages(&self) -> u64 {
        self.share.dirty_pages()
    }
    /// The device's measured write bandwidth, in pages per second.
    pub fn write_bandwidth(&self) -> u64 {
        self.share.bandwidth()
    }
    /// Writes what is dirty now, and waits until it has completed and is recorded. Later changes are
    /// not waited for. The caller then commits the journal. Returns the first error of any inode;
    /// each inode is tried once and stays dirty where it failed. Must not be called from the flusher
    /// ([`WritebackFs::tick`]).
    pub fn sync(&self) -> io::Result<()> {
        let outcome = if self.is_idle() {
            Ok(())
        } else {
            let group = self.request_sync();
            group.and_then(|group| group.wait())
        };
        // Last: an fsync that began after this call may have taken pages that were dirty before it.
        self.foreground.wait();
        outcome
    }
    /// Has the flusher write half of what is dirty, because the budget is exceeded. Does nothing
    /// where too little is dirty to matter. Cheap where it was called already.
    pub fn kick_reclaim(&self) {
        let dirty = self.limits.to_write() * PAGE_SIZE as u64;
        if dirty > self.limits.budget().limit() / RECLAIM_PART
            && !self.is_idle()
            && !self.control.reclaim.swap(true, Ordering::SeqCst)
        {
            self.kick(|_| ());
        }
    }
    /// Has the flusher call [`WritebackFs::tick`] soon. Starts the flusher if it is not running.
    pub fn kick_tick(&self) {
        self.kick(|requests| requests.tick = true);
    }
    /// The writeback parameters.
    pub fn tunables(&self) -> Tunables {
        self.tunables.read().clone()
    }
    /// Changes the writeback parameters, with immediate effect.
    ///
    /// # Errors
    /// `InvalidInput` for a value that makes no sense ([`Tunables::validate`]); then nothing has
    /// changed.
    pub fn set_tunables(&self, tunables: Tunables) -> io::Result<()> {
        tunables.validate()?;
        *self.tunables.write() = tunables;
        if !self.is_idle() {
            self.kick_background();
        }
        Ok(())
    }
    /// Ends the flusher and waits for its end, unless the caller is on its thread. The caller has
    /// done a final sync. From here on writers are not slowed, and nothing is written back.
    pub fn shutdown(&self) {
        self.share.closed.store(true, Ordering::SeqCst);
        self.control.stop();
    }

    /// Whether the flusher has nothing dirty and nothing in flight.
    pub(crate) fn is_idle(&self) -> bool {
        // In this order: a batch is counted before its inodes are off the lists.
        self.listed.load(Ordering::SeqCst) == 0 && self.flusher_batches.load(Ordering::SeqCst) == 0
    }
    pub(crate) fn thresholds(&self) -> Thresholds {
        let budget = self.limits.budget().limit();
        self.tunables.read().thresholds(budget)
    }
    /// The time for list entries: never 0, which is `ALWAYS_ELIGIBLE`.
    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.monotonic().as_nanos() as u64 + 1
    }
}
