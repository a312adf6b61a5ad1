//! The inode table: lookups without locks, pins, and reclaim from sharded LRU lists.
//!
//! Invariants:
//! - At most one object of a number is alive (not dead, not removed). Objects enter the table only
//!   under a claim on their number (`loading`), after a dead predecessor has been removed.
//! - An object leaves the table once. It stays charged to the budget until it is dropped.
//! - An object that has users or is not clean is never evicted. [`crate::pins`] decides both
//!   together.
//!
//! Locks: lookups take none. An insertion or removal takes one only if its run begins or ends
//! (`runs`).

mod runs;
mod tree;

use crate::heap::heap_bytes;
use crate::large_files::LargeFiles;
use crate::loading::Loading;
use crate::lru::Stops;
use crate::pins::{Pins, Unpinned};
use crate::{Budget, Kind, Mapping, Reclaimed, Shrinker};
use crossbeam_queue::ArrayQueue;
use runs::Runs;
use std::ops::Deref;
use std::sync::{Arc, Weak};
use sync::atomic::{AtomicUsize, Ordering::Relaxed};
use units::Ino;

/// Bytes of a file that is evicted whole (64 KiB).
const SMALL_FILE: u64 = 64 << 10;

/// The table's view of an inode.
pub trait CachedInode: Send + Sync + 'static {
    /// The pin count.
    fn pins(&self) -> &Pins;
    /// The cached pages.
    fn mapping(&self) -> &Mapping;
    /// Whether the inode may be evicted (clean, not under writeback, not to be deleted). Called
    /// without pins. Threads that want to pin the inode wait meanwhile, so this must be quick and
    /// must not pin.
    fn is_clean(&self) -> bool;
    /// Bytes in memory besides the object itself and the pages. Called once, when the inode enters
    /// the table.
    fn more_bytes(&self) -> usize;
    /// Called when the last pin is dropped, unless the inode was removed from the table. It queues
    /// an inode without links for deletion. Must not block.
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

/// Stops of the clock's hand under one lock.
const VISITS: usize = 64;
/// The part of the budget that may hold memory of evicted inodes, for new ones.
const SPARES_PART: u64 = 256;
/// Turns of the clock in one shrink: an inode and its pages may each be spared once.
const TURNS: usize = 4;

/// All cached inodes of a volume.
pub struct InodeTable<T: CachedInode> {
    inodes: Runs<T>,
    loading: Loading,
    /// The LRU shard that the next shrink begins with.
    next_shard: AtomicUsize,
    /// Files that were not small when the clock's hand passed them.
    large: LargeFiles,
    budget: Arc<Budget>,
    /// Memory of evicted inodes, for new ones. The heap is slow to split and merge blocks of this
    /// size, and has an arena for each thread.
    spares: ArrayQueue<Arc<T>>,
}

impl<T: CachedInode> InodeTable<T> {
    /// Bytes that a cached inode takes: the object with the counts of its `Arc`, and its entry in
    /// the table if its neighbours have one, too.
    pub const INODE_BYTES: usize = heap_bytes(size_of::<T>() + 16) + runs::ENTRY_BYTES;

    /// An empty table, registered as a shrinker of `budget`.
    pub fn new(budget: &Arc<Budget>) -> Arc<InodeTable<T>> {
        let spares = (budget.limit() / SPARES_PART) as usize / size_of::<T>();
        let table = Arc::new(InodeTable {
            inodes: Runs::default(),
            loading: Loading::default(),
            next_shard: AtomicUsize::new(0),
            large: LargeFiles::default(),
            budget: budget.clone(),
            spares: ArrayQueue::new(spares.max(1)),
        });
        budget.register(Arc::downgrade(&table) as Weak<dyn Shrinker>);
        table
    }
    /// The number of cached inodes.
    pub fn len(&self) -> usize {
        self.inodes.len()
    }
    /// Whether no inode is cached.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Pins a cached inode. Takes no lock.
    #[inline]
    pub fn get(&self, ino: Ino) -> Option<InodeRef<T>> {
        pinned(self.inodes.get(ino)?)
    }
    /// Calls `read` with a cached inode that is not dead, without a pin. Takes no lock. `read` must
    /// not wait: a thread that removes or evicts the inode waits for it, with locks.
    #[inline]
    pub fn read<R>(&self, ino: Ino, read: impl FnOnce(&T) -> Option<R>) -> Option<R> {
        let read = |inode: &T| match inode.pins().is_dead() {
            true => None,
            false => {
                inode.pins().reference();
                read(inode)
            }
        };
        self.inodes.with(ino, read)?
    }
    /// Returns a cached inode without a pin and without a use for the LRU order, for a scan of all
    /// inodes. It may be evicted or removed at any moment after the call.
    pub fn peek(&self, ino: Ino) -> Option<Arc<T>> {
        let inode = self.inodes.get(ino)?;
        (!inode.pins().is_dead()).then_some(inode)
    }
    /// Pins a cached inode, or loads it with `load`. Concurrent callers load a number once. `load`
    /// may block and may get other inodes, but not this one.
    pub fn get_or_load<E>(
        &self,
        ino: Ino,
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
    /// Adds a new inode. A live one of this number must not exist: debug builds panic, release
    /// builds remove the old one first.
    pub fn insert(&self, ino: Ino, inode: T) -> InodeRef<T> {
        let _claim = self.loading.claim(ino);
        if self.settle(ino).is_some() {
            debug_assert!(false, "inode {ino} is inserted while it is alive");
            self.remove(ino);
        }
        self.publish(ino, inode)
    }
    /// Removes a deleted inode from the table. Holders keep it; the last unpin makes it dead.
    pub fn remove(&self, ino: Ino) {
        if let Some(inode) = self.inodes.remove(ino) {
            inode.pins().remove();
        }
    }
    /// Removes an inode without users, dirty or not, from the table, because the caller deletes it.
    /// Returns `false` if it is in use again, or if another thread deletes it.
    pub fn retire(&self, ino: Ino, inode: &Arc<T>) -> bool {
        if !inode.pins().retire() {
            return false;
        }
        // A thread that looks the number up may have taken the dead inode out already.
        self.take_out(ino, inode);
        true
    }
    /// Lets no other thread pin an inode any more, because the caller deletes it. The caller
    /// removes it from the table before its number can be used again. Returns `false` if the inode
    /// has other users.
    pub fn doom(&self, inode: &InodeRef<T>) -> bool {
        inode.pins().doom()
    }
    /// Pins an inode of which the caller holds an `Arc`. Returns `None` if it is dead.
    #[inline]
    pub fn pin(&self, inode: &Arc<T>) -> Option<InodeRef<T>> {
        pinned(inode.clone())
    }
    /// Calls `each` for every cached inode, in any order. Other threads are not blocked.
    pub fn for_each(&self, mut each: impl FnMut(&Arc<T>)) {
        for inode in self.inodes.objects() {
            if !inode.pins().is_dead() {
                each(&inode);
            }
        }
    }
    /// Frees about `want` bytes: least recently used clean pages, and unpinned clean inodes. The
    /// inode of a small file is evicted with its pages, others one turn later. Returns the number
    /// of freed bytes. The call does not block.
    ///
    /// The clock's hand first passes the same part of the inodes as is wanted of all memory, as the
    /// kernel scans its caches (`shrink_slab`); a smaller part while the pages of large files are
    /// used once (`cache::reuse`). Large files free the rest, and only then more inodes.
    pub fn shrink(&self, want: u64) -> u64 {
        let mut freed = self.pass_share(want);
        if freed < want {
            freed += self.reclaim_large(want - freed);
        }
        if freed < want {
            freed += self.turn_clock(want - freed);
        }
        if freed < want {
            // The caches do not have enough. Spares added meanwhile may stay.
            for _ in 0..self.spares.len() {
                self.spares.pop();
            }
        }
        freed
    }
    /// Passes the inodes' share of `want`. Pages of large files are left alone.
    fn pass_share(&self, want: u64) -> u64 {
        let lru = self.inodes.lru();
        let shard = self.next_shard.fetch_add(1, Relaxed) % lru.shards();
        // Each call passes one shard, so its part is as many times larger.
        let stops = lru.turn(shard) as u64;
        let wanted = want.saturating_mul(lru.shards() as u64);
        let part = u128::from(stops) * u128::from(wanted) / u128::from(self.budget.used().max(1));
        let visits = self.budget.reuse().of(part.min(u128::from(stops)) as u64) as usize;
        self.pass(shard, visits, want, Large::Keep)
    }
    fn turn_clock(&self, want: u64) -> u64 {
        let mut freed = 0;
        let lru = self.inodes.lru();
        for _ in 0..TURNS {
            let first = self.next_shard.fetch_add(1, Relaxed);
            for i in 0..lru.shards() {
                let shard = (first + i) % lru.shards();
                let left = want.saturating_sub(freed);
                freed += self.pass(shard, lru.turn(shard), left, Large::Reclaim);
                if freed >= want {
                    return freed;
                }
            }
        }
        freed
    }
    /// Advances the hand of a shard by `visits` stops, or until `want` bytes are freed.
    fn pass(&self, shard: usize, visits: usize, want: u64, large: Large) -> u64 {
        let (mut freed, mut left) = (0, visits);
        let mut at = Vec::new();
        let mut visited = Vec::with_capacity(VISITS.min(visits));
        while left > 0 && freed < want {
            let visits = left.min(VISITS);
            left -= visits;
            self.inodes.lru().advance(shard, visits, &mut at);
            self.fetch(&at, &mut visited);
            at.clear();
            for ino in visited.drain(..) {
                freed += self.visit(ino, want.saturating_sub(freed), large);
            }
        }
        freed
    }
    /// Frees clean pages of large files, in turn.
    fn reclaim_large(&self, want: u64) -> u64 {
        let mut all = Reclaimed::default();
        for _ in 0..self.large.len() {
            let Some(ino) = self.large.next() else {
                break;
            };
            let inode = self.inodes.get(ino).filter(|inode| is_large(&**inode));
            match inode {
                Some(inode) => {
                    let met = inode.mapping().reclaim(want - all.freed);
                    all.freed += met.freed;
                    all.spared += met.spared;
                }
                None => self.large.remove(ino),
            }
            if all.freed >= want {
                break;
            }
        }
        self.budget.reuse().note(all.freed, all.spared);
        all.freed
    }

    /// Pins the live inode of this number; removes a dead one. The caller has the claim, so no
    /// other thread inserts one.
    fn settle(&self, ino: Ino) -> Option<InodeRef<T>> {
        let held = self.inodes.get(ino)?;
        let pinned = self.pin(&held);
        if pinned.is_none() {
            self.take_out(ino, &held);
        }
        pinned
    }
    /// Inserts an inode of a claimed number, pinned once.
    fn publish(&self, ino: Ino, inode: T) -> InodeRef<T> {
        let bytes = Self::INODE_BYTES + inode.more_bytes();
        inode.mapping().charge_inode(bytes);
        let inode = self.place(inode);
        let pins = inode.pins();
        assert!(pins.try_pin(), "an inode that has been used is inserted");
        let refused = self.inodes.insert(ino, inode.clone());
        assert!(refused.is_none(), "two inodes of one number");
        InodeRef(inode)
    }
    /// Takes a dead inode out, unless somebody did.
    fn take_out(&self, ino: Ino, inode: &Arc<T>) -> bool {
        self.inodes.remove_same(ino, inode)
    }
    /// The clock's hand is at this inode: spare it, take pages of it, or take it. Bytes freed.
    fn visit(&self, ino: Ino, want: u64, large: Large) -> u64 {
        let Some(inode) = self.inodes.get(ino) else {
            return 0;
        };
        if is_large(&*inode) {
            self.large.add(ino);
            // Pages have references of their own.
            return match large {
                Large::Keep => 0,
                Large::Reclaim => inode.mapping().reclaim(want).freed,
            };
        }
        if inode.pins().spare() {
            return 0;
        }
        let mapping = inode.mapping();
        if mapping.pages() > 0 {
            let freed = mapping.reclaim(want).freed;
            // The inode of a small file is evicted with the last page. If pages were freed in one
            // turn and inodes in the next, memory of one kind would be returned to the system while
            // the other kind needs it.
            let small = freed <= SMALL_FILE && mapping.pages() == 0;
            return freed + if small { self.evict(ino, inode) } else { 0 };
        }
        self.evict(ino, inode)
    }
    fn evict(&self, ino: Ino, inode: Arc<T>) -> u64 {
        let pins = inode.pins();
        if !pins.kill() {
            return 0;
        }
        // A panic in `is_clean` must not leave the inode dying.
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
    /// Finds the next inodes of the clock's hand, and loads them into the processor's cache at
    /// once. These loads are independent and overlap; those of successive visits do not.
    fn fetch(&self, at: &[Stops], visited: &mut Vec<Ino>) {
        let mut sum = 0;
        self.inodes.with_each(at, |ino, inode| {
            visited.push(ino);
            sum += u64::from(inode.pins().count()) + inode.mapping().pages();
        });
        std::hint::black_box(sum);
    }
    /// Keeps the memory of a removed inode as a spare, if the inode has no other reference.
    fn salvage(&self, mut inode: Arc<T>) {
        if Arc::get_mut(&mut inode).is_some() && !self.spares.is_full() {
            inode.mapping().discharge_inode();
            // If the queue became full meanwhile, the inode is dropped.
            let _ = self.spares.push(inode);
        }
    }
    /// Moves an inode into the memory of a spare, or allocates.
    fn place(&self, inode: T) -> Arc<T> {
        let Some(mut spare) = self.spares.pop() else {
            return Arc::new(inode);
        };
        *Arc::get_mut(&mut spare).expect("a spare has one owner") = inode;
        spare
    }
}

/// The hand and the pages of large files.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Large {
    /// It leaves them alone: they are reclaimed by themselves.
    Keep,
    /// It frees them as those of small files.
    Reclaim,
}

fn is_large<T: CachedInode>(inode: &T) -> bool {
    inode.mapping().bytes() > SMALL_FILE
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
