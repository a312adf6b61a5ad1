//! A backing device: its dirty inodes, its flusher, its share of the dirty limit.
//!
//! Locks, outermost first; none is held over a call into the file system: `control` (requests to
//! the flusher), `b_dirty` (the list that writers add to). The flusher's own lists have no lock:
//! only its thread touches them.

use crate::activity::{FlusherState, Work};
use crate::balance::{DirtyLimits, Share, Thresholds};
use crate::control::Control;
use crate::dirty_list::DirtyList;
use crate::foreground_list::ForegroundList;
use crate::interface::WritebackFs;
use crate::payer::{note_cleaned, note_dirtied};
use crate::{Flushers, Tunables};
use block::{Queue, SMALL_SYNC, SmallSync};
use cache::Budget;
use std::sync::{Arc, Weak};
use sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use sync::clock::Clock;
use sync::{Mutex, Rank, RwLock};
use units::PageSize;

/// The writeback of a device at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WritebackStats {
    /// Bytes of dirty pages that are not being written.
    pub dirty: u64,
    /// Bytes of dirty pages that are being written.
    pub under_writeback: u64,
    /// Dirty bytes of all devices on the memory budget above which the flusher writes.
    pub background_limit: u64,
    /// Dirty bytes of the device above which writers are slowed: its part of the middle between
    /// the background and the hard limit.
    pub slowing_limit: u64,
    /// Dirty bytes of the device that slowing keeps: its part of the hard limit.
    pub hard_limit: u64,
    /// Measured bytes a second that the device writes.
    pub bandwidth: u64,
    /// The state of the flusher.
    pub flusher: FlusherState,
}

/// One device's writeback.
pub struct BackingDev<F: WritebackFs> {
    /// Upgraded for the flusher's thread.
    pub(crate) me: Weak<BackingDev<F>>,
    pub(crate) fs: Weak<F>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) flushers: Flushers,
    /// The size of the pages of its files.
    pub(crate) page_size: PageSize,
    pub(crate) tunables: RwLock<Tunables>,
    pub(crate) limits: Arc<DirtyLimits>,
    pub(crate) share: Arc<Share>,
    pub(crate) b_dirty: Mutex<DirtyList<F::Inode>>,
    /// Inodes whose state is not clean.
    pub(crate) listed: AtomicUsize,
    /// Batches of the flusher that are open or in flight.
    pub(crate) flusher_batches: Arc<AtomicUsize>,
    /// Batches of the flusher that have failed. Counted after their inodes are listed again, and
    /// before `flusher_batches` falls.
    pub(crate) failed_batches: AtomicU64,
    pub(crate) foreground: ForegroundList,
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
        page_size: PageSize,
    ) -> Arc<BackingDev<F>> {
        let limits = DirtyLimits::of(budget);
        queue.throttle().configure(tunables.wbt);
        Arc::new_cyclic(|me| BackingDev {
            me: me.clone(),
            fs,
            queue,
            clock,
            flushers,
            page_size,
            tunables: Rank::Tunables.rw_lock(tunables),
            share: limits.join(),
            limits,
            b_dirty: Rank::DirtyList.mutex(DirtyList::new()),
            listed: AtomicUsize::new(0),
            flusher_batches: Arc::default(),
            failed_batches: AtomicU64::new(0),
            foreground: ForegroundList::default(),
            control: Control::new(flushers),
        })
    }

    /// Puts a dirty inode on the dirty list if it is on no list. Returns whether it did.
    #[inline]
    pub(crate) fn list_if_dirty(&self, inode: &Arc<F::Inode>) -> bool {
        !F::dirty_state(inode).note_dirtied() && self.list(inode)
    }
    fn list(&self, inode: &Arc<F::Inode>) -> bool {
        let state = F::dirty_state(inode);
        let now_ns = self.now_ns();
        loop {
            // Counted first: the flusher may take the inode off the list at once.
            self.listed.fetch_add(1, Ordering::SeqCst);
            if self.b_dirty.lock().add(inode, state, now_ns) {
                return true;
            }
            self.listed.fetch_sub(1, Ordering::SeqCst);
            if state.note_dirtied() {
                return false;
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
            let bytes = pages * self.page_size.bytes();
            self.limits.add(&self.share, bytes);
            note_dirtied(bytes);
        }
    }
    /// Uncounts pages that were written or truncated away.
    pub fn sub_dirty(&self, pages: u64) {
        if pages > 0 {
            let bytes = pages * self.page_size.bytes();
            self.limits.sub(&self.share, bytes);
        }
    }
    /// Dirty and under-writeback pages of this device.
    pub fn dirty_pages(&self) -> u64 {
        self.page_size.count_in(self.share.dirty_bytes())
    }
    /// The device's writeback now.
    pub fn stats(&self) -> WritebackStats {
        let thresholds = self.thresholds();
        let parts = self.limits.parts(&self.share, thresholds);
        let dirty = self.share.dirty_bytes();
        let under_writeback = self.share.submitted_bytes().min(dirty);
        WritebackStats {
            dirty: dirty - under_writeback,
            under_writeback,
            background_limit: thresholds.background,
            slowing_limit: parts.freerun,
            hard_limit: parts.hard,
            bandwidth: self.share.bandwidth(),
            flusher: self.flusher_state(),
        }
    }
    fn flusher_state(&self) -> FlusherState {
        let is = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        match self.control.activity.get() {
            _ if is(&self.share.closed) => FlusherState::Stopped,
            Work::Writing(reason) => FlusherState::Writing(reason),
            Work::WaitingForRoom(reason) => FlusherState::WaitingForRoom(reason),
            Work::None if is(&self.share.failing) => FlusherState::Failing,
            Work::None if is(&self.control.running) => FlusherState::Idle,
            Work::None => FlusherState::Off,
        }
    }
    /// The device's measured write bandwidth, in bytes per second.
    pub fn write_bandwidth(&self) -> u64 {
        self.share.bandwidth()
    }
    /// The writeback parameters.
    pub fn tunables(&self) -> Tunables {
        self.tunables.read().clone()
    }
    /// Ends the flusher and waits for its end, unless the caller is on its thread. The caller has
    /// done a final sync. From here on writers are not slowed, and nothing is written back.
    pub fn shutdown(&self) {
        self.share.closed.store(true, Ordering::SeqCst);
        self.queue.throttle().kick();
        self.control.stop();
    }

    /// Announces an fsync of a file with `bytes` of dirty pages, which a caller waits for until it
    /// drops the result. If it is small, a concurrent large sync proceeds in steps
    /// ([`block::SyncSteps`]), and background writes leave room ([`block::Throttle`]).
    pub fn begin_fsync(&self, bytes: u64) -> Option<SmallSync<'_>> {
        note_cleaned(bytes);
        (bytes <= SMALL_SYNC).then(|| {
            let throttle = self.queue.throttle();
            throttle.announce_small_sync(self.clock.monotonic());
            throttle.begin_small_sync()
        })
    }
    /// The caller queues an fsync of a file with `bytes` of dirty pages. It does not pay for them.
    pub fn note_queued_fsync(&self, bytes: u64) {
        note_cleaned(bytes);
    }
    /// Announces fsyncs of a few files that were queued. Background writes leave room, but a large
    /// sync takes no steps: the requests may be the first of many.
    pub fn begin_queued_fsync(&self, bytes: u64) -> Option<SmallSync<'_>> {
        (bytes <= SMALL_SYNC).then(|| self.queue.throttle().begin_small_sync())
    }
    /// Whether the flusher has nothing dirty and nothing in flight.
    pub(crate) fn is_idle(&self) -> bool {
        // In this order: a batch is counted before its inodes are off the lists. The inodes of a
        // batch that fails go back to them.
        let failed = self.failed_batches.load(Ordering::SeqCst);
        self.listed.load(Ordering::SeqCst) == 0
            && self.flusher_batches.load(Ordering::SeqCst) == 0
            && self.failed_batches.load(Ordering::SeqCst) == failed
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
