//! Caches: pages of files, inodes, names, and the one budget that bounds them. This crate does no
//! I/O.

mod budget;
mod counter;
mod dentry;
mod errseq;
mod heap;
mod inode_table;
mod large_files;
mod loading;
mod lru;
mod mapping;
mod occupancy;
mod pins;
mod prefetch;
mod reuse;
mod slot;

pub use budget::{Budget, Kind, Shrinker};
pub use counter::ShardedCounter;
pub use dentry::{Cached, Dentries, Dentry, NAME_BYTES, Named};
pub use errseq::ErrSeq;
pub use heap::heap_bytes;
pub use inode_table::{CachedInode, InodeRef, InodeTable};
pub use mapping::{Delalloc, DirtyPage, Mapping, PageState, Reclaimed, Removed};
pub use pins::Pins;

/// The primitives of [`pins`], [`slot`], [`occupancy`] and [`dentry`]. `tests/*_model.rs` replace
/// them with loom's.
mod sync {
    pub(crate) use std::sync::Arc;
    pub(crate) use sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
    /// Lets another thread run while this one waits for it.
    pub(crate) fn relax() {
        std::hint::spin_loop();
        sync::thread::yield_now();
    }
}
