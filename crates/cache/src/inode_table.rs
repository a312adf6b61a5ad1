//! Inodes in memory: look-ups without locks, pins, and reclaim from sharded LRU lists.
//!
//! Invariants:
//! - For one number at most one object is alive (not dead, not removed) at any time. Objects enter
//!   the table only under a claim on their number (`loading`), after a dead predecessor has been
//!   taken out.
//! - An object leaves the table once, by whoever wins the conditional removal; the winner gives
//!   back its LRU slot. Its charge it keeps until it is dropped.
//! - An object with users or with something to lose is never evicted: see [`crate::pins`] for how
//!   the two are decided together.
//!
//! Locks: a look-up takes none, nor does whoever puts an inode into the map or takes it out.

mod runs;

use crate::loading::Loading;
use crate::lru::Lru;
use crate::pins::{Pins, Unpinned};
use crate::{Budget, Kind, Mapping, Shrinker};
use block::PAGE_SIZE;
use crossbeam_queue::ArrayQueue;
use runs::Runs;
use std::ops::Deref;
use std::sync::{Arc, Weak};
use sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes of a file that is evicted whole (64 KiB).
const SMALL_FILE: u64 = 64 << 10;

/// What the table needs to know of an inode.
pub trait CachedInode: Send + Sync + 'static {
    /// Its pin count.
    fn pins(&self) -> &Pins;
    /// Its pages.
    fn mapping(&self) -> &Mapping;
    /// Whether nothing would be lost by forgetting it (clean, not under writeback, not doomed).
    /// Called with no pins held; whoever wants to pin it waits meanwhile, so it must be quick and
    /// must not pin.
    fn is_clean(&self) -> bool;
    /// Bytes it takes in memory beside its pages. Asked once, when it enters the table.
    fn footprint(&self) -> usize;
    /// The last pin was dropped. Must not block: an inode without links is queued for deletion
    /// here. Not called once the inode has been removed from the table.
    fn last_unpinned(self: &Arc<Self>);
}

/// A pinned inode.
pub struct InodeRef<T: CachedInode>(Arc<T>);
impl<T: CachedInode> Deref for InodeRef<T> {
    type Target = Arc<T>;
    fn deref(&self) -> &Arc<T> {
        &self.0
    }
}
impl<T: CachedInode> Clone for InodeRef<T> {
    fn clone(&self) -> Self {
        self.0.pins().pin_again();
        InodeRef(self.0.clone())
    }
}
impl<T: CachedInode> Drop for InodeRef<T> {
    fn drop(&mut self) {
        if self.0.pins().unpin() == Unpinned::Idle {
            self.0.last_unpinned();
        }
    }
}

/// Slots that the clock's hand passes under one lock.
const VISITS: usize = 64;
/// The part of the budget that the memory of evicted inodes may take, kept for new ones.
const SPARES_PART: u64 = 256;
/// Turns of the clock in one shrink: an inode and then its pages may each be spared once before
/// they go.
const TURNS: usize = 4;

/// Every inode in memory of one volume.
pub struct InodeTable<T: CachedInode> {
    inodes: Runs<T>,
    lru: Lru,
    loading: Loading,
    /// The LRU shard that the next shrink begins with.
    next_shard: AtomicUsize,
    /// Memory of evicted inodes, for new ones: it goes from one to the next without the heap, which
    /// is slow to divide and to join blocks of this size and has an arena for each thread that
    /// makes inodes.
    spares: ArrayQueue<Arc<T>>,
}

impl<T: CachedInode> InodeTable<T> {
    /// An empty table; it registers itself as a shrinker of `budget`.
    pub fn new(budget: &Budget) -> Arc<InodeTable<T>> {
        let spares = (budget.limit() / SPARES_PART) as usize / size_of::<T>();
        let table = Arc::new(InodeTable {
            inodes: Runs::default(),
            lru: Lru::default(),
            loading: Loading::default(),
            next_shard: AtomicUsize::new(0),
            spares: ArrayQueue::new(spares.max(1)),
        });
        budget.register(Arc::downgrade(&table) as Weak<dyn Shrinker>);
        table
    }
    /// Inodes held.
    pub fn len(&self) -> usize {
        self.inodes.len()
    }
    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// A cached inode, pinned. Takes no lock.
    #[inline]
    pub fn get(&self, ino: u32) -> Option<InodeRef<T>> {
        pinned(self.inodes.get(ino)?)
    }
    /// A cached inode, or the one that `load` makes; concurrent callers for one number load it
    /// once. `load` may block and may get other inodes, but not this one.
    pub fn get_or_load<E>(
        &self,
        ino: u32,
        load: impl FnOnce() -> Result<T, E>,
    ) -> Result<InodeRef<T>, E> {
        if let Some(found) = self.get(ino) {
            return Ok(found);
        }
        let _claim = self.loading.claim(ino);
        match self.settle(ino) {
            Some(found) => Ok(found),
            None => Ok(self.publish(ino, load()?)),
        }
    }
    /// Adds a new inode. A live one of that number must not exist (it panics in debug builds;
    /// otherwise the old one is removed first).
    pub fn insert(&self, ino: u32, inode: T) -> InodeRef<T> {
        let _claim = self.loading.claim(ino);
        if self.settle(ino).is_some() {
            debug_assert!(false, "inode {ino} is inserted while it is alive");
            self.remove(ino);
        }
        self.publish(ino, inode)
    }
    /// Takes an inode out of the table for good (it was deleted); whoever still holds it keeps it,
    /// and the last of them makes it dead.
    pub fn remove(&self, ino: u32) {
        if let Some(inode) = self.inodes.remove(ino) {
            inode.pins().remove();
            self.leave_lru(ino, &inode);
        }
    }
    /// Takes an inode that nobody uses out of the table, dirty or not, because the caller is about
    /// to delete it. `false` where it is in use again or somebody else took it out.
    pub fn retire(&self, ino: u32, inode: &Arc<T>) -> bool {
        let pins = inode.pins();
        if !pins.kill() {
            return false;
        }
        pins.bury();
        self.take_out(ino, inode)
    }
    /// Pins an inode that the caller holds an `Arc` of; `None` where it is dead.
    #[inline]
    pub fn pin(&self, inode: &Arc<T>) -> Option<InodeRef<T>> {
        pinned(inode.clone())
    }
    /// Calls `each` for every inode held, in no order, without stopping others.
    pub fn for_each(&self, mut each: impl FnMut(&Arc<T>)) {
        for inode in self.inodes.objects() {
            if !inode.pins().is_dead() {
                each(&inode);
            }
        }
    }
    /// Frees about `want` bytes: clean pages first touched longest ago, and unpinned clean inodes,
    /// of small files at once with their pages, of others a turn later. How many it freed. Does not
    /// block.
    pub fn shrink(&self, want: u64) -> u64 {
        let freed = self.turn_clock(want);
        if freed < want {
            // There is not enough of anything. (Those that are put there meanwhile may stay.)
            for _ in 0..self.spares.len() {
                self.spares.pop();
            }
        }
        freed
    }
    fn turn_clock(&self, want: u64) -> u64 {
        let mut freed = 0;
        let mut visited = Vec::with_capacity(VISITS);
        for _ in 0..TURNS {
            let first = self.next_shard.fetch_add(1, Relaxed);
            for i in 0..self.lru.shards() {
                let shard = (first + i) % self.lru.shards();
                let mut left = self.lru.turn(shard);
                while left > 0 {
                    if freed >= want {
                        return freed;
                    }
                    let visits = left.min(VISITS);
                    left -= visits;
                    self.lru.advance(shard, visits, &mut visited);
                    self.fetch(&visited);
                    for ino in visited.drain(..) {
                        freed += self.visit(ino, want.saturating_sub(freed));
                    }
                }
            }
        }
        freed
    }

    /// Whoever is alive under this number, pinned; a dead one is taken out. The caller has the
    /// claim, so nobody else puts one in.
    fn settle(&self, ino: u32) -> Option<InodeRef<T>> {
        let held = self.inodes.get(ino)?;
        let pinned = self.pin(&held);
        if pinned.is_none() {
            self.take_out(ino, &held);
        }
        pinned
    }
    /// Puts in an inode of a claimed number, pinned once.
    fn publish(&self, ino: u32, inode: T) -> InodeRef<T> {
        let footprint = inode.footprint().min(u32::MAX as usize) as u32;
        inode.mapping().charge_inode(footprint);
        let inode = self.place(inode);
        let pins = inode.pins();
        assert!(pins.try_pin(), "an inode that has been used is inserted");
        pins.slot.store(self.lru.insert(ino), Relaxed);
        // The map publishes what was stored above.
        let refused = self.inodes.insert(ino, inode.clone());
        assert!(refused.is_none(), "two inodes of one number");
        InodeRef(inode)
    }
    /// Takes a dead inode out, unless somebody did.
    fn take_out(&self, ino: u32, inode: &Arc<T>) -> bool {
        let won = self.inodes.remove_same(ino, inode);
        if won {
            self.leave_lru(ino, inode);
        }
        won
    }
    fn leave_lru(&self, ino: u32, inode: &T) {
        self.lru.remove(ino, inode.pins().slot.load(Relaxed));
    }
    /// The clock's hand is at this inode: spare it, take pages of it, or take it. Bytes freed.
    fn visit(&self, ino: u32, want: u64) -> u64 {
        let Some(inode) = self.inodes.get(ino) else {
            return 0;
        };
        if inode.pins().spare() {
            return 0;
        }
        let mapping = inode.mapping();
        if mapping.pages() > 0 {
            let pages = want.div_ceil(PAGE_SIZE as u64);
            let freed = mapping.reclaim(pages) * PAGE_SIZE as u64;
            // What is left of a small file goes with its last page. Otherwise pages go in one turn
            // and inodes in the next, and the memory of each is given back while the other is short
            // of it.
            let small = freed <= SMALL_FILE && mapping.pages() == 0;
            return freed + if small { self.evict(ino, inode) } else { 0 };
        }
        self.evict(ino, inode)
    }
    fn evict(&self, ino: u32, inode: Arc<T>) -> u64 {
        let pins = inode.pins();
        if !pins.kill() {
            return 0;
        }
        // A panic in `is_clean` must not leave it dying for ever.
        let verdict = Verdict(pins);
        let forget = inode.is_clean() && inode.mapping().pages() == 0;
        std::mem::forget(verdict);
        if !forget {
            pins.revive();
            return 0;
        }
        pins.bury();
        if !self.take_out(ino, &inode) {
            return 0;
        }
        let freed = inode.mapping().inode_bytes();
        self.salvage(inode);
        freed
    }
    /// Has what the clock's hand comes to next brought into the processor's cache, all at once:
    /// loads that do not depend on one another overlap, those of one visit after the other do not.
    fn fetch(&self, inos: &[u32]) {
        let mut sum = 0;
        self.inodes.with_each(inos, |inode| {
            sum += u64::from(inode.pins().count()) + inode.mapping().pages();
        });
        std::hint::black_box(sum);
    }
    /// Keeps the memory of an inode that was taken out, if nobody else has the inode.
    fn salvage(&self, mut inode: Arc<T>) {
        if Arc::get_mut(&mut inode).is_some() && !self.spares.is_full() {
            inode.mapping().discharge_inode();
            // Where others have filled it meanwhile, the inode is dropped.
            let _ = self.spares.push(inode);
        }
    }
    /// Gives an inode a place in memory.
    fn place(&self, inode: T) -> Arc<T> {
        let Some(mut spare) = self.spares.pop() else {
            return Arc::new(inode);
        };
        *Arc::get_mut(&mut spare).expect("a spare has one owner") = inode;
        spare
    }
}

/// Pins an inode, unless it is dead.
#[inline]
fn pinned<T: CachedInode>(inode: Arc<T>) -> Option<InodeRef<T>> {
    inode.pins().try_pin().then(|| {
        inode.pins().reference();
        InodeRef(inode)
    })
}

/// Revives a dying inode on drop.
struct Verdict<'a>(&'a Pins);
impl Drop for Verdict<'_> {
    fn drop(&mut self) {
        self.0.revive();
    }
}

impl<T: CachedInode> Shrinker for InodeTable<T> {
    fn kind(&self) -> Kind {
        Kind::Pages
    }
    fn shrink(&self, want: u64) -> u64 {
        InodeTable::shrink(self, want)
    }
}

#[cfg(test)]
mod tests;
