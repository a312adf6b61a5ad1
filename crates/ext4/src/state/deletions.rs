//! Unlinked files that are being deleted, or that a user of the volume still holds.

use super::Inode;
use crate::Fs;
use crossbeam_utils::CachePadded;
use std::sync::{Arc, OnceLock, Weak};
use sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use sync::{Condvar, Mutex, Rank};

/// A user of the volume that keeps unlinked files for others: a FUSE server, for the kernel.
pub trait DeletedInodes: Send + Sync {
    /// Whether it holds an unlinked file that may be released soon.
    fn holds_any(&self) -> bool;
}

/// The [`DeletedInodes`] of a volume.
#[derive(Default)]
pub(crate) struct DeletedInodesSlot(OnceLock<Weak<dyn DeletedInodes>>);

/// Shards of the queue. Threads are assigned in turn.
const SHARDS: usize = 8;

/// Unlinked inodes without users, to be deleted. A thread takes those first that it has queued.
pub(crate) struct Unlinked {
    shards: [CachePadded<Mutex<Vec<Arc<Inode>>>>; SHARDS],
    /// Bit n is set while shard n has an inode; changed under the shard's lock.
    occupied: AtomicU32,
}

impl Default for Unlinked {
    fn default() -> Unlinked {
        let shard = || CachePadded::new(Rank::Unlinked.mutex(Vec::new()));
        Unlinked {
            shards: std::array::from_fn(|_| shard()),
            occupied: AtomicU32::new(0),
        }
    }
}

impl Unlinked {
    pub fn is_empty(&self) -> bool {
        self.occupied.load(Ordering::Acquire) == 0
    }

    pub fn push(&self, inode: Arc<Inode>) {
        let at = sync::thread::ordinal() % SHARDS;
        let mut shard = self.shards[at].lock();
        shard.push(inode);
        if shard.len() == 1 {
            self.occupied.fetch_or(1 << at, Ordering::AcqRel);
        }
    }

    /// Takes an inode out and begins its deletion before that shows.
    pub fn pop<'a>(&self, deletions: &'a Deletions) -> Option<(Arc<Inode>, Deletion<'a>)> {
        let first = sync::thread::ordinal() % SHARDS;
        while !self.is_empty() {
            let occupied = self.occupied.load(Ordering::Acquire);
            let order = (first..SHARDS).chain(0..first);
            for at in order.filter(|at| occupied & 1 << at != 0) {
                let mut shard = self.shards[at].lock();
                let Some(inode) = shard.pop() else {
                    continue;
                };
                let deletion = deletions.begin();
                if shard.is_empty() {
                    self.occupied.fetch_and(!(1 << at), Ordering::AcqRel);
                }
                return Some((inode, deletion));
            }
        }
        None
    }
}

/// Deletions of unlinked files by any thread.
pub(crate) struct Deletions {
    begun: AtomicU64,
    ended: AtomicU64,
    /// The number of threads that wait for an end.
    waiting: Mutex<u32>,
    /// Whether any thread waits; changed under the lock of `waiting`.
    is_awaited: AtomicBool,
    end: Condvar,
}

impl Default for Deletions {
    fn default() -> Deletions {
        Deletions {
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            waiting: Rank::Deletions.mutex(0),
            is_awaited: AtomicBool::new(false),
            end: Condvar::new(),
        }
    }
}

/// A running deletion; it ends on drop.
pub(crate) struct Deletion<'a>(&'a Deletions);

impl Deletions {
    /// Begins a deletion. Called before the inode leaves the queue, so that a thread that finds the
    /// queue empty waits for it.
    pub fn begin(&self) -> Deletion<'_> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        Deletion(self)
    }

    /// Waits until as many deletions have ended as had begun before the call. Returns whether there
    /// were any to wait for.
    pub fn wait(&self) -> bool {
        let begun = self.begun.load(Ordering::SeqCst);
        if self.ended.load(Ordering::SeqCst) >= begun {
            return false;
        }
        let mut waiting = self.waiting.lock();
        *waiting += 1;
        // A deletion that ends after this store sees it; one that ended before is counted below.
        self.is_awaited.store(true, Ordering::SeqCst);
        while self.ended.load(Ordering::SeqCst) < begun {
            self.end.wait(&mut waiting);
        }
        *waiting -= 1;
        self.is_awaited.store(*waiting > 0, Ordering::SeqCst);
        true
    }
}

impl Drop for Deletion<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::SeqCst);
        if self.0.is_awaited.load(Ordering::SeqCst) {
            let _waiting = self.0.waiting.lock();
            self.0.end.notify_all();
        }
    }
}

impl Fs {
    /// Registers the holder of unlinked files. Only the first call has an effect.
    pub fn set_deleted_inodes(&self, holder: Weak<dyn DeletedInodes>) {
        let _ = self.deleted_inodes.0.set(holder);
    }

    /// Whether the holder has an unlinked file that may be released soon.
    pub(crate) fn awaits_release(&self) -> bool {
        let holder = self.deleted_inodes.0.get().and_then(Weak::upgrade);
        holder.is_some_and(|holder| holder.holds_any())
    }
}
