//! What is in memory: pages of files, inodes, and the one budget that bounds them. No I/O happens
//! here.

pub mod budget;
pub mod counter;
pub mod errseq;
mod heap;
pub mod inode_table;
mod loading;
mod lru;
pub mod mapping;
pub mod pins;
mod slot;

pub use budget::{Budget, Kind, Shrinker};
pub use counter::ShardedCounter;
pub use errseq::ErrSeq;
pub use inode_table::{CachedInode, InodeRef, InodeTable};
pub use mapping::{DirtyPage, Mapping, PageState, Removed};
pub use pins::Pins;

/// What [`pins`] and [`slot`] are built on; `tests/*_model.rs` put a model checker's in its place.
mod sync {
    pub(crate) use std::sync::Arc;
    pub(crate) use sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
    /// Lets another thread go on while this one waits for it.
    pub(crate) fn relax() {
        std::hint::spin_loop();
        sync::thread::yield_now();
    }
}
