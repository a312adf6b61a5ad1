//! Handles and the transactions that they join.
use crate::{Buffer, JournalError, Seal};
use std::marker::PhantomData;
use std::sync::Arc;

/// Number of a transaction; wraps, compared by distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tid(pub u32);
impl Tid {
    /// Whether this transaction is `other` or a later one.
    pub fn reached(self, other: Tid) -> bool {
        let _ = other;
        todo!()
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

/// A change to metadata that is atomic across a crash: whoever holds it is part of the running transaction.
///
/// Handles are short, do not nest, and are not held while waiting for data I/O, for another thread's handle or for an
/// inode's lock.
pub struct Handle<'j> {
    #[allow(dead_code)]
    marker: PhantomData<&'j ()>,
}
impl<'j> Handle<'j> {
    /// The transaction that this is part of.
    pub fn tid(&self) -> Tid {
        todo!()
    }
    /// Credits (blocks) that are left.
    pub fn credits(&self) -> u32 {
        todo!()
    }
    /// Asks for `more` credits without waiting; `false` where the transaction has no room (end this handle, start another).
    pub fn extend(&self, more: u32) -> bool {
        let _ = more;
        todo!()
    }
    /// A metadata block, read from the device if need be.
    pub fn get(&self, block: u64) -> Result<Arc<Buffer>, JournalError> {
        let _ = block;
        todo!()
    }
    /// A new metadata block of zeroes: nothing is read, and a pending revoke of it is taken back.
    pub fn create(&self, block: u64) -> Arc<Buffer> {
        let _ = block;
        todo!()
    }
    /// Changes a block as part of this transaction. Uses one credit at its first change in a transaction.
    pub fn modify<R>(
        &self,
        buffer: &Arc<Buffer>,
        seal: Option<Seal>,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        let _ = (buffer, seal, change);
        todo!()
    }
    /// A metadata block was freed: it leaves the transaction, gets a revoke record, and its buffer is dropped.
    pub fn forget(&self, block: u64) {
        let _ = block;
        todo!()
    }
    /// Blocks were freed; the client hears of them when this transaction has committed.
    pub fn free_blocks(&self, extent: FreedExtent) {
        let _ = extent;
        todo!()
    }
}
