//! Contents of files: read, write, truncate, fallocate, seek.
//!
//! Locks: a change of contents or blocks holds [`crate::Inode`]'s `lock` exclusively and waits for
//! readahead in flight. A reader takes the lock shared, only to read pages that are not cached.
//! Freeing blocks (truncate, punch) also holds `writeback_lock` (see [`crate::removal`]).

mod atime;
mod fallocate;
mod read;
mod seek;
mod truncate;
mod write;

pub use fallocate::FallocateMode;
pub use seek::SeekWhence;
