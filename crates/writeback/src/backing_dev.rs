//! A backing device: its dirty inodes, its flusher, its share of the dirty limit.
//!
//! Locks, from the outside in; none is held over a call into the file system: `control` (what the
//! flusher is asked to do) · `b_dirty` (the list that writers add to). The flusher's own lists have
//! no lock, because only the thread it runs on touches them.

use crate::balance::{DirtyLimits, Share, Thresholds};
use crate::control::Control;
use crate::courtesy::SmallSyncs;
use crate::dirty_inodes::{DirtyList, DirtyState};
use crate::sync::{Foreground, ForegroundList};
use crate::throttle::note_dirtied;
use crate::{Clock, Flushers, Tunables};
use block::{PAGE_SIZE, Plug, Queue};
use cache::Budget;
use std::io;
use std::sync::{Arc, Weak};
use sync::atomic::{AtomicUsize, Ordering};
use sync::{Mutex, RwLock};

/// A part of the budget that is worth writing back early where memory is wanted: one 32nd.
const RECLAIM_WORTH: u64 = 32;

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
    /// For a sync: the first page to look at, and the one where the sweep over the inode ends. A
    /// file that is written or appended to all the time cannot keep the sync from ending.
    pub from: u64,
    /// See `from`.
    pub end: u64,
}

/// What a slice did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Pages submitted.
    pub pages: usize,
    /// Dirty pages that can be written now remain.
    pub more: bool,
    /// Nothing could be written at the moment (all dirty pages are under writeback, no space…):
    /// come back later.
    pub blocked: bool,
    /// For a sync: the page behind the last one submitted, where the sweep goes on.
    pub next: u64,
    /// Nothing could be written, and waiting does not help: an error number. The pages stay dirty.
    pub failed: Option<i32>,
}

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
    /// Submits a slice of the inode's dirty pages into `plug`, on behalf of `batch`. It must look
    /// for dirty pages under a lock that writers hold while they dirty them, and must not wait for
    /// I/O that `plug` may hold back.
    fn write_pages(
        &self,
        inode: &Arc<Self::Inode>,
        limits: PassLimits,
        plug: &mut Plug<'_>,
        batch: &Arc<Self::Batch>,
    ) -> Progress;
    /// Whether all I/O of a (closed) batch has completed. Asked only once nothing more will be
    /// added.
    fn batch_landed(&self, batch: &Self::Batch) -> bool;
    /// Waits until the batch's I/O has completed, then records its metadata. Idempotent; anybody
    /// may call it. Errors belong to the inodes (they are dirty again); the flusher only backs off.
    /// `for_sync`: what is recorded will be asked for as soon as all has landed, and the time of
    /// the wait may be used for that.
    fn finish_batch(&self, batch: &Self::Batch, for_sync: bool) -> io::Result<()>;
    /// Whether the inode still has dirty pages.
    fn is_dirty(inode: &Self::Inode) -> bool;
    /// The page behind the last one that calls which have returned may have dirtied.
    fn end(inode: &Self::Inode) -> u64;
    /// All of a step of a large sync has landed and is recorded, and somebody waits for a small one
    /// ([`crate::courtesy`]): makes it durable, so that the small one need not wait for it. No
    /// batch is open and no bio is held back. Errors are for whoever waits for the whole.
    fn end_step(&self);
    /// Called on the flusher's idle tick (at least every `dirty_writeback`): deferred housekeeping
    /// of the file system. No plug is held and no batch is open. It must not call
    /// [`BackingDev::sync`].
    fn tick(&self);
}

/// One device's writeback.
pub struct BackingDev<F: WritebackFs> {
    /// For the flusher's thread, which holds a reference.
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
    /// Batches that are open or in flight.
    pub(crate) in_flight: AtomicUsize,
    foreground: ForegroundList,
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
            in_flight: AtomicUsize::new(0),
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
            // Counted first: the flusher may take it off at once.
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
    /// Takes the inode off (it was deleted).
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
    /// Counts pages that became dirty, then slows the caller according to the thresholds. Call with
    /// no locks held.
    pub fn account_dirtied(&self, pages: u64) {
        self.add_dirty(pages);
        self.balance_dirty_pages();
    }
    /// See [`BackingDev::account_dirtied`]: the counting half (may be called under locks).
    #[inline]
    pub fn add_dirty(&self, pages: u64) {
        if pages > 0 {
            self.limits.add(&self.share, pages);
            note_dirtied(pages);
        }
    }
    /// Pages left the dirty or writeback state (landed, or were truncated away).
    pub fn sub_dirty(&self, pages: u64) {
        if pages > 0 {
            self.limits.sub(&self.share, pages);
        }
    }
    /// Slows the caller if too much is dirty; wakes the flusher above the background threshold. No
    /// locks may be held. A pause is 100 ms at most; only where the hard threshold is far exceeded
    /// does the caller wait for pages to land, and never for ever.
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
    /// Pages a second that the device was last measured to take.
    pub fn write_bandwidth(&self) -> u64 {
        self.share.bandwidth()
    }
    /// Writes what is dirty now and waits for it to land and its metadata to be in the running
    /// transaction. What is dirtied later is not waited for. (The caller then commits the journal.)
    /// The first error of any inode; each is tried once and stays dirty where it failed. Not to be
    /// called from the flusher ([`WritebackFs::tick`]).
    pub fn sync(&self) -> io::Result<()> {
        let outcome = if self.is_idle() {
            Ok(())
        } else {
            let group = self.request_sync();
            group.and_then(|group| group.wait())
        };
        // Taken last: an fsync that began after this call may have taken pages that were dirty
        // before it.
        self.foreground.wait();
        outcome
    }
    /// Announces writeback that the caller does itself (fsync); see [`Foreground`].
    pub fn begin_foreground(&self) -> Foreground<'_> {
        self.foreground.begin()
    }
    /// The budget is exceeded: has the flusher write half of what is dirty, so that it can be
    /// reclaimed, where that is enough to matter. Cheap where that was asked for already.
    pub fn kick_reclaim(&self) {
        let dirty = self.limits.to_write() * PAGE_SIZE as u64;
        if dirty > self.limits.budget().limit() / RECLAIM_WORTH
            && !self.is_idle()
            && !self.control.reclaim.swap(true, Ordering::SeqCst)
        {
            self.kick(|_| ());
        }
    }
    /// Has the flusher call [`WritebackFs::tick`] soon, starting it where it is not running.
    pub fn kick_tick(&self) {
        self.kick(|asked| asked.tick = true);
    }
    /// The parameters.
    pub fn tunables(&self) -> Tunables {
        self.tunables.read().clone()
    }
    /// Changes them; they hold at once.
    ///
    /// # Errors
    /// `InvalidInput` says what makes no sense ([`Tunables::validate`]); then nothing has changed.
    pub fn set_tunables(&self, tunables: Tunables) -> io::Result<()> {
        tunables.validate()?;
        *self.tunables.write() = tunables;
        if !self.is_idle() {
            self.kick_background();
        }
        Ok(())
    }
    /// Ends the flusher (after a final sync by the caller) and waits until it is gone, unless the
    /// caller is on its thread. Writers are not slowed any more, and what is dirtied from here on
    /// stays so.
    pub fn shutdown(&self) {
        self.share.closed.store(true, Ordering::SeqCst);
        self.control.stop();
    }

    /// Whether nothing is dirty or in flight, as far as the flusher's work goes.
    pub(crate) fn is_idle(&self) -> bool {
        // In this order: a batch is counted before its inodes are off the lists.
        self.listed.load(Ordering::SeqCst) == 0 && self.in_flight.load(Ordering::SeqCst) == 0
    }
    pub(crate) fn thresholds(&self) -> Thresholds {
        let budget = self.limits.budget().limit();
        self.tunables.read().thresholds(budget)
    }
    /// The time for list entries; never 0, which stands for an inode that had its turn.
    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.monotonic().as_nanos() as u64 + 1
    }
}
