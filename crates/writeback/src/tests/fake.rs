//! A file system of bare mappings over a memory device.

use crate::control::Requests;
use crate::flusher::Flusher;
use crate::*;
use ::sync::clock::{Clock, ManualClock};
use ::sync::{Condvar, Mutex};
use block::{Bio, Buf, BufMut, Class, DeviceUrl, EndIo, IoError, OpenMode, Payload, Plug, Queue};
use cache::{Budget, Delalloc, ErrSeq, Mapping};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use units::{PageIndex, PageSize};

pub const DEVICE_BYTES: u64 = 64 << 20;

pub struct Inode {
    pub ino: u32,
    pub state: DirtyState,
    pub mapping: Mapping,
    errors: ErrSeq,
    /// Nothing of it can be written.
    pub blocked: AtomicBool,
    /// And waiting does not help.
    pub damaged: AtomicBool,
    pub panics: AtomicBool,
    /// Another thread writes its pages: the next call is told so, or waits.
    pub locked: AtomicBool,
    /// The highest version whose page landed.
    pub landed: AtomicU64,
    /// Pages up to the last that was ever written.
    end: AtomicU32,
}

/// Pages of an inode, and the version that is on its way.
type Written = (Arc<Inode>, Range<PageIndex>, u64);

pub struct Batch {
    pending: AtomicUsize,
    failed: AtomicBool,
    /// Any thread may finish it.
    closed: AtomicBool,
    /// When its I/O lands, however early memory has it.
    lands_at: Duration,
    ranges: Mutex<Vec<Written>>,
    finished: Mutex<bool>,
    /// Inodes of which a page failed.
    failures: Mutex<Vec<u32>>,
    landed: Condvar,
    lock: Mutex<()>,
}
impl EndIo for Batch {
    fn end_io(&self, _tag: u64, _payload: Payload, result: Result<(), IoError>) {
        if result.is_err() {
            self.failed.store(true, SeqCst);
        }
        if self.pending.fetch_sub(1, SeqCst) == 1 {
            drop(self.lock.lock());
            self.landed.notify_all();
        }
    }
}

/// The error of what is damaged.
pub const EUCLEAN: i32 = 117;

/// A slice that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submitted {
    pub ino: u32,
    pub pages: usize,
    pub reason: Reason,
}
type Hook = Box<dyn Fn(&FakeFs, &Arc<Inode>) + Send + Sync>;

pub struct FakeFs {
    dev: OnceLock<Arc<BackingDev<FakeFs>>>,
    pub queue: Arc<Queue>,
    pub budget: Arc<Budget>,
    clock: Arc<dyn Clock>,
    /// Batches that were finished for a sync.
    pub for_sync: AtomicUsize,
    /// How long the device takes for a batch, one after another.
    pub batch_time: Mutex<Duration>,
    busy_until: Mutex<Duration>,
    pub log: Mutex<Vec<Submitted>>,
    /// Slices that were written when a step ended.
    pub steps: Mutex<Vec<usize>>,
    batches: Mutex<Vec<Arc<Batch>>>,
    /// Called after a slice was submitted.
    pub hook: Mutex<Option<Hook>>,
    pub fails: AtomicBool,
    pub ticks: AtomicUsize,
    /// Panics that it was told about.
    pub panics: AtomicUsize,
    pub finished: AtomicUsize,
    next_offset: AtomicU64,
    page_size: PageSize,
}

impl FakeFs {
    pub fn new(clock: Arc<dyn Clock>, budget_pages: u64, tunables: Tunables) -> Arc<FakeFs> {
        let budget = Budget::new(budget_pages * 4096);
        Self::on(&budget, clock, tunables, Flushers::PerDevice)
    }
    pub fn on(
        budget: &Arc<Budget>,
        clock: Arc<dyn Clock>,
        tunables: Tunables,
        flushers: Flushers,
    ) -> Arc<FakeFs> {
        Self::with_pages(PageSize::KIB_4, budget, clock, tunables, flushers)
    }
    pub fn with_pages(
        page_size: PageSize,
        budget: &Arc<Budget>,
        clock: Arc<dyn Clock>,
        tunables: Tunables,
        flushers: Flushers,
    ) -> Arc<FakeFs> {
        let queue = block::open(&DeviceUrl::memory(DEVICE_BYTES), OpenMode::ReadWrite).unwrap();
        let fs = Arc::new(FakeFs {
            dev: OnceLock::new(),
            queue: queue.clone(),
            budget: budget.clone(),
            clock: clock.clone(),
            for_sync: AtomicUsize::new(0),
            batch_time: Mutex::default(),
            busy_until: Mutex::default(),
            log: Mutex::default(),
            steps: Mutex::default(),
            batches: Mutex::default(),
            hook: Mutex::default(),
            fails: AtomicBool::new(false),
            ticks: AtomicUsize::new(0),
            panics: AtomicUsize::new(0),
            finished: AtomicUsize::new(0),
            next_offset: AtomicU64::new(0),
            page_size,
        });
        let dev = BackingDev::new(
            Arc::downgrade(&fs),
            queue,
            budget,
            clock,
            tunables,
            flushers,
            page_size,
        );
        fs.dev.set(dev).ok().unwrap();
        fs
    }
    pub fn dev(&self) -> &Arc<BackingDev<FakeFs>> {
        self.dev.get().unwrap()
    }
    pub fn inode(&self, ino: u32) -> Arc<Inode> {
        Arc::new(Inode {
            ino,
            state: DirtyState::default(),
            mapping: Mapping::new(self.budget.clone(), self.page_size),
            errors: ErrSeq::default(),
            blocked: AtomicBool::new(false),
            damaged: AtomicBool::new(false),
            panics: AtomicBool::new(false),
            locked: AtomicBool::new(false),
            landed: AtomicU64::new(0),
            end: AtomicU32::new(0),
        })
    }
    /// Stores a version in a page and marks the inode dirty.
    pub fn write(&self, inode: &Arc<Inode>, page: u32, version: u64) {
        inode.end.fetch_max(page + 1, SeqCst);
        let before =
            inode
                .mapping
                .store_dirty(PageIndex(page), self.content(version), Delalloc::Keep);
        self.dev().add_dirty(u64::from(!before.dirty));
        self.dev().mark_dirty(inode);
    }
    fn content(&self, version: u64) -> Buf {
        let mut buf = BufMut::zeroed(self.page_size.as_usize());
        buf[..8].copy_from_slice(&version.to_le_bytes());
        buf.freeze()
    }
    /// Batches that have begun, and those of them that only their owner may finish.
    pub fn open_batches(&self) -> (usize, usize) {
        let batches = self.batches.lock();
        let open = batches.iter().filter(|batch| !batch.closed.load(SeqCst));
        (batches.len(), open.count())
    }
    pub fn take_log(&self) -> Vec<Submitted> {
        std::mem::take(&mut self.log.lock())
    }
    /// The numbers of the inodes written since last asked.
    pub fn written(&self) -> Vec<u32> {
        self.take_log().iter().map(|slice| slice.ino).collect()
    }
}

impl WritebackFs for FakeFs {
    type Inode = Inode;
    type Batch = Batch;
    type Route = ();
    type Error = i32;
    fn dirty_state(inode: &Inode) -> &DirtyState {
        &inode.state
    }
    fn mapping(inode: &Inode) -> &Mapping {
        &inode.mapping
    }
    fn errors(inode: &Inode) -> &ErrSeq {
        &inode.errors
    }
    fn errno(error: &i32) -> i32 {
        *error
    }
    fn write_error(errno: i32) -> i32 {
        errno
    }
    fn new_batch(&self, _expected: u64, (): ()) -> Arc<Batch> {
        let mut busy_until = self.busy_until.lock();
        *busy_until = (*busy_until).max(self.clock.monotonic()) + *self.batch_time.lock();
        let batch = Arc::new(Batch {
            pending: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            lands_at: *busy_until,
            ranges: Mutex::default(),
            finished: Mutex::new(false),
            failures: Mutex::default(),
            landed: Condvar::new(),
            lock: Mutex::default(),
        });
        self.batches.lock().push(batch.clone());
        batch
    }
    fn write_pages(
        &self,
        inode: &Arc<Inode>,
        slice: Slice,
        plug: &mut Plug<'_>,
        batch: &Arc<Batch>,
    ) -> Progress<i32> {
        assert!(
            !inode.panics.swap(false, SeqCst),
            "a panic that a test asked for"
        );
        let mut pages = Vec::new();
        let damaged = inode.damaged.load(SeqCst);
        let locked = inode.locked.load(SeqCst) && slice.on_locked == OnLocked::Skip;
        if !damaged && !locked && !inode.blocked.load(SeqCst) {
            inode
                .mapping
                .take_dirty(slice.from..slice.end, slice.pages, &mut pages);
        }
        for page in &pages {
            let version = u64::from_le_bytes(page.buf[..8].try_into().unwrap());
            batch
                .ranges
                .lock()
                .push((inode.clone(), page.index..page.index + 1, version));
            batch.pending.fetch_add(1, SeqCst);
            let bytes = self.page_size.bytes();
            let offset = self.next_offset.fetch_add(bytes, SeqCst) % DEVICE_BYTES;
            let bufs = std::iter::once(page.buf.clone()).collect();
            plug.add(Bio::write(
                offset,
                bufs,
                Class::Data,
                slice.reason.into(),
                batch.clone(),
                0,
            ));
        }
        self.log.lock().push(Submitted {
            ino: inode.ino,
            pages: pages.len(),
            reason: slice.reason,
        });
        if let Some(hook) = &*self.hook.lock() {
            hook(self, inode);
        }
        let more = inode.mapping.dirty_pages() > 0;
        Progress {
            pages: pages.len(),
            more,
            blocked: pages.is_empty() && more,
            locked,
            next: pages.last().map_or(slice.from, |page| page.index + 1),
            failed: damaged.then_some(EUCLEAN),
        }
    }
    fn close_batch(batch: &Batch) {
        batch.closed.store(true, SeqCst);
    }
    fn batch_completed(&self, batch: &Batch) -> bool {
        batch.closed.store(true, SeqCst);
        batch.pending.load(SeqCst) == 0 && batch.lands_at <= self.clock.monotonic()
    }
    fn finish_batch(&self, batch: &Batch, reason: Reason) -> Result<(), i32> {
        let for_sync = usize::from(reason == Reason::Sync);
        self.for_sync.fetch_add(for_sync, SeqCst);
        let mut guard = batch.lock.lock();
        while batch.pending.load(SeqCst) > 0 {
            batch.landed.wait(&mut guard);
        }
        drop(guard);
        let early = batch.lands_at.saturating_sub(self.clock.monotonic());
        if !early.is_zero() {
            self.clock.sleep(early);
        }
        let mut finished = batch.finished.lock();
        if std::mem::replace(&mut *finished, true) {
            return Ok(());
        }
        self.finished.fetch_add(1, SeqCst);
        let failed = batch.failed.load(SeqCst) || self.fails.load(SeqCst);
        for (inode, range, version) in batch.ranges.lock().drain(..) {
            if failed {
                batch.failures.lock().push(inode.ino);
                inode.errors.set(5);
                let redirtied = inode.mapping.fail_writeback(range);
                self.dev().sub_dirty(1 - redirtied);
                self.dev().mark_dirty(&inode);
            } else {
                inode.landed.fetch_max(version, SeqCst);
                self.dev().sub_dirty(inode.mapping.end_writeback(range));
            }
        }
        match batch.failures.lock().is_empty() {
            true => Ok(()),
            false => Err(5),
        }
    }
    fn is_dirty(inode: &Inode) -> bool {
        inode.mapping.dirty_pages() > 0
    }
    fn end(inode: &Inode) -> PageIndex {
        PageIndex(inode.end.load(SeqCst))
    }
    fn batch_error(batch: &Batch, inode: &Inode) -> Option<i32> {
        let failed = batch.failures.lock();
        failed.contains(&inode.ino).then_some(5)
    }
    fn wait_writeback(&self, inode: &Inode) {
        while inode.mapping.writeback_pages() > 0 {
            std::thread::yield_now();
        }
    }
    fn make_step_durable(&self) {
        self.steps.lock().push(self.log.lock().len());
    }
    fn panicked(&self) {
        self.panics.fetch_add(1, SeqCst);
    }
    fn tick(&self) {
        self.ticks.fetch_add(1, SeqCst);
    }
}

/// A file system whose flusher a test drives.
pub struct ByHand {
    pub fs: Arc<FakeFs>,
    pub clock: Arc<ManualClock>,
    pub flusher: Flusher<FakeFs>,
}
impl ByHand {
    /// A budget of 10,000 pages: 1,000 are the background threshold, 2,000 the hard one.
    pub fn new() -> ByHand {
        Self::with(Tunables::default())
    }
    pub fn with(tunables: Tunables) -> ByHand {
        let clock = Arc::new(ManualClock::default());
        let budget = Budget::new(10_000 * 4096);
        Self::on(&budget, &clock, tunables, Flushers::PerDevice)
    }
    /// One of several on a budget and a clock.
    pub fn on(
        budget: &Arc<Budget>,
        clock: &Arc<ManualClock>,
        tunables: Tunables,
        flushers: Flushers,
    ) -> ByHand {
        let fs = FakeFs::on(budget, clock.clone(), tunables, flushers);
        fs.dev().control.lock().by_hand = true;
        let flusher = Flusher::new(fs.dev().clone());
        let clock = clock.clone();
        ByHand { fs, clock, flusher }
    }
    /// Carries out the work that there is now, at most `most` pieces of it.
    pub fn step(&mut self, most: usize) {
        for _ in 0..most {
            let dev = self.fs.dev().clone();
            let mut requests: ::sync::MutexGuard<'_, Requests> = dev.control.lock();
            let work = self
                .flusher
                .next_work(&mut requests, self.clock.monotonic());
            drop(requests);
            match work {
                Some(work) => assert!(self.flusher.run(work)),
                None => return,
            }
        }
        assert!(most == 1, "there is always something to do");
    }
    pub fn settle(&mut self) {
        self.step(100);
    }
    pub fn advance(&mut self, by: Duration) {
        self.clock.advance(by);
        self.settle();
    }
    pub fn files(&self, inos: Range<u32>, pages: u32) -> Vec<Arc<Inode>> {
        let file = |ino| {
            let inode = self.fs.inode(ino);
            (0..pages).for_each(|page| self.fs.write(&inode, page, 1));
            inode
        };
        inos.map(file).collect()
    }
}
