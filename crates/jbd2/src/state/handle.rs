//! Handles: a change to metadata joins the running transaction through a handle.
//!
//! ```text
//!  Journal::start ──▶ handle (the transaction cannot be closed) ── drop ──▶ unused credits returned
//!                                │
//!                                └── drop while the thread panics ──▶ the journal stops
//! ```

use super::Journal;
use super::stop_on_panic::StopOnPanic;
use crate::transaction::Transaction;
use crate::{Buffer, FreedExtent, JournalError, Seal, Tid};
use block::WriteMark;
use std::cell::Cell;
use std::sync::Arc;
use sync::ShardedLockReadGuard;
use units::FsBlock;

thread_local! {
    /// Whether this thread holds a handle. Debug builds check that handles do not nest.
    static HELD: Cell<bool> = const { Cell::new(false) };
}

/// Checks that the calling thread may wait for a commit, which waits until all handles have ended.
pub(crate) fn assert_none_held(what: &str) {
    debug_assert!(
        !HELD.get(),
        "{what} while this thread holds a handle, which would be a deadlock"
    );
    let _ = what;
}

/// Keeps the transaction of a handle open.
enum Access<'j> {
    /// The handle holds the gate for reading.
    Shared(ShardedLockReadGuard<'j, Arc<Transaction>>),
    /// The commit holds the gate for writing and lends the transaction.
    Exclusive(&'j Transaction),
}

/// A change to metadata that is atomic across a crash, as part of the running transaction.
///
/// Handles are short and do not nest. A thread with a handle must not wait for data I/O, for
/// another thread's handle or for an inode's lock. A panic while a handle is held stops the
/// journal, because an incomplete change must not be committed.
pub struct Handle<'j> {
    journal: &'j Journal,
    /// Dropped before the gate is released.
    _stop: StopOnPanic<'j>,
    access: Access<'j>,
    /// Credits left. `None` means that they are not counted (for the client's state at a commit).
    credits: Cell<Option<u32>>,
}

impl<'j> Handle<'j> {
    /// Returns a handle with `credits` that are reserved already.
    pub(crate) fn counted(
        journal: &'j Journal,
        gate: ShardedLockReadGuard<'j, Arc<Transaction>>,
        credits: u32,
    ) -> Handle<'j> {
        Handle::with(journal, Access::Shared(gate), Some(credits))
    }
    /// Returns a handle of the commit that runs concurrently with others. Credits are not counted,
    /// as the client announced the blocks as pending.
    pub(crate) fn early(
        journal: &'j Journal,
        gate: ShardedLockReadGuard<'j, Arc<Transaction>>,
    ) -> Handle<'j> {
        Handle::with(journal, Access::Shared(gate), None)
    }
    /// Returns a handle of the commit, which holds the gate for writing.
    pub(crate) fn locked(journal: &'j Journal, transaction: &'j Transaction) -> Handle<'j> {
        Handle::with(journal, Access::Exclusive(transaction), None)
    }
    fn with(journal: &'j Journal, access: Access<'j>, credits: Option<u32>) -> Handle<'j> {
        debug_assert!(!HELD.replace(true), "handles do not nest");
        Handle {
            journal,
            _stop: StopOnPanic::new(journal, "the middle of a change"),
            access,
            credits: Cell::new(credits),
        }
    }
    fn transaction(&self) -> &Transaction {
        match &self.access {
            Access::Shared(gate) => gate,
            Access::Exclusive(transaction) => transaction,
        }
    }

    /// Returns the transaction's number.
    pub fn tid(&self) -> Tid {
        self.transaction().tid
    }
    /// Returns the credits (blocks) left.
    pub fn credits(&self) -> u32 {
        self.credits.get().unwrap_or(u32::MAX)
    }
    /// Reserves `more` credits without waiting. Returns `false` if the transaction has no room; the
    /// caller then ends this handle and starts another one.
    pub fn extend(&self, more: u32) -> bool {
        let Some(credits) = self.credits.get() else {
            return true;
        };
        if !self.journal.reserve(self.transaction(), more) {
            return false;
        }
        self.credits.set(Some(credits + more));
        true
    }
    /// Returns a metadata block, from the cache or the device.
    pub fn get(&self, block: FsBlock) -> Result<Arc<Buffer>, JournalError> {
        self.journal.get(block)
    }
    /// Makes a new metadata block of zeroes, without a read, and cancels a pending revoke of it.
    /// Uses a credit if this is the block's first change in the transaction.
    ///
    /// No committed block points to it. A commit without a log writes it before the blocks that do.
    pub fn create(&self, block: FsBlock) -> Arc<Buffer> {
        let buffer = self.initialize(block);
        if !self.journal.has_log() {
            buffer.mark_new();
        }
        buffer
    }
    /// The same for a block at a fixed place, as a bitmap, which has no content yet.
    pub fn initialize(&self, block: FsBlock) -> Arc<Buffer> {
        let cache = &self.journal.cache;
        let buffer = cache.get_or_create(block);
        if buffer.reset(self.tid()) {
            self.joined(&buffer);
        }
        buffer
    }
    /// Changes a block as part of the transaction. Uses a credit if this is the block's first
    /// change in the transaction.
    ///
    /// `change` runs under the buffer's lock and must not use this or another buffer.
    pub fn modify<R>(
        &self,
        buffer: &Arc<Buffer>,
        seal: Option<Seal>,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        let (result, first) = buffer.modify(self.tid(), seal, change);
        if first {
            self.joined(buffer);
        }
        result
    }
    /// The same for a block of names. A commit without a log writes it last: a name without its
    /// inode is lost, and so are names that move to a block without a place.
    pub fn modify_last<R>(
        &self,
        buffer: &Arc<Buffer>,
        seal: Option<Seal>,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        let result = self.modify(buffer, seal, change);
        if !self.journal.has_log() {
            buffer.mark_last();
        }
        result
    }
    pub(crate) fn journal(&self) -> &Journal {
        self.journal
    }
    pub(crate) fn joined(&self, buffer: &Arc<Buffer>) {
        self.transaction().add(buffer);
        if let Some(credits) = self.credits.get() {
            debug_assert!(
                credits > 0,
                "a handle changed more blocks than it has credits"
            );
            if credits > 0 {
                self.credits.set(Some(credits - 1));
                self.transaction().unreserve(1);
            }
        }
    }
    /// Removes a freed metadata block from the transaction and the cache, and adds a revoke record.
    pub fn forget(&self, block: FsBlock) {
        match self.journal.cache.remove(block) {
            Some(buffer) => self.revoked(&buffer),
            None => self.transaction().revoke(block),
        }
    }
    /// Removes a buffer that is no longer cached from the transaction and adds a revoke record.
    pub(crate) fn revoked(&self, buffer: &Buffer) {
        if buffer.leave(self.tid()) {
            self.transaction().left();
        }
        self.transaction().revoke(buffer.block());
    }
    /// Makes the commit wait until data written outside of the journal, up to `mark`, is durable.
    pub fn depends_on(&self, mark: WriteMark) {
        self.transaction().depends_on(mark);
    }
    /// Adds freed blocks. The client is notified of them when this transaction has committed.
    pub fn free_blocks(&self, extent: FreedExtent) {
        self.transaction().free(extent);
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        HELD.set(false);
        if let Some(credits) = self.credits.get() {
            self.transaction().unreserve(credits);
        }
    }
}
