//! Contents of files: read, write, truncate, fallocate, seek.
//!
//! | file | what it holds |
//! |---|---|
//! | `read` | reading, with readahead |
//! | `atime` | access times |
//! | `zero` | zeroes in pages and behind the end |
//! | `write` | writing into the page cache |
//! | `truncate` | the size |
//! | `fallocate` | preallocation, holes, zeroed ranges |
//! | `shared_clusters` | pages beside blocks that are unmapped (`bigalloc`) |
//! | `seek` | where data and holes begin |
//! | `inline` | files in their inode |
//!
//! Locks: a change of contents or blocks holds [`crate::Inode`]'s `lock` exclusively and waits for
//! readahead in flight. A reader takes the lock shared, only to read pages that are not cached.
//! Freeing blocks (truncate, punch) also holds `writeback_lock` (see [`crate::removal`]).

mod atime;
mod fallocate;
mod inline;
mod read;
mod seek;
mod shared_clusters;
mod truncate;
mod write;
mod zero;

pub use fallocate::FallocateMode;
pub use read::ReadMode;
pub use seek::SeekWhence;
pub use write::PrivilegeBits;

use crate::{Fs, Inode, extents};
use std::sync::Arc;

impl Fs {
    /// Returns the largest size that a file can have with its kind of map, in bytes.
    fn max_size_of(&self, inode: &Inode) -> u64 {
        match extents::has_block_map(self, inode) {
            true => self.geo.max_block_map_size(),
            false => self.geo.max_file_size(),
        }
    }

    /// Pages of `inode` were made dirty.
    fn note_dirty_pages(&self, inode: &Arc<Inode>) {
        self.unlanded_files.note(inode);
        self.bdi.mark_dirty(inode);
    }
}
