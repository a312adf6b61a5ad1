//! Inodes in memory: look-ups without locks, pins, and reclaim from sharded LRU lists.

use crate::{Budget, Mapping};
use std::ops::Deref;
use std::sync::Arc;

/// How many users an inode has; zero users may become *dead*, and a dead inode is never handed out again.
#[derive(Default)]
pub struct Pins {}

/// What the table needs to know of an inode.
pub trait CachedInode: Send + Sync + 'static {
    /// Its pin count.
    fn pins(&self) -> &Pins;
    /// Its pages.
    fn mapping(&self) -> &Mapping;
    /// Whether nothing would be lost by forgetting it (clean, not under writeback, not doomed). Called with no pins held.
    fn is_clean(&self) -> bool;
    /// Bytes it takes in memory beside its pages.
    fn footprint(&self) -> usize;
    /// The last pin was dropped. Must not block: an inode without links is queued for deletion here.
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
        todo!()
    }
}

/// Every inode in memory of one volume.
pub struct InodeTable<T: CachedInode> {
    #[allow(dead_code)]
    marker: std::marker::PhantomData<T>,
}

impl<T: CachedInode> InodeTable<T> {
    /// An empty table whose inodes count against `budget`; it registers itself as a shrinker.
    pub fn new(budget: Arc<Budget>) -> Arc<InodeTable<T>> {
        let _ = budget;
        todo!()
    }
    /// Inodes held.
    pub fn len(&self) -> usize {
        todo!()
    }
    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// A cached inode, pinned. Takes no lock.
    pub fn get(&self, ino: u32) -> Option<InodeRef<T>> {
        let _ = ino;
        todo!()
    }
    /// A cached inode, or the one that `load` makes; concurrent callers for one number load it once.
    pub fn get_or_load<E>(
        &self,
        ino: u32,
        load: impl FnOnce() -> Result<T, E>,
    ) -> Result<InodeRef<T>, E> {
        let _ = (ino, load);
        todo!()
    }
    /// Adds a new inode. A live one of that number must not exist.
    pub fn insert(&self, ino: u32, inode: T) -> InodeRef<T> {
        let _ = (ino, inode);
        todo!()
    }
    /// Takes an inode out of the table for good (it was deleted); whoever still holds it keeps it.
    pub fn remove(&self, ino: u32) {
        let _ = ino;
        todo!()
    }
    /// Pins an inode that the caller holds an `Arc` of; `None` where it is dead.
    pub fn pin(&self, inode: &Arc<T>) -> Option<InodeRef<T>> {
        let _ = inode;
        todo!()
    }
    /// Calls `each` for every inode held, in no order, without stopping others.
    pub fn for_each(&self, each: impl FnMut(&Arc<T>)) {
        let _ = each;
        todo!()
    }
    /// Frees about `want` bytes: clean pages first touched longest ago, then unpinned clean inodes.
    pub fn shrink(&self, want: u64) -> u64 {
        let _ = want;
        todo!()
    }
}
