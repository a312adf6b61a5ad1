//! Files that have dirty pages or pages under writeback: a sync of a subtree looks at these only.
//!
//! ```text
//!   page dirtied, note ──> listed ──(settle: unlist, look again)──> not listed
//!          ^                                      │ dirtied meanwhile
//!          └──────────────────────────────────────┘
//! ```
//!
//! Invariant: a file with an unrecorded page is listed once the call that dirtied the page has
//! returned. Both sides take the mapping's lock, the writer before it reads the flag,
//! [`UnlandedFiles::settle`] after it has cleared the flag: one of them sees the other.

use super::Inode;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use sync::atomic::Ordering;
use sync::{Mutex, Rank};

const SHARDS: usize = 32;

type Shard = FxHashMap<u32, Arc<Inode>>;

/// See the module.
pub(crate) struct UnlandedFiles {
    shards: [Mutex<Shard>; SHARDS],
}

impl Default for UnlandedFiles {
    fn default() -> Self {
        UnlandedFiles {
            shards: std::array::from_fn(|_| Rank::UnlandedFiles.mutex(Shard::default())),
        }
    }
}

impl UnlandedFiles {
    fn shard(&self, inode: &Inode) -> &Mutex<Shard> {
        &self.shards[inode.ino.0 as usize % SHARDS]
    }

    /// Lists a file of which a page was made dirty. Cheap where it is listed (one atomic load).
    pub fn note(&self, inode: &Arc<Inode>) {
        if inode.data.unlanded_listed.load(Ordering::Acquire) {
            return;
        }
        let mut shard = self.shard(inode).lock();
        inode.data.unlanded_listed.store(true, Ordering::Release);
        shard.insert(inode.ino.0, inode.clone());
    }

    /// Pages of the file were recorded or dropped: takes the file off the list if it has no others.
    pub fn settle(&self, inode: &Arc<Inode>) {
        if inode.has_unlanded() {
            return;
        }
        let mut shard = self.shard(inode).lock();
        inode.data.unlanded_listed.store(false, Ordering::Release);
        if inode.mapping.has_unlanded() {
            inode.data.unlanded_listed.store(true, Ordering::Release);
            shard.insert(inode.ino.0, inode.clone());
            return;
        }
        // The number may belong to another inode by now.
        if shard
            .get(&inode.ino.0)
            .is_some_and(|held| Arc::ptr_eq(held, inode))
        {
            shard.remove(&inode.ino.0);
        }
    }

    /// The listed files, one shard at a time: each is processed while it is in the processor's
    /// cache.
    pub fn parts(&self) -> impl Iterator<Item = Vec<Arc<Inode>>> {
        let part = |shard: &Mutex<Shard>| shard.lock().values().cloned().collect();
        self.shards.iter().map(part)
    }
}
