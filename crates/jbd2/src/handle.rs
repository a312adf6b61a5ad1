//! Handles: how a change to metadata takes part in the running transaction.

use crate::transaction::Transaction;
use crate::{Buffer, FreedExtent, Journal, JournalError, Seal, Tid};
use block::WriteMark;
use std::cell::Cell;
use std::sync::Arc;
use sync::ShardedLockReadGuard;

thread_local! {
    /// Whether this thread holds a handle (debug builds check that handles do not nest).
    static HELD: Cell<bool> = const { Cell::new(false) };
}

/// Checks that the calling thread may wait for a commit, which needs every handle to end.
pub(crate) fn assert_none_held(what: &str) {
    debug_assert!(
        !HELD.get(),
        "{what} while this thread holds a handle: it would wait for itself"
    );
    let _ = what;
}

/// How a handle keeps its transaction from being closed.
enum Access<'j> {
    /// It holds the gate for reading.
    Shared(ShardedLockReadGuard<'j, Arc<Transaction>>),
    /// The commit holds the gate for writing and lends the transaction.
    Exclusive(&'j Transaction),
}

/// A change to metadata that is atomic across a crash: whoever holds it is part of the running
/// transaction.
///
/// Handles are short, do not nest, and are not held while waiting for data I/O, for another
/// thread's handle or for an inode's lock. A thread that unwinds out of a handle stops the journal:
/// half of a change must not be committed.
pub struct Handle<'j> {
    journal: &'j Journal,
    access: Access<'j>,
    /// Credits left; `None` where they are not counted (the client's own state at a commit).
    credits: Cell<Option<u32>>,
    /// Whether the thread was unwinding already when the handle started.
    unwinding: bool,
}

impl<'j> Handle<'j> {
    /// A handle with `credits` that are reserved already.
    pub(crate) fn counted(
        journal: &'j Journal,
        gate: ShardedLockReadGuard<'j, Arc<Transaction>>,
        credits: u32,
    ) -> Handle<'j> {
        Handle::with(journal, Access::Shared(gate), Some(credits))
    }
    /// A handle beside others whose credits are not counted: the blocks were announced as pending.
    pub(crate) fn early(
        journal: &'j Journal,
        gate: ShardedLockReadGuard<'j, Arc<Transaction>>,
    ) -> Handle<'j> {
        Handle::with(journal, Access::Shared(gate), None)
    }
    /// The handle of the commit, which has the gate for itself.
    pub(crate) fn locked(journal: &'j Journal, transaction: &'j Transaction) -> Handle<'j> {
        Handle::with(journal, Access::Exclusive(transaction), None)
    }
    fn with(journal: &'j Journal, access: Access<'j>, credits: Option<u32>) -> Handle<'j> {
        debug_assert!(!HELD.replace(true), "handles do not nest");
        Handle {
            journal,
            access,
            credits: Cell::new(credits),
            unwinding: sync::thread::panicking(),
        }
    }
    fn transaction(&self) -> &Transaction {
        match &self.access {
            Access::Shared(gate) => gate,
            Access::Exclusive(transaction) => transaction,
        }
    }

    /// The transaction that this is part of.
    pub fn tid(&self) -> Tid {
        self.transaction().tid
    }
    /// Credits (blocks) that are left.
    pub fn credits(&self) -> u32 {
        self.credits.get().unwrap_or(u32::MAX)
    }
    /// Asks for `more` credits without waiting; `false` where the transaction has no room (end this
    /// handle, start another).
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
    /// A metadata block, read from the device if need be.
    pub fn get(&self, block: u64) -> Result<Arc<Buffer>, JournalError> {
        self.journal.get(block)
    }
    /// A new metadata block of zeroes: nothing is read, and a pending revoke of it is taken back.
    /// It is part of the transaction at once and uses a credit, as its first change.
    pub fn create(&self, block: u64) -> Arc<Buffer> {
        let cache = &self.journal.cache;
        let buffer = cache.get_or_create(block);
        if buffer.reset(self.tid()) {
            self.joined(&buffer);
        }
        buffer
    }
    /// Changes a block as part of this transaction. Uses one credit at its first change in a
    /// transaction.
    ///
    /// `change` runs under the buffer's lock: it must not touch this or another buffer.
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
    pub(crate) fn journal(&self) -> &Journal {
        self.journal
    }
    pub(crate) fn joined(&self, buffer: &Arc<Buffer>) {
        self.transaction().add(buffer);
        if let Some(credits) = self.credits.get() {
            debug_assert!(
                credits > 0,
                "a handle changed more blocks than it asked for"
            );
            if credits > 0 {
                self.credits.set(Some(credits - 1));
                self.transaction().unreserve(1);
            }
        }
    }
    /// A metadata block was freed: it leaves the transaction, gets a revoke record, and its buffer
    /// is dropped.
    pub fn forget(&self, block: u64) {
        match self.journal.cache.remove(block) {
            Some(buffer) => self.revoked(&buffer),
            None => self.transaction().revoke(block),
        }
    }
    /// A buffer that is in no cache any more leaves the transaction, and its block gets a revoke
    /// record.
    pub(crate) fn revoked(&self, buffer: &Buffer) {
        if buffer.leave(self.tid()) {
            self.transaction().left();
        }
        self.transaction().revoke(buffer.block());
    }
    /// The change refers to data that has been written outside of the journal, up to `mark`: the
    /// transaction is not durable before that is.
    pub fn depends_on(&self, mark: WriteMark) {
        self.transaction().depends_on(mark);
    }
    /// Blocks were freed; the client hears of them when this transaction has committed.
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
        if sync::thread::panicking() && !self.unwinding {
            self.journal.stop(JournalError::Aborted(
                "a thread panicked in the middle of a change".into(),
            ));
        }
    }
}
