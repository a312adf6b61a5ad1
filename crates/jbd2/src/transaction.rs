//! The running transaction: the changes that handles have made.
//!
//! ```text
//!             close: gate taken for writing          commit block durable
//!  running ───────────────────────────────▶ committing ───────────────────▶ logged ──▶ checkpointed (log space free)
//!  (Transaction, here)                      (commit.rs)                     (checkpoint.rs)
//! ```
//!
//! Invariants:
//! - Exactly one transaction is running. It is the gate's content, so a thread that holds the gate
//!   for reading can join it, and it stays open meanwhile.
//! - Transactions commit one at a time, in order of their numbers.
//! - Only a transaction that is written to the log uses up a number: the log's sequence has no
//!   holes.

use crate::buffer::HomeStep;
use crate::{Buffer, Tid};
use block::{AtomicWriteMark, Buf, WriteMark};
use std::collections::HashSet;
use std::sync::Arc;
use sync::atomic::{AtomicBool, AtomicU32, Ordering};
use sync::{Mutex, Rank};
use units::FsBlock;

/// Blocks of the volume that a transaction freed. They may be used again once it has committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreedExtent {
    /// First block.
    pub start: FsBlock,
    /// Length in blocks.
    pub len: u32,
}

/// The running transaction.
pub(crate) struct Transaction {
    pub tid: Tid,
    /// Buffers that joined. One that left again ([`Buffer::leave`]) stays in the list and is
    /// skipped when the transaction is closed.
    buffers: Mutex<Vec<Arc<Buffer>>>,
    /// Number of buffers that joined and did not leave.
    members: AtomicU32,
    /// Unused credits of the running handles.
    reserved: AtomicU32,
    revokes: Mutex<HashSet<FsBlock>>,
    /// Size of `revokes`, readable without its lock.
    revoke_count: AtomicU32,
    freed: Mutex<Vec<FreedExtent>>,
    /// Data outside of the journal that must be durable before the commit block.
    data: AtomicWriteMark,
    commit_requested: AtomicBool,
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
            commit_requested: AtomicBool::new(false),
        }
    }

    /// Returns whether a commit would change nothing.
    pub fn is_empty(&self) -> bool {
        self.members() == 0 && self.revoke_count() == 0 && self.freed.lock().is_empty()
    }
    /// Returns the number of changed blocks.
    pub fn members(&self) -> u32 {
        self.members.load(Ordering::Relaxed)
    }
    /// Returns the number of revoked blocks.
    pub fn revoke_count(&self) -> u32 {
        self.revoke_count.load(Ordering::Relaxed)
    }
    /// Reserves `credits` for a handle. Returns all reserved credits, these included.
    pub fn reserve(&self, credits: u32) -> u32 {
        self.reserved.fetch_add(credits, Ordering::Relaxed) + credits
    }
    /// Returns unused or used-up credits.
    pub fn unreserve(&self, credits: u32) {
        let before = self.reserved.fetch_sub(credits, Ordering::Release);
        debug_assert!(before >= credits);
    }
    /// Returns whether no running handle has unused credits. A handle without them has changed a
    /// buffer. The changes of handles that ended before are visible to the caller.
    pub fn is_unused(&self) -> bool {
        self.reserved.load(Ordering::Acquire) == 0
    }
    /// Adds a buffer at its first change.
    pub fn add(&self, buffer: &Arc<Buffer>) {
        self.members.fetch_add(1, Ordering::Relaxed);
        // A block that is logged again must be replayed, so a revoke of it in this transaction is
        // cancelled.
        if self.revoke_count() > 0 {
            self.unrevoke(buffer.block());
        }
        self.buffers.lock().push(buffer.clone());
    }
    /// Counts a buffer that left.
    pub fn left(&self) {
        self.members.fetch_sub(1, Ordering::Relaxed);
    }
    /// Adds a revoke record.
    pub fn revoke(&self, block: FsBlock) {
        if self.revokes.lock().insert(block) {
            self.revoke_count.fetch_add(1, Ordering::Relaxed);
        }
    }
    fn unrevoke(&self, block: FsBlock) {
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
    /// Makes the commit wait until data written up to `mark` is durable.
    pub fn depends_on(&self, mark: WriteMark) {
        self.data.advance(mark);
    }
    /// Returns the data that must be durable before the commit block.
    pub fn data(&self) -> WriteMark {
        self.data.get()
    }
    /// Returns whether the caller is the first that may request a commit of this transaction.
    pub fn take_commit_request(&self) -> bool {
        !self.commit_requested.load(Ordering::Relaxed)
            && !self.commit_requested.swap(true, Ordering::Relaxed)
    }
    /// Takes the buffers that joined, when the transaction is closed.
    pub fn take_buffers(&self) -> Vec<Arc<Buffer>> {
        std::mem::take(&mut self.buffers.lock())
    }
    /// Takes the revoked blocks, sorted, when the transaction is closed.
    pub fn take_revokes(&self) -> Vec<FsBlock> {
        let mut revokes: Vec<FsBlock> = self.revokes.lock().drain().collect();
        revokes.sort_unstable();
        revokes
    }
    /// Takes the freed blocks, when the transaction is closed.
    pub fn take_freed(&self) -> Vec<FreedExtent> {
        std::mem::take(&mut self.freed.lock())
    }
}

/// Why a transaction is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitReason {
    /// A caller waits until its changes are durable.
    Requested,
    /// The interval has passed, the transaction is full, or the log is about to be emptied.
    Internal,
}

/// A block of a closed transaction.
pub(crate) struct Frozen {
    pub buffer: Arc<Buffer>,
    pub data: Buf,
    pub step: HomeStep,
}

/// A transaction that no handle can join any more and that is not durable yet.
pub(crate) struct Closed {
    pub tid: Tid,
    /// Data outside of the log that must be durable before the commit block.
    pub data: WriteMark,
    pub blocks: Vec<Frozen>,
    pub revokes: Vec<FsBlock>,
    pub freed: Vec<FreedExtent>,
}

impl Closed {
    /// Returns the blocks of each step of a commit without a log, sorted.
    pub fn home_steps(&self) -> [Vec<FsBlock>; 3] {
        [HomeStep::New, HomeStep::Changed, HomeStep::Last].map(|step| {
            let blocks = self.blocks.iter().filter(|frozen| frozen.step == step);
            let mut of_step: Vec<FsBlock> = blocks.map(|frozen| frozen.buffer.block()).collect();
            of_step.sort_unstable();
            of_step
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_frees_become_one() {
        let transaction = Transaction::new(Tid(1));
        for (start, len) in [(10, 5), (15, 1), (0, 0), (20, 2)] {
            transaction.free(FreedExtent {
                start: FsBlock(start),
                len,
            });
        }
        let (first, second) = (
            FreedExtent {
                start: FsBlock(10),
                len: 6,
            },
            FreedExtent {
                start: FsBlock(20),
                len: 2,
            },
        );
        assert_eq!(transaction.take_freed(), [first, second]);
    }
}
