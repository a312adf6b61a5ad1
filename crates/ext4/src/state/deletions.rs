//! Unlinked files that are being deleted, or that a user of the volume still holds.

use super::Inode;
use crate::Fs;
use crossbeam_utils::CachePadded;
use std::sync::{Arc, OnceLock, Weak};
use sync::atomic::{AtomicU32, Ordering};
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

/// Unlinked inodes without users, and their deletions. A thread takes those first that it has
/// queued.
pub(crate) struct Unlinked {
    shards: [CachePadded<Shard>; SHARDS],
    /// Bit n is set while an inode of shard n waits; changed under the shard's lock.
    occupied: AtomicU32,
}

struct Shard {
    state: Mutex<ShardState>,
    /// A deletion has ended.
    end: Condvar,
}

#[derive(Default)]
struct ShardState {
    waiting: Vec<Arc<Inode>>,
    /// Deletions that have begun.
    begun: u64,
    /// The numbers of those that run.
    running: Vec<u64>,
}

impl Default for Unlinked {
    fn default() -> Unlinked {
        let shard = || {
            CachePadded::new(Shard {
                state: Rank::Unlinked.mutex(ShardState::default()),
                end: Condvar::new(),
            })
        };
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
        let mut state = self.shards[at].state.lock();
        state.waiting.push(inode);
        if state.waiting.len() == 1 {
            self.occupied.fetch_or(1 << at, Ordering::AcqRel);
        }
    }

    /// Takes an inode out and begins its deletion before that shows.
    pub fn pop(&self) -> Option<(Arc<Inode>, Deletion<'_>)> {
        let first = sync::thread::ordinal() % SHARDS;
        while !self.is_empty() {
            let occupied = self.occupied.load(Ordering::Acquire);
            let order = (first..SHARDS).chain(0..first);
            for at in order.filter(|at| occupied & 1 << at != 0) {
                let shard = &self.shards[at];
                let mut state = shard.state.lock();
                let Some(inode) = state.waiting.pop() else {
                    continue;
                };
                let number = state.begun;
                state.begun += 1;
                state.running.push(number);
                if state.waiting.is_empty() {
                    self.occupied.fetch_and(!(1 << at), Ordering::AcqRel);
                }
                return Some((inode, Deletion { shard, number }));
            }
        }
        None
    }

    /// Waits for the deletions that have begun before the call. Returns whether there were any.
    pub fn wait(&self) -> bool {
        let mut any = false;
        for shard in &self.shards {
            let mut state = shard.state.lock();
            let begun = state.begun;
            while state.running.iter().any(|&number| number < begun) {
                any = true;
                shard.end.wait(&mut state);
            }
        }
        any
    }
}

/// A running deletion of an unlinked file; it ends on drop.
pub(crate) struct Deletion<'a> {
    shard: &'a Shard,
    number: u64,
}

impl Drop for Deletion<'_> {
    fn drop(&mut self) {
        let mut state = self.shard.state.lock();
        state.running.retain(|&number| number != self.number);
        self.shard.end.notify_all();
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
