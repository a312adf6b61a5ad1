//! Contents of files: read, write, truncate, fallocate, seek, delete.
//!
//! Locks: a change of contents or blocks holds [`crate::Inode`]'s `lock` exclusively and waits for
//! readahead in flight. A reader takes the lock shared, only to read pages that are not cached.
//! Freeing blocks (truncate, punch) also holds `writeback_lock` and waits for batches in flight, so
//! that nothing is recorded for a range that was freed.

mod delete;
mod fallocate;
mod read;
mod seek;
mod truncate;
mod write;

pub use fallocate::FallocateMode;
pub use seek::SeekWhence;
