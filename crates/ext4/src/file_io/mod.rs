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

use crate::{Fs, Inode, Result, WriteMode, extents};
use ext4_format::inode::FileType;
use std::sync::Arc;

impl Fs {
    /// Returns the largest size that a file can have with its kind of map, in bytes.
    fn max_size_of(&self, inode: &Inode) -> u64 {
        match extents::has_block_map(self, inode) {
            true => self.geo.max_block_map_size(),
            false => self.geo.max_file_size(),
        }
    }

    /// Checks that the contents may be changed, and returns the size. The caller holds the inode's
    /// lock exclusively, and an unmount waits for it: see [`Fs::wait_for_writers`].
    ///
    /// # Errors
    /// `ReadOnly`; as [`Inode::check_may_open_for_writing`].
    fn begin_write(&self, inode: &Inode, mode: WriteMode) -> Result<u64> {
        self.check_writable()?;
        inode.begin_write(mode)
    }

    /// Waits for the changes of contents that are under way. If the volume was made read-only
    /// before, no page becomes dirty afterwards. Only an unmount pays for this: a writer has the
    /// lock of its file anyway.
    pub(crate) fn wait_for_writers(&self) {
        self.inodes.for_each(|inode| {
            if inode.kind() == FileType::Regular {
                drop(inode.lock.read());
            }
        });
    }

    /// Pages of `inode` were made dirty.
    fn note_dirty_pages(&self, inode: &Arc<Inode>) {
        self.unlanded_files.note(inode);
        self.bdi.mark_dirty(inode);
    }
}
