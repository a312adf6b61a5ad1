//! What is in memory: pages of files, inodes, and the one budget that bounds them. No I/O happens here.

pub mod budget;
pub mod errseq;
pub mod inode_table;
pub mod mapping;

pub use budget::{Budget, Kind, Shrinker};
pub use errseq::ErrSeq;
pub use inode_table::{CachedInode, InodeRef, InodeTable, Pins};
pub use mapping::{DirtyPage, Mapping, PageState, Removed};
