//! Contents of files: read, write, truncate, fallocate, seek.
//!
//! Locks: whoever changes contents or blocks holds [`crate::Inode`]'s `lock` exclusively and waits
//! for readahead in flight; a reader takes it shared only to fetch pages that are not cached.
//! Taking blocks away (truncate, punch) also holds `writeback_lock` and waits for batches in
//! flight, so that nothing is recorded for a range that is gone.

mod fallocate;
mod read;
mod seek;
mod truncate;
mod write;

pub use fallocate::FallocateMode;
pub use seek::SeekWhence;
