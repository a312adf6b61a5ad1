//! What a transaction gathers while it runs.
//!
//! ```text
//!             close: gate taken for writing          commit block durable
//!  running ───────────────────────────────▶ committing ───────────────────▶ logged ──▶ checkpointed (log space free)
//!  (Transaction, here)                      (commit.rs)                     (checkpoint.rs)
//! ```
//!
//! Exactly one transaction is running; it is the gate's content, so that whoever holds the gate for
//! reading can join it and knows that it stays open. Transactions commit one after the other and in
//! order of their numbers, and a number is used only for what goes to the log: the log's sequence
//! has no holes.

use crate::Buffer;
use block::{AtomicWriteMark, WriteMark};
use std::collections::HashSet;
use std::sync::Arc;
use sync::atomic::{AtomicBool, AtomicU32, Ordering};
use sync::{Mutex, Rank};

/// Number of a transaction; wraps, compared by distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tid(pub u32);
impl Tid {
    /// Whether this transaction is `other` or a later one.
    pub fn reached(self, other: Tid) -> bool {
        self.0.wrapping_sub(other.0) < 1 << 31
    }
    /// The one after.
    pub(crate) fn next(self) -> Tid {
        Tid(self.0.wrapping_add(1))
    }
}

/// Blocks of the volume that a transaction freed; they may be used again once it has committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreedExtent {
    /// First block.
    pub start: u64,
    /// Blocks.
    pub len: u32,
}

/// The running transaction.
pub(crate) struct Transaction {
    pub tid: Tid,
    /// Buffers that joined. One that left since ([`Buffer::leave`]) stays in the list and is
    /// skipped at the close.
    buffers: Mutex<Vec<Arc<Buffer>>>,
    /// Buffers that joined and did not leave.
    members: AtomicU32,
    /// Credits of the handles that run, as far as they are not used up.
    reserved: AtomicU32,
    revokes: Mutex<HashSet<u64>>,
    /// Size of `revokes`, readable without its lock.
    revoke_count: AtomicU32,
    freed: Mutex<Vec<FreedExtent>>,
    /// Data outside of the journal that must be durable before this transaction is.
    data: AtomicWriteMark,
    /// The background thread has been asked to commit it early.
    kicked: AtomicBool,
}

impl Transaction {
    pub fn new(tid: Tid) -> Transaction {
        Transaction {
            tid,
            buffers: Rank::Transaction.mutex(Vec::new()),
            members: AtomicU32::new(0),
            reserved: AtomicU32::new(0),
            revokes: Rank::Transaction.mutex(HashSet::new()),
            revoke_count: AtomicU32::new(0),
            freed: Rank::Transaction.mutex(Vec::new()),
            data: AtomicWriteMark::default(),
            kicked: AtomicBool::new(false),
        }
    }

    /// Whether committing it would change nothing.
    pub fn is_empty(&self) -> bool {
        self.members() == 0 && self.revoke_count() == 0 && self.freed.lock().is_empty()
    }
    /// Blocks that it changes so far.
    pub fn members(&self) -> u32 {
        self.members.load(Ordering::Relaxed)
    }
    /// Blocks that it revokes so far.
    pub fn revoke_count(&self) -> u32 {
        self.revoke_count.load(Ordering::Relaxed)
    }
    /// Sets `credits` aside for a handle; what is reserved now, these included.
    pub fn reserve(&self, credits: u32) -> u32 {
        self.reserved.fetch_add(credits, Ordering::Relaxed) + credits
    }
    /// Takes a reservation back.
    pub fn unreserve(&self, credits: u32) {
        let before = self.reserved.fetch_sub(credits, Ordering::Relaxed);
        debug_assert!(before >= credits);
    }
    /// Adds a buffer at its first change.
    pub fn add(&self, buffer: &Arc<Buffer>) {
        self.members.fetch_add(1, Ordering::Relaxed);
        // A block that is logged again must be replayed: any revoke of it in this transaction is
        // moot.
        if self.revoke_count() > 0 {
            self.unrevoke(buffer.block());
        }
        self.buffers.lock().push(buffer.clone());
    }
    /// A buffer left.
    pub fn left(&self) {
        self.members.fetch_sub(1, Ordering::Relaxed);
    }
    /// Adds a revoke record.
    pub fn revoke(&self, block: u64) {
        if self.revokes.lock().insert(block) {
            self.revoke_count.fetch_add(1, Ordering::Relaxed);
        }
    }
    fn unrevoke(&self, block: u64) {
        if self.revokes.lock().remove(&block) {
            self.revoke_count.fetch_sub(1, Ordering::Relaxed);
        }
    }
    /// Adds freed blocks.
    pub fn free(&self, extent: FreedExtent) {
        if extent.len == 0 {
            return;
        }
        let mut freed = self.freed.lock();
        if let Some(last) = freed.last_mut()
            && last.start + u64::from(last.len) == extent.start
            && let Some(len) = last.len.checked_add(extent.len)
        {
            last.len = len;
            return;
        }
        freed.push(extent);
    }
    /// What has been written up to `mark` must be durable first.
    pub fn depends_on(&self, mark: WriteMark) {
        self.data.advance(mark);
    }
    /// What must be durable first, at the close.
    pub fn data(&self) -> WriteMark {
        self.data.get()
    }
    /// Whether this is the first call.
    pub fn kick(&self) -> bool {
        !self.kicked.load(Ordering::Relaxed) && !self.kicked.swap(true, Ordering::Relaxed)
    }
    /// The buffers that joined, at the close.
    pub fn take_buffers(&self) -> Vec<Arc<Buffer>> {
        std::mem::take(&mut self.buffers.lock())
    }
    /// The blocks revoked, sorted, at the close.
    pub fn take_revokes(&self) -> Vec<u64> {
        let mut revokes: Vec<u64> = self.revokes.lock().drain().collect();
        revokes.sort_unstable();
        revokes
    }
    /// The blocks freed, at the close.
    pub fn take_freed(&self) -> Vec<FreedExtent> {
        std::mem::take(&mut self.freed.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_compare_by_distance() {
        assert!(Tid(5).reached(Tid(5)));
        assert!(Tid(6).reached(Tid(5)));
        assert!(!Tid(5).reached(Tid(6)));
        assert!(Tid(2).reached(Tid(u32::MAX - 2)));
        assert!(!Tid(u32::MAX - 2).reached(Tid(2)));
    }

    #[test]
    fn adjacent_frees_become_one() {
        let transaction = Transaction::new(Tid(1));
        for (start, len) in [(10, 5), (15, 1), (0, 0), (20, 2)] {
            transaction.free(FreedExtent { start, len });
        }
        let (first, second) = (
            FreedExtent { start: 10, len: 6 },
            FreedExtent { start: 20, len: 2 },
        );
        assert_eq!(transaction.take_freed(), [first, second]);
    }
}
